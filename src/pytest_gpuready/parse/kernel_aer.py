"""Kernel-log lines -> PCIe errors that AER or DPC reported, each once and on the device that it is about.

AER prints a line when a port receives an error message and one per device with what it was: on a device that has the
second, the first adds nothing. A message of unknown origin (the source reads 00:00.0) belongs to the port that received
it. Downstream port containment cuts a link off because of an uncorrected error: it counts where no AER line tells of
one on that port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.parse.kernel_pci import PciEvent, pci_event

# What the line is -> whether the error is corrected, and how well it tells of it (0 best).
_KINDS = {
    "aer uncorrected": (False, 0),
    "aer uncorrected received": (False, 1),
    "containment": (False, 2),
    "aer corrected": (True, 0),
    "aer corrected received": (True, 1),
}
_NOBODY = ":00:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AerError:
    """One PCIe error. `bdf` is the device, `kind` what the kernel calls it ("Fatal Transaction Layer")."""

    bdf: str
    t: float
    corrected: bool
    kind: str = ""


def aer_errors(lines: Sequence[LogLine]) -> tuple[AerError, ...]:
    """Every PCIe error of the lines, in their order."""
    found: list[tuple[int, AerError]] = []
    for line in lines:
        event = pci_event(line.text)
        if event is None or event.what not in _KINDS:
            continue
        corrected, rank = _KINDS[event.what]
        kind = "link cut off (DPC)" if event.what == "containment" else event.text
        found.append((rank, AerError(bdf=_where(event), t=line.t, corrected=corrected, kind=kind)))
    best: dict[tuple[str, bool], int] = {}
    for rank, error in found:
        key = (error.bdf, error.corrected)
        best[key] = min(rank, best.get(key, rank))
    return tuple(error for rank, error in found if rank == best[error.bdf, error.corrected])


def _where(event: PciEvent) -> str:
    return event.at if event.at and event.bdf.endswith(_NOBODY) else event.bdf
