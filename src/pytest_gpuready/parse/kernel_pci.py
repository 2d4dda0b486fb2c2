"""Kernel messages about the PCI bus and network cards -> typed events: links, slot power, modules, AER, hot plug.

"available PCIe bandwidth, limited by" comes from the kernel's PCI core for any device that could do more; small
on-board devices are limited by design. AER prints a line when a port receives an error message and one per device with
what it was; the second counts, the first only where the second is missing. Uncorrected and Uncorrectable, Corrected and
Correctable are the same words of different kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pytest_gpuready.parse.pci_address import pci_address

What = Literal[
    "bandwidth", "slot power", "module error", "module unplugged", "module plugged", "nic health", "nic temperature",
    "link down", "link up", "aer corrected", "aer uncorrected", "aer corrected received", "aer uncorrected received",
    "hot unplug", "containment", "gpu init failed", "probe failed", "api mismatch", "suppressed",
]  # fmt: skip

_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DEVICE = re.compile(rf"(?P<driver>[A-Za-z][A-Za-z0-9_-]*) (?P<bdf>{_BDF})(?: (?P<net>\S+?))?: (?P<rest>.*)", re.DOTALL)
_GT = r"\d{1,4}(?:\.\d{1,3})?"


def _link(which: str) -> str:
    """A pattern for "32.0 GT/s PCIe x8 link" with groups speed and width of that name."""
    return rf"(?P<speed{which}>{_GT}) GT/s (?:PCIe )?x(?P<width{which}>[0-9]{{1,3}}) link"


_BANDWIDTH = re.compile(
    r"(?P<gbit>\d{1,6}\.\d{1,6}) Gb/s available PCIe bandwidth(?: \("
    + _link("0")
    + r"\)|, limited by "
    + _link("")
    + r" at (?P<at>"
    + _BDF
    + r") \(capable of (?P<gbit1>\d{1,6}\.\d{1,6}) Gb/s with "
    + _link("1")
    + r"\))"
)
_POWER = re.compile(r"Detected insufficient power on the PCIe slot \((\d{1,4})W\)")
_MODULE = re.compile(r"Port module event(?:\[(?P<error>error)\])?: module (?P<module>\d{1,4}), (?P<text>.+)")
_HEALTH = re.compile(
    r"health compromised|Health issue observed|firmware internal error|FW fatal|device is in (?:an )?error state"
    r"|Fatal error \d|health poll failed",
    re.IGNORECASE,
)
_HOT = re.compile(r"high temperature", re.IGNORECASE)
_NET_LINK = re.compile(r"(?:Port: \d+ )?Link (down|up|active)\b", re.IGNORECASE)
_AER = re.compile(
    r"PCIe Bus Error: severity=(?P<severity>Uncorrect|Correct)(?:ed|able)(?: \((?P<fatal>Non-Fatal|Fatal)\))?"
    r"(?:, type=(?P<type>[A-Za-z /]+))?"
)
_RECEIVED = re.compile(
    r"AER: (?P<many>Multiple )?(?P<severity>Uncorrect|Correct)(?:ed|able)(?: \((?P<fatal>Non-Fatal|Fatal)\))?"
    rf" error (?:message )?received(?: from|:)?:? ?(?P<bdf>{_BDF})?"
)
_UNPLUG = re.compile(r"pciehp: Slot\((?P<slot>[^)]*)\): (?P<text>Link Down|Card not present)")
_INIT = re.compile(
    rf"NVRM: .*?(?P<bdf>{_BDF}).*?(?:(?:RmInitAdapter|rm_init_adapter) failed|failed to initialize)", re.DOTALL
)
_PROBE = re.compile(r"NVRM: The NVIDIA probe routine failed for (\d+) device")
_UNUSABLE = re.compile(
    r"NVRM: .*?(?:PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is 0M|No NVIDIA GPU found"
    r"|No NVIDIA devices probed|probe routine was not called)"
)
_MISMATCH = re.compile(r"NVRM: API mismatch")
_HINT = re.compile(
    r"PCIe|AER|pciehp|DPC|module event|ealth|atal error|FW fatal|error state|emperature|Link |NVRM|suppressed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PciEvent:
    """One event. `bdf` is the device it is about, "" where the line has none; the numbers are None where not said.

    `at` is where a link is narrowed, the module of a card, or the port that received an AER message.
    """

    what: What
    bdf: str = ""
    driver: str = ""
    text: str = ""
    number: float | None = None
    speed: float | None = None
    width: int | None = None
    could_speed: float | None = None
    could_width: int | None = None
    at: str = ""


def pci_event(text: str) -> PciEvent | None:
    """The event that a message is, or None."""
    if not _HINT.search(text):
        return None
    if "NVRM" in text:
        return _of_driver(text)
    match = _DEVICE.match(text)
    if not match:
        return PciEvent(what="suppressed") if "callbacks suppressed" in text and "aer" in text.lower() else None
    bdf, driver, rest = pci_address(match["bdf"]), match["driver"], match["rest"]
    return _of_bus(bdf, driver, rest) or _of_card(bdf, driver, rest)


def _of_driver(text: str) -> PciEvent | None:
    if _MISMATCH.search(text):
        return PciEvent(what="api mismatch", driver="nvidia", text=text)
    if match := _PROBE.search(text):
        return PciEvent(what="probe failed", driver="nvidia", number=float(match[1][:6]))
    if match := _INIT.search(text):
        return PciEvent(what="gpu init failed", bdf=pci_address(match["bdf"]), driver="nvidia", text=text)
    if _UNUSABLE.search(text):
        return PciEvent(what="gpu init failed", driver="nvidia", text=text)
    return None


def _of_bus(bdf: str, driver: str, rest: str) -> PciEvent | None:
    if match := _AER.search(rest):
        bad = match["severity"] == "Uncorrect"
        kind = " ".join((match["fatal"] or "", (match["type"] or "").strip())).strip()
        return PciEvent(what="aer uncorrected" if bad else "aer corrected", bdf=bdf, driver=driver, text=kind)
    if match := _RECEIVED.search(rest):
        bad = match["severity"] == "Uncorrect"
        return PciEvent(
            what="aer uncorrected received" if bad else "aer corrected received",
            bdf=pci_address(match["bdf"]) if match["bdf"] else bdf,
            driver=driver,
            text=" ".join(word.strip() for word in (match["many"], match["fatal"]) if word),
            at=bdf,
        )
    if match := _UNPLUG.search(rest):
        return PciEvent(what="hot unplug", bdf=bdf, driver=driver, text=f"slot {match['slot']}: {match['text']}")
    if "DPC: containment event" in rest:
        return PciEvent(what="containment", bdf=bdf, driver=driver, text=rest[:200])
    return None


def _of_card(bdf: str, driver: str, rest: str) -> PciEvent | None:
    if match := _BANDWIDTH.search(rest):
        limited = match["speed"] is not None
        return PciEvent(
            what="bandwidth",
            bdf=bdf,
            driver=driver,
            number=float(match["gbit"]),
            speed=float(match["speed"] if limited else match["speed0"]),
            width=int(match["width"] if limited else match["width0"]),
            could_speed=float(match["speed1"]) if limited else None,
            could_width=int(match["width1"]) if limited else None,
            at=pci_address(match["at"]) if limited else "",
        )
    if match := _POWER.search(rest):
        return PciEvent(what="slot power", bdf=bdf, driver=driver, number=float(match[1]))
    if match := _MODULE.search(rest):
        return _of_module(bdf, driver, match)
    plain: What | None = None
    if _HEALTH.search(rest):
        plain = "nic health"
    elif _HOT.search(rest):
        plain = "nic temperature"
    elif match := _NET_LINK.search(rest):
        plain = "link down" if match[1].lower() == "down" else "link up"
    return PciEvent(what=plain, bdf=bdf, driver=driver, text=rest[:200]) if plain else None


def _of_module(bdf: str, driver: str, match: re.Match[str]) -> PciEvent:
    """What a card says about the module in its cage; whatever is neither plugged nor unplugged is an error."""
    text = match["text"].strip().rstrip(".")
    what: What = "module error"
    if not match["error"] and text.lower() in ("cable plugged", "cable unplugged"):
        what = "module plugged" if text.lower() == "cable plugged" else "module unplugged"
    return PciEvent(what=what, bdf=bdf, driver=driver, text=text.removeprefix("Cable error, "), at=match["module"])
