"""The watch over loaded GPUs, a process of its own: `python -m pytest_gpuready.agent.stress.watch PERIOD_S [BDF,...]`.

It prints `Line`s: which GPUs there are, whether each may be loaded (`gate`), every sample as it is taken, Xids as they
come, counters when it is asked for them, now and then that it is there, and the kernel log of the run at its end. So
nothing that it has seen is lost when it hangs, as NVML may: each GPU has a thread of its own, and whoever reads notices
which of them is silent.

On its stdin it reads "mark N" (counters of all GPUs, named N) and "end S" (end within so many seconds); the end of
stdin is the end at once. Times are CLOCK_MONOTONIC. It ignores SIGTERM and SIGINT: whoever started it ends it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pynvml

from pytest_gpuready.agent.kernel_log import KMSG
from pytest_gpuready.agent.nvlink import bdf_of
from pytest_gpuready.agent.nvml_reader import LOST
from pytest_gpuready.agent.stress.gate import Gate, read
from pytest_gpuready.agent.stress.xids import LiveLog, NvmlEvents
from pytest_gpuready.agent.watch import KernelWindow
from pytest_gpuready.agent.watch_readings import COLUMNS, Readings, error_name
from pytest_gpuready.model.agent_doc import LogLine, Wire

READINGS = COLUMNS[1:]
"""What a row holds, in this order."""

TURN_S = 0.1
BEAT_S = 1.0
"""Between two lines that say only that it is there, from the thread that never asks NVML."""

GOLDEN = 0.618034
"""Multiples of it, without their whole part, lie evenly between 0 and 1."""

NO_ADVICE = "see what the probe nvml says"
ADVICE = {
    "LibraryNotFound": "install the driver, or let the container see libnvidia-ml.so.1",
    "DriverNotLoaded": "load the nvidia kernel module",
}


class Row(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One sample of one GPU. `lost`: the error of a GPU that does not answer any more."""

    bdf: str
    t: float
    values: list[float | None]
    lost: str = ""


class Counted(Wire, frozen=True, kw_only=True):
    """Counters of one GPU, as of the mark that asked for them, and the readings that fail."""

    bdf: str
    mark: int
    counters: dict[str, int]
    errors: dict[str, str]


class Event(Wire, frozen=True, kw_only=True):
    """An Xid; the same one may come from NVML and from the kernel log."""

    t: float
    bdf: str
    xid: int


class End(Wire, frozen=True, kw_only=True):
    """The kernel log of the run."""

    log: list[LogLine]
    log_problem: str


class Line(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the watch: one of these."""

    gpus: list[str] | None = None
    problem: str = ""
    gate: Gate | None = None
    row: Row | None = None
    counted: Counted | None = None
    xid: Event | None = None
    note: str = ""
    beat: float | None = None
    """It was there at this moment, whatever NVML did."""
    end: End | None = None


class Watching:
    """Threads that read, each GPU its own; `say` takes their lines, one at a time."""

    def __init__(self, period_s: float, bdfs: Sequence[str], kmsg: Path) -> None:
        self._period_s = period_s
        self._bdfs = tuple(bdfs)
        self._marks: list[int] = []
        self._marked = threading.Condition()
        self._saying = threading.Lock()
        self._window = KernelWindow(kmsg)
        self._live = LiveLog(kmsg)
        self._ending = threading.Event()
        self._log: list[LogLine] | None = None
        self._log_thread = threading.Thread(target=self._keep_log, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._live.open()
        self._log_thread.start()
        threading.Thread(target=self._begin, daemon=True).start()

    def mark(self, number: int) -> None:
        """Every GPU's counters are read as soon as it answers."""
        with self._marked:
            self._marks.append(number)
            self._marked.notify_all()

    def look(self) -> None:
        """What the kernel log has got since the last look."""
        for event in self._live.new():
            self._heard(*event)

    def end(self, patience_s: float) -> None:
        """Say what the kernel log got, if it can be read within these seconds."""
        self._ending.set()
        self._log_thread.join(patience_s)
        log = self._log
        problem = self._window.problem if log is not None else f"not read within {patience_s:g} s"
        self.say(Line(end=End(log=log or [], log_problem=problem)))

    def say(self, line: Line) -> None:
        """Print it, whole."""
        text = msgspec.json.encode(line) + b"\n"
        with self._saying:
            while text:
                text = text[os.write(1, text) :]

    def _begin(self) -> None:
        """Start NVML, say which GPUs there are, give each of them its thread."""
        try:
            pynvml.nvmlInit()
            known = dict.fromkeys(self._bdfs, "") or _all()
        except pynvml.NVMLError as error:
            why = f"expected NVML to start, found {error_name(error)}; {ADVICE.get(error_name(error), NO_ADVICE)}"
            self.say(Line(problem=why))
            return
        bdfs = [bdf for bdf, problem in known.items() if not problem]
        self.say(Line(gpus=list(known)))
        for bdf, problem in known.items():
            if problem:
                self.say(Line(gate=Gate(bdf=bdf, problem=problem)))
        for bdf in bdfs:
            threading.Thread(target=self._one, args=(bdf,), daemon=True).start()
        NvmlEvents(bdfs, self._heard, lambda text: self.say(Line(note=text))).run()

    def _heard(self, bdf: str, xid: int) -> None:
        self.say(Line(xid=Event(t=time.monotonic(), bdf=bdf, xid=xid)))

    def _one(self, bdf: str) -> None:
        """The gate, then samples until the process ends."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(bdf.encode("ascii"))
        except pynvml.NVMLError as error:
            self.say(Line(gate=Gate(bdf=bdf, problem=f"NVML: {error_name(error)}")))
            return
        readings = Readings(bdf)
        marked = taken = 0
        self.say(Line(gate=read(pynvml, handle, bdf)))
        due = time.monotonic()
        while True:
            while marked < len(self._marks):
                self._count(bdf, readings, self._marks[marked])
                marked += 1
            values = readings.sample()
            lost = next((name for name in readings.errors.values() if name in LOST), "")
            row = Row(bdf=bdf, t=time.monotonic(), values=[values[name] for name in READINGS], lost=lost)
            self.say(Line(row=row))
            # Not in step with anything: of pulses at a multiple of its period it would see only one side.
            due = max(due + self._period_s * (0.5 + taken * GOLDEN % 1), time.monotonic())
            taken += 1
            self._rest(due, marked)

    def _rest(self, due: float, marked: int) -> None:
        """Until the next sample is due, or another mark is there."""
        with self._marked:
            self._marked.wait_for(lambda: len(self._marks) > marked, max(0.0, due - time.monotonic()))

    def _count(self, bdf: str, readings: Readings, mark: int) -> None:
        counters = readings.counters()
        self.say(Line(counted=Counted(bdf=bdf, mark=mark, counters=counters, errors=dict(readings.errors))))

    def _keep_log(self) -> None:
        self._window.open()
        self._ending.wait()
        self._log = self._window.read()


def _all() -> dict[str, str]:
    """Every GPU that NVML counts -> why it cannot be opened, "" where it can; without an address it has its number."""
    found: dict[str, str] = {}
    for at in range(pynvml.nvmlDeviceGetCount()):
        try:
            found[bdf_of(pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(at)))] = ""
        except pynvml.NVMLError as error:
            found[f"GPU {at}"] = f"NVML: {error_name(error)}"
    return found


def main(argv: Sequence[str], kmsg: Path = KMSG) -> int:
    """Watch until told to end, or until the end of stdin; 1 where nobody reads. `kmsg` is the kernel log."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    bdfs = argv[1].split(",") if argv[1:] else ()
    watching = Watching(float(argv[0]), bdfs, kmsg)
    watching.start()
    said, due = b"", 0.0
    try:
        while True:
            if select.select([0], [], [], TURN_S)[0]:
                piece = os.read(0, 4096)
                if not piece:
                    return 0
                *lines, said = (said + piece).split(b"\n")
                for line in lines:
                    word, number = line.split()
                    if word == b"end":
                        watching.end(float(number))
                        return 0
                    watching.mark(int(number))
            watching.look()
            if (now := time.monotonic()) >= due:
                due = now + BEAT_S
                watching.say(Line(beat=now))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    # Not sys.exit: a thread that never comes back from NVML may hold what the interpreter wants for its end.
    os._exit(main(sys.argv[1:]))
