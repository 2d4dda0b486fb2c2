"""The worker's two ends: what it says, line by line, and what it is told, read in a thread of its own.

Only the standard library is imported here: it is there before anything else is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

HUNG_S = 5.0
"""After the end of stdin, or "stop", a process that has not ended so much later is ended by the thread that reads."""
SAY_EVERY_S = 1.0
_NONE = object()


def process_age_s() -> float:
    """Seconds since this process was started, as the kernel counts; 0 where it does not say."""
    try:
        started = int(Path("/proc/self/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def numbers(value: Any) -> tuple[Any, int]:
    """The same with every number that JSON does not have left out of its list or object, and how many those were."""
    if isinstance(value, float) and not math.isfinite(value):
        return _NONE, 1
    if isinstance(value, dict):
        inner = {name: numbers(one) for name, one in value.items()}
        kept: Any = {name: one for name, (one, _) in inner.items() if one is not _NONE}
        return kept, sum(count for _, count in inner.values())
    if isinstance(value, (list, tuple)):
        pieces = [numbers(one) for one in value]
        return [one for one, _ in pieces if one is not _NONE], sum(count for _, count in pieces)
    return value, 0


class Out:
    """The real stdout: one JSON object a line, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, line: Mapping[str, Any]) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):  # then nobody listens, and stdin ends too
            self._stream.write(json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n")
            self._stream.flush()


class Orders:
    """What comes on stdin, read in a thread of its own: the work, the beginnings, the stop."""

    def __init__(self, stream: BinaryIO, give_up: Callable[[], None]) -> None:
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.stopped = False
        self.enough: int | None = None
        """The phase that may end."""
        self._stream = stream
        self._give_up = give_up
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for text in self._stream:
            try:
                line = json.loads(text)
            except ValueError:
                line = {}
            if isinstance(line, dict) and line.get("stop"):
                break
            if isinstance(line, dict) and "enough" in line:
                self.enough = line["enough"]
                continue
            self.lines.put(line if isinstance(line, dict) else {})
        self.stopped = True
        self.lines.put(None)
        time.sleep(HUNG_S)
        self._give_up()


class Beat:
    """One phase as the worker runs it (`flow.Beat`)."""

    def __init__(self, orders: Orders, out: Out, number: int, at: float, clock: Callable[[], float]) -> None:
        self._orders, self._out, self._number, self._clock = orders, out, number, clock
        self._at, self._said = at, at
        self._knows = False

    @property
    def stopped(self) -> bool:
        return self._orders.stopped

    @property
    def dismissed(self) -> bool:
        return self._orders.enough == self._number

    @property
    def process_s(self) -> float:
        return process_age_s()

    def start(self) -> float:
        while not self.stopped and (left := self._at - self._clock()) > 0:
            time.sleep(min(left, 0.05) if left > 0.002 else 0)
        return max(0.0, self._clock() - self._at)

    def say(self, **numbers: float | int | str) -> None:
        now = self._clock()
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            self._out.say({"said": self._number, "t": now - self._at, **numbers})

    def knows_enough(self) -> None:
        if not self._knows:
            self._knows = True
            self._out.say({"said": self._number, "t": self._clock() - self._at, "enough": True})
