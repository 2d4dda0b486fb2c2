"""One command on each of many nodes, as one thing that a person sees: how many are done, who failed, who is waited for.

Drawn from a thread of the progress; what the transport says and what has ended is only noted down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from statistics import median

from pytest_gpuready.campaign.lease import refusal
from pytest_gpuready.campaign.progress_words import (
    ENDS,
    LOG_EVERY_S,
    READINGS,
    STALE_S,
    Screen,
    Span,
    between,
    clock_time,
    how_far,
    names,
    plain,
    span,
    what,
)
from pytest_gpuready.errors import RecordingEndedError, TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import StoppedError
from pytest_gpuready.transport.local import ENDING

GLANCE_S = 0.4
"""What is over by then is not shown, not even on a terminal."""

QUIET_S = 2.0
"""A log does not hear of what is over by then."""

QUICK_S = 10.0
"""The same for what usually takes seconds, on a few nodes."""

FEW = 8
TOLD = 3
"""Failures that are told one by one."""

LONGEST = 150
"""Of a failure's reason."""

MOST_DONE = 0.9
"""From this share on those that are waited for are named."""

SLOW = 1.5
"""The slowest node is named where it took that many times as long as half of them."""


class FanOut:
    """Commands on many nodes while they run. `said`, `ended` and `tick` may be called from different threads."""

    def __init__(self, commands: tuple[Command, ...], screen: Screen, clock: Callable[[], float]) -> None:
        self._screen, self._clock = screen, clock
        self._what = what(commands[0]) if commands else ""
        self._typical_s = max((command.typical_s for command in commands), default=0.0)
        self._count = len(commands)
        self._left = {command.node for command in commands}
        self._began = self._logged_at = clock()
        self._shown = self._ending = self._told_ending = False
        self._took: dict[str, float] = {}
        self._failed = self._stopped = 0
        self._untold: list[str] = []
        self._readings: dict[str, tuple[float, dict[str, Span]]] = {}
        self._lock = threading.Lock()

    def said(self, command: Command, said: Mapping[str, object]) -> None:
        """What a running command says of itself; nothing, where it only runs."""
        with self._lock:
            if command.node not in self._left:
                return
            self._ending = self._ending or said.get(ENDING) is True
            readings = {name: each for name in READINGS if (each := span(said.get(name)))}
            if readings:
                self._readings[command.node] = (self._clock(), readings)

    def ended(self, command: Command, outcome: CommandResult | TransportError) -> None:
        """A command has ended."""
        with self._lock:
            self._left.discard(command.node)
            self._readings.pop(command.node, None)
            refused = ""
            if isinstance(outcome, StoppedError):
                self._stopped += 1
            elif isinstance(outcome, (CommandResult, RecordingEndedError)) and not (refused := _refusal(outcome)):
                self._took[command.node] = self._clock() - self._began
            else:
                self._failed += 1
                if self._failed <= TOLD:
                    reason = plain(" ".join((refused or str(outcome)).split()))
                    node = plain(command.node)
                    self._untold.append(_cut(reason if reason.startswith(node) else f"{node}: {reason}"))

    def tick(self) -> None:
        """Show how far it is, where it is time for that."""
        with self._lock:
            now = self._clock()
            first = not self._shown
            if first and not self._worth_showing(now):
                return
            self._shown = True
            if self._screen.in_place:
                self._tell_failures()
                self._screen.rewrite(self._text(now))
                return
            if first:
                about = f", about {clock_time(self._typical_s)}" if self._typical_s > 0 else ""
                self._screen.line(f"{self._what} on {self._count} nodes{about}")
            self._tell_failures()
            if now >= self._logged_at + LOG_EVERY_S or (self._ending and not self._told_ending):
                self._logged_at, self._told_ending = now, self._ending
                self._screen.line(self._text(now))

    def end(self) -> None:
        """All have ended, or nobody listens any more."""
        with self._lock:
            if not self._shown and not self._worth_showing(self._clock()):
                return
            self._tell_failures()
            text = f"{self._what} ended after {clock_time(self._clock() - self._began)}: {self._counts()}"
            if self._failed > TOLD:
                text += f", {self._failed - TOLD} of them not told above"
            if slowest := self._slowest():
                text += f"; slowest {slowest}"
            if self._screen.in_place:
                self._screen.rewrite(text, last=True)
            else:
                self._screen.line(text)

    def _worth_showing(self, now: float) -> bool:
        took = now - self._began
        if self._ending:
            return True
        if self._screen.in_place:
            return took >= GLANCE_S
        return took >= (QUIET_S if self._typical_s > 0 or self._count > FEW else QUICK_S)

    def _tell_failures(self) -> None:
        for text in self._untold:
            self._screen.line(f"{self._what}: {text}")
        self._untold.clear()

    def _text(self, now: float) -> str:
        words = [self._what, self._counts(), how_far(now - self._began, self._typical_s)]
        if self._ending:
            words.append(ENDS)
        if self._left and len(self._left) <= max(1.0, (1 - MOST_DONE) * self._count):
            words.append(f"waits for {names(self._left)}")
        fresh = [spans for heard_at, spans in self._readings.values() if now - heard_at <= STALE_S]
        for name, unit in READINGS.items():
            spans = [each[name] for each in fresh if name in each]
            if spans:
                words.append(f"{between(min(low for low, _ in spans), max(high for _, high in spans))} {unit}")
        return "  ".join(words)

    def _counts(self) -> str:
        text = f"{len(self._took)}/{self._count} nodes"
        if self._failed:
            text += f", {self._failed} failed"
        return f"{text}, {self._stopped} stopped" if self._stopped else text

    def _slowest(self) -> str:
        """The node that ended last, with its time, where the others were much faster."""
        if len(self._took) < 3:
            return ""
        node = max(self._took, key=self._took.__getitem__)
        took = self._took[node]
        return f"{names([node])} ({clock_time(took)})" if took > SLOW * median(self._took.values()) else ""


def _refusal(outcome: CommandResult | TransportError) -> str:
    """Who holds a node that another run has leased; "" where it did what it was asked for."""
    return refusal(outcome) if isinstance(outcome, CommandResult) else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
