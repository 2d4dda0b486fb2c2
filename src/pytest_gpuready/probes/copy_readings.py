"""What one run of the copies says about each metric: a reading, or why there is none.

Counters are judged by their growth; one that is missing, or went backwards, is no reading and never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_gpuready.model import Node, ProblemKind
from pytest_gpuready.model.agent_doc import CopiesDoc, CopyDoc, LogLine, WatchDoc
from pytest_gpuready.model.units import show
from pytest_gpuready.parse.kernel_log import Sxid, Xid, sxids, xids
from pytest_gpuready.probes import copy_link
from pytest_gpuready.probes.copy_answer import Missing, OneAnswer, Reading
from pytest_gpuready.probes.copy_doubts import doubt, wrong_bytes
from pytest_gpuready.probes.kernel_events import doubt as doubt_of_log
from pytest_gpuready.probes.kernel_events import tell

CORRUPTED = "pcie.copies.corrupted"
SLOT = "pcie.slot.generation"
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
XIDS_AFTER, SXIDS_AFTER = "xid.hardware.after", "sxid.fatal.after"


def answer(metric: str, run: CopiesDoc | str, node: Node) -> OneAnswer:
    """What one run says about one metric."""
    if isinstance(run, str):
        return Missing(run)
    if metric == CORRUPTED and wrong_bytes(run):
        return Reading(wrong_bytes(run), detail=run.problem)
    if metric in AFTER:
        return _after(run, AFTER[metric])
    if metric == SLOT and not run.copies and not wrong_bytes(run):  # needs no copy: known where CUDA did not start too
        return copy_link.slot(run, node)
    why = doubt(run)
    return Missing(why) if why else _sound(metric, run, node)


def _after(doc: CopiesDoc, count: Callable[[Sequence[LogLine]], Sequence[Xid | Sxid]]) -> OneAnswer:
    """Events in the kernel log since boot as it stands after the copies, of whatever GPU or switch.

    What the watch saw meanwhile counts too. One event is a finding whatever else is missing; that there was none is
    believed of a whole log and a sound document only.
    """
    log = doc.log_after
    seen = [*(log.lines if log else []), *(doc.watch.log if doc.watch else [])]
    events = count(sorted({(line.t, line.text): line for line in seen}.values(), key=lambda line: line.t))
    if events:
        return Reading(len(events), detail=tell(events), conditions=log.source if log else "the watch alone")
    if log is None:
        return Missing("expected the kernel log after the copies, found none in the document; record the node again")
    why = doubt_of_log(log) or doubt(doc)
    return Missing(why) if why else Reading(0, conditions=f"{log.source}, read after {_moved(doc)}")


def _hardware_xids(lines: Sequence[LogLine]) -> Sequence[Xid | Sxid]:
    return [xid for xid in xids(lines) if xid.hardware]


def _fatal_sxids(lines: Sequence[LogLine]) -> Sequence[Xid | Sxid]:
    return [event for event in sxids(lines) if event.fatal]


def _sound(metric: str, doc: CopiesDoc, node: Node) -> OneAnswer:
    """The answer of a document in which nothing is doubtful."""
    if metric in BANDWIDTHS:
        return _bandwidth(doc, BANDWIDTHS[metric])
    if metric in COUNTERS:
        return _per_tb(doc, _growth(doc.watch, COUNTERS[metric]))
    return READERS[metric](doc, node)


def _bandwidth(doc: CopiesDoc, kind: str) -> OneAnswer:
    copy = next(c for c in doc.copies if c.kind == kind)
    detail = ", ".join(f"{way} {rate:.2f}" for way, rate in sorted(copy.each.items(), reverse=True))
    return Reading(copy.gb_per_s, detail=detail, conditions=_conditions(copy), unit="GB/s")


def _conditions(copy: CopyDoc) -> str:
    low, high = min(copy.repeats), max(copy.repeats)
    return (
        f"{copy.size_bytes / 2**20:g} MiB pinned, median of {len(copy.repeats)} ({low:.2f}-{high:.2f}), bytes compared"
    )


def _corrupted(doc: CopiesDoc, _: Node) -> OneAnswer:
    """No wrong byte: `answer` has told of any before."""
    return Reading(0, conditions=f"{_moved(doc)}, the last copy into each buffer compared")


def _fatal(doc: CopiesDoc, _: Node) -> OneAnswer:
    growth = _growth(doc.watch, FATAL)
    if isinstance(growth, Missing):
        return growth
    return Reading(growth, conditions=_moved(doc))


def _aer_correctable(doc: CopiesDoc, _: Node) -> OneAnswer:
    if doc.aer is None or doc.aer.correctable is None:
        return _no_aer()
    return _per_tb(doc, _grown("AER correctable", *doc.aer.correctable))


def _aer_uncorrectable(doc: CopiesDoc, _: Node) -> OneAnswer:
    if doc.aer is None or doc.aer.fatal is None or doc.aer.nonfatal is None:
        return _no_aer()
    fatal, nonfatal = _grown("AER fatal", *doc.aer.fatal), _grown("AER non-fatal", *doc.aer.nonfatal)
    for one in (fatal, nonfatal):
        if isinstance(one, Missing):
            return one
    return Reading(
        int(fatal) + int(nonfatal),  # type: ignore[arg-type]  # both are numbers here
        detail=f"fatal {fatal}, non-fatal {nonfatal}" if fatal or nonfatal else "",
        conditions=_moved(doc),
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
    if before < 0:
        return Missing(f"expected counter {name} of 0 or more, found {before}")
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
    return Reading(
        growth / moved * 1e12,
        detail=f"{growth} in {show(moved / 1e9, 'GB')}",
        conditions="growth over the copies",
        unit="per TB",
    )


def moved_bytes(doc: CopiesDoc) -> int:
    return sum(copy.moved_bytes for copy in doc.copies)


def _moved(doc: CopiesDoc) -> str:
    return f"{show(moved_bytes(doc) / 1e9, 'GB')} moved"


READERS: dict[str, Callable[[CopiesDoc, Node], OneAnswer]] = {
    "pcie.link.generation": copy_link.link("generation"),
    "pcie.link.width": copy_link.link("width"),
    SLOT: copy_link.slot,
    "pcie.path.bandwidth": copy_link.path,
    "pcie.errors.fatal": _fatal,
    "pcie.aer.correctable": _aer_correctable,
    "pcie.aer.uncorrectable": _aer_uncorrectable,
    CORRUPTED: _corrupted,
    "clock.event_reasons.load": copy_link.reasons,
}
AFTER = {XIDS_AFTER: _hardware_xids, SXIDS_AFTER: _fatal_sxids}
METRICS = (
    "pcie.link.generation",
    "pcie.link.width",
    SLOT,
    "pcie.path.bandwidth",
    *BANDWIDTHS,
    "pcie.errors.fatal",
    *COUNTERS,
    "pcie.aer.correctable",
    "pcie.aer.uncorrectable",
    CORRUPTED,
    XIDS_AFTER,
    SXIDS_AFTER,
    "clock.event_reasons.load",
)
BAD_IN_ANY_RUN = (CORRUPTED, XIDS_AFTER, SXIDS_AFTER)
"""Counts of what must never be: one run that found some is enough, whatever the others could not tell."""


def _low(reading: Reading) -> float:
    return float(reading.value)


def _high(reading: Reading) -> float:
    return -float(reading.value)


WORST: dict[str, Callable[[Reading], float]] = {
    "pcie.link.generation": _low,
    "pcie.link.width": _low,
    SLOT: _low,
    "pcie.path.bandwidth": _low,
    CORRUPTED: _high,
    XIDS_AFTER: _high,
    SXIDS_AFTER: _high,
    "clock.event_reasons.load": lambda reading: float(reading.value == copy_link.GOOD_REASONS),
}
"""Metrics of which the worst run counts and not the first -> what is smallest in that run."""
