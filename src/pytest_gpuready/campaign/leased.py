"""A transport to nodes that this run has leased: who refuses a command because another run holds it has not answered.

The ticket of the run travels in the environment of each agent command (`campaign.lease`). At the end the nodes are let
go; where nobody comes to do that, each is free when the ticket's time has passed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from pytest_gpuready.campaign.lease import refusal, release_command, renew_command
from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, Transport, run_each

HOLD_S = {1: 300.0, 2: 600.0, 3: 1800.0, 4: 3600.0}
"""Level -> how long a node that waits for others stays leased, in seconds: a fan-out lasts as long as its last node."""


class HeldError(TransportError):
    """Another run holds the node."""


class Leased:
    """Passes commands on; a refusal becomes the node's error."""

    def __init__(self, inner: Transport, hold_s: float) -> None:
        """`inner` carries a ticket that holds a node for `hold_s` behind its last command."""
        self._inner = inner
        self._hold_s = hold_s
        self._taken: set[str] = set()

    def run(self, command: Command) -> CommandResult:
        """Run one command.

        Raises:
            HeldError: another run holds the node.
        """
        result = self._inner.run(command)
        why = refusal(result)
        if why:
            raise HeldError(why)
        self._taken.add(command.node)
        return result

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run these commands, one a node. Who is done keeps its lease until the last one is."""
        waiting: set[str] = set()
        over = threading.Event()
        keeping = threading.Thread(target=self._keep, args=(waiting, over), name="gpuready-lease", daemon=True)
        keeping.start()
        try:
            for command, outcome in run_each(self._inner, commands):
                why = refusal(outcome) if isinstance(outcome, CommandResult) else ""
                if isinstance(outcome, CommandResult) and not why:
                    self._taken.add(command.node)
                    waiting.add(command.node)
                yield command, HeldError(why) if why else outcome
        finally:
            over.set()

    def _keep(self, waiting: set[str], over: threading.Event) -> None:
        while not over.wait(self._hold_s / 3):
            for _ in run_each(self._inner, [renew_command(node) for node in sorted(waiting)]):
                if over.is_set():
                    break

    def stop(self) -> None:
        """End everything that runs through the inner transport."""
        self._inner.stop()

    def release(self) -> None:
        """Let go of every node that has answered; who does not hear it is free a little later."""
        taken, self._taken = sorted(self._taken), set()
        for _ in run_each(self._inner, [release_command(node) for node in taken]):
            pass
