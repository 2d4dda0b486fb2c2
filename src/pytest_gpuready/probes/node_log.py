"""What a kernel log answers: Xids, SXids and uncorrected PCIe errors since boot.

A kernel log that lost its beginning proves no absence: without an Xid in what is left, nothing was measured. An Xid
that is there counts all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.model import Measurement, Node, Part, Slot
from pytest_gpuready.model.agent_doc import KernelLog, PciGpu
from pytest_gpuready.parse.kernel_log import APPLICATION, Sxid, Xid, sxids, xids
from pytest_gpuready.probes.answers import Answer, not_measured
from pytest_gpuready.probes.kernel_events import doubt, tell
from pytest_gpuready.probes.pcie_log import UNCORRECTED, pcie_answers

PER_GPU = ("xid.hardware", "xid.application", UNCORRECTED)
PER_NODE = ("xid.unplaced", "sxid.fatal", "sxid.nonfatal")


def log_answers(node: Node, log: KernelLog, bus: Sequence[PciGpu], seen: tuple[str, ...]) -> list[Answer]:
    """Every metric of the log for each expected GPU and for the node; `bus` are the GPUs on the PCI bus."""
    events = xids(log.lines)
    switches = sxids(log.lines)
    places = {slot.bdf for slot in node.slots if slot.bdf}
    answers: list[Answer] = []
    for slot in node.slots:
        own = [xid for xid in events if slot.bdf and xid.bdf == slot.bdf]
        hardware = [xid for xid in own if xid.hardware]
        application = [xid for xid in own if xid.kind == APPLICATION]
        aside = [xid for xid in own if not xid.hardware and xid.kind != APPLICATION]
        unknown = _doubt_about(slot)
        answers.append(_from_log("xid.hardware", slot.part, hardware, log, seen, doubt_about_gpu=unknown, aside=aside))
        answers.append(_from_log("xid.application", slot.part, application, log, seen, doubt_about_gpu=unknown))
    unplaced = [xid for xid in events if xid.hardware and xid.bdf not in places]
    fatal = [event for event in switches if event.fatal]
    other = [event for event in switches if not event.fatal]
    return [
        *answers,
        *pcie_answers(node, log, bus, seen),
        _from_log("xid.unplaced", node.part, unplaced, log, seen),
        _from_log("sxid.fatal", node.part, fatal, log, seen),
        _from_log("sxid.nonfatal", node.part, other, log, seen),
    ]


def _from_log(
    metric: str,
    part: Part,
    events: Sequence[Xid | Sxid],
    log: KernelLog,
    seen: tuple[str, ...],
    *,
    doubt_about_gpu: str = "",
    aside: Sequence[Xid] = (),
) -> Answer:
    """The number of events; no events in a log that cannot prove their absence are a Problem."""
    if not events:
        reason = doubt_about_gpu or doubt(log)
        if reason:
            return not_measured(metric, part, f"{part.label}: {reason}", seen)
    detail = tell(events)
    if aside:
        detail = "; ".join(filter(None, (detail, f"also noted: {tell(aside)}")))
    return Measurement(
        metric=metric,
        part=part.name,
        value=len(events),
        detail=detail,
        conditions=log.source + ("" if log.complete else ", not from the beginning: at least"),
        evidence=seen,
    )


def _doubt_about(slot: Slot) -> str:
    """Why a log without lines about this GPU proves nothing: an absent GPU has no clean record."""
    if not slot.bdf:
        return "the GPU's address is unknown, so no line can be its own; declare its bdf in the site file"
    return "" if slot.gpu else f"no GPU is at {slot.bdf}, so an empty log says nothing of it; begin with gpu.present"
