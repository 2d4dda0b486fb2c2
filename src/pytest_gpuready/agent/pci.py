"""NVIDIA GPUs on the PCI bus as sysfs shows them, with the bridges between each and the root port.

sysfs is a parameter everywhere, so that a tree on disk can stand for a machine. A GPU that fell off the bus while the
machine ran usually still has its directory; its link then reads "Unknown" and that is None here.
"""

from __future__ import annotations

import re
from pathlib import Path

from pytest_gpuready.model.agent_doc import PciBridge, PciGpu, PciLink

SYS = Path("/sys")
NVIDIA = 0x10DE
DISPLAY = 0x03
BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def word(path: Path) -> str:
    """The text of a small kernel file without the white space around it; "" where there is none."""
    try:
        return path.read_bytes()[:4096].decode("utf-8", "replace").strip().strip("\0")
    except OSError:
        return ""


def link(device: Path) -> PciLink:
    """The four link attributes of a device; None for each that is missing or "Unknown"."""
    return PciLink(
        speed_gt_per_s=_speed(word(device / "current_link_speed")),
        width=_number(word(device / "current_link_width")),
        speed_max_gt_per_s=_speed(word(device / "max_link_speed")),
        width_max=_number(word(device / "max_link_width")),
    )


def upward(device: Path) -> list[PciBridge]:
    """Bridges from the device up to its root port, nearest first: the directories that its real path runs through."""
    return [
        PciBridge(bdf=folder.name.lower(), link=link(folder))
        for folder in device.resolve().parents
        if BDF.fullmatch(folder.name.lower())
    ]


def visible(sys: Path = SYS) -> bool:
    """True where sysfs shows any PCI device at all; a sandbox may show none."""
    try:
        return any((sys / "bus/pci/devices").iterdir())
    except OSError:
        return False


def gpus(sys: Path = SYS) -> list[PciGpu]:
    """Every NVIDIA display function (VGA or 3D controller) in bus order."""
    found = []
    try:
        devices = sorted((sys / "bus/pci/devices").iterdir(), key=lambda p: p.name.lower())
    except OSError:
        return []
    for device in devices:
        vendor, class_ = _hex(word(device / "vendor")), _hex(word(device / "class"))
        if vendor != NVIDIA or class_ is None or class_ >> 16 != DISPLAY:
            continue
        numa = word(device / "numa_node")
        found.append(
            PciGpu(
                bdf=device.name.lower(),
                pci_id=f"{vendor:04x}:{_hex(word(device / 'device')) or 0:04x}",
                link=link(device),
                numa_node=int(numa) if re.fullmatch(r"-?\d+", numa) else -1,
                path=upward(device),
            )
        )
    return found


def _speed(text: str) -> float | None:
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(match[1]) if match else None


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _hex(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", text) else None
