"""The crew's end of the watch: whether GPUs may be loaded, what they show now, and when the load has to stop.

temperature at the slowdown threshold less a margin, or memory at its own; a temperature that cannot be read any more;
an Xid of the hardware; a GPU that does not answer; no reading for a while. Nothing is loaded that nobody watches: all
GPUs are stopped where the watch has ended or is silent too, but that is no fault of theirs.
"""

from __future__ import annotations

import contextlib
import os
import select
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
"""Without a reading for so long, while the watch says that it is there, a GPU is not loaded any longer."""

BLIND_S = 3.0
"""The same without its temperature, while other readings come."""

SILENT_S = 8.0
"""A watch that has said nothing for so long, not even that it is there, watches no more."""

MOST_NOTES = 20
WATCH = (sys.executable, "-m", "pytest_gpuready.agent.stress.watch")
NOBODY = "nobody watched any more"
BLIND = "its temperature cannot be read any more"

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
        self._stop_all = ""
        self._warm_at: dict[str, float] = {}
        """When its temperature was read last."""
        self._heard_at, self._beat_at = time.monotonic(), 0.0
        self._silent = False
        self._guarding_since: float | None = None
        self._tail = bytearray()
        self._marks = 0
        self._notes: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        words = command or WATCH
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
        row, since = self.now.get(bdf), self._guarding_since
        if since is not None and self._beat_at - max(row.t if row else 0.0, since) > STALE_S:
            self._stops.setdefault(bdf, f"NVML has given no reading for {STALE_S:g} s")
        return self._stops.get(bdf) or self._stop_all

    @property
    def watching(self) -> bool:
        """False from when on nobody watches the GPUs any more, whatever they do."""
        if self._guarding_since is not None and not self.ended and not self._silent:
            quiet_s = time.monotonic() - max(self._heard_at, self._guarding_since)
            if quiet_s > SILENT_S and not self._has_more():
                self._silent = True
                found = f"found silence for {SILENT_S:g} s: it hangs, or was stopped"
                self.problem = self.problem or f"expected the watch over the GPUs to go on, {found}"
        return not (self.ended or self._silent)

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
        self._heard_at = time.monotonic()
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
        if self.ended and self.end is None and not self.problem and self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                how = children.how_it_ended(self.process.wait(timeout=children.KILL_S))
                self.problem = f"expected the watch over the GPUs to go on until its end, found that it ended: {how}"
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
        if line.beat is not None:
            self._beat_at = min(line.beat, time.monotonic())
        if line.row and len(line.row.values) == len(READINGS):
            self._row(line.row)
        if line.xid:
            self._xid(line.xid)
        self.end = line.end or self.end

    def _row(self, said: Row) -> None:
        # A moment to come would keep a watch fresh that is silent from now on.
        row = Row(bdf=said.bdf, t=min(said.t, time.monotonic()), values=said.values, lost=said.lost)
        self.now[row.bdf] = row
        self._sampled(row)
        if self.temperature(row.bdf) is not None:
            self._warm_at[row.bdf] = row.t
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
        elif row.t - max(self._warm_at.get(row.bdf, 0.0), self._guarding_since or row.t) > BLIND_S:
            self._stops[row.bdf] = BLIND

    def _xid(self, event: Event) -> None:
        if any((event.bdf, event.xid) == (other.bdf, other.xid) and event.t - other.t < 1.0 for other in self.xids):
            return  # from NVML and from the kernel log
        if len(self.xids) < 1000:
            self.xids.append(event)
        if hardware(event.xid) and event.bdf:
            self._stops.setdefault(event.bdf, f"Xid {event.xid}")
        elif hardware(event.xid):  # it may be any of them, and a broken one drags others along
            self._stop_all = self._stop_all or f"Xid {event.xid} of a GPU that the driver does not name"

    def _reading(self, bdf: str, name: str) -> float | None:
        row = self.now.get(bdf)
        return row.values[_AT[name]] if row else None

    def _has_more(self) -> bool:
        """True where it has said something that was not read yet: it was we who were away."""
        if self.process is None or self.process.stdout is None:
            return False
        waiting = select.poll()
        waiting.register(self.process.stdout, select.POLLIN)
        return bool(waiting.poll(0))

    def _tell(self, text: str) -> None:
        if self.process and self.process.stdin:
            with contextlib.suppress(OSError):
                os.write(self.process.stdin.fileno(), text.encode("ascii") + b"\n")

    def _broken(self, why: str) -> None:
        self.problem = self.problem or why
        self.ended = True
