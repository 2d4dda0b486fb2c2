"""Xids, SXids and PCI events of a kernel log, counted while it is read: bounded memory, one entry per kind and part.

An event before the test window is history. One whose time the format does not give stays undated: where a window was
asked for, nobody can say on which side it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.parse.kernel_log import NOT_STARTED, Sxid, Xid, sxids, xids
from pytest_gpuready.parse.kernel_pci import PciEvent, pci_event
from pytest_gpuready.parse.kernel_text import KernelRecord, before

_CHUNK = 2000
_CARRIED = 8
_KINDS_AT_MOST = 20_000
_APART_S = 60.0
"""Lines of one program's crash come within seconds; further apart they are two incidents."""
_WORDS = ("nvrm", "xid", "off the bus", "nvswitch")


@dataclass(slots=True, kw_only=True)
class Tally:
    """Events of one kind on one part: how many in the window, before it, and without a time. `last`: the latest."""

    inside: int = 0
    history: int = 0
    undated: int = 0
    incidents: int = 0
    last: Xid | Sxid | PciEvent
    last_wall: datetime | None = None
    last_boot: float | None = None

    @property
    def count(self) -> int:
        return self.inside + self.history + self.undated


@dataclass(slots=True, kw_only=True)
class KernelEvents:
    """Everything that was found. Keys: (number, bdf) of Xids, with the link of SXids, (what, bdf) of PCI events.

    `limited`: the driver said that it does not print every line. `timed`: records with a time of a kernel log.
    """

    window: datetime | None
    xids: dict[tuple[int, str], Tally] = field(default_factory=dict)
    sxids: dict[tuple[int, str, int], Tally] = field(default_factory=dict)
    pci: dict[tuple[str, str], Tally] = field(default_factory=dict)
    pci_ids: dict[str, str] = field(default_factory=dict)
    records: int = 0
    timed: int = 0
    limited: bool = False
    refused: str = ""
    too_many: bool = False

    def read(self, records: Iterable[KernelRecord]) -> None:
        """Count the events of all records."""
        carried: list[tuple[int, KernelRecord]] = []
        chunk: list[tuple[int, KernelRecord]] = []
        for number, record in enumerate(records):
            self.records += 1
            self.timed += record.timed
            self._side_lines(record.text)
            lowered = record.text.lower()
            if any(word in lowered for word in _WORDS):
                chunk.append((number, record))
                if len(chunk) >= _CHUNK:
                    self._flush(carried, chunk)
                    carried, chunk = chunk[-_CARRIED:], []
            event = pci_event(record.text)
            if event:
                self._count(self.pci, (event.what, event.bdf), event, record)
        self._flush(carried, chunk)

    def _side_lines(self, text: str) -> None:
        if "Rate limiting" in text or "callbacks suppressed" in text:
            self.limited = True
        if "read kernel buffer failed" in text or "Operation not permitted" in text[:80]:
            self.refused = text[:200]
        if "(PCI ID:" in text and "The NVIDIA GPU" in text and len(self.pci_ids) < 256:
            address = text.partition("The NVIDIA GPU")[2].split()[:1]
            ids = text.partition("(PCI ID:")[2].split(")")[0].strip()
            if address:
                self.pci_ids[address[0].lower()] = ids.rpartition(":")[2][:8]

    def _flush(self, carried: list[tuple[int, KernelRecord]], chunk: list[tuple[int, KernelRecord]]) -> None:
        """Read a chunk with the lines before it, so that what spans both is understood; count what is new in it."""
        if not chunk:
            return
        both = dict((*carried, *chunk))
        first = chunk[0][0]
        lines = [LogLine(t=float(number), text=record.text) for number, record in both.items()]
        for xid in xids(lines):
            # A GPU that the driver could not start is a PCI event here ("gpu init failed").
            if xid.t >= first and xid.number != NOT_STARTED:
                self._count(self.xids, (xid.number, xid.bdf), xid, both[int(xid.t)])
        for sxid in sxids(lines):
            if sxid.t >= first:
                self._count(self.sxids, (sxid.number, sxid.bdf, sxid.link), sxid, both[int(sxid.t)])

    def _count(
        self,
        into: dict[Any, Tally],
        key: tuple[int | str, ...],
        event: Xid | Sxid | PciEvent,
        record: KernelRecord,
    ) -> None:
        tally = into.get(key)
        if tally is None:
            if len(into) >= _KINDS_AT_MOST:
                self.too_many = True
                return
            tally = into[key] = Tally(last=event)
        if self.window is None:
            tally.inside += 1
        elif record.wall is None:
            tally.undated += 1
        elif before(record.wall, self.window):
            tally.history += 1
            return
        else:
            tally.inside += 1
        if _apart(tally, record):
            tally.incidents += 1
        tally.last, tally.last_wall, tally.last_boot = event, record.wall, record.boot_s


def _apart(tally: Tally, record: KernelRecord) -> bool:
    if tally.incidents == 0:
        return True
    if record.boot_s is not None and tally.last_boot is not None:
        return abs(record.boot_s - tally.last_boot) > _APART_S
    if record.wall is not None and tally.last_wall is not None:
        plain, last = record.wall.replace(tzinfo=None), tally.last_wall.replace(tzinfo=None)
        return abs((plain - last).total_seconds()) > _APART_S
    return False


def of(tallies: dict[tuple[str, str], Tally], *what: str) -> Iterator[tuple[str, Tally, PciEvent]]:
    """(bdf, tally, last event) of PCI events of these kinds."""
    for (kind, bdf), tally in tallies.items():
        if kind in what and isinstance(tally.last, PciEvent):
            yield bdf, tally, tally.last
