"""Kernel-log lines -> Xids of GPUs and SXids of NVSwitches.

An SXid is not an Xid: its address is a switch. An NVSwitch prints up to three lines about one event; they are one
event here. A GPU that "has fallen off the bus" without any number (it never answered the driver at boot) counts as
Xid 79; beside a numbered Xid 79 of the same GPU the sentence adds nothing. A GPU that the driver could not start
(RmInitAdapter failed) has no number either: it is an event of its own (`NOT_STARTED`), of the hardware class.

Spelling is no excuse either: brackets, blanks and capitals may differ, a line may hold several Xids, and one that
begins as an Xid or SXid and cannot be read counts as hardware, as fatal. How each of them begins stands in
`model.kernel_words`: the agent keeps lines by the same words.

Source of the classes: NVIDIA's Xid catalogue for the meaning; which class counts against the hardware is our rule. A
number that the table does not list is hardware: what nobody knows is nobody's excuse.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.model.kernel_words import DRIVER, NO_START, OFF_THE_BUS, SXID_BEGINS, xid_begins

HARDWARE, APPLICATION, INFORMATION = "hardware", "application", "information"
UNREADABLE = 0
"""Number of a line that begins as an Xid and does not go on as one: something was reported."""
NOT_STARTED = -1
"""Number of a GPU that the driver could not start: the driver gives none."""

# Xid -> class, meaning in a few words.
XIDS: dict[int, tuple[str, str]] = {
    NOT_STARTED: (HARDWARE, "GPU initialisation failed"),
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
    # 69 comes from what a program sent to the graphics engine; 68, the video decoder's, stays hardware (not listed).
    69: (APPLICATION, "graphics engine class error"),
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
_XID = re.compile(
    rf"Xid\s*[(\[]\s*{_ADDRESS}(?P<mig>[^)\]]*)[)\]]\s*:?\s*(?P<number>[0-9]{{1,9}})(?![0-9])"
    r"(?:, pid=(?P<pid>'<unknown>'|<unknown>|\d+))?(?:, name=(?P<name>[^,]*))?(?:, (?P<text>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_BARE_XID = re.compile(r"Xid[\s:]+(?P<number>[0-9]{1,9})(?![0-9])(?P<text>.*)", re.IGNORECASE | re.DOTALL)
_ANY_ADDRESS = re.compile(rf"(?<![0-9a-fA-F:]){_ADDRESS}")
_DRIVERS = re.compile(rf"{DRIVER}|\bnvidia\b", re.IGNORECASE)
_NVRM_ADDRESS = re.compile(rf"NVRM:.*?\b(?:GPU (?:at )?|Xid \(){_ADDRESS}")
_SXID = re.compile(
    rf"SXid\s*(?:[(\[]\s*(?:{_ADDRESS})?[^)\]]*[)\]])?[\s:]*(?P<number>[0-9]{{1,9}})(?![0-9])[\s,]*(?P<text>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SEVERITY = re.compile(r"Severity (\d+)")
_LINK = re.compile(r"\bLink (\d+)")
NEAR_LINES = 4
"""How many lines may lie between the address of a silent GPU and the words "fallen off the bus"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One Xid line. `bdf` is "0000:91:00.0", "" where the line has none; `pid` -1 and `name` "" where not given.

    `number` is `UNREADABLE` or `NOT_STARTED` where the driver gave none that can be read.
    """

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
    """One NVSwitch event. `bdf` is the switch, "" where the line does not say; `link` -1 where no link is named.

    Unknown severity counts as fatal, and so does a line that cannot be read (`UNREADABLE`).
    """

    number: int
    bdf: str
    t: float
    fatal: bool
    text: str
    link: int = -1


def xids(lines: Sequence[LogLine]) -> tuple[Xid, ...]:
    """Every Xid of the lines, in their order; a GPU off the bus without a number is one Xid 79.

    The lines about one attempt to start a GPU are one event, however many there are in that second.
    """
    numbered: list[Xid] = []
    silent: list[Xid] = []
    attempts: dict[tuple[str, int], Xid] = {}
    near: list[str] = []
    for line in lines:
        here = _numbered(line)
        numbered += here
        if not any(xid.hardware for xid in here) and _off_the_bus(line.text, near):
            silent.append(Xid(number=79, bdf=_address((line.text, *reversed(near))), t=line.t, text=line.text))
        if NO_START.search(line.text):
            # The line without an address goes with the failure just before it, and with no other line of the driver.
            bdf = _address((line.text, *(text for text in reversed(near) if NO_START.search(text))))
            attempts.setdefault((bdf, int(line.t)), Xid(number=NOT_STARTED, bdf=bdf, t=line.t, text=line.text))
        near = [*near, line.text][-NEAR_LINES:]
    known = {xid.bdf for xid in numbered if xid.number == 79}
    alone: dict[tuple[str, int], Xid] = {}
    for xid in silent:
        if xid.bdf not in known:
            alone.setdefault((xid.bdf, int(xid.t)), xid)
    return tuple(sorted((*numbered, *alone.values(), *attempts.values()), key=lambda xid: xid.t))


def sxids(lines: Iterable[LogLine]) -> tuple[Sxid, ...]:
    """Every NVSwitch event of the lines; the Severity and Data lines that follow belong to it."""
    found: list[Sxid] = []
    for line in lines:
        for piece in _pieces(SXID_BEGINS, line.text):
            match = _SXID.match(piece)
            if not match:
                found.append(Sxid(number=UNREADABLE, bdf="", t=line.t, fatal=True, text=piece))
                continue
            number, text = int(match["number"]), match["text"]
            bdf = normal_bdf(match[1]) if match[1] else ""
            detail = text.startswith(("Severity", "Data"))
            if detail and any(event.number == number and event.bdf == bdf for event in found[-8:]):
                continue
            link = _LINK.search(text)
            found.append(
                Sxid(number=number, bdf=bdf, t=line.t, fatal=_fatal(text), text=text, link=int(link[1]) if link else -1)
            )
    return tuple(found)


def normal_bdf(address: str) -> str:
    """ "PCI:0000:91:00" and its relatives -> "0000:91:00.0": domain of four digits, lower case, function 0; or ""."""
    if not address:
        return ""
    domain, bus, device = address.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}.0"


def _pieces(begins: re.Pattern[str], text: str) -> list[str]:
    """The line cut where an event begins; what stands before the first is left out."""
    starts = [match.start() for match in begins.finditer(text)]
    return [text[a:b] for a, b in itertools.pairwise([*starts, len(text)])]


def _numbered(line: LogLine) -> list[Xid]:
    """Every Xid of one line, in its order."""
    return [_one(piece, line.t) for piece in _pieces(xid_begins(line.text), line.text)]


def _one(piece: str, t: float) -> Xid:
    match = _XID.match(piece)
    if match:
        pid, name = match["pid"] or "", (match["name"] or "").strip()
        return Xid(
            number=int(match["number"]),
            bdf=normal_bdf(match[1]),
            t=t,
            text=_without_next(match["text"] or ""),
            pid=int(pid) if pid.isdecimal() else -1,
            name="" if "unknown>" in name else name,
        )
    address = _ANY_ADDRESS.search(piece)
    bdf = normal_bdf(address[1]) if address else ""
    bare = _BARE_XID.match(piece)
    return Xid(number=int(bare["number"]) if bare else UNREADABLE, bdf=bdf, t=t, text=_without_next(piece))


def _off_the_bus(text: str, near: Sequence[str]) -> bool:
    """Whether a GPU is said to have fallen off the bus: by its driver, or in words that go with a near line of it.

    Disks and network cards fall off the bus too: a line with an address of its own goes with one about that GPU only.
    """
    if not OFF_THE_BUS.search(text):
        return False
    if _DRIVERS.search(text):
        return True
    named = {normal_bdf(match[1]) for line in near if (match := _NVRM_ADDRESS.search(line))}
    own = {normal_bdf(address) for address in _ANY_ADDRESS.findall(text)}
    return bool(named & own) if own else bool(named)


def _without_next(text: str) -> str:
    """The text of an event without the word that begins the next one of the same line."""
    return text.strip().removesuffix("NVRM:").strip()


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
