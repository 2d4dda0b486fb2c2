"""What transports to many nodes have in common: an engine runs the commands, somebody hears how each of them ended.

The engine works in a thread of its own, so that Ctrl-C reaches the one who listens. The first tells all commands to
end, each with its grace, and what they print until then is heard like the rest; the second ends them at once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport import Ended, Interrupted
from pytest_gpuready.transport.agent_zip import AgentZip
from pytest_gpuready.transport.kept import ANY_LENGTH, SLACK_S, Request, request
from pytest_gpuready.transport.local import ENDING, Progress

KILL_S = 3.0
"""How long a node may take to say the end of a command that was killed."""


class Engine(Protocol):
    """Commands that run; `ended` holds them as they end, None behind the last."""

    ended: queue.SimpleQueue[Ended | None]

    @property
    def running(self) -> tuple[Command, ...]:
        """What runs now."""
        ...

    def stop(self) -> None:
        """Tell all commands to end; what has not begun does not."""
        ...

    def kill(self) -> None:
        """End all commands at once."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for the end. Returns False where it still works."""
        ...


class Threaded:
    """The half of an engine that others call, from any thread; whoever derives from it says in `_work` what its own
    thread does."""

    def __init__(self, name: str) -> None:
        self.ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Tell all commands to end, from any thread; what has not begun does not."""
        self._stop_at = self._stop_at or time.monotonic()

    def kill(self) -> None:
        """End all commands at once, from any thread."""
        self._kill_at = self._kill_at or time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait for the end. Returns False where it still works."""
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        raise NotImplementedError


class Engined:
    """A transport to many nodes; whoever derives from it says in `_open` what runs the commands."""

    _line_shape = ANY_LENGTH

    def __init__(
        self,
        progress: Progress | None,
        *,
        python: str,
        agent: Callable[[], AgentZip],
        patience_s: float,
        max_bytes: int,
        environment: Mapping[str, str] | None,
    ) -> None:
        """`progress` is called from a thread of the transport; the rest is how commands are asked of a node."""
        self._python, self._agent, self._environment = python, agent, dict(environment or {})
        self._patience_s, self._max_bytes = patience_s, max_bytes
        self._progress: Progress = progress or (lambda _command, _said: None)
        self._running: list[Engine] = []

    def run(self, command: Command) -> CommandResult:
        """Run the command on its node.

        Raises:
            TransportError: the node could not be reached, the command not be started, or its end not be heard of.
            Interrupted: Ctrl-C was pressed meanwhile.
        """
        outcome: CommandResult | TransportError | None = None
        try:
            for ended in self.run_many([command]):
                outcome = ended[1]
        except KeyboardInterrupt:
            if isinstance(outcome, CommandResult):
                raise Interrupted(outcome) from None
            raise
        if isinstance(outcome, CommandResult):
            return outcome
        assert outcome is not None
        raise outcome

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run these commands, one a node, each under its own deadline; yields them as they end.

        A second Ctrl-C ends all of them at once.

        Raises:
            ValueError: two of the commands are for one node.
        """
        commands = tuple(commands)
        if len({command.node for command in commands}) < len(commands):
            raise ValueError("expected one command a node, found two for one of them")
        return self._run_many(commands)

    def stop(self) -> None:
        """Tell every command that runs now to end, and wait for it.

        Ctrl-C while it waits kills them at once.
        """
        running = list(self._running)
        for engine in running:
            engine.stop()
        grace_s = max((command.grace_s for engine in running for command in engine.running), default=0.0)
        give_up = time.monotonic() + grace_s + SLACK_S + 2 * KILL_S
        try:
            for engine in running:
                engine.wait(max(0.0, give_up - time.monotonic()))
        except KeyboardInterrupt:
            for engine in running:
                engine.kill()
            raise

    def _asked(self, command: Command, requests: dict[tuple[object, ...], Request]) -> Request:
        """How a node is asked for this command; the same for all that are asked the same, in `requests`."""
        key = (command.argv, command.timeout_s, command.grace_s)
        if key not in requests:
            requests[key] = request(
                command,
                python=self._python,
                agent=self._agent() if command.argv[0] == PYTHON else None,
                patience_s=self._patience_s,
                max_bytes=self._max_bytes,
                environment=self._environment,
                shape=self._line_shape,
            )
        return requests[key]

    def _open(self, commands: tuple[Command, ...]) -> tuple[list[Ended], Engine | None, Callable[[], None]]:
        """What cannot run and why; what runs the rest, None where there is none; and how it is started."""
        raise NotImplementedError

    def _run_many(self, commands: tuple[Command, ...]) -> Iterator[Ended]:
        refused, engine, start = self._open(commands)
        yield from refused
        if engine is None:
            return
        self._running.append(engine)
        interrupted = False
        try:
            start()
            while True:
                try:
                    ended = engine.ended.get()
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
                    engine.stop()
                    for command in engine.running:
                        self._progress(command, {ENDING: True})
                    continue
                if ended is None:
                    break
                yield ended
            if interrupted:
                raise KeyboardInterrupt
        finally:
            # Only where somebody stopped to listen is there anything left to end.
            engine.kill()
            engine.wait(KILL_S + SLACK_S)
            self._running.remove(engine)
