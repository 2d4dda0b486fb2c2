"""A transport to nodes that this run has leased: who refuses a command because another run holds it has not answered.

The ticket of the run travels in the environment of each agent command (`campaign.lease`). At the end the nodes are let
go; where nobody comes to do that, each is free when the ticket's time has passed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from pytest_gpuready.campaign.lease import refusal, release_command, renew_command
from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, Transport, run_each

HOLD_S = {1: 300.0, 2: 600.0, 3: 1800.0, 4: 3600.0}
"""Level -> how long a node that waits for others stays leased, in seconds: a fan-out lasts as long as its last node."""


_PATIENCE_S = 5.0
"""How long one waits for a renewal under way. One that comes later finds the node let go, and leaves it so."""


class HeldError(TransportError):
    """Another run holds the node."""


class Leased:
    """Passes commands on; a refusal becomes the node's error. Nodes that have answered stay leased until `release`."""

    def __init__(
        self, inner: Transport, hold_s: float, *, quiet: Transport | None = None, joined: bool = False
    ) -> None:
        """`inner` carries a ticket that holds a node for `hold_s` behind its last command; `quiet` is the same without
        a screen. A process that has `joined` the run of another knows what is asked of the nodes only while it asks:
        between its fan-outs another one asks.
        """
        self._inner = inner
        self._quiet = quiet or inner
        self._hold_s = hold_s
        self._joined = joined
        self._lock = threading.Lock()
        self._heard: dict[str, float] = {}
        """Node that this run has -> when it was last renewed, by its own command or by ours."""
        self._asked: set[str] = set()
        self._fan_outs = 0
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None

    def adopt(self, nodes: Iterable[str]) -> None:
        """These nodes belong to the run, too: another process of it has taken them."""
        with self._lock:
            for node in nodes:
                self._heard.setdefault(node, time.monotonic())

    def run(self, command: Command) -> CommandResult:
        """Run one command.

        Raises:
            HeldError: another run holds the node.
        """
        with self._asking([command]):
            outcome = self._heard_of(command, self._inner.run(command))
        if isinstance(outcome, TransportError):
            raise outcome
        return outcome

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run these commands, one a node. All other nodes of the run keep their lease, and who is done keeps it until
        the last one is."""
        commands = tuple(commands)
        with self._asking(commands):
            for command, outcome in run_each(self._inner, commands):
                yield command, self._heard_of(command, outcome)

    @contextlib.contextmanager
    def _asking(self, commands: Sequence[Command]) -> Iterator[None]:
        nodes = {command.node for command in commands}
        with self._lock:
            self._asked |= nodes
            self._fan_outs += 1
        self._keep()
        try:
            yield
        finally:
            with self._lock:
                self._asked -= nodes
                self._fan_outs -= 1

    def _heard_of(self, command: Command, outcome: CommandResult | TransportError) -> CommandResult | TransportError:
        why = refusal(outcome) if isinstance(outcome, CommandResult) else ""
        with self._lock:
            self._asked.discard(command.node)
            if isinstance(outcome, CommandResult) and not why:
                self._heard[command.node] = time.monotonic()
        return HeldError(why) if why else outcome

    def _keep(self) -> None:
        """From the first command on somebody keeps the nodes that wait."""
        if self._keeper is None and not self._over.is_set():
            self._keeper = threading.Thread(target=self._renew, name="gpuready-lease", daemon=True)
            self._keeper.start()

    def _renew(self) -> None:
        every_s = self._hold_s / 3
        while not self._over.wait(min(every_s / 3, 10.0)):
            due = self._due(every_s)
            for _ in run_each(self._quiet, [renew_command(node) for node in due]) if due else ():
                if self._over.is_set():
                    break

    def _due(self, every_s: float) -> list[str]:
        """Nodes that wait and were not renewed for that long; from now on they count as renewed."""
        now = time.monotonic()
        with self._lock:
            if self._joined and not self._fan_outs:
                return []
            due = sorted(n for n, at in self._heard.items() if n not in self._asked and now - at >= every_s)
            self._heard.update(dict.fromkeys(due, now))
        return due

    def rest(self) -> None:
        """Renew no node any more: the run has ended, or other processes of it do that."""
        self._over.set()
        if self._keeper:
            self._keeper.join(_PATIENCE_S)

    def stop(self) -> None:
        """End everything that runs through the inner transport."""
        self._inner.stop()

    def release(self) -> tuple[str, ...]:
        """Let go of every node that has answered, and return which; who does not hear it is free a little later."""
        self.rest()
        with self._lock:
            taken, self._heard = sorted(self._heard), {}
        for _ in run_each(self._inner, [release_command(node) for node in taken]):
            pass
        return tuple(taken)
