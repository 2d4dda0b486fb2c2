"""Judging against peers: who is far, who cannot be judged, and which part explains what stands out."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.judge.peers import (
    Place,
    Policy,
    Sense,
    Standing,
    compare,
    compare_groups,
)
from pytest_gpuready.judge.survey import Survey, survey
from pytest_gpuready.model.hardware import Part

GOOD = (52.9, 52.7, 53.0, 52.8, 53.1, 52.9, 52.6, 53.0)


def places(values: list[float] | tuple[float, ...], sense: Sense = Sense.MORE, **policy: float) -> list[Place]:
    """Where each of the values stands, in their order."""
    return [s.place for s in compare(dict(enumerate(values)), sense, Policy(**policy)).values()]  # type: ignore[arg-type]


def with_bad(count: int, bad: float = 41.2) -> list[float]:
    """Eight values of which the first `count` are about 22 % low."""
    return [bad + i / 10 for i in range(count)] + list(GOOD[count:])


def noisy(rng: random.Random, nodes: int, noise: float, gpus: int = 8) -> dict[Part, float]:
    """A healthy site around 100 with normal noise."""
    return {Part(node=f"node{n:02}", index=i): rng.gauss(100, noise) for n in range(nodes) for i in range(gpus)}


def names(found: Survey) -> list[str]:
    return [outlier.says().partition(":")[0] for outlier in found.outliers]


# one group


def test_the_finding_is_one_line_with_all_numbers() -> None:
    """What is far says its value, the distance in percent and sigmas, the median and how many peers it has."""
    standing = compare(dict(enumerate(with_bad(1))), Sense.MORE)[0]
    assert standing.says("GB/s") == "41.20 GB/s, 22 % below the median 52.90 of 7 peers (44 robust sigmas)"
    assert (standing.place, standing.peers, standing.median) == (Place.FAR, 7, 52.9)
    assert standing.spread == pytest.approx(0.005 * 52.9)


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_several_bad_ones_do_not_hide_each_other(bad: int) -> None:
    """Up to three of eight are found, and the good ones stay inside."""
    assert places(with_bad(bad)) == [Place.FAR] * bad + [Place.INSIDE] * (8 - bad)


def test_half_against_half_is_no_majority() -> None:
    """Four slow of eight: nobody is known to be right, and every part says so."""
    found = compare(dict(enumerate(with_bad(4))), Sense.MORE)
    assert {s.place for s in found.values()} == {Place.NO_MAJORITY}
    assert found[0].says("GB/s") == (
        "41.20 GB/s; two camps, 4 around 41.35 and 4 around 52.95: nobody is known to be right"
    )


def test_half_against_half_is_said_alike_in_every_sense() -> None:
    """Which side is the better one does not matter to two camps of equal size."""
    why = {compare(dict(enumerate(with_bad(4))), sense)[0].why for sense in Sense}
    assert why == {"two camps, 4 around 41.35 and 4 around 52.95: nobody is known to be right"}


@pytest.mark.parametrize("bad", [5, 6])
def test_a_slow_majority_does_not_pass(bad: int) -> None:
    """Where several are much better than most, the many are not known to be right."""
    assert set(places(with_bad(bad))) == {Place.NO_MAJORITY}


def test_one_that_is_better_than_all_others_is_ahead() -> None:
    """A single part far on the better side is neither condemned nor passed in silence."""
    found = compare(dict(enumerate(with_bad(7))), Sense.MORE)
    assert [s.place for s in found.values()] == [Place.INSIDE] * 7 + [Place.AHEAD]
    assert found[7].says("GB/s").endswith("robust sigmas): measured wrong, or it alone is healthy")


def test_one_ahead_of_three_is_no_camp() -> None:
    """A single part is no camp, in the smallest group either."""
    assert places([100.0, 100.1, 100.2, 130.0]) == [Place.INSIDE] * 3 + [Place.AHEAD]


def test_far_is_far_in_sigmas_and_in_percent() -> None:
    """Peers that hardly differ condemn nobody, and form no camps, over less than the percentage that matters."""
    assert places([98.0] + [100.0] * 7, floor=0.01)[0] is Place.INSIDE
    assert places([96.0] + [100.0] * 7, floor=0.01)[0] is Place.FAR
    assert set(places([98.0] * 4 + [100.0] * 4, floor=0.01)) == {Place.INSIDE}
    assert set(places([96.0] * 4 + [100.0] * 4, floor=0.01)) == {Place.NO_MAJORITY}


@pytest.mark.parametrize("slow", [100, 300, 400, 450, 500, 550])
def test_a_large_camp_is_never_inside(slow: int) -> None:
    """Of 1,000 parts, a camp 10 % low is far or has no majority, however large, though it inflates the MAD."""
    rng = random.Random(3)
    values = [rng.gauss(90 if i < slow else 100, 0.5) for i in range(1000)]
    assert Place.INSIDE not in places(values)[:slow]


def test_scattered_parts_judge_nobody() -> None:
    """Where hardly anything would stand out, inside would mean nothing."""
    values = [60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 130.0, 140.0]
    found = compare(dict(enumerate(values)), Sense.MORE)
    assert {s.place for s in found.values()} == {Place.NO_MAJORITY}
    assert "differ too much" in found[0].says()


def test_the_rest_of_a_bad_camp_is_not_inside() -> None:
    """A lesser camp of which most are far: those hidden by the spread have no majority, the larger camp is inside."""
    rng = random.Random(3)
    found = places([rng.gauss(90 if i < 400 else 100, 0.5) for i in range(1000)])
    assert found[:400].count(Place.FAR) > 200
    assert set(found[:400]) == {Place.FAR, Place.NO_MAJORITY}
    assert set(found[400:]) == {Place.INSIDE}


def test_bad_ones_on_both_sides_count_together() -> None:
    """Two low, one high, three alike: three of six is no majority, though either camp is small."""
    values = [80.0, 80.1, 100.0, 100.1, 100.2, 130.0]
    assert set(places(values, Sense.BOTH)) == {Place.NO_MAJORITY}


def test_three_like_each_other_are_no_majority_of_six() -> None:
    """Half of the parts agree, the rest agrees with nobody: no majority."""
    found = compare(dict(enumerate([0.0, 0.0, 0.0, 10.0, 20.0, 30.0])), Sense.BOTH, usual=0.0)
    assert {s.place for s in found.values()} == {Place.NO_MAJORITY}
    assert "only 3 of 6 are near the others" in found[0].says()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_parts_judge_nobody(count: int) -> None:
    """Below the smallest group there is no verdict, and it says how many there were."""
    found = compare(dict(enumerate(with_bad(1)[:count])), Sense.MORE)
    assert [s.place for s in found.values()] == [Place.TOO_FEW] * count
    says = f"too few to judge: {count}, at least 4 are needed"
    assert all(s.why == says and s.says("GB/s").endswith(f" GB/s; {says}") for s in found.values())


def test_four_parts_do_not_know_their_own_spread() -> None:
    """Four alone condemn what is grossly low; 5 % needs to be told how much such parts usually differ."""
    four = {0: 95.0, 1: 100.0, 2: 100.1, 3: 99.9}
    assert compare(four, Sense.MORE)[0].place is Place.INSIDE
    assert compare(four, Sense.MORE, usual=0.4)[0].place is Place.FAR
    assert compare({**four, 0: 80.0}, Sense.MORE)[0].place is Place.FAR


@pytest.mark.parametrize("value", [0.0, 7.0, -7.0, 1e-320, 1e299])
def test_equal_values_are_inside(value: float) -> None:
    """All alike: inside, at no distance."""
    found = compare(dict.fromkeys(range(8), value), Sense.BOTH)
    assert {(s.place, s.sigmas, s.percent) for s in found.values()} == {(Place.INSIDE, 0.0, 0.0)}


def test_a_difference_that_means_nothing_condemns_nobody() -> None:
    """Seven equal values have no spread; the eighth, 1 % off, is inside all the same."""
    assert set(places([99.0] + [100.0] * 7)) == {Place.INSIDE}


def test_lanes_in_ties() -> None:
    """Steps of a link: one at x8 among x16 is far; half of them at x8 is no majority."""
    assert places([8.0] + [16.0] * 7) == [Place.FAR] + [Place.INSIDE] * 7
    assert set(places([8.0] * 4 + [16.0] * 4)) == {Place.NO_MAJORITY}


def test_counts_around_zero() -> None:
    """With peers at 0 there is no percentage: the resolution of the metric says what matters."""
    values = [0.0] * 7 + [3.0]
    assert places(values, Sense.LESS, resolution=1)[7] is Place.INSIDE
    assert places([0.0] * 7 + [7.0], Sense.LESS, resolution=1)[7] is Place.FAR
    standing = compare(dict(enumerate(values)), Sense.LESS)[7]
    assert standing.says() == "3, above the median 0 of 7 peers (they do not differ at all)"


def test_negative_values_keep_their_side() -> None:
    """Below zero, less is still less."""
    values = [-60.0] + [-50.0 - i / 10 for i in range(7)]
    assert places(values, Sense.MORE)[0] is Place.FAR
    assert places(values, Sense.LESS)[0] is Place.AHEAD
    assert places(values, Sense.BOTH)[0] is Place.FAR


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, 2e300, True, "52.9", None])
def test_what_is_no_number_was_not_measured(value: object) -> None:
    """NaN, infinity, words and truth values raise one line that says where."""
    with pytest.raises(
        ValueError, match=r"^value of 'gpu3': expected a finite number, found .{1,40}; what was not"
    ) as e:
        compare({"gpu1": 1.0, "gpu3": value}, Sense.MORE)  # type: ignore[dict-item]
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sigmas": 0},
        {"sigmas": math.nan},
        {"sigmas": math.inf},
        {"percent": -1},
        {"resolution": math.inf},
        {"widest": math.nan},
        {"smallest": 2},
        {"smallest": 9},
    ],
)
def test_a_policy_that_cannot_judge_does_not_exist(wrong: dict[str, float]) -> None:
    """Negative, undefined or contradictory policies raise."""
    with pytest.raises(ValueError, match=r"^policy.*expected .*found"):
        Policy(**wrong)  # type: ignore[arg-type]


# laws

numbers = st.one_of(
    st.floats(min_value=-1e6, max_value=1e6, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-6),
    st.integers(min_value=-20, max_value=20).map(float),
)
around = st.tuples(st.sampled_from([100.0, 97.0, 80.0]), st.integers(-20, 20)).map(lambda t: t[0] * (1 + t[1] / 1000))
groups = st.one_of(st.lists(numbers, min_size=4, max_size=14), st.lists(around, min_size=4, max_size=14))
senses = st.sampled_from(Sense)
usuals = st.sampled_from([None, 0.0, 0.5, 3.0])


@settings(max_examples=25, deadline=None)
@given(groups, senses, usuals, st.randoms())
def test_order_does_not_matter(values: list[float], sense: Sense, usual: float | None, rng: random.Random) -> None:
    """A part has the same standing whatever the order of the group."""
    parts = list(enumerate(values))
    before = compare(dict(parts), sense, usual=usual)
    rng.shuffle(parts)
    assert compare(dict(parts), sense, usual=usual) == before


@settings(max_examples=25, deadline=None)
@given(groups, senses, usuals, st.sampled_from([0.125, 2.0, 1024.0]))
def test_the_unit_does_not_matter(values: list[float], sense: Sense, usual: float | None, factor: float) -> None:
    """Values, resolution and usual spread times a factor: the same places at the same distances."""
    before = compare(dict(enumerate(values)), sense, Policy(resolution=0.25), usual=usual)
    after = compare(
        dict(enumerate(v * factor for v in values)),
        sense,
        Policy(resolution=0.25 * factor),
        usual=usual and usual * factor,
    )
    assert [(s.place, s.sigmas, s.percent) for s in before.values()] == [
        (s.place, s.sigmas, s.percent) for s in after.values()
    ]


@settings(max_examples=25, deadline=None)
@given(groups, usuals)
def test_the_mirror_is_the_other_sense(values: list[float], usual: float | None) -> None:
    """Negated values under the opposite sense stand in the same places."""
    mirrored = [-v for v in values]
    more, less = (
        [s.place for s in compare(dict(enumerate(v)), sense, usual=usual).values()]
        for v, sense in ((values, Sense.MORE), (mirrored, Sense.LESS))
    )
    # The widest gap of several equal ones is chosen from below, so a mirrored tie may be cut elsewhere.
    if Place.NO_MAJORITY not in more + less:
        assert more == less


@settings(max_examples=50, deadline=None)
@given(groups, usuals, st.floats(min_value=0, max_value=1e9))
def test_worse_is_never_inside(values: list[float], usual: float | None, more: float) -> None:
    """What is far stays far, or loses its majority, when it gets worse: it is never taken back."""
    found = compare(dict(enumerate(values)), Sense.MORE, usual=usual)
    for part, standing in found.items():
        if standing.place is Place.FAR:
            worse = compare({**dict(enumerate(values)), part: values[part] - more}, Sense.MORE, usual=usual)
            assert worse[part].place in (Place.FAR, Place.NO_MAJORITY)


@settings(max_examples=25, deadline=None)
@given(groups, usuals)
def test_a_part_is_compared_with_the_others_alone(values: list[float], usual: float | None) -> None:
    """Median and spread of each part are those of the list without it, worked out the long way."""
    for part, standing in compare(dict(enumerate(values)), Sense.BOTH, usual=usual).items():
        others = values[:part] + values[part + 1 :]
        median = statistics.median(others)
        mad = statistics.median(abs(v - median) for v in others)
        own = 1.4826 * mad * len(others) / (len(others) - 0.8)
        share = 0.02 if usual is None and len(values) < 8 else 0.005
        assert standing.median == median
        assert standing.spread == pytest.approx(max(own, usual or 0, share * abs(median)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(min_value=-1e300, max_value=1e300), max_size=9), senses)
def test_every_finite_number_has_a_standing_in_words(values: list[float], sense: Sense) -> None:
    """Total: whatever the numbers, every part has a place, and one short line of printable ASCII about it."""
    for standing in compare(dict(enumerate(values)), sense).values():
        line = standing.says("GB/s")
        assert line.isascii()
        assert line.isprintable()
        assert len(line) < 160


# noise


@pytest.mark.parametrize(
    ("size", "times", "noise", "most"),
    [
        (4, 500, 0.5, 0),
        (8, 250, 0.5, 0),
        (64, 30, 0.5, 0),
        (1000, 2, 0.5, 0),
        (4, 500, 2.0, 0),
        (8, 250, 2.0, 20),
        (64, 30, 2.0, 1),
        (1000, 2, 2.0, 0),
    ],
)
def test_false_alarms_of_one_group(size: int, times: int, noise: float, most: int) -> None:
    """Healthy groups alone: no false alarm at 0.5 % noise, under 1 % of parts for eight alone at 2 %."""
    rng = random.Random(17)
    far = sum(places([rng.gauss(100, noise) for _ in range(size)]).count(Place.FAR) for _ in range(times))
    assert far <= most


@pytest.mark.parametrize("noise", [0.5, 2.0])
@pytest.mark.parametrize("nodes", [2, 16, 100])
def test_a_healthy_site_is_quiet(noise: float, nodes: int) -> None:
    """Sites of several nodes learn their spread from all of them: no outlier, and every GPU is judged."""
    found = survey(noisy(random.Random(23), nodes, noise), Sense.MORE)
    assert names(found) == []
    assert not [line for line in found.open if line.startswith("GPU")]


def test_one_gpu_five_percent_low_among_eight_is_found() -> None:
    """At 0.5 % noise, at least 85 of 100 such GPUs are far, and no other GPU is."""
    rng = random.Random(29)
    found = [places([rng.gauss(95 if i == 0 else 100, 0.5) for i in range(8)]) for _ in range(200)]
    assert sum(f[0] is Place.FAR for f in found) >= 170
    assert sum(f[1:].count(Place.FAR) for f in found) == 0


# levels


def test_a_bad_gpu_stands_out_in_its_node_and_on_its_rail() -> None:
    """One GPU low on a site of 16 nodes: that GPU is named, with both levels, and nothing else."""
    values = noisy(random.Random(1), 16, 0.5)
    values[Part(node="node07", index=3)] = 78.0
    found = survey(values, Sense.MORE)
    (outlier,) = found.outliers
    assert outlier.part == Part(node="node07", index=3)
    assert outlier.says("GB/s").startswith(
        "GPU 3 of node07 stands out among the GPUs of its node and on rail 3: 78 GB/s, 22 % below the median 100"
    )
    assert found.open == ()


@pytest.mark.parametrize(("nodes", "by"), [(4, 5), (4, 10), (16, 4)])
def test_a_low_node_is_named_as_a_whole(nodes: int, by: float) -> None:
    """All GPUs of one node low: the node explains them all, whether there are many nodes or few."""
    values = noisy(random.Random(2), nodes, 0.5)
    low = {p: v - by for p, v in values.items() if p.node == "node02"}
    (outlier,) = survey({**values, **low}, Sense.MORE).outliers
    assert outlier.says("GB/s").startswith("node02 as a whole (8 GPUs) stands out among the nodes: 9")
    assert outlier.part == Part(node="node02")
    assert set(outlier.gpus) == set(low)


def test_a_gpu_that_is_worse_than_its_low_node_is_named_too() -> None:
    """The node explains its GPUs on their rails, not one that stands out within it."""
    values = noisy(random.Random(2), 16, 0.5)
    values |= {p: v - 10 for p, v in values.items() if p.node == "node02"}
    values[Part(node="node02", index=5)] = 60.0
    assert names(survey(values, Sense.MORE)) == [
        "node02 as a whole (8 GPUs) stands out among the nodes",
        "GPU 5 of node02 stands out among the GPUs of its node",
    ]


def test_a_low_rail_is_named_as_a_whole() -> None:
    """GPU 3 of every node 10 % low: the rail, not sixteen GPUs."""
    values = noisy(random.Random(3), 16, 0.5)
    values |= {p: v - 10 for p, v in values.items() if p.index == 3}
    assert names(survey(values, Sense.MORE)) == [
        "rail 3 as a whole (GPU 3 of 16 nodes) stands out among the rails",
    ]


def test_half_of_a_node_is_named_gpu_by_gpu() -> None:
    """Four of eight low: within the node nobody is known to be right, the rails say who is."""
    values = noisy(random.Random(4), 16, 0.5)
    values |= {p: v - 10 for p, v in values.items() if p.node == "node09" and p.index < 4}
    found = survey(values, Sense.MORE)
    assert found.in_node[Part(node="node09", index=7)].place is Place.NO_MAJORITY
    assert names(found) == [f"GPU {i} of node09 stands out on rail {i}" for i in range(4)]
    assert found.open == ()


def test_nodes_of_two_gpus_name_the_gpu() -> None:
    """A low GPU halves the distance of its node's median; the rail tells which of the two it is."""
    values = noisy(random.Random(5), 16, 0.5, gpus=2)
    values[Part(node="node04", index=1)] = 80.0
    assert names(survey(values, Sense.MORE)) == ["GPU 1 of node04 stands out on rail 1"]


def test_positions_that_differ_by_design_are_judged_on_their_rails() -> None:
    """GPUs 0-3 slower on every node: no majority in any node, so the rails judge, and the rails as wholes stay open."""
    values = noisy(random.Random(6), 16, 0.5)
    values = {p: v - 10 * (p.index < 4) for p, v in values.items()}
    values[Part(node="node01", index=6)] = 80.0
    found = survey(values, Sense.MORE)
    assert names(found) == ["GPU 6 of node01 stands out on rail 6"]
    assert [line.partition(",")[0] for line in found.open] == [
        "the rails as wholes: the 8 differ too much to judge one of them"
    ]


def test_half_of_a_site_slow_is_open() -> None:
    """Eight of sixteen nodes slow: no outlier, and a line says that the nodes have no majority."""
    values = {p: v - 10 * (p.node < "node08") for p, v in noisy(random.Random(7), 16, 0.5).items()}
    found = survey(values, Sense.MORE)
    assert names(found) == []
    assert [line.partition(",")[0] for line in found.open] == ["the nodes as wholes: two camps"]


def test_one_node_alone_cannot_be_told_to_be_slow() -> None:
    """Its GPUs are judged among each other; whether all of it is slow stays open."""
    values = {Part(node="node00", index=i): v for i, v in enumerate(with_bad(1))}
    found = survey(values, Sense.MORE)
    assert names(found) == ["GPU 0 of node00 stands out among the GPUs of its node"]
    assert found.open == ("the nodes as wholes: too few to judge: 1, at least 4 are needed",)


def test_gpus_that_no_level_judges_are_open() -> None:
    """Two nodes of two GPUs: every GPU has its line."""
    found = survey(noisy(random.Random(8), 2, 0.5, gpus=2), Sense.MORE)
    assert [line.partition(":")[0] for line in found.open] == [
        "the nodes as wholes",
        "the rails as wholes",
        *(f"GPU {i} of node{n:02}" for n in (0, 1) for i in (0, 1)),
    ]


def test_the_order_of_a_site_does_not_matter() -> None:
    """A survey has the same findings in the same order whatever the order of its parts."""
    rng = random.Random(9)
    values = noisy(rng, 6, 0.5)
    values[Part(node="node03", index=2)] = values[Part(node="node01", index=1)] = 70.0
    parts = list(values.items())
    rng.shuffle(parts)
    assert survey(dict(parts), Sense.MORE) == survey(values, Sense.MORE)


def test_names_from_outside_stay_on_one_line() -> None:
    """A node's name with control characters or beyond ASCII cannot forge a line."""
    values = {Part(node="n\n\u202e\x1b" + "x" * 500, index=i): v for i, v in enumerate(with_bad(1))}
    (outlier,) = survey(values, Sense.MORE).outliers
    line = outlier.says("GB/s")
    assert line.startswith("GPU 0 of n???xxx")
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 250


def test_a_node_is_no_gpu() -> None:
    """A survey takes GPUs; a whole node among them raises."""
    with pytest.raises(ValueError, match="node01: expected a GPU, found a whole node"):
        survey({Part(node="node01"): 1.0}, Sense.MORE)


def test_racks_are_groups_too() -> None:
    """Nodes among the nodes of their rack; a rack too small says so; a node without a rack raises."""
    values = {f"n{i}": 100.0 + i % 3 / 10 for i in range(18)} | {"n5": 90.0}
    racks = {f"n{i}": "r1" if i < 8 else "r2" if i < 16 else "r3" for i in range(18)}
    found = compare_groups(values, racks, Sense.MORE)
    assert list(found) == list(values)
    assert [n for n, s in found.items() if s.place is Place.FAR] == ["n5"]
    assert [n for n, s in found.items() if s.place is Place.TOO_FEW] == ["n16", "n17"]
    with pytest.raises(ValueError, match="group of 'n0': expected one, found none"):
        compare_groups(values, {}, Sense.MORE)


def test_a_group_does_not_learn_its_spread_from_itself() -> None:
    """A noisy node widens what the others take for usual only as one of many, and its own not at all."""
    values = noisy(random.Random(10), 5, 0.5)
    wild = {p: v + (8 * (p.index % 2) if p.node == "node04" else 0) for p, v in values.items()}
    node_of = {p: p.node for p in values}
    before, after = (compare_groups(v, node_of, Sense.MORE) for v in (values, wild))
    calm = Part(node="node00", index=0)
    assert isinstance(after[calm], Standing)
    assert replace(after[calm], spread=0, sigmas=0) == replace(before[calm], spread=0, sigmas=0)


# how much room the others make


def mixed(rng: random.Random, size: int) -> list[float]:
    """Healthy parts around 100, as many that are slower by up to 15 %, and one in four that are much slower."""
    much = rng.randint(1, size // 4)
    little = rng.randint((size - much) // 2, size - much)
    healthy = [rng.gauss(100, rng.choice((0.3, 1.0, 2.0))) for _ in range(size - much - little)]
    return [*healthy, *(rng.uniform(85, 100) for _ in range(little)), *(rng.uniform(40, 64) for _ in range(much))]


def test_parts_that_are_a_little_slower_make_no_room_for_one_that_is_much_slower() -> None:
    """Others that differ widen the spread, and six of that reach to half of the median: with `surely` none beyond it is
    inside, however many differ; nobody found is lost, and of those inside no other is far."""
    rng = random.Random(41)
    hidden, found = {math.inf: 0, 30.0: 0}, {math.inf: 0, 30.0: 0}
    for _ in range(1500):
        values = mixed(rng, rng.choice((4, 6, 8, 16, 32)))
        judged: dict[float, list[Standing]] = {}
        for surely in hidden:
            policy = Policy(percent=15, surely=surely)
            judged[surely] = list(compare(dict(enumerate(values)), Sense.MORE, policy).values())
            for standing in judged[surely]:
                below = standing.percent is not None and standing.percent < -30
                hidden[surely] += below and standing.place is Place.INSIDE
                found[surely] += below and standing.place is Place.FAR
        for before, after in zip(judged[math.inf], judged[30.0], strict=True):
            below = after.percent is not None and after.percent < -30
            assert after.place is before.place or before.place is Place.NO_MAJORITY or below, values
            assert before.place is not Place.FAR or after.place is Place.FAR, values
    assert hidden[math.inf] > 50
    assert hidden[30.0] == 0
    assert found[30.0] >= found[math.inf] + hidden[math.inf]


@pytest.mark.parametrize(("noise", "surely"), [(0.5, 20), (2.0, 20), (3.0, 20), (4.5, 30)])
@pytest.mark.parametrize(("size", "times"), [(4, 300), (8, 300), (64, 20), (500, 2)])
def test_healthy_parts_do_not_reach_what_is_surely_far(noise: float, surely: float, size: int, times: int) -> None:
    """Of healthy parts that differ by up to 0.15 of it no verdict changes: it costs no false alarm."""
    rng = random.Random(43)
    for _ in range(times):
        values = [rng.gauss(100, noise) for _ in range(size)]
        assert places(values, percent=10, surely=surely) == places(values, percent=10)


def test_half_of_a_group_does_not_hide() -> None:
    """Half that are slow to different degrees: each of them is far, or nobody knows who is right; never inside."""
    rng = random.Random(47)
    for _ in range(500):
        half = rng.choice((2, 3, 4, 8))
        slow = [rng.uniform(30, 64) for _ in range(half)]
        told = places([*(rng.gauss(100, 1) for _ in range(half)), *slow], percent=15, surely=30)
        assert Place.INSIDE not in told[half:]
