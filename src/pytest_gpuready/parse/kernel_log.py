"""Kernel-log lines -> Xids of GPUs and SXids of NVSwitches.

An SXid is not an Xid: its address is a switch. An NVSwitch prints up to three lines about one event; they are one
event here. A GPU that "has fallen off the bus" without any number (it never answered the driver at boot) counts as
Xid 79; beside a numbered Xid 79 of the same GPU the sentence adds nothing.

Source of the classes: NVIDIA's Xid catalogue for the meaning; which class counts against the hardware is our rule. A
number that the table does not list is hardware: what nobody knows is nobody's excuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_gpuready.model.agent_doc import LogLine

HARDWARE, APPLICATION, INFORMATION = "hardware", "application", "information"
UNREADABLE = 0
"""Number of a line that begins as an Xid and does not go on as one: something was reported."""

# Xid -> class, meaning in a few words.
XIDS: dict[int, tuple[str, str]] = {
    UNREADABLE: (HARDWARE, "Xid line that cannot be read"),
    13: (APPLICATION, "graphics engine exception"),
    31: (APPLICATION, "GPU memory page fault"),
    43: (APPLICATION, "channel stopped"),
    45: (APPLICATION, "channel clean-up after an earlier error"),
    46: (HARDWARE, "GPU stopped processing"),
    48: (HARDWARE, "double-bit ECC error"),
    54: (HARDWARE, "auxiliary power not connected"),
    62: (HARDWARE, "microcontroller halt"),
    63: (HARDWARE, "row remap or page retirement recorded"),
    64: (HARDWARE, "row remap or page retirement failed"),
    74: (HARDWARE, "NVLink error"),
    79: (HARDWARE, "GPU has fallen off the bus"),
    92: (HARDWARE, "high rate of corrected ECC errors"),
    94: (HARDWARE, "contained ECC error"),
    95: (HARDWARE, "uncontained ECC error"),
    109: (HARDWARE, "context switch time-out"),
    110: (HARDWARE, "security fault"),
    119: (HARDWARE, "GSP time-out"),
    120: (HARDWARE, "GSP error"),
    121: (INFORMATION, "C2C link error, recovered"),
    136: (HARDWARE, "link training failed"),
    137: (HARDWARE, "NVLink error"),
    140: (HARDWARE, "unrecovered ECC error"),
    143: (HARDWARE, "GPU initialisation error"),
    **dict.fromkeys(range(144, 151), (HARDWARE, "NVLink error")),
    154: (INFORMATION, "recovery action changed"),
    155: (HARDWARE, "NVLink software error"),
    156: (HARDWARE, "resource retirement"),
    157: (HARDWARE, "resource retirement failed"),
    158: (HARDWARE, "fatal time-out"),
    160: (HARDWARE, "channel retirement"),
    161: (HARDWARE, "channel retirement failed"),
    167: (HARDWARE, "PCIe fatal time-out"),
    168: (HARDWARE, "memory size reduced"),
    171: (HARDWARE, "DRAM detail of Xid 48"),
    172: (HARDWARE, "SRAM detail of Xid 48"),
}

_ADDRESS = r"(?:PCI:)?([0-9a-fA-F]+:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_XID_BEGINS = re.compile(r"(?<![A-Za-z])Xid \(")
_XID = re.compile(
    rf"(?<![A-Za-z])Xid \({_ADDRESS}(?P<mig>[^)]*)\): (?P<number>\d+)"
    r"(?:, pid=(?P<pid>'<unknown>'|<unknown>|\d+))?(?:, name=(?P<name>[^,]*))?(?:, (?P<text>.*))?"
)
_OFF_THE_BUS = re.compile(r"fallen off the bus", re.IGNORECASE)
_NVRM_ADDRESS = re.compile(rf"NVRM:.*?\b(?:GPU (?:at )?|Xid \(){_ADDRESS}")
_SXID = re.compile(rf"SXid \({_ADDRESS}\): (?P<number>\d+), (?P<text>.*)")
_SEVERITY = re.compile(r"Severity (\d+)")
_LINK = re.compile(r"\bLink (\d+)")
NEAR_LINES = 4
"""How many lines may lie between the address of a silent GPU and the words "fallen off the bus"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One Xid line. `bdf` is "0000:91:00.0", "" where the line has none; `pid` -1 and `name` "" where not given."""

    number: int
    bdf: str
    t: float
    text: str
    pid: int = -1
    name: str = ""

    @property
    def kind(self) -> str:
        """ "hardware", "application" or "information"."""
        return XIDS.get(self.number, (HARDWARE, ""))[0]

    @property
    def hardware(self) -> bool:
        return self.kind == HARDWARE

    @property
    def meaning(self) -> str:
        return XIDS.get(self.number, (HARDWARE, "not in our table"))[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sxid:
    """One NVSwitch event. `bdf` is the switch; `link` -1 where no link is named. Unknown severity counts as fatal."""

    number: int
    bdf: str
    t: float
    fatal: bool
    text: str
    link: int = -1


def xids(lines: Sequence[LogLine]) -> tuple[Xid, ...]:
    """Every Xid of the lines, in their order; a GPU off the bus without a number is one Xid 79."""
    numbered: list[Xid] = []
    silent: list[Xid] = []
    near: list[str] = []
    for line in lines:
        xid = _numbered(line)
        if xid:
            numbered.append(xid)
        elif _OFF_THE_BUS.search(line.text):
            silent.append(Xid(number=79, bdf=_address((line.text, *reversed(near))), t=line.t, text=line.text))
        near = [*near, line.text][-NEAR_LINES:]
    known = {xid.bdf for xid in numbered if xid.number == 79}
    alone: dict[tuple[str, int], Xid] = {}
    for xid in silent:
        if xid.bdf not in known:
            alone.setdefault((xid.bdf, int(xid.t)), xid)
    return tuple(sorted((*numbered, *alone.values()), key=lambda xid: xid.t))


def sxids(lines: Iterable[LogLine]) -> tuple[Sxid, ...]:
    """Every NVSwitch event of the lines; the Severity and Data lines that follow belong to it."""
    found: list[Sxid] = []
    for line in lines:
        match = _SXID.search(line.text)
        if not match:
            continue
        number, bdf, text = int(match["number"]), normal_bdf(match[1]), match["text"]
        detail = text.startswith(("Severity", "Data"))
        if detail and any(event.number == number and event.bdf == bdf for event in found[-8:]):
            continue
        link = _LINK.search(text)
        found.append(
            Sxid(number=number, bdf=bdf, t=line.t, fatal=_fatal(text), text=text, link=int(link[1]) if link else -1)
        )
    return tuple(found)


def normal_bdf(address: str) -> str:
    """ "PCI:0000:91:00" and its relatives -> "0000:91:00.0": four-digit domain, lower case, function 0."""
    domain, bus, device = address.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}.0"


def _numbered(line: LogLine) -> Xid | None:
    if not _XID_BEGINS.search(line.text):
        return None
    match = _XID.search(line.text)
    if not match:
        return Xid(number=UNREADABLE, bdf="", t=line.t, text=line.text)
    pid, name = match["pid"] or "", (match["name"] or "").strip()
    return Xid(
        number=int(match["number"]),
        bdf=normal_bdf(match[1]),
        t=line.t,
        text=(match["text"] or "").strip(),
        pid=int(pid) if pid.isdecimal() else -1,
        name="" if "unknown>" in name else name,
    )


def _address(texts: Iterable[str]) -> str:
    """The first GPU address in texts of the driver, nearest first; "" where none has one."""
    for text in texts:
        match = _NVRM_ADDRESS.search(text)
        if match:
            return normal_bdf(match[1])
    return ""


def _fatal(text: str) -> bool:
    """False only where the line says non-fatal, corrected, or severity 0."""
    severity = _SEVERITY.match(text)
    if severity:
        return severity[1] != "0"
    return not text.lower().startswith(("non-fatal", "correct"))
