"""Runs commands on this machine: own process session, deadline, bounded output, and nobody left behind.

A child and all it started end with its process group: at the deadline, when its output grows beyond the bound, on
Ctrl-C and when it left children holding its pipes. A process that survives SIGKILL (state D: stuck in the driver) is
named in the result and left: waiting for it would hang the run.
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

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import TIED
from pytest_gpuready.model.command import PYTHON

MAX_BYTES = 16 * 1024 * 1024
"""What is kept of stdout and of stderr; a command that prints more is ended."""

GRACE_S = 2.0
"""How long a child may take to end after a signal, and its pipes to end after itself."""

_CHUNK = 65536


class Local:
    """The transport for the machine that pytest runs on."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, grace_s: float = GRACE_S) -> None:
        self._max_bytes = max_bytes
        self._grace_s = grace_s
        self._running: set[subprocess.Popen[bytes]] = set()

    def stop(self) -> None:
        """End every command that runs now; their `run` then returns what was printed so far."""
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def run(self, command: Command) -> CommandResult:
        """Run the command here.

        Raises:
            TransportError: the command could not be started.
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
                env={**os.environ, "PYTHONSAFEPATH": "1", TIED: "1"},
            )
        except OSError as error:
            raise TransportError(
                f"{command.node}: expected to start {argv[0]!r}, found {error.strerror}; install it or correct PATH"
            ) from error
        unkillable = ""
        self._running.add(process)
        try:
            stdout, stderr, why = self._collect(process, begin + command.timeout_s)
        finally:
            unkillable = _end_group(process, self._grace_s)
            self._running.discard(process)
        if why == "too much":
            stderr += f"\noutput beyond {self._max_bytes} bytes was cut and the command ended".encode()
        return CommandResult(
            command=command,
            exit_code=None if why == "deadline" or unkillable else process.returncode,
            stdout=stdout.decode("utf-8", errors="replace"),
            stderr=stderr.decode("utf-8", errors="replace"),
            started=started,
            duration_s=round(time.monotonic() - begin, 4),
            timed_out=why == "deadline",
            unkillable=unkillable,
        )

    def _collect(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes, str]:
        """Read both pipes until they end, the process ends, the deadline or the bound. Why it stopped comes last."""
        kept = {process.stdout: bytearray(), process.stderr: bytearray()}
        why = ""
        with selectors.DefaultSelector() as selector:
            for pipe in kept:
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ)
            ended_at: float | None = None
            while selector.get_map():
                now = time.monotonic()
                if process.poll() is not None and ended_at is None:
                    ended_at = now
                if now >= deadline:
                    why = "deadline"
                    break
                if ended_at is not None and now >= ended_at + self._grace_s:
                    break  # the command is gone, somebody it started still holds the pipe
                for key, _ in selector.select(timeout=min(0.1, deadline - now)):
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                        continue
                    buffer = kept[key.fileobj]  # type: ignore[index]
                    buffer += chunk
                    if len(buffer) > self._max_bytes:
                        del buffer[self._max_bytes :]
                        why = "too much"
                        break
                if why:
                    break
        if not why:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                why = "deadline"
        return bytes(kept[process.stdout]), bytes(kept[process.stderr]), why


def _end_group(process: subprocess.Popen[bytes], grace_s: float) -> str:
    """End the process group, politely then not. Returns "" or the process that SIGKILL did not end."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
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
