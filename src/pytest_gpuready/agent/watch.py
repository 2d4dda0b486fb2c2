"""A watch over one GPU while something else loads it: counters before and after, samples every 0.1 s, kernel log.

    with Watch("0000:19:00.0") as watch:
        with watch.phase("h2d"):
            ...
    watch.doc()

The sampler is a thread of its own and never touches CUDA. A reading that fails does not stop it. A watch of hours is
thinned: where there are more than `most` samples every second one goes, and the period doubles.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pytest_gpuready.agent.kernel_lines import Record, keep
from pytest_gpuready.agent.kernel_log import DEADLINE_S, JOURNAL, KMSG, LARGEST, kmsg_records, read_journal
from pytest_gpuready.agent.watch_readings import COLUMNS, Readings
from pytest_gpuready.model.agent_doc import LogLine, WatchDoc

JOIN_S = 5.0
MOST_SAMPLES = 20_000


class Watch:
    """Watches the GPU at a bus address from `with` to the end of it; `doc()` afterwards."""

    def __init__(
        self,
        bdf: str,
        period_s: float = 0.1,
        *,
        kmsg: Path = KMSG,
        journal: Sequence[str] = JOURNAL,
        readings: Readings | None = None,
        with_log: bool = True,
        join_s: float = JOIN_S,
        most: int = MOST_SAMPLES,
    ) -> None:
        """`with_log` is False where somebody else keeps the window of the kernel log, for all GPUs of a node."""
        self._readings = readings or Readings(bdf)
        self._period_s = period_s
        self._log = KernelWindow(kmsg, journal) if with_log else None
        self._join_s = join_s
        self._most = most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpuready-watch", daemon=True)
        self._began = 0.0
        self._before: dict[str, int] = {}
        self._after: dict[str, int] = {}
        self._rows: list[dict[str, float | None]] = []
        self._phases: list[tuple[str, float, float]] = []
        self._lines: list[LogLine] = []
        self.generation_max: int | None = None
        self.generation_max_device: int | None = None

    def __enter__(self) -> Watch:
        if self._log:
            self._log.open()
        self._before = self._readings.counters()
        self.generation_max = self._readings.generation_max()
        self.generation_max_device = self._readings.generation_max_device()
        self._began = time.monotonic()
        if self._readings.alive:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        hung = False
        if self._thread.ident is not None:
            self._thread.join(self._join_s)
            hung = self._thread.is_alive()
        if hung:  # a getter that never comes back: asking for the counters would hang as well
            self._readings.errors["sampler"] = f"no answer within {self._join_s:g} s"
        else:
            self._after = self._readings.counters()
        if self._log:
            self._lines = self._log.read()

    @property
    def errors(self) -> dict[str, str]:
        """Reading -> error name, of those that failed so far."""
        return dict(self._readings.errors)

    @property
    def alive(self) -> bool:
        """False where NVML does not answer for this GPU at all."""
        return self._readings.alive

    @property
    def latest(self) -> dict[str, float | None]:
        """The newest sample; empty where there is none that is younger than a few periods."""
        row = self._rows[-1] if self._rows else {}
        return row if row and self._now() - (row["t"] or 0.0) < 3 * self._period_s else {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name what happens inside: the samples taken meanwhile belong to it."""
        start = self._now()
        try:
            yield
        finally:
            self._phases.append((name, start, self._now()))

    def doc(self) -> WatchDoc:
        """What was seen."""
        rows = list(self._rows)
        return WatchDoc(
            period_s=self._period_s,
            before=self._before,
            after=self._after,
            samples={name: [row[name] for row in rows] for name in COLUMNS},
            phases=list(self._phases),
            log=self._lines,
            log_problem=self._log.problem if self._log else "",
            errors=self.errors,
        )

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 4)

    def _sample(self) -> None:
        due = self._began
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            row = self._readings.sample()
            self._rows.append({"t": self._now(), **row})
            if len(self._rows) > self._most:
                del self._rows[1::2]
                self._period_s *= 2
            due = max(due + self._period_s, time.monotonic())


class KernelWindow:
    """Kernel-log lines from `open()` to `read()`. `problem` says why there are none, or that some were lost.

    Where /dev/kmsg may not be read the journal is asked at both ends, and what it has more at the second is the window.
    """

    def __init__(self, path: Path, journal: Sequence[str] = JOURNAL) -> None:
        self._path = path
        self._journal = journal
        self._until = 0.0
        """The last time in the journal when the window opened."""
        self._handle: int | None = None
        self.problem = ""

    def open(self) -> None:
        """Stand at the end of the log as it is now."""
        try:
            self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._handle, 0, os.SEEK_END)
        except OSError as error:
            self.problem = f"{self._path}: {os.strerror(error.errno or 0)}"
            before = read_journal(self._journal)
            self._until = before.records[-1].t if before.whole else 0.0

    def read(self) -> list[LogLine]:
        """The lines about GPUs and PCIe that were written since; closes the log."""
        if self._handle is None:
            return self._written_since()
        try:
            data = b"" if self.problem else self._drain(self._handle)
        finally:
            os.close(self._handle)
            self._handle = None
        return self._kept(kmsg_records(data))

    def _written_since(self) -> list[LogLine]:
        """What the journal has got since; the problem stays unless it is whole at both ends."""
        if not self._until:
            return []
        after = read_journal(self._journal)
        if after.whole:
            self.problem = ""
        return self._kept([record for record in after.records if record.t > self._until])

    def _kept(self, records: Sequence[Record]) -> list[LogLine]:
        kept = keep(records)
        if kept.lost:
            self.problem = self.problem or f"{self._path}: {kept.lost} lines about errors more than are kept"
        return kept.lines

    def _drain(self, handle: int) -> bytes:
        """Everything that is there now. What was lost on the way stands in `problem`; the rest is read all the same."""
        pieces: list[bytes] = []
        size = 0
        give_up = time.monotonic() + DEADLINE_S
        while size < LARGEST and time.monotonic() < give_up:
            try:
                piece = os.read(handle, 65536)
            except BlockingIOError:  # the end: nothing more for now
                return b"".join(pieces)
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self.problem = f"{self._path}: {os.strerror(error.errno or 0)}"
                    return b"".join(pieces)
                self.problem = f"{self._path}: records were lost, overwritten before they were read"
                continue
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
        self.problem = self.problem or f"{self._path}: more than could be read ({size} bytes)"
        return b"".join(pieces)
