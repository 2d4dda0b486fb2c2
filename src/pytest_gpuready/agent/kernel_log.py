"""The kernel log since boot, from /dev/kmsg or else from the journal, cut down to lines about GPUs and PCIe.

/dev/kmsg gives every record of the ring buffer with a sequence number: where the first one is not 0 the ring has lost
its beginning, and an Xid may have gone with it. Then, or where kmsg may not be read, the journal is asked; where both
are there the lines of both are kept. A record of several lines becomes one line here, so that what belongs together
stays together.

`complete` is said only of what was read to its end, from the kernel's own first line on and without a gap, and of which
no line about an error was dropped: a journal that ends before the ring begins, that stopped with an error or was cut
leaves a gap.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pytest_gpuready.agent.kernel_lines import Record, keep
from pytest_gpuready.model.agent_doc import KernelLog

KMSG = Path("/dev/kmsg")
JOURNAL = ("journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager")
JOURNAL_NAME = "journalctl -k -b"
DEADLINE_S = 20.0
LARGEST = 64 * 2**20
_RECORD = re.compile(r"(\d+),(\d+),(\d+),([^;]*);(.*)", re.DOTALL)
_JOURNAL_LINE = re.compile(r"\[\s*(\d+\.\d+)\] (?:\S+ )?kernel: (.*)", re.DOTALL)
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})")


def kernel_log(kmsg: Path = KMSG, journal: Sequence[str] = JOURNAL) -> KernelLog:
    """The log of this boot from the better of the two sources; `problem` where neither can be read."""
    ring = _ring(kmsg)
    if ring.whole and ring.records[0].sequence == 0:
        return _document(ring, complete=True)
    written = read_journal(journal)
    if written.problem and ring.problem:
        advice = "run as root, or let the container see /dev/kmsg"
        return KernelLog(problem=f"{ring.problem}; {written.problem}; {advice}")
    if ring.problem:
        return _document(written, complete=written.whole)
    if written.problem:
        return _document(ring, complete=False)
    return _both(written, ring)


def read_kmsg(path: Path) -> tuple[bytes, bool]:
    """All records that are there now, one after the other, and whether the end was reached in time and size.

    An ordinary file reads the same way. Raises: OSError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    pieces, size, ended = [], 0, False
    deadline = time.monotonic() + DEADLINE_S
    try:
        while size < LARGEST and time.monotonic() < deadline:
            try:
                piece = os.read(handle, 65536)
            except BlockingIOError:  # the end: nothing more for now
                ended = True
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten under our hands; the gap shows in the sequence numbers
                    continue
                raise
            if not piece:
                ended = True
                break
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(handle)
    return b"".join(pieces), ended


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


class Source(NamedTuple):
    """What one source gave. `whole`: from its first record to the end without a gap; `problem` where it gave none."""

    name: str
    records: Sequence[Record] = ()
    whole: bool = False
    problem: str = ""


def _ring(kmsg: Path) -> Source:
    try:
        data, ended = read_kmsg(kmsg)
    except OSError as error:
        return Source(str(kmsg), problem=f"{kmsg}: {os.strerror(error.errno or 0)}")
    records = kmsg_records(data)
    if not records:
        return Source(str(kmsg), problem=f"{kmsg} holds no record")
    steps = pairwise(record.sequence for record in records)
    return Source(str(kmsg), records, whole=ended and all(b - a <= 1 for a, b in steps))


def read_journal(command: Sequence[str]) -> Source:
    """The journal's kernel log of this boot; whole where it starts at the kernel's own first line."""
    import subprocess  # noqa: PLC0415 - rarely needed, and every import counts in the agent

    environment = {**os.environ, "LC_ALL": "C"}
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False, env=environment
        )
    except FileNotFoundError:
        return Source(JOURNAL_NAME, problem=f"{command[0]} not found")
    except OSError as error:
        return Source(JOURNAL_NAME, problem=f"{command[0]}: {os.strerror(error.errno or 0)}")
    except subprocess.TimeoutExpired:
        return Source(JOURNAL_NAME, problem=f"{command[0]} gave no answer within {DEADLINE_S:g} s")
    text = ran.stdout[:LARGEST].decode("utf-8", "replace")
    records = journal_records(text)
    if not records:
        said = ran.stderr.decode("utf-8", "replace").strip().splitlines() or text.strip().splitlines() or ["nothing"]
        problem = f"{command[0]} shows no kernel log (exit {ran.returncode}: {said[-1][:120]!r})"
        return Source(JOURNAL_NAME, problem=problem)
    lost = re.search(r"Missed \d+ kernel messages", text) is not None
    ended = ran.returncode == 0 and len(ran.stdout) <= LARGEST
    return Source(JOURNAL_NAME, records, whole=ended and "Linux version" in records[0].text and not lost)


def _both(written: Source, ring: Source) -> KernelLog:
    """The journal and the ring together: what both hold once, what one of them holds as well.

    Nothing is missing where the journal is whole and goes on until the ring begins, and the ring goes on to the end.
    """
    known = Counter(record.text for record in written.records)
    more: list[Record] = []
    for record in ring.records:
        if known[record.text] > 0:
            known[record.text] -= 1
        else:
            more.append(record)
    meet = written.records[-1].t >= ring.records[0].t
    records = sorted((*written.records, *more), key=lambda record: record.t)
    name = f"{JOURNAL_NAME} and {ring.name}" if more else JOURNAL_NAME
    return _document(Source(name, records), complete=written.whole and ring.whole and meet)


def _document(source: Source, *, complete: bool) -> KernelLog:
    kept = keep(source.records)
    return KernelLog(
        source=source.name,
        complete=complete and not kept.lost,
        total_lines=len(source.records),
        lines=kept.lines,
    )


def _unescape(text: str) -> str:
    return _HEX.sub(lambda match: chr(int(match[1], 16)), text)


def _one_line(text: str) -> str:
    """Lines of one record joined by a blank, other control characters made harmless."""
    joined = " ".join(part.strip() for part in text.splitlines() if part.strip())
    return "".join(char if char.isprintable() else "?" for char in joined)
