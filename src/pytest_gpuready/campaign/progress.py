"""What a person sees while a long command runs: what it is, since when, how long it usually takes, power and heat.

On a terminal it is one line, rewritten in place; in a log whole lines: one at the start, one a minute, one at the end.
A command that says nothing for a while is shown without readings. Whatever comes from a node is numbers, or escaped.
Commands on many nodes are shown as one (`progress_many`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from pytest_gpuready.campaign.progress_many import FanOut
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
    span,
    what,
)
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, Transport, run_each
from pytest_gpuready.transport.local import ENDING

__all__ = ["Progress", "Screen", "Shown", "clock_time"]

TICK_S = 0.5
"""How often a fan-out is looked at."""


class Progress:
    """Shows one command at a time on a screen: those that say what they do and take long."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._command: Command | None = None
        self._began = self._due = self._heard_at = 0.0
        self._readings: dict[str, Span] = {}
        self._ending = False
        self._many: FanOut | None = None

    def begin(self, command: Command) -> None:
        """A command starts. One that takes no time worth telling is not shown."""
        if command.typical_s <= 0:
            return
        self._command, self._readings, self._ending = command, {}, False
        self._began = self._clock()
        self._due = self._began + LOG_EVERY_S
        if self._screen.in_place:
            self._screen.rewrite(self._text(command))
        else:
            self._screen.line(f"{what(command)}, about {clock_time(command.typical_s)}")

    def said(self, command: Command, said: Mapping[str, object]) -> None:
        """What a running command says of itself; nothing, where it only runs."""
        if many := self._many:
            many.said(command, said)
            return
        if self._command is not command:
            return
        now = self._clock()
        if said.get(ENDING) is True and not self._ending:
            self._ending = True
            self._due = now
        readings = {name: each for name in READINGS if (each := span(said.get(name)))}
        if readings:
            self._readings, self._heard_at = readings, now
        if self._screen.in_place:
            self._screen.rewrite(self._text(command))
        elif now >= self._due:
            self._due = now + LOG_EVERY_S
            self._screen.line(self._text(command))

    def end(self, command: Command) -> None:
        """A command has ended, however that was."""
        if self._command is not command:
            return
        self._command = None
        text = f"{what(command)} ended after {clock_time(self._clock() - self._began)}"
        if self._screen.in_place:
            self._screen.rewrite(text, last=True)
        else:
            self._screen.line(text)

    @contextlib.contextmanager
    def many(self, commands: tuple[Command, ...]) -> Iterator[FanOut]:
        """Show these commands, one a node, as one as long as this is open."""
        fan_out = self._many = FanOut(commands, self._screen, self._clock)
        over = threading.Event()

        def look() -> None:
            while not over.wait(TICK_S):
                fan_out.tick()

        # The screen is written to from a thread: Ctrl-C must meet the main thread where it waits for the nodes.
        looking = threading.Thread(target=look, name="gpuready-progress", daemon=True)
        looking.start()
        try:
            yield fan_out
        finally:
            over.set()
            looking.join()
            self._many = None
            fan_out.end()

    def _text(self, command: Command) -> str:
        now = self._clock()
        words = [what(command), how_far(now - self._began, command.typical_s)]
        if self._readings and now - self._heard_at <= STALE_S:
            words += [f"{between(*each)} {READINGS[name]}" for name, each in self._readings.items()]
        if self._ending:
            words.append(ENDS)
        return "  ".join(words)


class Shown:
    """A transport whose long commands are shown while they run."""

    def __init__(self, inner: Transport, progress: Progress) -> None:
        self._inner = inner
        self._progress = progress

    def run(self, command: Command) -> CommandResult:
        """Run the command through the inner transport."""
        self._progress.begin(command)
        try:
            return self._inner.run(command)
        finally:
            self._progress.end(command)

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run the commands through the inner transport; one command is shown as `run` shows it."""
        commands = tuple(commands)
        ended = run_each(self._inner, commands)
        return self._one(commands[0], ended) if len(commands) == 1 else self._many(commands, ended)

    def _one(self, command: Command, ended: Iterator[Ended]) -> Iterator[Ended]:
        self._progress.begin(command)
        try:
            yield from ended
        finally:
            self._progress.end(command)

    def _many(self, commands: tuple[Command, ...], ended: Iterator[Ended]) -> Iterator[Ended]:
        with self._progress.many(commands) as shown:
            try:
                for command, outcome in ended:
                    shown.ended(command, outcome)
                    yield command, outcome
            finally:
                # Who stops to listen to us stops to listen to all of them.
                if isinstance(ended, Generator):
                    ended.close()

    def stop(self) -> None:
        """End everything that runs through the inner transport."""
        self._inner.stop()
