"""NCCL's own log of one rank, read while it is written: bounded, and the algorithms it names, as they come.

Kept are the first lines, then warnings, then what tells of paths, networks, channels and algorithms, each of these once
whatever number of channel it is about. The crew has the file open and its name is gone as soon as the rank has opened
it too, so nothing stays behind however the run ends.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

FIRST, WARNINGS, TELLING = 200, 200, 400
"""Lines of each sort that are kept."""

LONGEST = 400
"""Signs of a line that are kept."""

ROOM, ROOM_OF_WARNINGS = 3 * 2**15, 2**15
"""Signs of all lines that are kept, and of warnings: a document holds the logs of many ranks."""

AT_ONCE = 2**20
MOST_AT_ONCE = 64 * 2**20
"""Bytes that are read at a time, and of what has come since the last time."""

_PREFIX = re.compile(r"^(?:\[[^\]]*\] )?\S*:\d+:\d+ (?:\[\d+\] )?")
_TELLING = re.compile(
    r" via | Bytes -> Algo |NVLS|nvls channels|Using network|^NCCL INFO NET/|GPU Direct RDMA|set by environment"
    r"|Connected all|comm 0x|Init COMPLETE|Init timings|NCCL version|MNNVL"
)
_ALGORITHM = re.compile(r"(\w+): (\d+) Bytes -> Algo (\S+) proto (\S+)")
_CHANNEL = re.compile(r"(Channel|Ring|Tree) [\d/]+")


class NcclLog:
    """The log of one rank. `lines` are those kept, `left_out` counts the others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self.left_out = 0
        self.problem = ""
        self.last_warning = ""
        self._file = -1
        self._half = b""
        self._seen: set[str] = set()
        self._warnings = self._telling = 0
        self._room = {False: ROOM, True: ROOM_OF_WARNINGS}

    def open(self) -> None:
        """From now on it does not need its name."""
        if self._file >= 0:
            return
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.problem = f"expected NCCL to write its log, found {error.strerror}"

    def close(self) -> None:
        """Read it to its end."""
        self.take()
        if self._half:
            self._line(self._half)
            self._half = b""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self) -> list[tuple[str, int, str]]:
        """What has come since the last time: (function, bytes, "ALGORITHM PROTOCOL") of every call that it names."""
        if self._file < 0:
            if not self.path.exists():
                return []
            self.open()
        found: list[tuple[str, int, str]] = []
        taken = 0
        with contextlib.suppress(OSError):
            while taken < MOST_AT_ONCE and (piece := os.read(self._file, AT_ONCE)):
                taken += len(piece)
                *lines, self._half = (self._half + piece).split(b"\n")
                self._half = self._half[-4 * LONGEST :]
                for line in lines:
                    called = self._line(line)
                    found += [called] if called else []
        return found

    def _line(self, raw: bytes) -> tuple[str, int, str] | None:
        text = raw[: 4 * LONGEST].decode("utf-8", "replace")
        text = "".join(sign if sign.isprintable() else "?" for sign in text[:LONGEST])
        said = _PREFIX.sub("", text)
        if not said.strip():  # stands before each warning
            return None
        called = _ALGORITHM.search(said) if " Bytes -> Algo " in said else None
        warning = "NCCL WARN" in said
        if self._keeps(said) and len(text) <= self._room[warning]:
            self._room[warning] -= len(text)
            self.lines.append(text)
        else:
            self.left_out += 1
        if called is None:
            return None
        return called[1], int(called[2][:18]), f"{called[3][:20]} {called[4][:20]}"

    def _keeps(self, said: str) -> bool:
        if "NCCL WARN" in said:
            self.last_warning = said.partition("NCCL WARN")[2].strip()
            self._warnings += 1
            return len(self.lines) < FIRST or self._warnings <= WARNINGS
        known = _CHANNEL.sub(r"\1", said)
        new = known not in self._seen
        if _TELLING.search(said):
            if new and len(self._seen) < FIRST + TELLING:
                self._seen.add(known)
            if len(self.lines) >= FIRST:
                self._telling += new
                return new and self._telling <= TELLING
        return len(self.lines) < FIRST
