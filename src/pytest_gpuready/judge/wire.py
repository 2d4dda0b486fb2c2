"""From busbw to bytes on the wire: what a collective really puts on NVLink and on the network.

S is the size, n the ranks, k the nodes, g = n / k the GPUs of a node. A node is an NVLink domain: an NVL72 rack is one.
Everything is bytes per byte of S, so that wire = algbw times that. `inside` is what the busiest GPU sends, or receives,
over its NVLinks, one direction. `across` is what leaves the busiest node, one direction, over all of its rails.
Ranks of a node are neighbours (0 to g-1 on the first node), as launchers place them unless asked otherwise.

all_reduce
  Ring           Each rank sends 2 (n-1)/n S to its neighbour, and each ring leaves a node once: across = 2 (n-1)/n, so
                 wire = busbw. Inside, rings differ in which GPU leaves: a GPU sends all of it, or (g-1)/g of it, over
                 NVLink.
  Tree           A chain in the node, two binary trees over the nodes, half of S on each. An edge carries S up and S
                 down. Chain: g-1 edges, so 2 (g-1)/g on average and 2 for a GPU with two neighbours. Trees: k-1 edges
                 of half of S, twice: 2 (k-1)/k on average, and 2 for a node that has two children in one tree and is a
                 leaf of the other. In busbw that average is g (k-1) / (n-1): 0.533 for 2 nodes of 8, where both ends
                 of it are the same.
  NVLS           The switch adds and copies. Each GPU gives the switch its whole buffer, S, gets S/n of sums, gives them
                 back, S/n, and gets the whole result, S: at most (n+1)/n each way, as the switch pulls from all GPUs,
                 the asking one too (NVIDIA/nccl issue 828, nccl-tests issues 212 and 238). S at least, were its own
                 part left out. busbw is 2 (n-1)/n, so that 480 are 274 to 309 of 450. Across nodes the network adds: S.
  NVLSTree       NVLS in the node, trees over the nodes.
  CollnetDirect  The network adds: a node sends S and gets S. Inside, each GPU sends to those that own a part: 2 (g-1)/g
                 where all do, g-1 where one does for all.
  CollnetChain   A chain in the node, and S to the network.

all_gather, reduce_scatter (the same the other way round)
  Ring           (n-1)/n S to the neighbour, and out of each node: wire = busbw.
  NVLS           One way S (or without the GPU's own part), the other S/n.
  CollnetDirect  A node gets what it lacks, (k-1)/k S, or all of S.
  PAT            (n-1) parts of S/n for every rank, with one GPU in each node; with more it is not used.

alltoall         S/n to every other rank, without any algorithm: (n-g)/n S of each of g GPUs leave the node. Inside
                 (g-1)/n, and (g-1)/g of what leaves where it goes to the GPU on the right rail first (PXN).
sendrecv         Each rank sends S to the next: the last rank of a node alone sends to the network, S over one rail.

Any algorithm at all has to carry as much as the least of these that it can be. Sources beside those named:
NVIDIA/nccl src/graph and src/device; stas00/ml-engineering network (hierarchical all_reduce).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pytest_gpuready.model.busbw import algbw_of, algorithm_of, collective_of, factor, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What ran and where. `algorithm` as NCCL names it, "" where nobody saw it; nodes have equally many ranks."""

    collective: str
    ranks: int
    nodes: int = 1
    algorithm: str = ""

    def __post_init__(self) -> None:
        if not collective_of(self.collective):
            raise ValueError(f"collective: expected one that is judged, found {self.collective!r}")
        if self.ranks < 1 or self.nodes < 1 or self.ranks % self.nodes:
            raise ValueError(f"expected equally many ranks on each node, found {self.ranks} on {self.nodes}")
        object.__setattr__(self, "collective", collective_of(self.collective))
        object.__setattr__(self, "algorithm", algorithm_of(self.algorithm) or self.algorithm)

    @property
    def gpus(self) -> int:
        """GPUs of a node."""
        return self.ranks // self.nodes

    @property
    def stated(self) -> bool:
        """True where it is known how the data goes: an algorithm was seen, or the collective has none."""
        return bool(algorithm_of(self.algorithm)) or self.collective in ("alltoall", "sendrecv")

    def __str__(self) -> str:
        """ "all_reduce over 16 ranks on 2 nodes, Tree"."""
        where = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        how = "" if self.collective in ("alltoall", "sendrecv") else f", {self.algorithm or 'algorithm not known'}"
        return f"{self.collective} over {self.ranks} ranks on {where}{how}"


@dataclass(frozen=True, slots=True)
class Wire:
    """Between how much and how much goes over a wire, one direction; `most` infinite where nobody knows."""

    least: float
    most: float

    @property
    def known(self) -> bool:
        return self.most < math.inf

    @property
    def exact(self) -> bool:
        return self.known and math.isclose(self.least, self.most, rel_tol=1e-9, abs_tol=1e-12)

    def times(self, speed: float) -> Wire:
        return Wire(self.least * speed, self.most * speed if self.most < math.inf else math.inf)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.most:.4g}"
        return f"{self.least:.4g} to {self.most:.4g}" if self.known else f"{self.least:.4g} or more"


NOTHING = Wire(0.0, 0.0)
UNKNOWN = Wire(0.0, math.inf)
_Way = tuple[Wire, Wire]
"""Inside and across."""


def inside(shape: Shape) -> Wire:
    """Bytes over the NVLinks of the busiest GPU, one direction, for each byte of the size."""
    return _ways(shape)[0]


def across(shape: Shape) -> Wire:
    """Bytes out of the busiest node, one direction, for each byte of the size; nothing on one node."""
    return _ways(shape)[1]


def per_busbw(shape: Shape, ways: Wire) -> Wire:
    """The same for each byte of busbw; unknown where busbw says nothing (one rank)."""
    times = factor(shape.collective, shape.ranks)
    return Wire(ways.least / times, ways.most / times) if times else UNKNOWN


def nvlink_wire(shape: Shape, busbw_gb_per_s: float) -> Wire:
    """GB/s over the NVLinks of the busiest GPU at this busbw, one direction."""
    return _wire(shape, inside(shape), busbw_gb_per_s)


def node_wire(shape: Shape, busbw_gb_per_s: float) -> Wire:
    """GB/s out of the busiest node at this busbw, over all of its rails, one direction."""
    return _wire(shape, across(shape), busbw_gb_per_s)


def busbw_at(shape: Shape, ways: Wire, wire_gb_per_s: float) -> Wire:
    """The busbw at which so much goes over the wire: the other way round of `nvlink_wire` and `node_wire`."""
    per = per_busbw(shape, ways)
    least = wire_gb_per_s / per.most if 0 < per.most < math.inf else (math.inf if per.most == 0 else 0.0)
    return Wire(least, wire_gb_per_s / per.least if per.least else math.inf)


def _wire(shape: Shape, ways: Wire, busbw_gb_per_s: float) -> Wire:
    algbw = algbw_of(shape.collective, shape.ranks, busbw_gb_per_s)
    return UNKNOWN if algbw is None else ways.times(algbw)


def _ways(shape: Shape) -> _Way:
    if shape.ranks == 1:
        return NOTHING, NOTHING
    name = plain(shape.collective)
    if name == "alltoall":
        return _alltoall(shape)
    if name == "sendrecv":
        return (Wire(1, 1) if shape.gpus > 1 else NOTHING), _out(shape, Wire(1, 1))
    table = _ADDS if name == "allreduce" else _PARTS
    if algorithm_of(shape.algorithm):
        return table[shape.algorithm](shape) if shape.algorithm in table else (UNKNOWN, UNKNOWN)
    # What nobody uses on one node cannot be what ran there.
    asked = [of for name, of in table.items() if shape.nodes > 1 or name not in _BETWEEN_NODES]
    all_ways = [way for way in (of(shape) for of in asked) if way[0].known and way[1].known]
    return _around([way[0] for way in all_ways]), _around([way[1] for way in all_ways])


def _around(wires: list[Wire]) -> Wire:
    return Wire(min(wire.least for wire in wires), max(wire.most for wire in wires))


def _out(shape: Shape, wire: Wire) -> Wire:
    return wire if shape.nodes > 1 else NOTHING


def _ring(shape: Shape) -> _Way:
    link = factor(shape.collective, shape.ranks) or 0.0
    if shape.nodes == 1:
        return Wire(link, link), NOTHING
    part = (shape.gpus - 1) / shape.gpus
    return (Wire(link * part, link) if part else NOTHING), Wire(link, link)


def _chain(shape: Shape) -> Wire:
    gpus = shape.gpus
    return Wire(2 * (gpus - 1) / gpus, 2 if gpus > 2 else gpus - 1)


def _trees(shape: Shape) -> Wire:
    nodes = shape.nodes
    return Wire(2 * (nodes - 1) / nodes, 2 if nodes > 2 else nodes - 1)


def _switch(shape: Shape) -> Wire:
    return Wire(1, (shape.gpus + 1) / shape.gpus) if shape.gpus > 1 else NOTHING


def _owners(shape: Shape) -> Wire:
    gpus = shape.gpus
    return Wire(2 * (gpus - 1) / gpus, max(gpus - 1, 2 * (gpus - 1) / gpus))


def _alltoall(shape: Shape) -> _Way:
    gpus, ranks = shape.gpus, shape.ranks
    leaves = (ranks - gpus) / ranks
    own = (gpus - 1) / ranks
    return Wire(own, own + leaves * (gpus - 1) / gpus), _out(shape, Wire(gpus * leaves, gpus * leaves))


def _gathered(shape: Shape) -> _Way:
    gpus, nodes = shape.gpus, shape.nodes
    lacks = Wire((nodes - 1) / nodes, 1)
    return (Wire((gpus - 1) / gpus, 1) if gpus > 1 else NOTHING), _out(shape, lacks)


def _gathered_by_owners(shape: Shape) -> _Way:
    own, lacks = _gathered(shape)
    return Wire(own.least, max(own.most, shape.gpus - 1)), lacks


def _pat(shape: Shape) -> _Way:
    if shape.gpus > 1:
        return UNKNOWN, Wire((shape.nodes - 1) / shape.nodes, math.inf)
    return NOTHING, Wire((shape.ranks - 1) / shape.ranks, (shape.ranks - 1) / shape.ranks)


_ADDS: dict[str, Callable[[Shape], _Way]] = {
    "Ring": _ring,
    "Tree": lambda shape: (_chain(shape), _trees(shape)),
    "NVLS": lambda shape: (_switch(shape), _out(shape, Wire(1, 1))),
    "NVLSTree": lambda shape: (_switch(shape), _trees(shape)),
    "CollnetDirect": lambda shape: (_owners(shape), _out(shape, Wire(1, 1))),
    "CollnetChain": lambda shape: (_chain(shape), _out(shape, Wire(1, 1))),
}
_BETWEEN_NODES = ("NVLSTree", "CollnetDirect", "CollnetChain")
_PARTS: dict[str, Callable[[Shape], _Way]] = {
    "Ring": _ring,
    "NVLS": _gathered,
    "CollnetDirect": _gathered_by_owners,
    "PAT": _pat,
}
