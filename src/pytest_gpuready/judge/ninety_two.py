"""The rule that everybody knows, "92 % of 400 GB/s is healthy, under 300 stop", on wire bytes and with its limits.

Its 400 GB/s are eight rails of 400 Gbit/s: what leaves a node in one direction. So it is asked of the wire, not of
busbw, and it says itself where it knows nothing: on a tree a busbw of 368 needs 196 GB/s of two nodes, half of their
rails; a healthy ring on Hopper reaches 365 to 369, for it crosses NVLink too; inside a node healthy rings use 66 to
82 % of NVLink, and NVLS has 107 % by busbw and 69 % on the wire.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_gpuready.judge.maximum import Hardware, Maximum, ceiling, of_gpu, of_node, shares
from pytest_gpuready.judge.wire import Shape, Wire, across, inside, node_wire, nvlink_wire, per_busbw

POLICY = "ninety-two-percent"
HEALTHY = 0.92
STOP = 0.75
LEAST_BYTES = 1 << 30
"""Smaller messages do not fill a fabric, and a low figure is no fault of it."""
USUALLY = "usually optics, PCIe bifurcation or MTU of a rail"
HEALTHY_NVLINK = {"NVLS": 0.6, "NVLSTree": 0.6, "Ring": 0.75, "Tree": 0.75}
"""The least part of NVLink that healthy nodes use in an all_reduce: rings 682 of 900 (8 x B200) and 341 of 450
(2 x H200), NVLS 274 of 450 (8 x H100)."""
HEALTHY_NVLINK_OTHERS = 0.65
"""The same of other collectives: reduce_scatter 297 of 450 (2 x H200)."""

WORDS = ("healthy", "marginal", "stop", "proves nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the rule says of one busbw. `verdict` is one of `WORDS`; `share` (parts of 1) and `wire` (GB/s) are ranges.

    `why` is the reason of a verdict that is not plain from the share, `warnings` what the rule gets wrong here. `wire`
    is a node's over its rails, or inside a node a GPU's over NVLink. None where the hardware is not known.
    """

    verdict: str
    busbw_gb_per_s: float
    share: Wire | None = None
    wire: Wire | None = None
    maximum: Maximum | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def stops(self) -> bool:
        """True where later tiers must not run."""
        return self.verdict == "stop"

    @property
    def text(self) -> str:
        """One line for a clause."""
        said = f"{POLICY}: busbw {self.busbw_gb_per_s:.4g} GB/s"
        if self.wire and self.share and self.maximum:
            whose = "per node" if self.maximum.rails else "per GPU"
            said += f" is {self.wire} of {self.maximum.gb_per_s:.4g} GB/s on the wire {whose} ({self.maximum.says})"
            if self.maximum.rails and self.wire.known:
                said += f", {self.wire.times(1 / self.maximum.rails)} per rail"
            said += f", {_percent(self.share)}"
        said += f": {self.verdict}" + (f", {self.why}" if self.why else "")
        return "; ".join((said, *(f"warning: {warning}" for warning in self.warnings)))


def ninety_two(shape: Shape, busbw_gb_per_s: float, size_bytes: int, hardware: Hardware) -> Ruling:
    """The rule on one row. Total: what cannot be judged "proves nothing" and says why."""
    if not 0 < busbw_gb_per_s < math.inf or shape.ranks == 1:
        return Ruling(verdict="proves nothing", busbw_gb_per_s=busbw_gb_per_s, why="nothing crossed a link")
    wire = node_wire(shape, busbw_gb_per_s) if shape.nodes > 1 else nvlink_wire(shape, busbw_gb_per_s)
    found = shares(shape, wire, hardware)
    if found is None:
        lacks = "rails and their rates" if shape.nodes > 1 else "NVLinks and their rate"
        return Ruling(
            verdict="proves nothing",
            busbw_gb_per_s=busbw_gb_per_s,
            why=f"there is no theoretical maximum without {lacks}",
        )
    share, maximum = found
    row = _Row(
        shape=shape,
        busbw=busbw_gb_per_s,
        size_bytes=size_bytes,
        share=share,
        maximum=maximum,
        hardware=hardware,
    )
    verdict, why = _verdict(row)
    return Ruling(
        verdict=verdict,
        busbw_gb_per_s=busbw_gb_per_s,
        share=share,
        wire=wire,
        maximum=maximum,
        why=why,
        warnings=() if verdict == "stop" else _warnings(shape, busbw_gb_per_s, maximum, hardware),
    )


def nvlink_reach(shape: Shape, hardware: Hardware) -> float:
    """The busbw up to which healthy NVLinks do not hold this shape back; infinite where they carry nothing."""
    gpu, per = of_gpu(hardware), per_busbw(shape, inside(shape))
    if gpu is None or not 0 < per.most < math.inf:
        return math.inf
    part = HEALTHY_NVLINK_OTHERS
    if shape.collective == "all_reduce":
        part = HEALTHY_NVLINK.get(shape.algorithm, HEALTHY_NVLINK["Ring"])
    return gpu.gb_per_s * part / per.most


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What the rule is asked about."""

    shape: Shape
    busbw: float
    size_bytes: int
    share: Wire
    maximum: Maximum
    hardware: Hardware

    @property
    def highest(self) -> float:
        """The highest share that anybody can read into it.

        Where rings are not what ran, healthy fabrics use less of the wire than the rule was made for: nobody is stopped
        who would not be stopped by busbw, too.
        """
        by_busbw = self.busbw / self.maximum.gb_per_s if _hierarchical(self.shape) else 0.0
        return max(self.share.most, by_busbw)


def _verdict(row: _Row) -> tuple[str, str]:
    most = ceiling(row.shape, row.hardware)
    broken = f"a broken measurement: {most.says}" if most and row.busbw > most.busbw_gb_per_s else ""
    if not broken and row.share.least >= HEALTHY:
        return "healthy", ""
    if not_for := broken or _not_for(row):
        return "proves nothing", not_for
    if row.highest < STOP:
        return "stop", _stop_says(row)
    if row.share.least >= STOP:
        return "marginal", f"healthy from {100 * HEALTHY:g} %, stop under {100 * STOP:g} %"
    return "proves nothing", _undecided(row)


def _undecided(row: _Row) -> str:
    if not row.shape.stated:
        return "the algorithm was not seen, and they differ in what they put on the wire"
    if _hierarchical(row.shape):
        return _tree_says(row.shape, row.maximum)
    return "nobody knows over how many rails it went"


def _not_for(row: _Row) -> str:
    """Why a share under 92 % says nothing here; "" where it does."""
    if row.shape.nodes == 1:
        return "inside a node healthy hardware is below 92 % too"
    if row.size_bytes < LEAST_BYTES:
        return "messages under 1 GiB do not fill the wire"
    reach = nvlink_reach(row.shape, row.hardware)
    if row.highest < STOP and _network_share(row.shape, reach, row.maximum) < STOP:
        return f"NVLink holds healthy nodes at a busbw of {reach:.4g} here"
    return ""


def _stop_says(row: _Row) -> str:
    if row.maximum.narrow == "PCIe":
        return f"{USUALLY}; the maximum is that of PCIe"
    rails = row.maximum.rails
    worth = f"worth {row.share.most * rails:.1f} of {rails} rails, " if rails > 1 else ""
    return f"{worth}{USUALLY}"


def _hierarchical(shape: Shape) -> bool:
    return shape.collective == "all_reduce" and shape.algorithm != "Ring" and shape.nodes > 1


def _tree_says(shape: Shape, maximum: Maximum) -> str:
    asked = HEALTHY * maximum.gb_per_s
    needs = per_busbw(shape, across(shape)).times(asked)
    return (
        f"{shape.algorithm} on {shape.nodes} nodes needs {needs} GB/s of the wire for a busbw of {asked:.4g}, "
        "so that dead rails hide; run again with NCCL_ALGO=RING"
    )


def _network_share(shape: Shape, busbw: float, maximum: Maximum) -> float:
    per = per_busbw(shape, across(shape)).most
    return busbw * (max(per, 1.0) if _hierarchical(shape) else per) / maximum.gb_per_s


def _warnings(shape: Shape, busbw: float, maximum: Maximum, hardware: Hardware) -> tuple[str, ...]:
    if shape.nodes == 1:
        used = f"{100 * busbw / maximum.gb_per_s:.0f} % of NVLink by busbw"
        return (f"inside a node the rule proves nothing ({used}): healthy rings have 66 to 82 %, NVLS 107 %",)
    if _hierarchical(shape) and shape.stated:
        return (
            f"healthy fabrics are under 92 % with {shape.algorithm}: 230 to 258 of 400 GB/s were seen on two nodes; "
            "only a ring loads every rail",
        )
    reach, node, gpu = nvlink_reach(shape, hardware), of_node(shape, hardware), of_gpu(hardware)
    if node and _network_share(shape, reach, node) < HEALTHY:
        ring = shape.collective == "all_reduce" and shape.algorithm in ("Ring", "")
        hopper = ring and gpu is not None and (gpu.gb_per_s, node.gb_per_s) == (450.0, 400.0)
        seen = ": healthy rings of Hopper nodes reach 365 to 369 of 400" if hopper else ""
        return (f"the rule rejects healthy nodes here, for the data crosses NVLink too{seen}",)
    return ()


def _percent(share: Wire) -> str:
    if share.exact:
        return f"{100 * share.most:.1f} %"
    return f"{100 * share.least:.1f} to {100 * share.most:.1f} %" if share.known else "a share that nobody knows"
