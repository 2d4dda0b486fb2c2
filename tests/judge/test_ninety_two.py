"""The 92 % rule on wire bytes: it stops broken fabrics, and says where it rejects healthy ones or knows nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.judge.maximum import Hardware
from pytest_gpuready.judge.ninety_two import WORDS, Ruling, ninety_two
from pytest_gpuready.judge.wire import Shape
from pytest_gpuready.model.busbw import ALGORITHMS, COLLECTIVES
from pytest_gpuready.profiles import load
from pytest_gpuready.profiles.collectives_table import hardware
from pytest_gpuready.profiles.published import PUBLISHED, Published

HOPPER = Hardware(nvlinks=18, nvlink_mb_per_s=26562, rails=(400.0,) * 8, pcie_generation=5, pcie_width=16)
GIB = 1 << 30


def ruling(
    busbw: float,
    algorithm: str = "Ring",
    nodes: int = 8,
    gpus: int = 8,
    has: Hardware = HOPPER,
    *,
    size: int = 8 * GIB,
    collective: str = "all_reduce",
) -> Ruling:
    shape = Shape(collective=collective, ranks=nodes * gpus, nodes=nodes, algorithm=algorithm)
    return ninety_two(shape, busbw, size, has)


@pytest.mark.parametrize("algorithm", ["Tree", "NVLSTree", ""])
def test_dead_rails_are_not_healthy_on_two_nodes_with_a_tree(algorithm: str) -> None:
    """busbw 368 passes the naive rule while half of the rails can be dead: ours calls it no pass, and says why."""
    found = ruling(368, algorithm, nodes=2)
    assert 368 >= 0.92 * 400
    assert found.wire
    assert found.wire.least == pytest.approx(196.3, abs=0.1)
    assert found.wire.least < 4 * 50
    assert found.verdict == "proves nothing"
    assert ("196.3" in found.why and "NCCL_ALGO=RING" in found.why) or "algorithm was not seen" in found.why


@pytest.mark.parametrize("busbw", [430, 467, 484])
def test_healthy_trees_on_two_nodes_are_not_stopped(busbw: float) -> None:
    """Healthy nodes put 230 to 258 of 400 GB/s on the wire with NVLSTree: under 75 %, and no stop."""
    found = ruling(busbw, "NVLSTree", nodes=2)
    assert found.share
    assert found.share.most < 0.75
    assert not found.stops
    assert "healthy fabrics are under 92 % with NVLSTree" in found.text


def test_a_healthy_ring_of_eight_nodes_is_marginal_and_warned_of() -> None:
    """At 366 the naive rule rejects a healthy ring by a hair; ours does not stop, and prints that it would reject."""
    found = ruling(366)
    assert 366 < 0.92 * 400
    assert found.verdict == "marginal"
    assert "rejects healthy nodes here" in found.text
    assert "365 to 369 of 400" in found.text


def test_a_ring_with_dead_rails_is_a_stop_that_says_what_it_is() -> None:
    """At 290 of 400 later tiers are halted, in one line with the usual causes."""
    found = ruling(290)
    assert found.stops
    assert found.text == (
        "ninety-two-percent: busbw 290 GB/s is 290 of 400 GB/s on the wire per node (8 rails x 50 GB/s), "
        "36.25 per rail, 72.5 %: stop, worth 5.8 of 8 rails, usually optics, PCIe bifurcation or MTU of a rail"
    )


@pytest.mark.parametrize(
    ("busbw", "word"), [(400, "healthy"), (368, "healthy"), (367.9, "marginal"), (300, "marginal"), (299.9, "stop")]
)
def test_the_bounds_are_92_and_75_percent(busbw: float, word: str) -> None:
    """Of a ring on 8 x 400G: 368 and 300 GB/s are the bounds, both inside the better word."""
    assert ruling(busbw).verdict == word


@pytest.mark.parametrize(
    ("busbw", "algorithm", "gpus"), [(365, "Ring", 8), (370, "Ring", 8), (475, "NVLS", 8), (341, "Ring", 2)]
)
def test_inside_a_node_the_rule_proves_nothing(busbw: float, algorithm: str, gpus: int) -> None:
    """Healthy figures inside a node are neither healthy nor a stop by this rule, and it says that."""
    found = ruling(busbw, algorithm, nodes=1, gpus=gpus)
    assert found.verdict == "proves nothing"
    assert "healthy rings have 66 to 82 %, NVLS 107 %" in found.text


@pytest.mark.parametrize(
    ("busbw", "algorithm", "nodes"), [(401, "Ring", 2), (490, "Tree", 2), (460, "Ring", 1), (800, "NVLS", 1)]
)
def test_more_than_the_wire_carries_is_a_broken_measurement(busbw: float, algorithm: str, nodes: int) -> None:
    """Above what NVLink or rails can carry nothing is healthy."""
    found = ruling(busbw, algorithm, nodes=nodes)
    assert found.verdict == "proves nothing"
    assert "a broken measurement" in found.why


def test_nvls_above_the_link_is_no_broken_measurement() -> None:
    """480 of 450 GB/s by busbw is what a switch that adds gives; the wire carries 309 at most."""
    assert "broken" not in ruling(480, "NVLS", nodes=1).why


def test_small_messages_stop_nobody() -> None:
    """A healthy fabric shows 12 % of the wire at 16 MiB."""
    assert ruling(48, size=16 << 20).verdict == "proves nothing"
    assert ruling(380, size=16 << 20).verdict == "healthy"


def test_nvlink_that_is_narrower_than_the_fabric_stops_nobody() -> None:
    """A100 on 8 x 400G: their rings end at 235 of 300 GB/s of NVLink, 59 % of the fabric, and nothing is broken."""
    a100 = Hardware(nvlinks=12, nvlink_mb_per_s=25781, rails=(400.0,) * 8)
    found = ruling(230, nodes=4, has=a100)
    assert found.verdict == "proves nothing"
    assert "NVLink holds healthy nodes at a busbw of" in found.why


def test_healthy_a100_on_four_rails_are_healthy() -> None:
    """91 to 96 GB/s of 4 x 200G, as published, are marginal to healthy without a warning: NVLink is wide enough."""
    a100 = Hardware(nvlinks=12, nvlink_mb_per_s=25781, rails=(200.0,) * 4)
    assert [ruling(busbw, nodes=2, has=a100).verdict for busbw in (91, 96)] == ["marginal", "healthy"]
    assert ruling(91, nodes=2, has=a100).warnings == ()


def test_pcie_is_the_maximum_where_it_is_narrower() -> None:
    """GPUs at Gen5 x8 cannot fill 400G rails: the share is that of PCIe, and the line says so."""
    found = ruling(
        220, has=Hardware(nvlinks=18, nvlink_mb_per_s=26562, rails=(400.0,) * 8, pcie_generation=5, pcie_width=8)
    )
    assert found.verdict == "healthy"
    assert "PCIe Gen5 x8 of the GPU" in found.text


def test_sendrecv_is_held_against_one_rail() -> None:
    """46 GB/s of one GPU to the next node are 92 % of its rail, not 12 % of the node."""
    found = ruling(46, "", nodes=4, collective="sendrecv")
    assert found.verdict == "healthy"
    assert ruling(30, "", nodes=4, collective="sendrecv").stops


@pytest.mark.parametrize("busbw", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_figure_proves_nothing(busbw: float) -> None:
    """Zero, negative, missing and endless figures end in a word and a reason."""
    assert ruling(busbw).verdict == "proves nothing"


def test_unknown_rails_prove_nothing() -> None:
    """Without rails there is no share, whatever the figure."""
    found = ruling(366, has=Hardware())
    assert found.verdict == "proves nothing"
    assert "no theoretical maximum without rails" in found.text


@pytest.mark.parametrize(
    "one", PUBLISHED, ids=lambda one: f"{one.model}-{one.nodes}-{one.algorithm}-{one.gpus}-{one.low:g}"
)
def test_no_published_healthy_figure_is_stopped_or_called_broken(one: Published) -> None:
    """Every healthy figure that others have published passes the sanity of the rule: no stop, and physics allows it."""
    has = hardware(load(one.model))
    for busbw in (one.low, one.high):
        found = ruling(busbw, one.algorithm, nodes=one.nodes, gpus=one.gpus, has=has)
        assert not found.stops
        assert "broken" not in found.why


@given(
    st.sampled_from(COLLECTIVES),
    st.sampled_from(("", *ALGORITHMS)),
    st.integers(1, 64),
    st.integers(1, 16),
    st.floats(0, 2000),
    st.integers(0, 1 << 36),
)
def test_it_is_total_and_says_one_line(  # noqa: PLR0917 - one argument for each thing that is drawn
    collective: str, algorithm: str, nodes: int, gpus: int, busbw: float, size: int
) -> None:
    """Whatever is asked ends in a known word and one line of ASCII."""
    found = ruling(busbw, algorithm, nodes, gpus, size=size, collective=collective)
    assert found.verdict in WORDS
    assert found.text.isascii()
    assert "\n" not in found.text


@given(st.sampled_from(("", *ALGORITHMS)), st.integers(1, 64), st.floats(1, 399), st.floats(1, 399))
def test_more_is_never_worse(algorithm: str, nodes: int, a: float, b: float) -> None:
    """A higher figure within physics never gets a worse word where both are judged."""
    order = {"stop": 0, "marginal": 1, "healthy": 2}
    low, high = (ruling(busbw, algorithm, nodes).verdict for busbw in sorted((a, b)))
    if low in order and high in order:
        assert order[low] <= order[high]


@given(st.floats(1, 400), st.integers(2, 64), st.integers(0, 8))
def test_a_ring_that_dead_rails_cannot_carry_is_never_healthy(busbw: float, nodes: int, dead: int) -> None:
    """Whatever the algorithm, "healthy" needs more wire than the rails that are left have."""
    left = (8 - dead) * 50
    for algorithm in ("", *ALGORITHMS):
        found = ruling(busbw, algorithm, nodes)
        if found.verdict == "healthy" and dead:
            assert found.wire
            assert found.wire.least > left
