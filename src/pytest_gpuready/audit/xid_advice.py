"""Xid -> the part to look at and the next thing to do. `{gpu}` stands for the GPU's name.

Which Xid counts against the hardware is said in `parse.kernel_log`; here is only what to do about it.
Source: NVIDIA's Xid catalogue for the meanings and actions; the wording is ours.
"""

from __future__ import annotations

import re

_LINK = re.compile(r"\blink (\d{1,3})(?!\d)", re.IGNORECASE)
_RESET = "reset the GPU, then reboot the node, then replace the GPU if it comes back"
_NVLINK = "NVLink of {gpu} (links, NVSwitch, cables)"

ADVICE: dict[int, tuple[str, str]] = {
    48: ("{gpu} memory", "reset, then look at the row remap state"),
    54: ("{gpu} auxiliary power cable", "check the power cables"),
    62: ("{gpu} (microcontroller)", _RESET),
    63: ("{gpu} needs a reset and re-test (row remap recorded)", "reset, then test the memory again; count them"),
    64: ("{gpu} memory (RMA)", "replace the GPU: the row remap failed"),
    79: ("{gpu} (fallen off the bus: seating, power, riser)", "power cycle; check seating and power"),
    92: ("{gpu} memory", "watch the corrected errors; replace the GPU if they go on"),
    94: ("{gpu} memory (contained ECC error)", "restart the program; count them"),
    95: ("{gpu} memory (uncontained ECC error)", "reset, then test the memory again"),
    119: ("{gpu} firmware (GSP)", _RESET),
    120: ("{gpu} firmware (GSP)", _RESET),
    140: ("{gpu} memory", "reset, then look at the row remap state"),
    143: ("{gpu} (initialisation)", _RESET),
    157: ("{gpu} memory (RMA)", "replace the GPU: the retirement failed"),
    161: ("{gpu} memory (RMA)", "replace the GPU: the retirement failed"),
    156: ("{gpu} memory", "reset, then test the memory again"),
    160: ("{gpu} memory", "reset, then test the memory again"),
    167: ("{gpu} (PCIe: seating, power, riser)", "power cycle; check seating and power"),
    168: ("{gpu} memory", "reset; replace the GPU if its memory stays smaller"),
    171: ("{gpu} memory (DRAM)", "reset, then look at the row remap state"),
    172: ("{gpu} memory (SRAM)", "reset; replace the GPU if it comes back"),
    **dict.fromkeys((74, 136, 137, *range(144, 151), 155), (_NVLINK, "look at the link's counters on both ends")),
}


def advice(number: int, gpu: str, text: str) -> tuple[str, str]:
    """Suspect and next step for a hardware Xid of one GPU; the link is named where the text of an NVLink Xid has it."""
    suspect, step = ADVICE.get(number, ("{gpu}", _RESET))
    link = _LINK.search(text) if suspect == _NVLINK else None
    return (f"{gpu} NVLink {int(link[1])} (link, NVSwitch port, cable)" if link else suspect.format(gpu=gpu)), step
