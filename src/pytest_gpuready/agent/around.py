"""Probe "around": another tool as our child, what it printed, and what was seen on the GPUs meanwhile.

    around BDF,BDF,... -- WORD WORD...

The child is in our process group, so that nobody who ends us leaves it behind. Who tells us to end (SIGTERM, SIGINT,
a controller that died) tells the child: it gets one SIGTERM and a grace, for a tool that is killed may leave its work
running elsewhere; the document is printed all the same. The watch is a process of its own and may hang: it delays the
start of the child a little, its end and our document only for a bounded time, and what the child printed is never lost.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO

import msgspec

from pytest_gpuready.agent.pci import BDF
from pytest_gpuready.agent.watch_process import WatchProcess
from pytest_gpuready.agent.watching import END_S, Seen
from pytest_gpuready.model.agent_doc import CHILD_GRACE_S, AroundDoc
from pytest_gpuready.model.agent_words import PROGRESS

KEPT_BYTES = 8 * 2**20
"""What is kept of each stream while the child runs; the rest is read, so that it does not wait for us, and dropped."""

SHOWN_BYTES = (8 * 2**20, 3 * 2**20)
"""What stdout and stderr may take up in the document, as JSON: all of it has to pass through whoever reads it."""

START_S = 3.0
"""How long the child waits for the counters from before it."""

TOLD_END_S = 4.0
"""How long the watch has for its end where we were told to end."""

PROGRESS_S = 5.0
PIPES_S = 1.0
KILL_S = 1.0
NOBODY = "-"
LATE = "the command had started already when the counters of before were read"


def around(arguments: Sequence[str]) -> AroundDoc:
    """Run the words behind "--" under the watch over the GPUs before it ("-": none)."""
    gpus, *rest = arguments
    argv = [_plain(word) for word in rest[1:]]
    bdfs = () if gpus == NOBODY else tuple(gpus.split(","))
    wrong = next((bdf for bdf in bdfs if not BDF.fullmatch(bdf)), None)
    if wrong is not None or rest[:1] != ["--"] or not argv:
        found = _plain(" ".join(arguments))[:80]
        return AroundDoc(argv=argv, problem=f"expected bus addresses or '-', then '--' and a command, found {found!r}")
    return _Around(bdfs, rest[1:]).run()


class _Around:
    def __init__(self, bdfs: Sequence[str], words: Sequence[str]) -> None:
        self._bdfs = bdfs
        self._words = list(words)
        self._told_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._out, self._err = _Kept(), _Kept()
        self._progress_due = 0.0

    def run(self) -> AroundDoc:
        """The whole of it, from the start of the watch to the document."""
        # Nothing ends us any more but SIGKILL: the document has to be printed.
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: self._tell())
        watch = WatchProcess(self._bdfs) if self._bdfs else None
        if watch and watch.pipe:
            self._read(watch.pipe, watch.feed)
        self._turn_until(lambda: watch is None or watch.ready or watch.ended, START_S)
        late = watch is not None and not watch.ready
        begun = time.monotonic()
        child, problem = self._start()
        if child:
            assert child.stdout is not None
            assert child.stderr is not None
            pipes = (child.stdout, child.stderr)
            self._read(child.stdout, self._out.add)
            self._read(child.stderr, self._err.add)
            self._follow(child, pipes, begun, watch)
            if child.poll() is None:
                problem = f"process {child.pid} did not end on SIGKILL"
        seconds = round(time.monotonic() - begun, 3) if child else 0.0
        seen = self._end_of(watch)
        notes = [seen.watch_problem, LATE if late and seen.watch else ""]
        stdout, cut_out = _fitting(self._out.text, SHOWN_BYTES[0])
        stderr, cut_err = _fitting(self._err.text, SHOWN_BYTES[1])
        return AroundDoc(
            argv=[_plain(word) for word in self._words],
            exit_code=None if problem or child is None else _as_a_shell(child.returncode),
            stdout=stdout,
            stderr=stderr,
            seconds=seconds,
            ended_early=self._told_at is not None,
            problem=problem,
            cut=self._out.cut or self._err.cut or cut_out or cut_err,
            watch=seen.watch,
            watch_problem="; ".join(note for note in notes if note),
            log=seen.log,
            log_problem=seen.log_problem,
        )

    def _tell(self) -> None:
        if self._told_at is None:
            self._told_at = time.monotonic()

    def _start(self) -> tuple[subprocess.Popen[bytes] | None, str]:
        """The child, or why there is none."""
        if self._told_at is not None:
            return None, "told to end before the command was started"
        ours = ("GPUREADY_", "PYTHON")
        try:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if not name.startswith(ours)},
            ), ""
        except OSError as error:
            name = _plain(self._words[0])
            return None, f"expected to start {name[:80]!r}, found {error.strerror}; install it or correct PATH"

    def _follow(
        self, child: subprocess.Popen[bytes], pipes: Sequence[IO[bytes]], begun: float, watch: WatchProcess | None
    ) -> None:
        """Read until the child has ended and its pipes have, or until SIGKILL did not help."""
        ended_at: float | None = None
        passed_on = False
        self._progress_due = begun + PROGRESS_S
        while True:
            now = time.monotonic()
            if child.poll() is not None:
                ended_at = now if ended_at is None else ended_at
                # A pipe that is still open is held by somebody whom it left behind.
                if not any(self._is_open(pipe) for pipe in pipes) or now >= ended_at + PIPES_S:
                    return
            elif self._told_at is not None:
                if not passed_on:
                    passed_on = True
                    child.send_signal(signal.SIGTERM)
                if now >= self._told_at + CHILD_GRACE_S:
                    child.kill()
                if now >= self._told_at + CHILD_GRACE_S + KILL_S:
                    return
            self._turn()
            if now >= self._progress_due:
                self._progress_due = now + PROGRESS_S
                _say(now - begun, watch)

    def _end_of(self, watch: WatchProcess | None) -> Seen:
        """What the watch saw; it has less time where we were told to end."""
        if watch is None:
            return Seen(watch={}, watch_problem="", log=[], log_problem="nothing was watched")
        patience_s = END_S if self._told_at is None else TOLD_END_S
        give_up = time.monotonic() + patience_s
        watch.end(0.9 * patience_s)
        while not watch.ended and time.monotonic() < give_up:
            if self._told_at is not None:
                give_up = min(give_up, self._told_at + CHILD_GRACE_S + KILL_S + PIPES_S + TOLD_END_S)
            self._turn()
        return watch.close()

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, pipe: IO[bytes], take: Callable[[bytes], None]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, take)

    def _is_open(self, pipe: IO[bytes]) -> bool:
        return pipe in {key.fileobj for key in self._selector.get_map().values()}

    def _turn(self) -> None:
        """Wait a moment for output and hand it on."""
        if not self._selector.get_map():
            time.sleep(0.02)
        for key, _ in self._selector.select(timeout=0.05):
            piece = os.read(key.fd, 65536)
            if not piece:
                self._selector.unregister(key.fileobj)
            key.data(piece)

    def _turn_until(self, done: Callable[[], bool], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while not done() and self._told_at is None and time.monotonic() < give_up:
            self._turn()


class _Kept:
    """The beginning of a stream. `cut` is True where it was longer."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.cut = False

    def add(self, piece: bytes) -> None:
        room = KEPT_BYTES - len(self._bytes)
        self._bytes += piece[:room]
        self.cut = self.cut or len(piece) > room

    @property
    def text(self) -> str:
        return self._bytes.decode("utf-8", "replace")


def _fitting(text: str, most: int) -> tuple[str, bool]:
    """As much of the text as fits into so many bytes of JSON, and whether that is less than all."""
    whole = len(text)
    while (size := len(msgspec.json.encode(text))) > most:
        text = text[: min(len(text) - 1, len(text) * most // size)]
    return text, len(text) < whole


def _say(seconds: float, watch: WatchProcess | None) -> None:
    """One line of progress. Where nobody hears it, that is no reason to end."""
    said: dict[str, object] = {"s": round(seconds, 1)}
    if watch and watch.now:
        for name in ("power_w", "temperature_c"):
            span = getattr(watch.now, name)
            if span is not None:
                said[name] = [round(value) for value in span]
    with contextlib.suppress(OSError):
        os.write(2, PROGRESS.encode() + msgspec.json.encode(said) + b"\n")


def _as_a_shell(code: int) -> int:
    return code if code >= 0 else 128 - code


def _plain(word: str) -> str:
    """The word as JSON can hold it: bytes that are not text are replaced."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
