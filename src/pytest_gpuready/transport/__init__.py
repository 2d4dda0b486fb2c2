"""The one seam to the world: run a command on a node, or one on each of many, and bring back what they printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult

Ended = tuple[Command, CommandResult | TransportError]
"""A command that has ended, and what came of it."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a command ran: `result` is what it printed, also in its grace. Keep it and go on interrupting."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__()
        self.result = result


class LostError(TransportError):
    """The command was started, and then nothing more was heard of it: how it ended is not known.

    `partial` is what it had printed: no exit code, and no deadline that passed.
    """

    def __init__(self, message: str, partial: CommandResult) -> None:
        super().__init__(message)
        self.partial = partial


class Transport(Protocol):
    """Runs commands on nodes.

    `run` returns whatever happened, a deadline included; it raises `TransportError` only where the node could not be
    reached or the command not be started, and `Interrupted` on Ctrl-C, when the command has had its grace. argv[0] ==
    "python" means the node's interpreter that has the agent.
    """

    def run(self, command: Command) -> CommandResult:
        """Run one command to its end or its deadline."""
        ...

    def stop(self) -> None:
        """End everything that runs, from another thread: the person has pressed Ctrl-C. Each gets its grace."""
        ...


@runtime_checkable
class ManyTransport(Transport, Protocol):
    """A transport that reaches many nodes in one call."""

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run these commands, one a node, each under its own deadline; yields them as they end.

        A node that cannot be reached, hangs, is slow or garbles costs only itself: its command comes with a
        `TransportError`. On Ctrl-C all are told to end, what they printed until then is yielded like the rest, and
        then it raises KeyboardInterrupt. Whoever stops to iterate ends what still runs.
        """
        ...


class StoppedError(TransportError):
    """The command was not begun, or ended by us, because the person pressed Ctrl-C: it says nothing about the node."""


def run_each(transport: Transport, commands: Iterable[Command]) -> Iterator[Ended]:
    """`run_many` of a transport that has it; else its `run`, one command after the other."""
    if isinstance(transport, ManyTransport):
        return transport.run_many(commands)
    return one_by_one(transport, commands)


def one_by_one(transport: Transport, commands: Iterable[Command]) -> Iterator[Ended]:
    """`run_many` by means of `run`: one command after the other."""
    for command in commands:
        outcome: CommandResult | TransportError
        interrupt: Interrupted | None = None
        try:
            outcome = transport.run(command)
        except TransportError as error:
            outcome = error
        except Interrupted as error:
            outcome, interrupt = error.result, error
        yield command, outcome
        if interrupt:
            raise KeyboardInterrupt from interrupt
