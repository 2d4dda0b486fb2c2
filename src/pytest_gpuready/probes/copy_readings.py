"""What one run of the copies says about each metric: a reading, or why there is none.

Counters are judged by their growth; one that is missing, or went backwards, is no reading and never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_gpuready.model import Node, ProblemKind, Value
from pytest_gpuready.model.agent_doc import CopiesDoc, CopyDoc, WatchDoc
from pytest_gpuready.model.units import show
from pytest_gpuready.probes.pcie_link import hops
from pytest_gpuready.probes.watched import under_load

LEAST_SAMPLES = 8
BANDWIDTHS = {
    "pcie.h2d.bandwidth": "h2d",
    "pcie.d2h.bandwidth": "d2h",
    "pcie.bidirectional.bandwidth": "bidirectional",
}
COUNTERS = {
    "pcie.replays": ("pcie_replay",),
    "pcie.errors.nak": ("pcie_nak_sent", "pcie_nak_received"),
    "pcie.errors.bad_tlp": ("pcie_bad_tlp",),
    "pcie.errors.receiver": ("pcie_receiver",),
    "pcie.errors.lane": ("pcie_lane",),
}
"""Metric per TB moved -> counters of the watch that it sums."""
FATAL = ("pcie_fatal", "pcie_nonfatal")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run says about one metric."""

    value: Value
    detail: str = ""
    conditions: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why one run says nothing about one metric."""

    says: str
    kind: ProblemKind = ProblemKind.NOT_MEASURED


OneAnswer = Reading | Missing


def answer(metric: str, run: CopiesDoc | str, node: Node) -> OneAnswer:
    """What one run says about one metric."""
    if isinstance(run, str):
        return Missing(run)
    if metric in BANDWIDTHS:
        return _bandwidth(run, BANDWIDTHS[metric])
    if metric in COUNTERS:
        return _per_tb(run, _growth(run.watch, COUNTERS[metric]))
    return READERS[metric](run, node)


def _bandwidth(doc: CopiesDoc, kind: str) -> OneAnswer:
    copy = next((c for c in doc.copies if c.kind == kind), None)
    if copy is None:
        return Missing(doc.problem or f"expected a copy {kind!r}, found none in the document")
    if not copy.verified:
        return Missing(doc.problem or f"expected bytes compared after {kind!r}, found them not compared")
    detail = ", ".join(f"{way} {rate:.2f}" for way, rate in sorted(copy.each.items(), reverse=True))
    return Reading(copy.gb_per_s, detail=detail, conditions=_conditions(copy), unit="GB/s")


def _conditions(copy: CopyDoc) -> str:
    low, high = min(copy.repeats, default=copy.gb_per_s), max(copy.repeats, default=copy.gb_per_s)
    return (
        f"{copy.size_bytes / 2**20:g} MiB pinned, median of {len(copy.repeats)} ({low:.2f}-{high:.2f}), bytes compared"
    )


def _link(column: str) -> Callable[[CopiesDoc, Node], OneAnswer]:
    def read(doc: CopiesDoc, _: Node) -> OneAnswer:
        found = _loaded(doc, column)
        if isinstance(found, Missing):
            return found
        low = int(min(found))
        other = sorted({int(v) for v in found} - {low})
        detail = ""
        if other:
            times = sum(int(v) == low for v in found)
            detail = f"{low} in {times} of {len(found)} samples, else {', '.join(map(str, other))}"
        return Reading(low, detail=detail, conditions=f"{len(found)} samples under load")

    return read


def _loaded(doc: CopiesDoc, column: str) -> list[float] | Missing:
    """Samples of a link column under load, enough of them to say something."""
    if not doc.copies or doc.watch is None:
        return Missing(doc.problem or "expected copies under a watch, found none in the document")
    found = under_load(doc.watch, column, [copy.kind for copy in doc.copies])
    if len(found) >= LEAST_SAMPLES:
        return found
    errors = doc.watch.errors
    why = errors.get(column) or errors.get("sampler") or errors.get("nvml")
    found_text = f"{len(found)}" + (f" (NVML: {why})" if why else "")
    return Missing(f"expected at least {LEAST_SAMPLES} samples of the link {column} under load, found {found_text}")


def _slot(doc: CopiesDoc, _: Node) -> OneAnswer:
    if doc.pcie_generation_max is None:
        why = doc.watch.errors.get("pcie_generation_max") if doc.watch else None
        kind = ProblemKind.NO_SUCH_THING if why == "NotSupported" else ProblemKind.NOT_MEASURED
        return Missing(f"expected the highest PCIe generation of card and slot from NVML, found {why or 'none'}", kind)
    device = doc.pcie_generation_max_device
    return Reading(doc.pcie_generation_max, detail=f"the card alone can do {device}" if device else "")


def _path(doc: CopiesDoc, node: Node) -> OneAnswer:
    if node.virtual:
        return Missing("a virtual machine shows no bridge of the machine it runs on", ProblemKind.HIDDEN)
    if not doc.path:
        return Missing("sysfs shows no bridge above the GPU", ProblemKind.HIDDEN)
    generations, widths = _loaded(doc, "generation"), _loaded(doc, "width")
    if isinstance(generations, Missing):
        return generations
    if isinstance(widths, Missing):
        return widths
    found = hops(int(min(generations)), int(min(widths)), doc.path)
    if isinstance(found, str):
        return Missing(found)
    narrow = min(found, key=lambda hop: hop.gb_per_s)
    return Reading(
        round(narrow.gb_per_s, 3),
        detail=f"narrowest of {len(found)}: {narrow}",
        conditions="theory per direction, read during a copy",
        unit="GB/s",
    )


def _fatal(doc: CopiesDoc, _: Node) -> OneAnswer:
    if not doc.copies:
        return Missing(doc.problem or "expected copies, found none in the document")
    growth = _growth(doc.watch, FATAL)
    if isinstance(growth, Missing):
        return growth
    return Reading(growth, conditions=f"{show(moved_bytes(doc) / 1e9, 'GB')} moved")


def _aer_correctable(doc: CopiesDoc, _: Node) -> OneAnswer:
    if doc.aer is None or doc.aer.correctable is None:
        return _no_aer()
    return _per_tb(doc, _grown("AER correctable", *doc.aer.correctable))


def _aer_uncorrectable(doc: CopiesDoc, _: Node) -> OneAnswer:
    if doc.aer is None or doc.aer.fatal is None or doc.aer.nonfatal is None:
        return _no_aer()
    if not doc.copies:
        return Missing(doc.problem or "expected copies, found none in the document")
    fatal, nonfatal = _grown("AER fatal", *doc.aer.fatal), _grown("AER non-fatal", *doc.aer.nonfatal)
    for one in (fatal, nonfatal):
        if isinstance(one, Missing):
            return one
    return Reading(
        int(fatal) + int(nonfatal),  # type: ignore[arg-type]  # both are numbers here
        detail=f"fatal {fatal}, non-fatal {nonfatal}" if fatal or nonfatal else "",
        conditions=f"{show(moved_bytes(doc) / 1e9, 'GB')} moved",
    )


def _no_aer() -> Missing:
    return Missing("sysfs shows no AER counters on the path of the GPU", ProblemKind.HIDDEN)


def _growth(seen: WatchDoc | None, names: Sequence[str]) -> int | Missing:
    """Growth of counters of the watch, summed."""
    if seen is None:
        return Missing("expected counters around the copies, found no watch in the document")
    total = 0
    for name in names:
        if name not in seen.before or name not in seen.after:
            why = seen.errors.get(name) or seen.errors.get("sampler") or seen.errors.get("nvml") or "no reading"
            kind = ProblemKind.NO_SUCH_THING if why == "NotSupported" else ProblemKind.NOT_MEASURED
            return Missing(f"expected counter {name} before and after, found {why}", kind)
        grown = _grown(name, seen.before[name], seen.after[name])
        if isinstance(grown, Missing):
            return grown
        total += grown
    return total


def _grown(name: str, before: int, after: int) -> int | Missing:
    if after < before:
        return Missing(
            f"expected counter {name} to grow or stand still, found {before} then {after}: something reset it"
        )
    return after - before


def _per_tb(doc: CopiesDoc, growth: int | Missing) -> OneAnswer:
    """A growth per 10^12 bytes moved."""
    if isinstance(growth, Missing):
        return growth
    moved = moved_bytes(doc)
    if not moved:
        return Missing(doc.problem or "expected copied bytes, found none in the document")
    return Reading(
        growth / moved * 1e12,
        detail=f"{growth} in {show(moved / 1e9, 'GB')}",
        conditions="growth over the copies",
        unit="per TB",
    )


def moved_bytes(doc: CopiesDoc) -> int:
    return sum(copy.moved_bytes for copy in doc.copies)


WORST = ("pcie.link.generation", "pcie.link.width", "pcie.slot.generation", "pcie.path.bandwidth")
READERS: dict[str, Callable[[CopiesDoc, Node], OneAnswer]] = {
    "pcie.link.generation": _link("generation"),
    "pcie.link.width": _link("width"),
    "pcie.slot.generation": _slot,
    "pcie.path.bandwidth": _path,
    "pcie.errors.fatal": _fatal,
    "pcie.aer.correctable": _aer_correctable,
    "pcie.aer.uncorrectable": _aer_uncorrectable,
}
METRICS = (
    "pcie.link.generation",
    "pcie.link.width",
    "pcie.slot.generation",
    "pcie.path.bandwidth",
    *BANDWIDTHS,
    "pcie.errors.fatal",
    *COUNTERS,
    "pcie.aer.correctable",
    "pcie.aer.uncorrectable",
)
