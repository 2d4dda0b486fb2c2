"""The agent's end of the watch that runs as a process of its own (`agent.watching`)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

import msgspec

from pytest_gpuready.agent.watching import Line, Seen

LARGEST = 4 * 2**20
"""Bytes of a line; what was seen on 16 GPUs in a day has fewer."""

KILL_S = 0.5


class WatchProcess:
    """A watch over these GPUs: started at once, fed with what it prints, told to end, and killed if it does not."""

    def __init__(self, bdfs: Sequence[str], *, module: str = "pytest_gpuready.agent.watching") -> None:
        self.ready = False
        self.now: Line | None = None
        """The newest readings."""
        self.seen: Seen | None = None
        self.ended = False
        self._problem = ""
        self._tail = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # Its stderr must not be ours: a watch that cannot be killed would hold the pipe to whoever started us.
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, ",".join(bdfs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self.ended = True
            self._problem = f"expected to start the watch, found {error.strerror}"

    @property
    def pipe(self) -> IO[bytes] | None:
        """What it prints, to be read and fed; None where it could not be started."""
        return self._process.stdout if self._process else None

    def feed(self, piece: bytes) -> None:
        """Take what it printed; nothing is its end."""
        if not piece:
            self.ended = True
        self._tail += piece
        while (at := self._tail.find(b"\n")) >= 0:
            line = bytes(self._tail[:at])
            del self._tail[: at + 1]
            self._take(line)
        if len(self._tail) > LARGEST:
            self._tail.clear()
            self._problem = self._problem or f"expected lines of at most {LARGEST} bytes from the watch, found a longer"
            self.ended = True

    def end(self, patience_s: float) -> None:
        """Tell it to end within these seconds."""
        if self._process and self._process.stdin and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{patience_s:g}".encode())
                self._process.stdin.flush()
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close(self) -> Seen:
        """What was seen, once it has ended or nobody waits for it any longer; it is killed where it still runs."""
        if self._process:
            self.end(0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=KILL_S if self.ended else 0)
            if self._process.poll() is None:
                self._process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=KILL_S)
        if self.seen:
            return self.seen
        code = self._process.poll() if self._process else None
        problem = self._problem or (
            f"expected what the watch saw, found its end with code {code}"
            if self.ended
            else "expected what the watch saw, found no end of it: NVML hangs"
        )
        return Seen(watch={}, watch_problem=problem, log=[], log_problem=problem)

    def _take(self, text: bytes) -> None:
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.DecodeError:
            self._problem = self._problem or "expected lines of JSON from the watch, found others"
            return
        self.ready = self.ready or line.ready
        if line.seen:
            self.seen = line.seen
        elif not line.ready:
            self.now = line
