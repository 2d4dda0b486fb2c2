"""The watch over the GPUs of a node, as a process of its own: `python -m pytest_gpuready.agent.watching BDF,BDF,...`.

Its own process, because NVML may hang in the kernel: a process that holds such a thread cannot end, and the agent has
to. The agent starts it, reads `Line`s from its stdout, and closes its stdin when the watch is to end, after writing how
many seconds it may take for that. The last line holds what was seen. It ignores SIGTERM and SIGINT, which the whole
group gets: it goes on until the tool it watches has ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from pytest_gpuready.agent.kernel_log import KMSG
from pytest_gpuready.agent.watch import KernelWindow, Watch
from pytest_gpuready.model.agent_doc import LogLine, WatchDoc, Wire

PERIOD_S = 2.0
MOST_SAMPLES = 1800
"""Samples of a GPU: an hour of them, then the period doubles."""

END_S = 25.0
"""How long the end may take where nobody said: the kernel log may come from a journal of many days."""

GPUS_END_S = 4.0
"""How much of that the GPUs have; one that has not answered by then does not."""

PHASE = "tool"
"""The phase of every watch: from when the GPU was ready to be watched to when the tool had ended."""


class Seen(Wire, frozen=True, kw_only=True):
    """All that was seen, as in `AroundDoc`."""

    watch: dict[str, WatchDoc]
    watch_problem: str
    log: list[LogLine]
    log_problem: str


class Line(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One line that the watch prints: that all GPUs are watched, lowest and highest readings now, or the end."""

    ready: bool = False
    power_w: tuple[float, float] | None = None
    temperature_c: tuple[float, float] | None = None
    seen: Seen | None = None


class Watching:
    """Several GPUs under the watch and one window of the kernel log; nothing that hangs keeps the rest from ending."""

    def __init__(
        self,
        bdfs: Sequence[str],
        *,
        watch: Callable[..., Watch] = Watch,
        window: KernelWindow | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        self._bdfs = tuple(bdfs)
        self._make = watch
        self._window = window or KernelWindow(KMSG)
        self._period_s = period_s
        self._stop = threading.Event()
        self._watches: dict[str, Watch] = {}
        self._docs: dict[str, WatchDoc] = {}
        self._ready: set[str] = set()
        self._log: list[LogLine] | None = None
        self._threads = {bdf: threading.Thread(target=self._one, args=(bdf,), daemon=True) for bdf in self._bdfs}
        self._threads[""] = threading.Thread(target=self._read_log, daemon=True)

    def start(self) -> None:
        """Begin to watch; returns at once."""
        for thread in self._threads.values():
            thread.start()

    @property
    def ready(self) -> bool:
        """True where every GPU has been read once and the window of the kernel log is open."""
        return self._ready >= {*self._bdfs, ""}

    def now(self) -> Line:
        """Lowest and highest readings of this moment."""
        rows = [watch.latest for watch in list(self._watches.values())]
        return Line(power_w=_span(rows, "power_w"), temperature_c=_span(rows, "temperature_c"))

    def end(self, patience_s: float) -> Seen:
        """End the watch, within these seconds: what has not ended by then is named as a problem."""
        began = time.monotonic()
        self._stop.set()
        for bdf, thread in self._threads.items():
            most = min(GPUS_END_S, patience_s) if bdf else patience_s
            thread.join(max(0.0, began + most - time.monotonic()))
        docs, log = dict(self._docs), self._log
        return Seen(
            watch={bdf: docs[bdf] for bdf in self._bdfs if bdf in docs and self._watches[bdf].alive},
            watch_problem=self._problem(docs),
            log=log or [],
            log_problem=self._window.problem if log is not None else f"not read within {patience_s:g} s",
        )

    def _one(self, bdf: str) -> None:
        watch = self._make(bdf, self._period_s, with_log=False, join_s=GPUS_END_S / 2, most=MOST_SAMPLES)
        with watch:
            self._watches[bdf] = watch
            self._ready.add(bdf)
            with watch.phase(PHASE):
                self._stop.wait()
        self._docs[bdf] = watch.doc()

    def _read_log(self) -> None:
        self._window.open()
        self._ready.add("")
        self._stop.wait()
        self._log = self._window.read()

    def _problem(self, docs: dict[str, WatchDoc]) -> str:
        """Why a GPU was not watched, GPUs of the same reason together; "" where all were."""
        why: dict[str, list[str]] = {}
        for bdf in self._bdfs:
            watch = self._watches.get(bdf)
            if watch and not watch.alive:
                why.setdefault(f"NVML: {watch.errors.get('nvml', 'no answer')}", []).append(bdf)
            elif bdf not in docs:
                when = "at the end" if watch else "from the start"
                why.setdefault(f"NVML: no answer {when}", []).append(bdf)
        return "; ".join(f"{reason} ({', '.join(gpus)})" for reason, gpus in why.items())


def _span(rows: Sequence[dict[str, float | None]], column: str) -> tuple[float, float] | None:
    values = [value for row in rows if (value := row.get(column)) is not None]
    return (min(values), max(values)) if values else None


def main(argv: Sequence[str]) -> int:
    """Watch until the end of stdin, print what was seen; 1 where nobody reads it."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    watching = Watching(argv[0].split(","))
    watching.start()
    said, ready, due = b"", False, time.monotonic() + PERIOD_S
    try:
        while True:
            readable, _, _ = select.select([0], [], [], 0.2 if ready else 0.02)
            if readable:
                piece = os.read(0, 64)
                if not piece:
                    break
                said += piece
            if watching.ready and not ready:
                ready = True
                _print(Line(ready=True))
            if time.monotonic() >= due:
                due = time.monotonic() + PERIOD_S
                _print(watching.now())
        _print(Line(seen=watching.end(float(said or END_S))))
    except BrokenPipeError:
        return 1
    return 0


def _print(line: Line) -> None:
    text = msgspec.json.encode(line) + b"\n"
    while text:
        text = text[os.write(1, text) :]


if __name__ == "__main__":
    # Not sys.exit: a thread that never comes back from NVML may hold what the interpreter wants for its end.
    os._exit(main(sys.argv[1:]))
