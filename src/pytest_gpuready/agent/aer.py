"""AER error totals of a GPU and the bridges above it, as the kernel counts them in sysfs since boot."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_gpuready.agent.pci import BDF, SYS, word
from pytest_gpuready.model.agent_doc import AerDoc

KINDS = ("correctable", "fatal", "nonfatal")
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d+)$", re.MULTILINE)


def totals(bdf: str, sys: Path = SYS) -> dict[str, int]:
    """Kind -> errors, summed over the GPU and its path; a kind that no device there counts is absent."""
    device = (sys / "bus/pci/devices" / bdf).resolve()
    folders = [device, *(above for above in device.parents if BDF.fullmatch(above.name.lower()))]
    found: dict[str, int] = {}
    for kind in KINDS:
        for folder in folders:
            match = _TOTAL.search(word(folder / f"aer_dev_{kind}"))
            if match:
                found[kind] = found.get(kind, 0) + int(match[1])
    return found


def growth(before: dict[str, int], after: dict[str, int]) -> AerDoc:
    """Both readings side by side; None where one of them is missing."""

    def both(kind: str) -> tuple[int, int] | None:
        return (before[kind], after[kind]) if kind in before and kind in after else None

    return AerDoc(correctable=both("correctable"), fatal=both("fatal"), nonfatal=both("nonfatal"))
