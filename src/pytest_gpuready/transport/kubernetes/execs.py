"""Many `kubectl exec` at a time in one thread: each carries one kept command to the pod of its node.

The keeper and what it says are those of `transport.ssh`; here is what stands for the ssh client. kubectl adds nothing
to what the command prints and its own exit code decides nothing: how a command ended is said by its keeper, and a
stream that ends before that is an error of its node. kubectl's complaint then says why.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command
from pytest_gpuready.transport import Ended, LostError
from pytest_gpuready.transport.engine import KILL_S
from pytest_gpuready.transport.kept import INTERRUPTED, LINE_BYTES, SLACK_S, Kept, shown_word
from pytest_gpuready.transport.kubernetes.kubectl import ENVIRONMENT, Kubectl, complaint
from pytest_gpuready.transport.local import ALIVE_S

TICK_S = 0.1
WORD_S = 15.0
"""How often a keeper gets a word that it ignores: whatever stands between cuts connections that say nothing."""

_CHUNK = 65536


class InPod(Kept):
    """A kept command in a pod: like any other, but for what is said where its end was not heard of."""

    __slots__ = ()

    @property
    def has_end(self) -> bool:
        """True when the keeper has said how the command ended, or that it did not start."""
        return self._end is not None or self._failed is not None

    def without_end(self, code: int | None, why: str) -> TransportError:
        """What is known of it without an end; `code` is kubectl's exit code, `why` what ended the wait for it."""
        node = self.command.node
        said = complaint(bytes(self._noise))
        found, todo = said or (f"kubectl ended with code {code}", "see that `kubectl get nodes` works")
        if why:
            found = f"{why}{': ' if said else ''}{found if said else ''}"
        if self.running:
            return LostError(
                f"{node}: expected to hear how {shown_word(self.command)} ended, found {found}; {todo}",
                self._result(None),
            )
        return TransportError(f"{node}: expected to start a command in its pod, found {found}; {todo}")


def words(kubectl: Kubectl, pod: str, container: str, kept: Kept) -> list[str]:
    """The command line of this exec. No shell stands in between, here or there."""
    there = shlex.split(kept.request.line)
    assert there[0] == "exec"
    return kubectl.words("exec", "-i", pod, f"--container={container}", "--", *there[1:])


@dataclass(slots=True, eq=False)
class _Child:
    """One kubectl while it runs."""

    kept: InPod
    process: subprocess.Popen[bytes]
    left: bytes
    """What has not been written to its stdin yet."""
    tails: dict[int, bytes] = field(default_factory=dict)
    end_at: float | None = None
    word_at: float = 0.0
    begin: float = field(default_factory=time.monotonic)


class Execs:
    """Commands in pods; `ended` holds them as they end, None behind the last."""

    def __init__(self, *, fanout: int, start_s: float, progress: Callable[[Command, dict[str, object]], None]) -> None:
        """`fanout` is how many run at a time, `start_s` how long a keeper may take to say its first word."""
        self.ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        self._fanout, self._start_s, self._progress = fanout, start_s, progress
        self._waiting: deque[tuple[InPod, list[str]]] = deque()
        self._more = True
        self._children: dict[int, _Child] = {}
        self._streams: dict[int, tuple[_Child, bool]] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe()
        for end in (self._wake_r, self._wake_w):
            os.set_blocking(end, False)
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self._told = self._killed = False
        self._alive_at = time.monotonic() + ALIVE_S
        self._thread = threading.Thread(target=self._work, name="gpuready-kubectl", daemon=True)
        self._thread.start()

    # --- from any thread ----------------------------------------------------------------------------------------------

    def add(self, kept: InPod, argv: list[str]) -> None:
        """Run this one as soon as there is room."""
        self._waiting.append((kept, argv))
        self._wake()

    def refuse(self, command: Command, error: TransportError) -> None:
        """A command that will not begin."""
        self.ended.put((command, error))

    def no_more(self) -> None:
        """Nothing is added from now on."""
        self._more = False
        self._wake()

    @property
    def stopping(self) -> bool:
        """True where nothing begins any more."""
        return self._stop_at is not None or self._kill_at is not None

    @property
    def running(self) -> tuple[Command, ...]:
        """What runs now."""
        return tuple(child.kept.command for child in list(self._children.values()))

    def stop(self) -> None:
        """Tell all commands to end; what has not begun does not."""
        self._stop_at = self._stop_at or time.monotonic()
        self._wake()

    def kill(self) -> None:
        """End all commands at once."""
        self._kill_at = self._kill_at or time.monotonic()
        self._wake()

    def wait(self, seconds: float) -> bool:
        """Wait for the end. Returns False where it still works."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            os.write(self._wake_w, b".")

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        why = "the fan-out ended before it"
        try:
            while self._more or self._waiting or self._children:
                self._begin()
                self._turn()
                self._tick(time.monotonic())
        except Exception as error:
            # Whatever breaks here is a broken transport: it may not end as nodes that nobody hears of.
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            for child in list(self._children.values()):
                self._give_up(child, why)
            while self._waiting:
                self._drop(why)
            self.ended.put(None)
            self._selector.close()
            wake_w, self._wake_w = self._wake_w, -1
            os.close(wake_w)
            os.close(self._wake_r)

    def _begin(self) -> None:
        while self._waiting and self.stopping:
            self._drop(INTERRUPTED)
        while self._waiting and len(self._children) < self._fanout:
            kept, argv = self._waiting.popleft()
            kept.pick()
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env={**os.environ, **ENVIRONMENT},
                    start_new_session=True,  # Ctrl-C at the terminal is not for it: it has to bring the last words
                )
            except OSError as error:
                self.ended.put((kept.command, kept.outcome(None, f"{argv[0]} did not start: {error.strerror}")))
                continue
            child = _Child(kept=kept, process=process, left=kept.request.stdin)
            self._children[process.pid] = child
            assert process.stdin
            for stream, aside in ((process.stdout, False), (process.stderr, True)):
                assert stream
                os.set_blocking(stream.fileno(), False)
                self._streams[stream.fileno()] = child, aside
                child.tails[stream.fileno()] = b""
                self._selector.register(stream.fileno(), selectors.EVENT_READ)
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin.fileno(), selectors.EVENT_WRITE, child)

    def _drop(self, why: str) -> None:
        kept, _ = self._waiting.popleft()
        self.ended.put((kept.command, kept.outcome(None, why)))

    def _turn(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            if key.fd == self._wake_r:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_r, 4096)
            elif key.data is not None:
                self._write(key.data)
            elif key.fd in self._streams:
                self._read(key.fd, *self._streams[key.fd])

    def _write(self, child: _Child) -> None:
        stdin = child.process.stdin
        assert stdin
        if stdin.closed:
            return  # its end was heard a moment ago
        try:
            child.left = child.left[os.write(stdin.fileno(), child.left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            child.left = b""  # it has ended; what it says of that is still to be read
        if not child.left:
            # Still open: its end would be the end of the command.
            self._selector.unregister(stdin)

    def _say(self, child: _Child, line: bytes) -> None:
        stdin = child.process.stdin
        assert stdin
        if not child.left:
            self._selector.register(stdin.fileno(), selectors.EVENT_WRITE, child)
        child.left += line

    def _read(self, number: int, child: _Child, aside: bool) -> None:
        try:
            piece = os.read(number, _CHUNK)
        except BlockingIOError:
            return
        *lines, child.tails[number] = (child.tails[number] + piece).split(b"\n")
        for line in lines:
            child.kept.hear(line, aside=aside)
        if len(child.tails[number]) > LINE_BYTES:
            child.kept.garbled = child.kept.garbled or f"a line of more than {LINE_BYTES} bytes"
        if child.kept.has_end and child.end_at is None:
            child.end_at = time.monotonic()
            self._close_stdin(child)
        if not piece:
            if child.tails[number]:
                child.kept.hear(child.tails[number], aside=aside)
            self._forget(number)
            del child.tails[number]

    def _tick(self, now: float) -> None:
        self._obey(now)
        for child in list(self._children.values()):
            kept = child.kept
            if not child.tails and child.process.poll() is not None:
                self._end(child, child.process.returncode, "")
            elif kept.garbled:
                self._give_up(child, kept.garbled)
            elif child.end_at is not None and now > child.end_at + SLACK_S:
                self._give_up(child, "")  # the command has ended, kubectl hangs
            elif not kept.running and not kept.has_end and now > child.begin + self._start_s:
                self._give_up(child, f"no word from the pod within {self._start_s:g} s")
            elif now > child.begin + self._start_s + kept.request.budget_s:
                self._give_up(child, "no word of it after its deadline")
            elif now > max(child.word_at, child.begin) + WORD_S and child.end_at is None and not child.left:
                child.word_at = now
                self._say(child, b"alive\n")
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_S
            for child in self._children.values():
                if child.kept.running:
                    self._progress(child.kept.command, {})

    def _obey(self, now: float) -> None:
        """Do what `stop` and `kill` ask for."""
        if not self.stopping:
            return
        for wanted, done, line in (
            (True, self._told, b"stop\n"),
            (self._kill_at is not None, self._killed, b"kill\n"),
        ):
            if wanted and not done:
                for child in self._children.values():
                    if child.end_at is None:
                        self._say(child, line)
        self._told, self._killed = True, self._kill_at is not None
        for child in list(self._children.values()):
            over = self._kill_at is not None and now > self._kill_at + KILL_S
            late = self._stop_at is not None and now > self._stop_at + child.kept.command.grace_s + SLACK_S + KILL_S
            if over or late:
                self._give_up(child, INTERRUPTED)

    def _give_up(self, child: _Child, why: str) -> None:
        """End it here; the keeper in the pod sees the end of its stdin."""
        child.process.kill()
        child.process.wait()
        self._end(child, None, why)

    def _end(self, child: _Child, code: int | None, why: str) -> None:
        self._close_stdin(child)
        for number in child.tails:
            self._forget(number)
        for stream in (child.process.stdout, child.process.stderr):
            assert stream
            stream.close()
        del self._children[child.process.pid]
        self.ended.put((child.kept.command, child.kept.outcome(code, why)))

    def _forget(self, number: int) -> None:
        self._selector.unregister(number)
        del self._streams[number]

    def _close_stdin(self, child: _Child) -> None:
        stdin = child.process.stdin
        assert stdin
        if not stdin.closed:
            if child.left:
                self._selector.unregister(stdin)
            child.left = b""
            stdin.close()
