"""Uncorrected PCIe errors in the kernel log, counted for each GPU that has the erring device on its path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_gpuready.model import Measurement, Node, Slot
from pytest_gpuready.model.agent_doc import KernelLog, PciGpu
from pytest_gpuready.parse.kernel_aer import AerError, aer_errors
from pytest_gpuready.probes.answers import Answer, not_measured
from pytest_gpuready.probes.kernel_events import doubt

UNCORRECTED = "pcie.log.uncorrected"
MOST_TOLD = 6


def pcie_answers(node: Node, log: KernelLog, bus: Sequence[PciGpu], seen: tuple[str, ...]) -> list[Answer]:
    """The metric for every expected GPU; `bus` are the GPUs on the PCI bus with the bridges above each."""
    errors = aer_errors(log.lines)
    on_bus = {gpu.bdf: gpu for gpu in bus}
    return [_answer(node, slot, on_bus.get(slot.bdf), errors, log=log, seen=seen) for slot in node.slots]


def _answer(
    node: Node, slot: Slot, gpu: PciGpu | None, errors: Sequence[AerError], *, log: KernelLog, seen: tuple[str, ...]
) -> Answer:
    own = [error for error in errors if slot.bdf and _concerns(error.bdf, slot.bdf, gpu)]
    bad = [error for error in own if not error.corrected]
    if not bad:
        reason = _unknown(node, slot, gpu) or doubt(log)
        if reason:
            return not_measured(UNCORRECTED, slot.part, f"{slot.part.label}: {reason}", seen)
    corrected = _tell([error for error in own if error.corrected])
    bridges = gpu.path if gpu else ()
    looked_at = (
        f"the GPU and {len(bridges)} bridges above it" if bridges else "the GPU alone, no bridge above it is seen"
    )
    return Measurement(
        metric=UNCORRECTED,
        part=slot.part.name,
        value=len(bad),
        detail="; ".join(filter(None, (_tell(bad), f"also noted, corrected: {corrected}" if corrected else ""))),
        conditions=f"{log.source}, {looked_at}" + ("" if log.complete else ", not from the beginning: at least"),
        evidence=seen,
    )


def _concerns(bdf: str, gpu_bdf: str, gpu: PciGpu | None) -> bool:
    """True for every function of the GPU's own device and for a bridge on its path."""
    own = bdf.rpartition(".")[0] == gpu_bdf.rpartition(".")[0]
    return own or (gpu is not None and any(bridge.bdf == bdf for bridge in gpu.path))


def _unknown(node: Node, slot: Slot, gpu: PciGpu | None) -> str:
    """Why the absence of lines proves nothing: nobody knows which devices they would be about."""
    if not slot.bdf:
        return "the GPU's address is unknown, so no line can be its own; declare its bdf in the site file"
    if gpu is None:
        return f"the PCI bus shows no GPU at {slot.bdf}, so the path to it is unknown; begin with gpu.present"
    if not gpu.path and not node.virtual:
        return f"expected the bridges above {slot.bdf} in sysfs, found none; make /sys/bus/pci and /sys/devices visible"
    return ""


def _tell(errors: Sequence[AerError]) -> str:
    """ "Fatal Transaction Layer on 0000:3b:00.0 x2 at 12.1 s": one phrase a device and kind, with the first time."""
    first: dict[str, float] = {}
    count: Counter[str] = Counter()
    for error in errors:
        phrase = f"{error.kind or 'PCIe error'} on {error.bdf}"
        first.setdefault(phrase, error.t)
        count[phrase] += 1
    told = [f"{phrase}{f' x{count[phrase]}' if count[phrase] > 1 else ''} at {t:.1f} s" for phrase, t in first.items()]
    more = f", and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return ", ".join(told[:MOST_TOLD]) + more
