"""What the NVML document answers: every level-1 metric of every expected GPU, and whether the driver's parts agree.

Expected slots are matched with NVML's GPUs by bus address. A slot that NVML does not answer for is a finding under
`gpu.present` and a Problem under everything else. Where NVML as a whole does not answer, nothing was measured at all,
presence included: that is no verdict about any GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, ProblemKind, Slot
from pytest_gpuready.model.agent_doc import GpuDoc, NvmlDoc
from pytest_gpuready.parse.agent import nvml_doc
from pytest_gpuready.probes import gpu_readings, nvlink
from pytest_gpuready.probes.answers import Answer, agent_command, complete, evidence, not_measured
from pytest_gpuready.probes.driver import agreement
from pytest_gpuready.probes.gpu_readings import Reading, Unread

READINGS = {**gpu_readings.READINGS, **nvlink.READINGS}
PRESENT, AGREEMENT, TOPOLOGY = "gpu.present", "driver.agreement", "nvlink.topology"
PER_GPU = (PRESENT, *READINGS, TOPOLOGY)

ANSWERED = "on the bus and answered by NVML"
SILENT = "on the bus, not answered by NVML"
ABSENT = "absent"

ADVICE = {
    "NotSupported": "if this model has no such thing, its profile must say so (not_applicable)",
    "FunctionNotFound": "the driver or nvidia-ml-py is older than this call: update it",
    "NoPermission": "run as a user who may read it (root)",
}


class NvmlProbe:
    """The agent's NVML document, once per node."""

    name = "nvml"
    metrics: tuple[str, ...] = (*PER_GPU, AGREEMENT)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """The node as a whole: all its GPUs are read in one go."""
        return (node.part,)

    def command(self, node: Node, scope: Part) -> Command:
        """The agent's probe "nvml", one minute at most: a hanging driver is a finding, not a wait."""
        return agent_command(node, "nvml", timeout_s=60.0, says="NVML")

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        """Every metric for each expected GPU, and the driver's for the node."""
        return complete(_wanted(node), [_run(node, result) for result in results])


def _wanted(node: Node) -> list[tuple[str, Part]]:
    return [(metric, slot.part) for metric in PER_GPU for slot in node.slots] + [(AGREEMENT, node.part)]


def _run(node: Node, result: CommandResult) -> list[Answer]:
    seen = evidence(result)
    try:
        document = nvml_doc(result)
    except (ToolError, ParseError) as error:
        return [not_measured(metric, part, str(error), seen) for metric, part in _wanted(node)]
    return nvml_answers(node, document, seen)


def nvml_answers(node: Node, document: NvmlDoc, seen: tuple[str, ...]) -> list[Answer]:
    """Every metric of the document for each expected GPU, and the driver's for the node."""
    if document.problem:
        says = f"{document.problem}{_versions(document)}"
        return [not_measured(metric, part, f"{part.label}: {says}", seen) for metric, part in _wanted(node)]
    answering = {gpu.bdf: gpu for gpu in document.gpus if gpu.bdf not in document.lost}
    expected = {slot.bdf: answering[slot.bdf] for slot in node.slots if slot.bdf in answering}
    links = nvlink.topology(expected, len(node.slots) - 1)
    answers: list[Answer] = [_driver(node, document, seen)]
    for slot in node.slots:
        gpu = expected.get(slot.bdf)
        answers.append(_presence(node, slot, gpu, document, seen))
        if gpu is None:
            says = _missing(slot, document)
            answers += [not_measured(m, slot.part, says, seen) for m in (*READINGS, TOPOLOGY)]
            continue
        answers += [_reading(metric, slot.part, gpu, document, seen) for metric in READINGS]
        alone = _alone(node, slot) if len(expected) == 1 else ""
        if alone and isinstance(links[slot.bdf], Unread):
            answers.append(not_measured(TOPOLOGY, slot.part, alone, seen))
        else:
            answers.append(_answer(TOPOLOGY, slot.part, links[slot.bdf], document, seen))
    return answers


def _presence(node: Node, slot: Slot, gpu: GpuDoc | None, document: NvmlDoc, seen: tuple[str, ...]) -> Answer:
    on_bus = slot.gpu is not None and slot.gpu.on_bus
    if gpu is not None and not on_bus:
        says = f"{slot.part.label}: NVML answers for {gpu.bdf}, the PCI bus does not show it; make /sys/bus/pci visible"
        return not_measured(PRESENT, slot.part, says, seen)
    if gpu is not None and not gpu.uuid.strip():
        found = gpu.errors.get("uuid", "an empty text")
        says = f"{slot.part.label}: expected uuid for {PRESENT}, found {found}: nobody knows which GPU this is"
        return not_measured(PRESENT, slot.part, says, seen)
    if gpu is not None:
        value, detail = ANSWERED, " ".join(filter(None, (gpu.name, gpu.uuid)))
    else:
        value = SILENT if on_bus else ABSENT
        detail = _why_silent(slot, document)
        if node.extra_gpus and value == ABSENT:
            detail += f"; a GPU that nobody expects is at {', '.join(node.extra_gpus[:4])}: declared wrongly or swapped"
    return Measurement(metric=PRESENT, part=slot.part.name, value=value, detail=detail, evidence=seen)


def _why_silent(slot: Slot, document: NvmlDoc) -> str:
    """NVML's name for the error, of this address or of those it could not even open."""
    if slot.bdf in document.lost:
        return f"NVML: {document.lost[slot.bdf]}"
    unopened = [f"index {index}: {error}" for index, error in document.lost.items() if index.isdecimal()]
    if unopened:
        return f"NVML could not open {', '.join(unopened)}"
    return f"NVML shows {len(document.gpus)} GPUs, none at {slot.bdf or 'an unknown address'}"


def _missing(slot: Slot, document: NvmlDoc) -> str:
    return f"{slot.part.label} is missing from NVML ({_why_silent(slot, document)}); begin with gpu.present"


def _alone(node: Node, slot: Slot) -> str:
    """Why a GPU that answers has no peer to have links to: no fault of its own. "" where none is expected."""
    peers = [f"GPU {other.part.index}" for other in node.slots if other.part != slot.part]
    if len(peers) < 2:
        peer = peers[0] if peers else ""
        return f"{slot.part.label}: its only peer, {peer}, does not answer; begin with GPU-1 on {peer}" if peer else ""
    return f"{slot.part.label}: none of its {len(peers)} peers answers; begin with GPU-1 on each of them"


def _reading(metric: str, part: Part, gpu: GpuDoc, document: NvmlDoc, seen: tuple[str, ...]) -> Answer:
    unit, read = READINGS[metric]
    try:
        said: Reading | Unread = read(gpu)
    except Unread as unread:
        said = unread
    return _answer(metric, part, said, document, seen, unit=unit)


def _driver(node: Node, document: NvmlDoc, seen: tuple[str, ...]) -> Answer:
    try:
        said: Reading | Unread = agreement(document)
    except Unread as unread:
        said = unread
    return _answer(AGREEMENT, node.part, said, document, seen)


def _answer(
    metric: str, part: Part, said: Reading | Unread, document: NvmlDoc, seen: tuple[str, ...], *, unit: str = ""
) -> Answer:
    if isinstance(said, Unread):
        kind = ProblemKind.NO_SUCH_THING if said.error == "NotSupported" else ProblemKind.NOT_MEASURED
        advice = ADVICE.get(said.error, "")
        driver = f" (driver {document.driver})" if document.driver else ""
        says = f"{part.label}: expected {said.field} for {metric}, found {said.error}{driver}"
        return not_measured(metric, part, "; ".join(filter(None, (says, advice))), seen, kind)
    value, detail = said
    conditions = f"within {document.window_s:g} s" if metric == "nvlink.errors" else ""
    return Measurement(
        metric=metric, part=part.name, value=value, unit=unit, detail=detail, conditions=conditions, evidence=seen
    )


def _versions(document: NvmlDoc) -> str:
    """The versions that could be read although NVML does not start: the reason is often their difference."""
    parts = {"kernel module": document.driver_module, **document.libraries}
    told = ", ".join(f"{name} {version}" for name, version in parts.items() if version)
    return f" ({told})" if told else ""
