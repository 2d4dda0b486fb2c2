"""Kernel logs as people keep them (dmesg, dmesg -T, dmesg -x, journalctl, syslog) -> records with their time.

A record is one message: lines below it that are indented and have no time of their own belong to it. The time is wall
clock where the format has one, seconds since boot otherwise. Journal and syslog leave the year out; the year nearest to
a given moment is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

_PRIORITY = re.compile(r"<\d{1,3}>")
_FACILITY = re.compile(r"[a-z0-9]+ *:[a-z]+ *: ")
_SINCE_BOOT = re.compile(r"\[ *(\d{1,10}\.\d{1,9})\](?:\[ *[TC]\d+\])? ?")
_DATED = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)? ")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (?=\S)")
_KERNEL = re.compile(r"(?:\S{1,255} )?kernel: ?")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_JOINED_AT_MOST = 4000
_CONTINUED_AT_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """One message. `wall` is None where the format has seconds since boot only (`boot_s`), or no time at all.

    `timed`: whether the line carries a time of a kernel log.
    """

    text: str
    wall: datetime | None = None
    boot_s: float | None = None
    timed: bool = False


def kernel_records(lines: Iterable[str], near: datetime | None) -> Iterator[KernelRecord]:
    """Every message of the text; `near` settles the year where the format has none."""
    now: KernelRecord | None = None
    continued = 0
    for raw in lines:
        line = raw.rstrip()
        if not line.strip():
            continue
        record = kernel_record(line, near)
        if not record.timed and line[:1].isspace() and now and now.timed and continued < _CONTINUED_AT_MOST:
            continued += 1
            joined = f"{now.text} {line.strip()}"[:_JOINED_AT_MOST]
            now = KernelRecord(text=joined, wall=now.wall, boot_s=now.boot_s, timed=True)
            continue
        if now:
            yield now
        now, continued = record, 0
    if now:
        yield now


def kernel_record(line: str, near: datetime | None) -> KernelRecord:
    """One line, its time and name of the source taken off."""
    wall: datetime | None = None
    boot: float | None = None
    timed = False
    rest = line
    for _ in range(5):
        before = rest
        if match := _PRIORITY.match(rest) or _FACILITY.match(rest):
            rest = rest[match.end() :]
        elif match := _SINCE_BOOT.match(rest):
            boot, rest, timed = float(match[1]), rest[match.end() :], True
        elif match := _DATED.match(rest):
            wall, rest, timed = _date(match[1]), rest[match.end() :], True
        elif match := _ISO.match(rest):
            wall, rest, timed = moment(match[1] + (match[2] or "")), rest[match.end() :], True
        elif match := _SYSLOG.match(rest):
            wall, rest, timed = _nearest(match, near), rest[match.end() :], True
        elif timed and (match := _KERNEL.match(rest)):
            rest = rest[match.end() :]
        if rest == before:
            break
    return KernelRecord(text=rest.strip()[:_JOINED_AT_MOST], wall=wall, boot_s=boot, timed=timed)


def moment(text: str) -> datetime | None:
    """An ISO time, None where the text is none. "Z" and "+0100" are taken on every Python."""
    plain = text.strip().replace("Z", "+00:00").replace(" ", "T")
    if re.search(r"[+-]\d{4}$", plain):
        plain = f"{plain[:-2]}:{plain[-2:]}"
    try:
        return datetime.fromisoformat(plain)
    except ValueError:
        return None


def before(a: datetime, b: datetime) -> bool:
    """Whether a lies before b; where one of them names no time zone both are taken as the same clock."""
    if (a.tzinfo is None) != (b.tzinfo is None):
        a, b = a.replace(tzinfo=None), b.replace(tzinfo=None)
    return a < b


def _date(text: str) -> datetime | None:
    try:
        month, day, clock, year = text.split()[1:]
        return moment(f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}T{clock}")
    except ValueError:
        return None


def _nearest(match: re.Match[str], near: datetime | None) -> datetime | None:
    if near is None or match[1] not in _MONTHS:
        return None
    found: list[datetime] = []
    for year in (near.year - 1, near.year, near.year + 1):
        date = f"{year}-{_MONTHS.index(match[1]) + 1:02d}-{int(match[2]):02d}"
        told = moment(f"{date}T{match[3]}:{match[4]}:{match[5]}")
        found += [told] if told else []
    plain = near.replace(tzinfo=None)
    return min(found, key=lambda told: abs(told - plain), default=None)
