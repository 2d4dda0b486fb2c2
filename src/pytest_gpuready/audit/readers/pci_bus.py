"""How lspci is recognised, from a plain listing to -vvv as root."""

from __future__ import annotations

from pytest_gpuready.audit.late import late
from pytest_gpuready.audit.reader import Reader
from pytest_gpuready.parse.lspci import HEADER


def _recognise(head: str) -> int:
    lines = [line for line in head.split("\n", 60)[:60] if line.strip()]
    hits = sum(1 for line in lines if HEADER.fullmatch(line.rstrip()) and ("controller" in line or "ridge" in line))
    slots = sum(1 for line in lines if line.startswith("Slot:\t"))
    if lines and (HEADER.fullmatch(lines[0].rstrip()) or lines[0].startswith("Slot:\t")):
        return 88 if hits or slots else 55
    return 45 if hits + slots >= 3 else 0


READERS: tuple[Reader, ...] = (Reader(tool="lspci", recognise=_recognise, read=late("pci_listing")),)
