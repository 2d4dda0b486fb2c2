"""Which records of the kernel log are kept, and how much of each.

Lines about GPUs, NVSwitches and PCIe, at most 2,000 of 500 characters. What reports an error comes before all other
lines, by the same words by which it will be judged; whether one of those had to be dropped is said, for then the log no
longer proves that there was none.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.model.kernel_words import DRIVER, events

MOST_LINES = 2000
LONGEST_LINE = 500
_HEAD = 120
"""An event that begins this near to a cut goes behind it: its number must not be cut through."""
_CONTEXT = 200

RELEVANT = re.compile(
    r"NVRM|nvidia|S?Xid\b|nvswitch|rm_?init_?adapter|\bAER\b|pcieport|PCIe Bus Error|"
    r"available PCIe bandwidth|insufficient power on the PCIe",
    re.IGNORECASE,
)
_LOST_GPU = re.compile(r"The NVIDIA GPU [0-9a-fA-F]+:")
"""The line with the address of a GPU that never answered: what goes with it stands in a line of its own."""
_NUMBERED = re.compile(r"S?Xid\s*[(\[][^)\]]*[)\]]\s*:?\s*\d+", re.IGNORECASE)
_KIND = re.compile(rf"{_NUMBERED.pattern}|fallen off the bus|Severity \d+|(?:non-)?fatal|(?:un)?correct", re.IGNORECASE)


class Record(NamedTuple):
    """One record of the kernel log. `sequence` is -1 where the source does not number them."""

    sequence: int
    t: float
    text: str
    continues: bool = False
    """True for a fragment that goes on with the record before."""


class Kept(NamedTuple):
    """The lines that were kept. `lost` counts lines about errors for which there was no room."""

    lines: list[LogLine]
    lost: int = 0


def relevant(records: Sequence[Record]) -> list[LogLine]:
    """The lines of these records that are kept."""
    return keep(records).lines


def keep(records: Sequence[Record]) -> Kept:
    """Lines about GPUs, NVSwitches and PCIe in their order.

    Where there are too many, lines about errors go first, and of those the first of each number, address and severity
    is always kept: a storm on one GPU does not wash away the one Xid of another.
    """
    kept: list[tuple[bool, LogLine]] = []
    before = False
    for record in records:
        before = bool(RELEVANT.search(record.text)) or (record.continues and before)
        if before:
            for text in _cut(record.text):
                weighty = bool(events(text) or _LOST_GPU.search(text))
                kept.append((weighty, LogLine(t=round(record.t, 6), text=text)))
    return Kept([line for _, line in kept]) if len(kept) <= MOST_LINES else _fewer(kept)


def _cut(text: str) -> Iterator[str]:
    """The beginning of a record, and of the rest every piece that reports something, each with the driver's word."""
    at, rest = 0, events(text) if len(text) > LONGEST_LINE else []
    word = f"{DRIVER}: " if DRIVER in text else ""
    while True:
        head = word if at and DRIVER not in text[at : at + _HEAD] else ""
        end = at + LONGEST_LINE - len(head)
        if end < len(text):
            last = bisect_right(rest, max(at, end - _HEAD))
            end = rest[last] if last < len(rest) and rest[last] < end else end
        yield head + text[at:end]
        following = bisect_left(rest, end)
        if following == len(rest):
            return
        event = rest[following]
        begin = max(end, event - _CONTEXT)
        with_driver = text.find(DRIVER, begin, event)
        at = event if with_driver < 0 else with_driver


def _fewer(kept: Sequence[tuple[bool, LogLine]]) -> Kept:
    chosen: set[int] = set()
    seen: set[str] = set()
    for at, (weighty, line) in enumerate(kept):
        kind = " ".join(_KIND.findall(line.text)) if weighty and _NUMBERED.search(line.text) else line.text
        if weighty and kind not in seen and len(chosen) < MOST_LINES:
            seen.add(kind)
            chosen.add(at)
    for want in (True, False):
        for at in range(len(kept) - 1, -1, -1):
            if len(chosen) >= MOST_LINES:
                break
            if kept[at][0] is want:
                chosen.add(at)
    lost = sum(weighty for weighty, _ in kept) - sum(kept[at][0] for at in chosen)
    return Kept([kept[at][1] for at in sorted(chosen)], lost)
