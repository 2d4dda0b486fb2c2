"""The kernel log since boot, from /dev/kmsg or else from the journal, cut down to lines about GPUs and PCIe.

/dev/kmsg gives every record of the ring buffer with a sequence number: where the first one is not 0 the ring has lost
its beginning, and an Xid may have gone with it. Then, or where kmsg may not be read, the journal is asked. A record of
several lines becomes one line here, so that what belongs together stays together.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pytest_gpuready.model.agent_doc import KernelLog, LogLine

KMSG = Path("/dev/kmsg")
JOURNAL = ("journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager")
DEADLINE_S = 20.0
LARGEST = 64 * 2**20
MOST_LINES = 2000
LONGEST_LINE = 500

RELEVANT = re.compile(
    r"NVRM|nvidia|S?Xid\b|nvswitch|\bAER\b|pcieport|PCIe Bus Error|"
    r"available PCIe bandwidth|insufficient power on the PCIe",
    re.IGNORECASE,
)
# Never dropped in favour of others: errors by number, and the three lines of a GPU that never answered.
WEIGHTY = re.compile(r"Xid \(|fallen off the bus|The NVIDIA GPU [0-9a-fA-F]+:")
_SAME = re.compile(r"S?Xid \([^)]*\): \d+")
_RECORD = re.compile(r"(\d+),(\d+),(\d+),([^;]*);(.*)", re.DOTALL)
_JOURNAL_LINE = re.compile(r"\[\s*(\d+\.\d+)\] (?:\S+ )?kernel: (.*)", re.DOTALL)
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})")


class Record(NamedTuple):
    """One record of the kernel log. `sequence` is -1 where the source does not number them."""

    sequence: int
    t: float
    text: str
    continues: bool = False
    """True for a fragment that goes on with the record before."""


def kernel_log(kmsg: Path = KMSG, journal: Sequence[str] = JOURNAL) -> KernelLog:
    """The log of this boot from the better of the two sources; `problem` where neither can be read."""
    try:
        records = kmsg_records(read_kmsg(kmsg))
        ring = _document(str(kmsg), records, complete=_unbroken(records))
    except OSError as error:
        ring = KernelLog(problem=f"{kmsg}: {os.strerror(error.errno or 0)}")
    if ring.complete:
        return ring
    written = _journal(journal)
    if written.problem and ring.problem:
        advice = "run as root, or let the container see /dev/kmsg"
        return KernelLog(problem=f"{ring.problem}; {written.problem}; {advice}")
    if ring.problem or (not written.problem and written.total_lines >= ring.total_lines):
        return written
    return ring


def read_kmsg(path: Path) -> bytes:
    """All records that are there now, one after the other; an ordinary file reads the same way. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    pieces, size = [], 0
    deadline = time.monotonic() + DEADLINE_S
    try:
        while size < LARGEST and time.monotonic() < deadline:
            try:
                piece = os.read(handle, 65536)
            except BlockingIOError:  # the end: nothing more for now
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten under our hands; the gap shows in the sequence numbers
                    continue
                raise
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(handle)
    return b"".join(pieces)


def kmsg_records(data: bytes) -> list[Record]:
    """Records of /dev/kmsg: "priority,sequence,microseconds,flags;text", escapes undone, dictionary lines left out."""
    found: list[Record] = []
    for line in data.decode("utf-8", "replace").split("\n"):
        match = None if line.startswith(" ") else _RECORD.match(line)
        if not match:
            continue
        _, sequence, microseconds, flags, text = match.groups()
        record = Record(int(sequence), int(microseconds) / 1e6, _one_line(_unescape(text)), flags[:1] in ("c", "+"))
        if flags.startswith("+") and found:
            found[-1] = found[-1]._replace(text=found[-1].text + record.text)
        else:
            found.append(record)
    return found


def journal_records(text: str) -> list[Record]:
    """Records of `journalctl -o short-monotonic`; an indented line goes on with the record above it."""
    found: list[Record] = []
    for line in text.split("\n"):
        match = _JOURNAL_LINE.match(line)
        if match:
            found.append(Record(-1, float(match[1]), _one_line(match[2])))
        elif line[:1].isspace() and line.strip() and found:
            found[-1] = found[-1]._replace(text=f"{found[-1].text} {_one_line(line)}")
    return found


def relevant(records: Sequence[Record]) -> list[LogLine]:
    """Lines about GPUs, NVSwitches and PCIe in their order, at most 2,000 of 500 characters.

    Where there are more, weighty lines (Xid, SXid, fallen off the bus) go first, and of those the first of each
    number and address is always kept: a storm on one GPU does not wash away the single Xid of another.
    """
    kept: list[tuple[bool, LogLine]] = []
    before = False
    for record in records:
        before = bool(RELEVANT.search(record.text)) or (record.continues and before)
        if before:
            line = LogLine(t=round(record.t, 6), text=record.text[:LONGEST_LINE])
            kept.append((bool(WEIGHTY.search(record.text)), line))
    if len(kept) <= MOST_LINES:
        return [line for _, line in kept]
    return _fewer(kept)


def _fewer(kept: Sequence[tuple[bool, LogLine]]) -> list[LogLine]:
    chosen: set[int] = set()
    seen: set[str] = set()
    for at, (weighty, line) in enumerate(kept):
        match = _SAME.search(line.text) if weighty else None
        key = match[0] if match else line.text
        if weighty and key not in seen and len(chosen) < MOST_LINES:
            seen.add(key)
            chosen.add(at)
    for want in (True, False):
        for at in range(len(kept) - 1, -1, -1):
            if len(chosen) >= MOST_LINES:
                break
            if kept[at][0] is want:
                chosen.add(at)
    return [kept[at][1] for at in sorted(chosen)]


def _journal(command: Sequence[str]) -> KernelLog:
    """The journal's kernel log of this boot. It is complete where it starts at the kernel's own first line."""
    import subprocess  # noqa: PLC0415 - rarely needed, and every import counts in the agent

    environment = {**os.environ, "LC_ALL": "C"}
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False, env=environment
        )
    except FileNotFoundError:
        return KernelLog(problem=f"{command[0]} not found")
    except OSError as error:
        return KernelLog(problem=f"{command[0]}: {os.strerror(error.errno or 0)}")
    except subprocess.TimeoutExpired:
        return KernelLog(problem=f"{command[0]} gave no answer within {DEADLINE_S:g} s")
    text = ran.stdout[:LARGEST].decode("utf-8", "replace")
    records = journal_records(text)
    if not records:
        said = ran.stderr.decode("utf-8", "replace").strip().splitlines() or text.strip().splitlines() or ["nothing"]
        return KernelLog(problem=f"{command[0]} shows no kernel log (exit {ran.returncode}: {said[-1][:120]!r})")
    lost = re.search(r"Missed \d+ kernel messages", text) is not None
    return _document("journalctl -k -b", records, complete="Linux version" in records[0].text and not lost)


def _document(source: str, records: Sequence[Record], *, complete: bool) -> KernelLog:
    return KernelLog(source=source, complete=complete, total_lines=len(records), lines=relevant(records))


def _unbroken(records: Sequence[Record]) -> bool:
    """True where the ring still holds the first record and none is missing since."""
    numbers = [record.sequence for record in records]
    return bool(numbers) and numbers[0] == 0 and all(b - a <= 1 for a, b in pairwise(numbers))


def _unescape(text: str) -> str:
    return _HEX.sub(lambda match: chr(int(match[1], 16)), text)


def _one_line(text: str) -> str:
    """Lines of one record joined by a blank, other control characters made harmless."""
    joined = " ".join(part.strip() for part in text.splitlines() if part.strip())
    return "".join(char if char.isprintable() else "?" for char in joined)
