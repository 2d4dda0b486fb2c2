"""The one seam to the world: run a command on a node and bring back what it printed."""

from __future__ import annotations

from typing import Protocol

from pytest_gpuready.model import Command, CommandResult


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a command ran: `result` is what it printed, also in its grace. Keep it and go on interrupting."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__()
        self.result = result


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
