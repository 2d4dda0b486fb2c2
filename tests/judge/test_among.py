"""The limit against peers: who is far fails, too few or two camps pass nobody, and the reason has the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from pytest_gpuready.judge import judge
from pytest_gpuready.judge.among import look
from pytest_gpuready.model import (
    Clause,
    Gpu,
    Inventory,
    Limit,
    Measurement,
    Node,
    Outcome,
    Part,
    PeerLimit,
    Slot,
    Source,
    Verdict,
    Watch,
)

SOURCE = Source(kind="rule", cite="made for this test")
PEERS = PeerLimit(source=SOURCE, among=("node", "all"), worse="lower", percent=15.0, unit="GB/s")
CLAUSE = Clause(
    id="A-1",
    suite="s",
    level=2,
    metric="m",
    per="gpu",
    unit="GB/s",
    retest=True,
    limit=Limit(source=SOURCE, at_least=30.0, unit="GB/s", ceiling=63.0),
    peers=PEERS,
)
Value = float | tuple[float, ...]
"""A value, or that of the first run and those of its retests."""


def gpu(name: str, index: int) -> Part:
    return Part(node=name, index=index)


def among(
    values: Mapping[Part, Value],
    clause: Clause = CLAUSE,
    racks: Mapping[str, str] | None = None,
    kinds: Mapping[Part, str] | None = None,
    watch: Mapping[Part, Watch] | None = None,
) -> dict[Part, Verdict]:
    """The verdicts on all parts when these values stand in the store."""
    names = dict.fromkeys(part.node for part in values)
    nodes = tuple(
        Node(
            name=name,
            rack=(racks or {}).get(name, ""),
            slots=tuple(
                Slot(part=part, gpu=Gpu(bdf=f"0000:{part.index:02}:00.0", pci_id=(kinds or {}).get(part, "10de:2335")))
                for part in values
                if part.node == name and part.index >= 0
            ),
        )
        for name in names
    )
    found = {}
    for part, value in values.items():
        first, *again = value if isinstance(value, tuple) else (value,)
        seen = (watch or {}).get(part)
        found[part] = Measurement(
            metric="m", part=part.name, value=first, repeats=tuple(again), unit=clause.unit, watch=seen
        )
    runs = look(clause, found, Inventory(nodes=nodes))
    return {
        part: judge(clause, part.name, one, peers={}, virtual=False, seen=tuple(run.get(part) for run in runs))
        for part, one in found.items()
    }


def node(
    name: str = "node01", values: Sequence[Value] = (55.4, 55.3, 55.2, 55.4, 55.5, 55.3, 55.4, 55.3)
) -> dict[Part, Value]:
    return {gpu(name, index): value for index, value in enumerate(values)}


def fails(verdicts: Mapping[Part, Verdict], outcome: Outcome = Outcome.FAIL) -> list[str]:
    return [part.name for part, verdict in verdicts.items() if verdict.outcome is outcome]


def test_who_is_far_fails_inside_its_own_limit() -> None:
    """One GPU 20 % low of eight: it alone fails, and the line says value, distance, median, peers and own limit."""
    verdicts = among({**node(), gpu("node01", 3): 44.3})
    assert fails(verdicts) == ["node01/gpu3"]
    assert fails(verdicts, Outcome.PASS) == [f"node01/gpu{i}" for i in (0, 1, 2, 4, 5, 6, 7)]
    bad = verdicts[gpu("node01", 3)]
    assert bad.reason == (
        "inside its own limit >= 30 GB/s, far from its peers in the node: "
        "44.30 GB/s, 20 % below the median 55.30 of 7 peers (40 robust sigmas)"
    )
    assert bad.against == "at most 15 % below the median 55.30 of 7 peers in the node (or 6 robust sigmas)"
    assert bad.margin is None
    assert str(PEERS) == "at most 15 % below the median of its peers in the node and in all nodes (or 6 robust sigmas)"


def test_slow_ones_of_all_degrees_do_not_hide_the_slowest() -> None:
    """Seven that differ by 13 % leave no room for an eighth a third below them, and are none of them far."""
    mixed = (55.4, 55.2, 52.0, 50.0, 48.6, 48.0, 51.0, 34.0)
    verdicts = among(node(values=mixed))
    assert fails(verdicts) == ["node01/gpu7"]
    assert "34 GB/s, 33 % below the median 51 of 7 peers (6.7 robust sigmas)" in verdicts[gpu("node01", 7)].reason


def test_a_slow_node_is_named_as_a_whole() -> None:
    """All GPUs of one node of four are far from all others and near each other: the node stands out."""
    sites = {**node("a"), **node("b"), **node("c", [44.3] * 8), **node("d")}
    verdicts = among(sites)
    assert fails(verdicts) == [f"c/gpu{i}" for i in range(8)]
    assert "far from its peers in all nodes: 44.30 GB/s, 20 % below" in verdicts[gpu("c", 0)].reason
    assert "c as a whole (8 GPUs) stands out" in verdicts[gpu("c", 0)].reason


def test_peers_that_cannot_tell_pass_nobody() -> None:
    """Half of a node slow, or half of the nodes: no verdict; where more nodes know better, the slow ones fail."""
    half = [55.4, 55.3, 55.4, 55.3, 44.3, 44.2, 44.3, 44.2]
    alone = among(node("a", half))
    assert fails(alone, Outcome.NOT_MEASURED) == [f"a/gpu{i}" for i in range(8)]
    assert "in the node cannot tell: two camps, 4 around 44.25 and 4 around 55.35" in alone[gpu("a", 0)].reason
    told = among({**node("a", half), **node("b"), **node("c"), **node("d")})
    assert fails(told) == [f"a/gpu{i}" for i in range(4, 8)]
    assert fails(told, Outcome.NOT_MEASURED) == []
    halves = among({**node("a"), **node("b"), **node("c", [44.3] * 8), **node("d", [44.2] * 8)})
    assert len(fails(halves, Outcome.NOT_MEASURED)) == 32


def test_too_few_leave_it_to_the_own_limit() -> None:
    """Two GPUs judge nobody: the own limit passes, fails or observes, and the reason says that peers could not."""
    few = "too few peers to judge (2 in the node)"
    verdicts = among(node("a", [55.4, 44.3]))
    assert [(v.outcome, v.reason) for v in verdicts.values()] == [(Outcome.PASS, few)] * 2
    without = dataclasses.replace(CLAUSE, limit=None)
    seen = among(node("a", [55.4, 44.3]), without)[gpu("a", 1)]
    assert (seen.outcome, seen.reason) == (Outcome.OBSERVED, f"recorded, the profile gives no limit; {few}")
    assert among(node("a", [55.4, 20.0]))[gpu("a", 1)].outcome is Outcome.FAIL


def test_peers_never_pass() -> None:
    """Without a limit of its own a part near its peers is OBSERVED, and one that is far fails all the same."""
    without = dataclasses.replace(CLAUSE, limit=None)
    verdicts = among({**node(), gpu("node01", 3): 44.3}, without)
    assert fails(verdicts) == ["node01/gpu3"]
    assert len(fails(verdicts, Outcome.OBSERVED)) == 7
    assert "its own limit" not in verdicts[gpu("node01", 3)].reason


@pytest.mark.parametrize(
    ("runs", "outcome", "says"),
    [
        (
            (44.3, 44.1),
            Outcome.FAIL,
            "44.30 GB/s, 20 % below the median 55.30 of 7 peers (40 robust sigmas); again 44.10 GB/s",
        ),
        ((44.3, 55.3), Outcome.UNSTABLE, "runs disagree about the limit against peers: 44.30 GB/s, 55.30 GB/s"),
        ((55.3, 44.3), Outcome.UNSTABLE, "against peers: 55.30 GB/s, 44.30 GB/s"),
        ((44.3, 20.0), Outcome.FAIL, "(40 robust sigmas); again outside its own limit"),
        ((20.0, 55.3), Outcome.UNSTABLE, "runs disagree about the limit: 20 GB/s, 55.30 GB/s"),
    ],
)
def test_both_runs_count(runs: tuple[float, ...], outcome: Outcome, says: str) -> None:
    """Far twice is a FAIL with both values, far once is UNSTABLE, and far then worse is a FAIL."""
    verdicts = among({**node(), gpu("node01", 3): runs})
    bad = verdicts.pop(gpu("node01", 3))
    assert bad.outcome is outcome
    assert says in bad.reason
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.PASS}


def test_what_is_known_to_be_wrong_is_no_peer() -> None:
    """Five GPUs below their own limit, or with an alarm, do not make the three good ones outliers."""
    bad: dict[Part, Value] = {gpu("node01", i): 27.0 for i in range(5)}
    both = dataclasses.replace(CLAUSE, peers=dataclasses.replace(PEERS, worse="both"))
    verdicts = among({**node(), **bad}, both)
    assert fails(verdicts) == [f"node01/gpu{i}" for i in range(5)]
    assert verdicts[gpu("node01", 7)].reason == "too few peers to judge (3 in the node)"
    alarmed = among({**node(), gpu("node01", 3): 44.3}, watch={gpu("node01", 3): Watch(uncorrected_ecc=1)})
    assert alarmed[gpu("node01", 3)].reason == "1 uncorrected ECC errors meanwhile"


def test_racks_rails_and_kinds_are_groups() -> None:
    """A slow rack is not held against another, nor a model; a slow rail of one node is told by the others."""
    in_rack = dataclasses.replace(CLAUSE, peers=dataclasses.replace(PEERS, among=("rack",)))
    racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
    sites = {**node("a"), **node("b"), **node("c", [44.3] * 8), **node("d", [44.2] * 7 + [35.0])}
    assert fails(among(sites, in_rack, racks)) == ["d/gpu7"]
    unknown = among(sites, in_rack)
    assert {v.reason for v in unknown.values()} == {"too few peers to judge (none known)"}
    rail = dataclasses.replace(CLAUSE, peers=dataclasses.replace(PEERS, among=("rail",)))
    by_rail = {**node("a"), **node("b"), **node("c"), **node("d", [55.4] * 7 + [44.3])}
    assert fails(among(by_rail, rail)) == ["d/gpu7"]
    other = {gpu("c", i): "10de:2901" for i in range(8)} | {gpu("d", i): "10de:2901" for i in range(8)}
    assert fails(among(sites, kinds=other)) == ["d/gpu7"]


def test_nodes_have_peers_and_degrees_a_resolution() -> None:
    """A clause per node compares nodes; of degrees, six times the resolution is far whatever the percentage is."""
    peers = PeerLimit(source=SOURCE, among=("all",), worse="lower", percent=0.0, resolution=2.0, unit="C")
    limit = Limit(source=SOURCE, at_least=0.0, unit="C")
    clause = dataclasses.replace(CLAUSE, per="node", unit="C", limit=limit, peers=peers)
    margins: dict[Part, Value] = {Part(node=f"n{i}"): 40.0 + i % 2 for i in range(12)}
    assert fails(among({**margins, Part(node="n5"): 30.0}, clause)) == []
    assert fails(among({**margins, Part(node="n5"): 27.0}, clause)) == ["n5"]
    assert (
        "not below the median of its peers in all nodes by more than 6 robust sigmas, one of them 2 C at least"
        in str(peers)
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"among": ()}, "one at least"),
        ({"among": ("node", "node")}, "once"),
        ({"among": ("site",)}, "found 'site'"),
        ({"worse": "slow"}, "peers.worse"),
        ({"percent": 0.0}, "percent or resolution"),
        ({"sigmas": 0.5}, "peers.sigmas"),
        ({"least": 3}, "peers.least"),
    ],
)
def test_a_bad_limit_cannot_exist(wrong: dict[str, object], says: str) -> None:
    """Nobody's peers, an unknown side, a distance of nothing: none of it can be made."""
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(PEERS, **wrong)  # type: ignore[arg-type]


def test_a_clause_with_peers_retests_and_fits_its_parts() -> None:
    """Peers need retest: true, the unit of the clause, and a node has none within itself."""
    for wrong in ({"retest": False}, {"per": "node"}, {"unit": "MB/s", "limit": None}):
        with pytest.raises(ValueError, match="peers"):
            dataclasses.replace(CLAUSE, **wrong)
