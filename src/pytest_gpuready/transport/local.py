"""Runs commands on this machine: own process session, deadline, bounded output, and nobody left behind.

A child and all it started end with its process group: at the deadline, when its output grows beyond the bound, on
Ctrl-C and when it left children holding its pipes. At the deadline and on Ctrl-C the group is told first (SIGTERM) and
has the grace of its command; what it prints in it is kept. A second Ctrl-C kills at once. A process that survives
SIGKILL (state D: stuck in the driver) is named in the result and left: waiting for it would hang the run.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport import Ended, Interrupted, one_by_one
from pytest_gpuready.transport.agent_environment import agent_environment
from pytest_gpuready.transport.progress_lines import ProgressLines

MAX_BYTES = 16 * 1024 * 1024
"""What is kept of stdout and of stderr; a command that prints more is ended."""

GRACE_S = 2.0
"""How long a process may take to end after a signal that leaves it no choice, and its pipes to end after itself."""

ALIVE_S = 1.0
"""How often `progress` hears that a command still runs."""

ENDING = "ending"
"""What `progress` hears as True when the person has pressed Ctrl-C and the command has its grace."""

_CHUNK = 65536

Progress = Callable[[Command, dict[str, object]], None]
"""Is told what a running command says of its progress, and about once a second, with an empty dict, that it runs."""


class Local:
    """The transport for the machine that pytest runs on."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        grace_s: float = GRACE_S,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`environment` are further variables for agent commands."""
        self._max_bytes = max_bytes
        self._grace_s = grace_s
        self._environment = dict(environment or {})
        self._progress: Progress = progress or (lambda _command, _said: None)
        self._running: list[_Running] = []

    def stop(self) -> None:
        """Tell every command that runs now to end, and wait; their `run` then returns what was printed until the end.

        Ctrl-C while it waits kills them at once.
        """
        running = list(self._running)
        for child in running:
            child.stop = True
        give_up = time.monotonic() + 3 * self._grace_s + max((c.command.grace_s for c in running), default=0.0)
        try:
            while any(child in self._running for child in running) and time.monotonic() < give_up:
                time.sleep(0.02)
        except KeyboardInterrupt:
            for child in running:
                child.send(signal.SIGKILL)
            raise

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run the commands one after the other: it is one node, and what is measured on it is measured alone."""
        return one_by_one(self, commands)

    def run(self, command: Command) -> CommandResult:
        """Run the command here.

        Raises:
            TransportError: the command could not be started.
            Interrupted: Ctrl-C was pressed meanwhile.
        """
        argv = [sys.executable if command.argv[0] == PYTHON else command.argv[0], *command.argv[1:]]
        started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        begin = time.monotonic()
        try:
            # stdin stays open as long as we live, however we end: an agent ends itself when it sees the end of it.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, **agent_environment(command, self._environment)},
            )
        except OSError as error:
            raise TransportError(
                f"{command.node}: expected to start {argv[0]!r}, found {error.strerror}; install it or correct PATH"
            ) from error
        child = _Running(process=process, command=command, deadline=begin + command.timeout_s, alive_at=begin)
        unkillable = ""
        self._running.append(child)
        try:
            interrupted = self._follow(child)
        finally:
            asked = child.told_at is not None or child.too_much
            unkillable = _end_group(process, self._grace_s, asked=asked)
            self._running.remove(child)
        stderr = bytes(child.stderr)
        if child.too_much:
            stderr += f"\noutput beyond {self._max_bytes} bytes was cut and the command ended".encode()
        result = CommandResult(
            command=command,
            exit_code=None if child.late or unkillable else process.returncode,
            stdout=child.stdout.decode("utf-8", errors="replace"),
            stderr=stderr.decode("utf-8", errors="replace"),
            started=started,
            duration_s=round(time.monotonic() - begin, 4),
            timed_out=child.late,
            unkillable=unkillable,
        )
        if interrupted:
            raise Interrupted(result)
        return result

    def _follow(self, child: _Running) -> bool:
        """Read what it prints until it has ended or has to. Returns True where Ctrl-C was pressed meanwhile."""
        interrupted = False
        lines = ProgressLines(lambda said: self._progress(child.command, said))
        with selectors.DefaultSelector() as selector:
            for pipe in (child.process.stdout, child.process.stderr):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ)
            while True:
                try:
                    waiting = child.goes_on(bool(selector.get_map()), self._grace_s)
                    if not (waiting and self._read(child, selector, lines)):
                        break
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
                    child.tell()
                    self._progress(child.command, {ENDING: True})
        child.stderr += lines.rest()
        return interrupted

    def _read(self, child: _Running, selector: selectors.BaseSelector, lines: ProgressLines) -> bool:
        """Wait a moment for output and keep it. Returns False where it was too much."""
        now = time.monotonic()
        moment = min(0.1, max(0.0, child.deadline - now)) if child.told_at is None else 0.1
        if not selector.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=moment)
        for key, _ in selector.select(timeout=moment) if selector.get_map() else ():
            chunk = os.read(key.fd, _CHUNK)
            if not chunk:
                selector.unregister(key.fileobj)
                continue
            if key.fileobj is child.process.stdout:
                buffer = child.stdout
                buffer += chunk
            else:
                buffer = child.stderr
                buffer += lines.feed(chunk)
            if len(buffer) > self._max_bytes:
                del buffer[self._max_bytes :]
                child.too_much = True
                return False
        if now >= child.alive_at + ALIVE_S:
            child.alive_at = now
            self._progress(child.command, {})
        return True


@dataclass(slots=True, kw_only=True, eq=False)
class _Running:
    """A command that runs. `stop` is set from another thread; `told_at` is when the group was told to end."""

    process: subprocess.Popen[bytes]
    command: Command
    deadline: float
    alive_at: float
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    stop: bool = False
    told_at: float | None = None
    ended_at: float | None = None
    late: bool = False
    too_much: bool = False

    def goes_on(self, pipes_open: bool, patience_s: float) -> bool:
        """False where there is nothing left to wait for; tells the group to end where it is time for that."""
        now = time.monotonic()
        if self.process.poll() is not None:
            self.ended_at = now if self.ended_at is None else self.ended_at
            # Pipes that are still open are held by somebody whom the command started and left behind.
            until = self.ended_at + patience_s
            return pipes_open and now < (until if self.told_at is None else self.told_at + self.command.grace_s)
        if self.told_at is None:
            self.late = now >= self.deadline
            if self.late or self.stop:
                self.tell()
            return True
        return now < self.told_at + self.command.grace_s

    def tell(self) -> None:
        """Tell the group to end; of an agent only the agent, which tells its own child: it must not hear it twice."""
        if self.told_at is not None:
            return
        self.told_at = time.monotonic()
        if self.command.argv[0] == PYTHON:
            self.process.send_signal(signal.SIGTERM)
        else:
            self.send(signal.SIGTERM)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signum)


def _end_group(process: subprocess.Popen[bytes], grace_s: float, *, asked: bool) -> str:
    """End the process group, politely unless it was asked before. Returns "" or what SIGKILL did not end."""
    for signum in (signal.SIGKILL,) if asked else (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signum)
        patience = time.monotonic() + grace_s
        while (alive := process.poll() is None or _group_alive(process.pid)) and time.monotonic() < patience:
            time.sleep(0.01)
        if not alive:
            break
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    return f"process {process.pid} did not end on SIGKILL" if process.poll() is None else ""


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
