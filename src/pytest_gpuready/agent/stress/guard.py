"""The crew's end of the watch: whether GPUs may be loaded, what they show now, and when the load has to stop.

temperature at the slowdown threshold less a margin, or memory at its own; an Xid of the hardware; a GPU that does
not answer; no reading for a while; a watch that has ended: nothing is loaded that nobody watches.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from pytest_gpuready.agent.stress import children
from pytest_gpuready.agent.stress.gate import Gate
from pytest_gpuready.agent.stress.watch import READINGS, Counted, End, Event, Line, Row
from pytest_gpuready.agent.stress.xids import hardware

LARGEST = 4 * 2**20
"""Bytes of a line; the longest holds the kernel log."""

STALE_S = 10.0
"""Without a reading for so long, a GPU is not loaded any longer."""

MOST_NOTES = 20
WATCH = "pytest_gpuready.agent.stress.watch"
ENDED = "the watch over the GPUs ended: nothing guards their temperature"

_AT = {name: at for at, name in enumerate(READINGS)}


class Guard:
    """Fed with what the watch prints. `stop` says why a GPU may not be loaded any longer, "" where it may."""

    def __init__(
        self,
        bdfs: Sequence[str],
        period_s: float,
        *,
        margin_c: float,
        sampled: Callable[[Row], None],
        command: Sequence[str] | None = None,
    ) -> None:
        self.gpus: list[str] | None = None
        """All that are watched, once that is known."""
        self.gates: dict[str, Gate] = {}
        self.now: dict[str, Row] = {}
        self.xids: list[Event] = []
        self.counted: dict[tuple[str, int], Counted] = {}
        """Bus address and mark -> counters."""
        self.end: End | None = None
        self.ended = False
        self.problem = ""
        self._margin_c = margin_c
        self._sampled = sampled
        self._stops: dict[str, str] = {}
        self._guarding_since: float | None = None
        self._tail = bytearray()
        self._marks = 0
        self._notes: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        words = command or [sys.executable, "-m", WATCH]
        try:
            # Its stderr must not be ours: a watch that cannot be killed would hold the pipe to whoever started us.
            self.process = children.start(
                [*words, f"{period_s:g}", *filter(None, [",".join(bdfs)])], stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self.ended = True
            self.problem = f"expected to start the watch, found {error.strerror}"

    # --- before the load --------------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """True where every GPU has said whether it may be loaded, or nothing more is to come."""
        return self.ended or bool(self.problem) or (self.gpus is not None and set(self.gpus) <= set(self.gates))

    def guarding(self) -> None:
        """From now on a GPU without a fresh reading is stopped."""
        self._guarding_since = time.monotonic()

    # --- while it lasts ---------------------------------------------------------------------------------------------

    def stop(self, bdf: str) -> str:
        """Why this GPU must not be loaded any longer; "" where it may."""
        if why := self._stops.get(bdf):
            return why
        if self.ended:
            return ENDED
        row = self.now.get(bdf)
        since = max(row.t if row else 0.0, self._guarding_since or time.monotonic())
        if time.monotonic() - since > STALE_S:
            self._stops[bdf] = f"NVML has given no reading for {STALE_S:g} s"
        return self._stops.get(bdf, "")

    def temperature(self, bdf: str) -> float | None:
        """Degrees Celsius as last read."""
        return self._reading(bdf, "temperature_c")

    def span(self, name: str, bdfs: Sequence[str]) -> tuple[float, float] | None:
        """Lowest and highest of a reading of these GPUs, of those that gave it lately."""
        fresh = time.monotonic() - STALE_S
        values = [
            value
            for bdf in bdfs
            if bdf in self.now and self.now[bdf].t > fresh and (value := self._reading(bdf, name)) is not None
        ]
        return (min(values), max(values)) if values else None

    def mark(self) -> int:
        """Have the counters of all GPUs read now; they will stand in `counted` under this number."""
        self._marks += 1
        self._tell(f"mark {self._marks}")
        return self._marks

    # --- its lines --------------------------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """Take what it printed; nothing is its end."""
        if not piece:
            self.ended = True
        self._tail += piece
        *lines, rest = self._tail.split(b"\n")
        self._tail = bytearray(rest)
        for line in lines:
            self._take(bytes(line))
        if len(self._tail) > LARGEST:
            self._tail.clear()
            self._broken(f"expected lines of at most {LARGEST} bytes from the watch, found a longer")

    def tell_end(self, patience_s: float) -> None:
        """Tell it to say what the kernel log got, and to end."""
        self._tell(f"end {patience_s:g}")

    def close(self) -> str:
        """End it whatever it does. Returns "" or why it was no whole watch."""
        if self.process and not children.gone(self.process):
            self.problem = self.problem or f"process {self.process.pid} did not end on SIGKILL"
        if self.end is None and not self.problem:
            self.problem = "expected the end of the watch, found none: NVML or the kernel log hangs"
        return "; ".join(filter(None, (self.problem, *self._notes)))

    def _take(self, text: bytes) -> None:
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.DecodeError, RecursionError, OverflowError):
            self._broken("expected lines of JSON from the watch, found others")
            return
        if line.gpus is not None:
            self.gpus = line.gpus
        if line.gate:
            self.gates[line.gate.bdf] = line.gate
        if line.counted:
            self.counted[line.counted.bdf, line.counted.mark] = line.counted
        if line.note and len(self._notes) < MOST_NOTES:
            self._notes.append(line.note)
        self.problem = self.problem or line.problem
        if line.row and len(line.row.values) == len(READINGS):
            self._row(line.row)
        if line.xid:
            self._xid(line.xid)
        self.end = line.end or self.end

    def _row(self, row: Row) -> None:
        self.now[row.bdf] = row
        self._sampled(row)
        if row.bdf in self._stops:
            return
        gate = self.gates.get(row.bdf)
        now, memory = self.temperature(row.bdf), self._reading(row.bdf, "memory_temperature_c")
        if row.lost:
            self._stops[row.bdf] = f"the GPU is lost (NVML: {row.lost})"
        elif gate and gate.slowdown_c is not None and now is not None and now >= gate.slowdown_c - self._margin_c:
            self._stops[row.bdf] = f"{now:g} °C, {self._margin_c:g} below slowdown at {gate.slowdown_c} °C"
        elif gate and gate.memory_max_c and memory is not None and memory >= gate.memory_max_c:
            self._stops[row.bdf] = f"memory at {memory:g} °C, its highest is {gate.memory_max_c} °C"

    def _xid(self, event: Event) -> None:
        if any((event.bdf, event.xid) == (other.bdf, other.xid) and event.t - other.t < 1.0 for other in self.xids):
            return  # from NVML and from the kernel log
        if len(self.xids) < 1000:
            self.xids.append(event)
        if hardware(event.xid):
            self._stops.setdefault(event.bdf, f"Xid {event.xid}")

    def _reading(self, bdf: str, name: str) -> float | None:
        row = self.now.get(bdf)
        return row.values[_AT[name]] if row else None

    def _tell(self, text: str) -> None:
        if self.process and self.process.stdin:
            with contextlib.suppress(OSError):
                os.write(self.process.stdin.fileno(), text.encode("ascii") + b"\n")

    def _broken(self, why: str) -> None:
        self.problem = self.problem or why
        self.ended = True
