"""Bytes on the wire: what each collective and algorithm puts on NVLink and on the network."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.judge.wire import (
    Shape,
    Wire,
    across,
    busbw_at,
    inside,
    node_wire,
    nvlink_wire,
    per_busbw,
)
from pytest_gpuready.model.busbw import ALGORITHMS, COLLECTIVES

shapes = st.builds(
    lambda collective, gpus, nodes, algorithm: Shape(
        collective=collective, ranks=gpus * nodes, nodes=nodes, algorithm=algorithm
    ),
    st.sampled_from(COLLECTIVES),
    st.integers(1, 72),
    st.integers(1, 128),
    st.sampled_from(("", *ALGORITHMS)),
)


def shape(algorithm: str, nodes: int = 1, gpus: int = 8, collective: str = "all_reduce") -> Shape:
    return Shape(collective=collective, ranks=nodes * gpus, nodes=nodes, algorithm=algorithm)


@pytest.mark.parametrize(("nodes", "is_"), [(2, 0.533), (4, 0.774), (8, 0.889), (16, 0.945)])
def test_a_tree_puts_less_than_busbw_on_the_network(nodes: int, is_: float) -> None:
    """On average a node of 8 sends g (k-1) / (n-1) of busbw: half of it on two nodes, all of it on many."""
    assert per_busbw(shape("Tree", nodes), across(shape("Tree", nodes))).least == pytest.approx(is_, abs=5e-4)


def test_368_on_two_nodes_with_a_tree_is_half_of_the_rails() -> None:
    """A busbw of 368 needs 196 GB/s of each of two nodes with Tree, and 368 with Ring."""
    tree, ring = node_wire(shape("Tree", 2), 368), node_wire(shape("Ring", 2), 368)
    assert tree.exact
    assert tree.most == pytest.approx(196.27, abs=0.01)
    assert ring.exact
    assert ring.most == pytest.approx(368)


@pytest.mark.parametrize("busbw", [475, 480])
def test_nvls_stays_below_the_link(busbw: float) -> None:
    """475 to 480 GB/s of busbw on eight H100 are 271 to 309 on the wire, far below 450."""
    wire = nvlink_wire(shape("NVLS"), busbw)
    assert wire.least == pytest.approx(busbw / 1.75)
    assert wire.most == pytest.approx(busbw / 1.75 * 9 / 8)
    assert wire.most < 310


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_ring_in_a_node_is_its_busbw(gpus: int) -> None:
    """A ring's wire is busbw exactly, of all collectives that go round."""
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        one = shape("Ring", gpus=gpus, collective=collective)
        assert nvlink_wire(one, 300.0).exact
        assert nvlink_wire(one, 300.0).most == pytest.approx(300.0)
        assert node_wire(one, 300.0).most == 0


def parents(nodes: int) -> dict[int, int]:
    """One binary tree as NCCL builds it over nodes 0 to n-1: node -> its parent; the root is 0."""
    found = {}
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | (bit << 1)
        found[node] = up if up < nodes else node ^ bit
    return found


def walked(nodes: int) -> tuple[float, float]:
    """Bytes for each of S that nodes send on average, and the busiest, over both trees: half of S up and down an edge.

    The second tree is the first one mirrored, or for an odd number shifted by one, so that leaves become others.
    """
    sent: Counter[int] = Counter()
    for second in (False, True):
        for child, parent in parents(nodes).items():
            for node in (child, parent):
                other = (nodes - 1 - node) if nodes % 2 == 0 else (node + 1) % nodes
                sent[other if second else node] += 1
    return sum(sent.values()) / 2 / nodes, max(sent.values()) / 2


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 7, 8, 16, 31, 64, 100])
def test_trees_walked_edge_by_edge_agree(nodes: int) -> None:
    """Both trees, summed edge by edge, give the average of the formula, and no node sends more than its most."""
    average, busiest = walked(nodes)
    assert across(shape("Tree", nodes)).least == pytest.approx(average)
    assert busiest <= across(shape("Tree", nodes)).most


@pytest.mark.parametrize(("gpus", "nodes"), [(8, 1), (8, 2), (4, 3), (1, 4)])
def test_alltoall_counted_pair_by_pair_agrees(gpus: int, nodes: int) -> None:
    """Every pair of ranks exchanges S/n: what crosses a node's border and what stays is what the formula says."""
    ranks, one = gpus * nodes, shape("", nodes, gpus, "alltoall")
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    leaves = sum(1 for a, b in pairs if a // gpus == 0 and b // gpus != 0) / ranks
    stays = sum(1 for a, b in pairs if a == 0 and b // gpus == 0) / ranks
    assert across(one).most == across(one).least == pytest.approx(leaves)
    assert inside(one).least == pytest.approx(stays)
    assert inside(one).most <= 1


def test_published_alltoall_and_all_gather_of_two_nodes_agree() -> None:
    """79 GB/s of alltoall and 339 of all_gather, published from the same two nodes, are one and the same wire."""
    alltoall = node_wire(shape("", 2, collective="alltoall"), 79.11).most
    gathered = node_wire(shape("Ring", 2, collective="all_gather"), 338.57).most
    assert alltoall == pytest.approx(gathered, rel=0.01)


def test_sendrecv_sends_one_ranks_bytes_from_a_node() -> None:
    """Whatever the GPUs of a node, one of them sends to the next node: busbw, not eight times as much."""
    assert node_wire(shape("", 4, collective="sendrecv"), 46.0) == Wire(46.0, 46.0)


def test_an_algorithm_that_nobody_saw_is_a_range_around_all() -> None:
    """Without a name the wire is between the least and the most of all: on two nodes 0.53 to 1 of busbw."""
    unknown = shape("", 2)
    per = per_busbw(unknown, across(unknown))
    assert per.least == pytest.approx(8 / 15)
    assert per.most == pytest.approx(1)
    for algorithm in ("Ring", "Tree", "NVLS", "NVLSTree", "CollnetDirect", "CollnetChain"):
        one = across(shape(algorithm, 2))
        assert across(unknown).least <= one.least
        assert one.most <= across(unknown).most


def test_a_name_that_nobody_knows_is_as_good_as_none() -> None:
    """An algorithm of a later NCCL is not taken for a ring."""
    later = shape("Butterfly", 2)
    assert not later.stated
    assert across(later) == across(shape("", 2))


def test_what_an_algorithm_does_not_do_is_unknown() -> None:
    """A tree gathers nothing and PAT reduces nothing in NCCL: no figure is made up."""
    assert not across(shape("Tree", 2, collective="all_gather")).known
    assert not inside(shape("PAT", 2)).known
    assert node_wire(shape("PAT", 2), 100.0).most == math.inf


@pytest.mark.parametrize(("ranks", "nodes"), [(0, 1), (8, 0), (9, 2)])
def test_uneven_nodes_are_refused(ranks: int, nodes: int) -> None:
    """The geometry is that of equal nodes; another one is an error, not a wrong number."""
    with pytest.raises(ValueError, match="equally many ranks"):
        Shape(collective="all_reduce", ranks=ranks, nodes=nodes)


def test_other_collectives_are_refused() -> None:
    """A collective whose geometry is not known has no shape."""
    with pytest.raises(ValueError, match="expected one that is judged"):
        Shape(collective="broadcast", ranks=8)


@given(shapes, st.floats(0, 1e4), st.floats(0, 1e4))
def test_wire_grows_with_busbw_and_is_a_range(one: Shape, a: float, b: float) -> None:
    """More busbw is never less wire, and the least is never above the most."""
    low, high = sorted((a, b))
    for wire_of in (nvlink_wire, node_wire):
        less, more = wire_of(one, low), wire_of(one, high)
        assert less.least <= less.most
        assert less.least <= more.least
        assert less.most <= more.most


@given(shapes, st.floats(1, 1e4))
def test_wire_is_never_above_busbw_where_data_goes_round(one: Shape, busbw: float) -> None:
    """What rings, switches that add, and two nodes put on the network is at most busbw, a tree n/(n-1) of it."""
    wire, ranks = node_wire(one, busbw), one.ranks
    if one.ranks < 2 or not wire.known or one.collective == "alltoall":
        return
    slack = ranks / (ranks - 1) if one.algorithm != "Ring" else 1
    assert wire.most <= busbw * slack * (1 + 1e-9)
    if one.collective == "all_reduce" and one.nodes == 2:
        assert wire.most <= busbw * (1 + 1e-9)


@given(shapes, st.floats(1, 1e4))
def test_no_algorithm_carries_less_than_information_needs(one: Shape, busbw: float) -> None:
    """A node always gets what it lacks: at least half of the size of an all_reduce, (k-1)/k of an all_gather."""
    if one.nodes == 1 or one.ranks < 2:
        return
    lacks = {
        "all_reduce": 1.0,
        "all_gather": (one.nodes - 1) / one.nodes,
        "reduce_scatter": (one.nodes - 1) / one.nodes,
    }
    if one.collective in lacks and across(one).known:
        assert across(one).least >= lacks[one.collective] * (1 - 1e-9)


@given(shapes, st.floats(1, 1e4))
def test_busbw_at_a_wire_is_the_inverse(one: Shape, busbw: float) -> None:
    """The busbw at which a wire is full, put on that wire again, fills it."""
    for ways, wire_of in ((inside(one), nvlink_wire), (across(one), node_wire)):
        wire = wire_of(one, busbw)
        if wire.known and wire.least > 0:
            assert busbw_at(one, ways, wire.most).least == pytest.approx(busbw)
            assert busbw_at(one, ways, wire.least).most == pytest.approx(busbw)


@given(st.integers(1, 72))
def test_more_nodes_bring_a_tree_nearer_to_a_ring(gpus: int) -> None:
    """The part of busbw that a tree puts on the network grows with the nodes, and ends at all of it."""
    parts = [per_busbw(one, across(one)).least for one in (shape("Tree", nodes, gpus) for nodes in (2, 4, 8, 64, 1024))]
    assert all(a <= b + 1e-12 for a, b in pairwise(parts))
    assert parts[-1] == pytest.approx(1, abs=0.002)
