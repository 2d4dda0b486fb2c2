"""One run of a `dcgmi diag` test -> what it says of every expected GPU, and of the node as a whole.

Exit code, JSON, text around it and absent results are read together. A failure that stands in the output counts
whatever else is wrong with the run; a pass counts only where nothing casts doubt on it. A test that fails for all
parts together blames none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import CommandResult, Node, Slot
from pytest_gpuready.model.agent_doc import AroundDoc
from pytest_gpuready.parse.agent import around_doc
from pytest_gpuready.parse.dcgm_diag import diag_run, exit_meaning
from pytest_gpuready.parse.dcgm_errors import SEVERITIES
from pytest_gpuready.parse.dcgm_parts import PartResult, Says, meaning_of, part_results
from pytest_gpuready.parse.dcgm_reasons import reason
from pytest_gpuready.parse.dcgm_run import DiagPass, DiagRun
from pytest_gpuready.probes.dcgm_tests import SOFTWARE, DcgmTest, package_of

PASSED = "passed"
FAILED_EXITS = (205, 226)
SPEED = frozenset((30, 31, 50, 62, 63, 110))
"""Errors about a figure below its floor: bandwidth, latency, stress level, memory bandwidth, power, GFLOP/s."""
NVLINK_DOWN = 14
WHOLE = ("", "all GPUs")
"""Parts that stand for every GPU: a result without an entity, and the tables of 3.x."""
LONGEST = 600
NO_SUCH_TEST = reason("dependent package")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a run says of one part: `failed` (found wrong), else `open` (why nothing was measured), else it passed.

    Whoever says nothing leaves it open. `stands`: a failure that no repetition takes back, wrong bytes or an error of
    the hardware rather than a figure below its floor.
    """

    failed: str = ""
    open: str = "expected a result, found none"
    detail: str = ""
    stands: bool = False
    info: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One run. `gpus` by the slot's address, `whole` is what no GPU is named for, `doubt` why no pass counts."""

    version: str = ""
    doubt: str = ""
    numbering: str = ""
    doc: AroundDoc | None = None
    gpus: dict[str, Said] = field(default_factory=dict)
    whole: Said = Said()


def read(test: DcgmTest, node: Node, result: CommandResult) -> Reading:
    """What the result of one command says."""
    try:
        doc = around_doc(result)
    except (ToolError, ParseError) as error:
        return _nothing(str(error))
    asked = result.command.argv[result.command.argv.index("--") + 1 :]
    if tuple(doc.argv) != tuple(asked):
        return _nothing(f"expected the output of {' '.join(asked)!r}, found that of {' '.join(doc.argv)[:80]!r}", doc)
    if doc.problem and not doc.stdout.strip():
        return _nothing(f"{doc.problem}; install DCGM (datacenter-gpu-manager-4-cuda13 or alike), or correct PATH", doc)
    try:
        run = diag_run(doc.stdout, doc.stderr, doc.exit_code)
    except ParseError as error:
        return _nothing(f"{_ended_early(doc)}{error}", doc)
    stranger = _stranger(run, node)
    if stranger:
        return _nothing(stranger, doc)
    parts = [part for one in run.passes for part in part_results(one, nvlink_fitted=node.nvlink)]
    doubt = _doubt(run, doc, parts, test)
    try:
        places, numbering = _places(node, run.passes)
    except ParseError as error:
        places, numbering, doubt = {}, "", doubt or str(error)
    parts = [_without_links(part, node) for part in parts]
    ours = [part for part in parts if _is(part, test.name)]
    gpus = {slot.bdf: _gpu(slot, test, parts, places, doubt) for slot in node.slots if slot.bdf}
    # A test of the node is judged by all its results; the software checks by what no GPU of ours is named for.
    whole = ours if test.per == "node" else [part for part in ours if part.gpu is None or part.gpu not in places]
    return Reading(
        version=run.version,
        doubt=doubt,
        numbering=numbering,
        doc=doc,
        gpus=gpus,
        whole=_said(whole, ours, doubt, test.name),
    )


def _nothing(says: str, doc: AroundDoc | None = None) -> Reading:
    return Reading(doubt=says, doc=doc, whole=Said(open=_cut(says)))


def _ended_early(doc: AroundDoc) -> str:
    return f"it was ended after {doc.seconds:.0f} s: " if doc.ended_early else ""


def _stranger(run: DiagRun, node: Node) -> str:
    """Why these results are of another machine than the one that is meant; then not even a failure counts."""
    if run.unreachable_host:
        return (
            f"expected results of {run.unreachable_host}, found it unreachable: dcgmi tested the machine where it ran"
        )
    if run.driver and node.driver and run.driver != node.driver:
        return f"expected results of driver {node.driver}, found {run.driver}: another machine answered"
    known = node.dcgm.version if node.dcgm else ""
    if run.version and known and run.version.partition(".")[0] != known.partition(".")[0]:
        return f"expected results of DCGM {known}, found those of {run.version}: another installation answered"
    return ""


def _doubt(run: DiagRun, doc: AroundDoc, parts: Sequence[PartResult], test: DcgmTest) -> str:
    """Why no pass of this run counts, the weightiest reason first; "" where it is sound."""
    return next(filter(None, _doubts(run, doc, parts, test)), "")


def _doubts(run: DiagRun, doc: AroundDoc, parts: Sequence[PartResult], test: DcgmTest) -> Iterator[str]:
    if doc.problem:
        yield f"expected dcgmi diag to end well, found: {doc.problem}"
    if run.runtime_errors:
        said = run.runtime_errors[0]
        suspect, remedy = reason(said)
        if (suspect, remedy) == NO_SUCH_TEST:  # DCGM's own words name no package
            yield f"expected {test.name}, found that its plug-in package is missing; install {package_of(test.name)}"
        yield f"expected results, found none: {suspect} (dcgmi: {said[:240]!r}); {remedy}"
    if doc.ended_early:
        yield f"expected dcgmi diag to end by itself, found it running after {doc.seconds:.0f} s; read nvvs.log"
    if run.form != "json":
        yield "expected JSON, as was asked for, found a table for people: not everything stands in it; keep its output"
    if run.doubts:
        yield f"expected all that dcgmi printed, found: {run.doubts[0]}; keep its whole output"
    if doc.cut:
        yield "expected all that dcgmi printed, found more than is kept; run it by hand"
    if not run.passes:
        yield f"expected results of {test.name}, found none; read nvvs.log"
    if test.name != SOFTWARE and run.version.startswith("4.") and not any(_is(part, SOFTWARE) for part in parts):
        yield f"expected the software checks before {test.name}, found none of them; keep the whole output"
    failed = [part for part in parts if part.says is Says.FAILED]
    code = doc.exit_code
    if code and not (code in FAILED_EXITS and failed):
        what = "although nothing failed" if code in FAILED_EXITS else "beside results"
        yield f"expected exit code 0, found {code} ({exit_meaning(code)}) {what}; read nvvs.log"
    if run.overall == "Fail" and not failed:
        yield "expected a failing test, found the overall result Fail alone; read nvvs.log"
    other = next((p for p in failed if not _is(p, test.name) and not _is(p, SOFTWARE)), None)
    if other:
        yield f"expected {test.name} alone, found {other.test.name} failing beside it"


def _places(node: Node, passes: Sequence[DiagPass]) -> tuple[dict[int, Slot], str]:
    """DCGM's GPU number -> our slot, and how that is known. A number that has no slot is none of ours.

    Raises:
        ParseError: nobody can say which GPU a number is.
    """
    found = sorted((slot for slot in node.slots if slot.gpu), key=lambda slot: slot.bdf)
    by_serial = {slot.gpu.serial: slot for slot in found if slot.gpu and slot.gpu.serial}
    places: dict[int, Slot] = {}
    how = "by serial number"
    for one in passes:
        listed = [entity for entity in one.entities or () if entity.kind == "GPU" and entity.number is not None]
        serials = {entity.number: entity.serial for entity in listed if entity.number is not None and entity.serial}
        numbers = one.gpu_numbers()
        if serials and by_serial:
            now = {number: by_serial[serial] for number, serial in serials.items() if serial in by_serial}
            if not now:
                other = min(serials.values())
                raise ParseError(f"expected GPUs of this node, found serial numbers of others ({other[:40]})")
        elif numbers == tuple(range(len(found))):
            how, now = "in the order of PCI addresses", dict(zip(numbers, found, strict=True))
        else:
            raise ParseError(
                f"expected {len(found)} GPUs in DCGM's list, found {len(numbers)} and no serial numbers to tell which"
            )
        for entity in listed:
            slot = now.get(entity.number if entity.number is not None else -1)
            model = slot.gpu.pci_id.partition(":")[2] if slot and slot.gpu else ""
            if slot and model and entity.device_id and not entity.device_id.lower().startswith(model):
                raise ParseError(f"{slot.part.label}: expected device {model}, found {entity.device_id} in DCGM's list")
        if any(places.get(number, slot) is not slot for number, slot in now.items()):
            raise ParseError("expected one numbering of GPUs, found two passes that differ")
        places |= now
    return places, how


def _without_links(part: PartResult, node: Node) -> PartResult:
    """A result that fails by NVLinks that are not fitted measured nothing: DCGM cannot be told so."""
    ids = {error.id if error.id is not None else meaning_of(error).id for error in part.errors}
    if node.nvlink or part.says is not Says.FAILED or ids != {NVLINK_DOWN}:
        return part
    why = f"DCGM calls NVLinks down that are not fitted here ({node.nvlink_none or 'none is expected'})"
    remedy = "exclude this clause with that reason, or run a DCGM that knows this machine"
    return dataclasses.replace(part, says=Says.UNMEASURED, suspect=why, remedy=remedy)


def _is(part: PartResult, name: str) -> bool:
    """Whether a result belongs to this test; up to 3.x the software checks have names of their own."""
    return part.test.key == name or (name == SOFTWARE and part.test.software_check)


def _gpu(slot: Slot, test: DcgmTest, parts: Sequence[PartResult], places: dict[int, Slot], doubt: str) -> Said:
    """What the run says of one GPU: of the test itself, and of the software checks that run before each test."""
    mine = [p for p in parts if p.gpu is not None and places.get(p.gpu) is slot]
    all_of_them = [p for p in parts if p.gpu is None and p.part in WHOLE]
    own = [p for p in mine if _is(p, test.name)]
    shared = [p for p in all_of_them if _is(p, test.name)]
    if test.name == SOFTWARE:
        # What fails for all together is the node's clause; here it leaves the GPU open.
        open_ = next((f"no GPU is named: {_told(p)}" for p in shared if p.says is not Says.PASSED), "")
        own = own or [p for p in shared if p.says is Says.PASSED]
        return _said(own, own, doubt or open_, test.name)
    before = [p for p in mine if _is(p, SOFTWARE) and p.says is not Says.PASSED]
    whole = next((p for p in all_of_them if _is(p, SOFTWARE) and p.says is not Says.PASSED), None)
    if whole:
        doubt = doubt or f"the software checks before it failed for the node as a whole: {_told(whole)}"
    return _said([*own, *shared, *before], [*own, *shared], doubt, test.name)


def _said(parts: Sequence[PartResult], ours: Sequence[PartResult], doubt: str, name: str) -> Said:
    failed = [p for p in parts if p.says is Says.FAILED]
    if failed:
        told = "; ".join(dict.fromkeys(_told(p) for p in failed))
        slow = all(p.errors and all(meaning_of(error).id in SPEED for error in p.errors) for p in failed)
        return Said(open="", failed=_cut(told), detail=_what_to_do(failed), stands=not slow)
    if doubt:
        return Said(open=_cut(doubt))
    unmeasured = [p for p in parts if p.says is Says.UNMEASURED]
    if unmeasured:
        return Said(open=_cut("; ".join(dict.fromkeys(_told(p) for p in unmeasured))))
    if not ours:
        none = f"expected a result of {name}, found none (its plug-in may be missing, or it did not run)"
        return Said(open=f"{none}; install {package_of(name)}, or read nvvs.log")
    info = tuple(" ".join(text.split()) for p in ours for text in p.info)
    return Said(open="", detail=_cut("; ".join(info)), info=info)


def _told(part: PartResult) -> str:
    """A result in one line: the test where it is another one's, DCGM's error with id and grade, or why it is open."""
    said = []
    for error in part.errors:
        known = meaning_of(error)
        severity = error.severity if error.severity is not None else -1
        grade = f", DCGM: {SEVERITIES[severity]}" if 0 <= severity < len(SEVERITIES) else ""
        number = error.id if error.id is not None else (known.id if known.id >= 0 else "?")
        said.append(f"error {number} {known.name}{grade}: {' '.join(error.text.split())[:240]}")
    if part.says is Says.UNMEASURED:
        printed = f"{part.test.name}: {part.printed}" if part.printed else part.test.name
        return "; ".join(filter(None, (f"{printed}, {part.suspect}", *said, part.remedy)))
    return f"{part.test.name}: {'; '.join(said) or part.suspect or 'Fail'}"


def _what_to_do(failed: Sequence[PartResult]) -> str:
    suspects = dict.fromkeys(part.suspect for part in failed if part.suspect)
    remedies = dict.fromkeys(part.remedy for part in failed if part.remedy)
    return _cut(f"suspect: {'; '.join(suspects)}; {'; '.join(remedies)}".strip("; "))


def _cut(text: str) -> str:
    plain = " ".join(text.encode("utf-8", "replace").decode().split())
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 3]}..."
