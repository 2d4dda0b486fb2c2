"""`lspci` in its styles (-v to -vvv, -nn, -n, -D, -mm, -vmm) -> one `PciDevice` per device, in the order of the text.

LnkCap says what a link could be, LnkSta what it is; LnkCap2, LnkSta2 and LnkCtl2 lie beside them and are something
else. The words "(ok)" and "(downgraded)" are optional and not needed. ACSCtl is what is switched on, ACSCap only what
could be. Without root the capabilities are "<access denied>": nothing is known then. A device that left the bus reads
all ones: revision ff, header type 7f.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pytest_gpuready.parse.pci_address import pci_address

HEADER = re.compile(r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) (\S.*)")
_NAMED = re.compile(r"([A-Za-z0-9][^:\[\"]*?)(?: \[([0-9a-fA-F]{4})\])?: (.*)")
_QUOTED = re.compile(r'"([^"]*)"')
_SLOT = re.compile(r"Slot:\s+(\S+)")
_FIELD = re.compile(r"(Class|Vendor|Device|Rev|Driver|NUMANode):\s+(.*)")
_CLASS_ID = re.compile(r"\[([0-9a-fA-F]{4})\]")
_IDS = re.compile(r"\[?([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]?")
_REV = re.compile(r"\(rev ([0-9a-fA-F]{2})\)")
_LINK = re.compile(r"Lnk(Cap|Sta):\s+(.*)")
_SPEED = re.compile(r"Speed (\d{1,3}(?:\.\d)?) ?GT/s")
_WIDTH = re.compile(r"Width x(\d{1,2})")
_BUS = re.compile(r"Bus: primary=([0-9a-fA-F]{2}), secondary=([0-9a-fA-F]{2}), subordinate=([0-9a-fA-F]{2})")
_ACS = re.compile(r"ACSCtl:\s+(.*)")
_DRIVER = re.compile(r"Kernel driver in use: (\S+)")
_CLASSES = {
    "0300": "gpu", "0302": "gpu", "0380": "gpu", "0604": "bridge", "0207": "nic", "0200": "nic", "0680": "nvswitch",
    "vga compatible controller": "gpu", "3d controller": "gpu", "display controller": "gpu", "pci bridge": "bridge",
    "infiniband controller": "nic", "ethernet controller": "nic", "bridge": "nvswitch",
}  # fmt: skip
_TEXT_AT_MOST = 300


@dataclass(slots=True, kw_only=True)
class PciLinkText:
    """Speed in GT/s and width in lanes as printed, None where a line does not have them."""

    speed: float | None = None
    width: int | None = None


@dataclass(slots=True, kw_only=True)
class PciDevice:
    """One device. `kind`: "gpu", "nic", "bridge", "nvswitch" or "other" (NVIDIA alone is a GPU or NVSwitch here).

    "orphan": lines about a link or ACS whose device is not named, as where the heading is lost.

    `could` and `link` are LnkCap and LnkSta, None where the text has no such line. `acs`: the ACSCtl flags that are
    on, None where it has none. `wrong`: what stands there twice.
    """

    bdf: str
    kind: str
    text: str
    verbose: bool = False
    denied: bool = False
    gone: bool = False
    driver: str = ""
    modules: bool = False
    could: PciLinkText | None = None
    link: PciLinkText | None = None
    acs: tuple[str, ...] | None = None
    buses: tuple[int, int] | None = None
    wrong: list[str] = field(default_factory=list)


def lspci(lines: Iterable[str]) -> Iterator[PciDevice]:
    """Every device of the text, one at a time."""
    now: PciDevice | None = None
    slot: dict[str, str] = {}
    for raw in lines:
        line = raw.rstrip()
        header, begins = HEADER.fullmatch(line), _SLOT.fullmatch(line)
        if header or begins or not line:
            if now:
                yield now
            if slot:
                yield _by_fields(slot)
            now = _by_header(header[1], header[2]) if header else None
            slot = {"Slot": begins[1]} if begins and HEADER.match(f"{begins[1]} x") else {}
        elif slot and (match := _FIELD.fullmatch(line)):
            slot.setdefault(match[1], match[2][:_TEXT_AT_MOST])
        elif now and line[:1].isspace():
            _detail(now, line.strip())
        elif _LINK.match(line.strip()) or _ACS.match(line.strip()):
            now = PciDevice(bdf="", kind="orphan", text="")
            _detail(now, line.strip())
    if now:
        yield now
    if slot:
        yield _by_fields(slot)


def _by_header(address: str, rest: str) -> PciDevice:
    quoted, named = _QUOTED.findall(rest), _NAMED.fullmatch(rest)
    if len(quoted) >= 3:
        kind_word, text = quoted[0], " ".join(quoted[1:3])
    elif named:
        kind_word, text = named[2] or named[1], named[3]
    else:
        kind_word, text = "", rest
    rev = _REV.search(rest)
    return _device(address, kind_word, text, gone=bool(rev and rev[1].lower() == "ff") or "-rff" in rest.split())


def _by_fields(slot: dict[str, str]) -> PciDevice:
    text = f"{slot.get('Vendor', '')} {slot.get('Device', '')}"
    device = _device(slot["Slot"], slot.get("Class", ""), text, gone=slot.get("Rev", "").lower() == "ff")
    device.driver = slot.get("Driver", "")
    return device


def _device(address: str, kind_word: str, text: str, *, gone: bool) -> PciDevice:
    words = kind_word.strip().lower()
    class_id = _CLASS_ID.search(words)
    kind = _CLASSES.get(class_id[1] if class_id else words, "other")
    if kind == "other" and class_id:
        kind = _CLASSES.get(words.partition(" [")[0], "other")
    ids = _IDS.search(text)
    nvidia = "nvidia" in text.lower() or bool(ids and ids[1].lower() == "10de")
    if kind in ("gpu", "nvswitch") and not nvidia:
        kind = "other"
    return PciDevice(bdf=pci_address(address), kind=kind, text=text[:_TEXT_AT_MOST], gone=gone)


def _detail(device: PciDevice, line: str) -> None:
    device.verbose = True
    if match := _LINK.match(line):
        speed, width = _SPEED.search(match[2]), _WIDTH.search(match[2])
        read = PciLinkText(speed=float(speed[1]) if speed else None, width=int(width[1]) if width else None)
        if (device.could if match[1] == "Cap" else device.link) is not None:
            device.wrong.append(f"Lnk{match[1]} stands there twice")
        elif match[1] == "Cap":
            device.could = read
        else:
            device.link = read
    elif match := _ACS.match(line):
        if device.acs is not None:
            device.wrong.append("ACSCtl stands there twice")
        device.acs = tuple(flag[:-1] for flag in match[1].split() if flag.endswith("+"))
    elif match := _BUS.match(line):
        device.buses = (int(match[2], 16), int(match[3], 16))
    elif match := _DRIVER.match(line):
        device.driver = match[1]
        if device.kind == "other":
            device.kind = {"pcieport": "bridge", "nvidia": "gpu"}.get(match[1], "other")
    elif line.startswith("Kernel modules:"):
        device.modules = True
    elif "<access denied>" in line:
        device.denied = True
    elif "Unknown header type 7f" in line:
        device.gone = True
