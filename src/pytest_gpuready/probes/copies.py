"""Host copies of one GPU at a time ("copies"): link under load, bandwidth, PCIe errors while data moved.

Several results of a scope are a first run and its retests. Link readings take the worst of all runs; other values of
later runs stand in `repeats`. A run without an answer leaves none: what the other runs found is told in the problem.
Counters are judged by their growth; one that is missing, or went backwards, is a problem and never 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import (
    Command,
    CommandResult,
    Inventory,
    Measurement,
    Node,
    Part,
    Problem,
    ProblemKind,
    Value,
    Watch,
)
from pytest_gpuready.model.agent_doc import CopiesDoc, CopyDoc, WatchDoc
from pytest_gpuready.model.units import show
from pytest_gpuready.parse.agent import copies_doc
from pytest_gpuready.probes.pcie_link import hops
from pytest_gpuready.probes.together import TogetherProbe
from pytest_gpuready.probes.watched import under_load, watch

__all__ = ["CopiesProbe", "TogetherProbe"]

TIMEOUT_S = 120.0
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


Answer = Reading | Missing


class CopiesProbe:
    """`python -m pytest_gpuready.agent copies BDF`, once for every GPU that was found."""

    name = "copies"
    metrics = (
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

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """GPUs that have an address to copy to."""
        return tuple(slot.part for slot in node.slots if slot.gpu and slot.gpu.bdf)

    def command(self, node: Node, scope: Part) -> Command:
        """Raises: KeyError where the scope is none of `scopes(node)`."""
        bdf = {slot.part: slot.gpu.bdf for slot in node.slots if slot.gpu}[scope]
        return Command(
            node=node.name, argv=("python", "-m", "pytest_gpuready.agent", "copies", bdf), timeout_s=TIMEOUT_S
        )

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        evidence = tuple(sha256(result) for result in results)
        runs = [_document(result) for result in results]
        docs = [run for run in runs if isinstance(run, CopiesDoc)]
        watched = _watch(docs)
        return tuple(
            _merge(metric, scope, [_answer(metric, run, node) for run in runs], evidence, watched)
            for metric in self.metrics
        )


def sha256(result: CommandResult) -> str:
    """Digest of what a command printed."""
    return hashlib.sha256(result.stdout.encode("utf-8", "replace")).hexdigest()


def _document(result: CommandResult) -> CopiesDoc | str:
    """The document of one run, or the line that says why there is none."""
    try:
        doc = copies_doc(result)
    except (ToolError, ParseError) as error:
        return str(error)
    asked = result.command.argv[-1]
    if doc.bdf != asked:
        return f"copies: expected a document about {asked}, found one about {doc.bdf[:40]!r}"
    return doc


def _watch(docs: Sequence[CopiesDoc]) -> Watch | None:
    watches = [doc.watch for doc in docs if doc.watch]
    if not watches:
        return None
    last = docs[-1]
    moved = sum(_moved(doc) for doc in docs)
    facts = {"moved": show(moved / 1e9, "GB"), "host CPUs": last.cpus or "not bound"}
    if last.numa_node >= 0:
        facts["NUMA node"] = str(last.numa_node)
    return watch(watches, last.bdf, facts)


def _merge(
    metric: str, part: Part, answers: Sequence[Answer], evidence: tuple[str, ...], watched: Watch | None
) -> Measurement | Problem:
    """All runs in one answer; a run without an answer is a problem that tells the others' values."""
    for number, answer in enumerate(answers, 1):
        if isinstance(answer, Missing):
            others = [show(a.value, a.unit) for a in answers if isinstance(a, Reading)]
            says = f"run {number} of {len(answers)}: {answer.says}" if len(answers) > 1 else answer.says
            if others:
                says += f"; the other runs gave {', '.join(others)}"
            return Problem(metric=metric, part=part.name, kind=answer.kind, says=says, evidence=evidence)
    readings = [answer for answer in answers if isinstance(answer, Reading)]
    if not readings:
        return Problem(
            metric=metric, part=part.name, kind=ProblemKind.NOT_MEASURED, says="no run of the copies", evidence=evidence
        )
    first, repeats = readings[0], tuple(reading.value for reading in readings[1:])
    if metric in WORST:
        first, repeats = min(readings, key=lambda reading: float(reading.value)), ()
    return Measurement(
        metric=metric,
        part=part.name,
        value=first.value,
        unit=first.unit,
        detail=first.detail,
        conditions=first.conditions,
        repeats=repeats,
        evidence=evidence,
        watch=watched,
    )


def _answer(metric: str, run: CopiesDoc | str, node: Node) -> Answer:
    """What one run says about one metric."""
    if isinstance(run, str):
        return Missing(run)
    if metric in BANDWIDTHS:
        return _bandwidth(run, BANDWIDTHS[metric])
    if metric in COUNTERS:
        return _per_tb(run, _growth(run.watch, COUNTERS[metric]))
    return READERS[metric](run, node)


def _bandwidth(doc: CopiesDoc, kind: str) -> Answer:
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


def _link(column: str) -> Callable[[CopiesDoc, Node], Answer]:
    def read(doc: CopiesDoc, _: Node) -> Answer:
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


def _slot(doc: CopiesDoc, _: Node) -> Answer:
    if doc.pcie_generation_max is None:
        why = doc.watch.errors.get("pcie_generation_max") if doc.watch else None
        kind = ProblemKind.NO_SUCH_THING if why == "NotSupported" else ProblemKind.NOT_MEASURED
        return Missing(f"expected the highest PCIe generation of card and slot from NVML, found {why or 'none'}", kind)
    device = doc.pcie_generation_max_device
    return Reading(doc.pcie_generation_max, detail=f"the card alone can do {device}" if device else "")


def _path(doc: CopiesDoc, node: Node) -> Answer:
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


def _fatal(doc: CopiesDoc, _: Node) -> Answer:
    if not doc.copies:
        return Missing(doc.problem or "expected copies, found none in the document")
    growth = _growth(doc.watch, FATAL)
    if isinstance(growth, Missing):
        return growth
    return Reading(growth, conditions=f"{show(_moved(doc) / 1e9, 'GB')} moved")


def _aer_correctable(doc: CopiesDoc, _: Node) -> Answer:
    if doc.aer is None or doc.aer.correctable is None:
        return _no_aer()
    return _per_tb(doc, _grown("AER correctable", *doc.aer.correctable))


def _aer_uncorrectable(doc: CopiesDoc, _: Node) -> Answer:
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
        conditions=f"{show(_moved(doc) / 1e9, 'GB')} moved",
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


def _per_tb(doc: CopiesDoc, growth: int | Missing) -> Answer:
    """A growth per 10^12 bytes moved."""
    if isinstance(growth, Missing):
        return growth
    moved = _moved(doc)
    if not moved:
        return Missing(doc.problem or "expected copied bytes, found none in the document")
    return Reading(
        growth / moved * 1e12,
        detail=f"{growth} in {show(moved / 1e9, 'GB')}",
        conditions="growth over the copies",
        unit="per TB",
    )


def _moved(doc: CopiesDoc) -> int:
    return sum(copy.moved_bytes for copy in doc.copies)


WORST = ("pcie.link.generation", "pcie.link.width", "pcie.slot.generation", "pcie.path.bandwidth")
READERS: dict[str, Callable[[CopiesDoc, Node], Answer]] = {
    "pcie.link.generation": _link("generation"),
    "pcie.link.width": _link("width"),
    "pcie.slot.generation": _slot,
    "pcie.path.bandwidth": _path,
    "pcie.errors.fatal": _fatal,
    "pcie.aer.correctable": _aer_correctable,
    "pcie.aer.uncorrectable": _aer_uncorrectable,
}
