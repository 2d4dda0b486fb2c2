"""What a person sees while a long command runs: what it is, since when, how long it usually takes, power and heat.

On a terminal it is one line, rewritten in place; in a log whole lines: one at the start, one a minute, one at the end.
A command that says nothing for a while is shown without readings. Whatever comes from a node is numbers, or escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Transport
from pytest_gpuready.transport.local import ENDING

LOG_EVERY_S = 60.0
STALE_S = 15.0
"""Readings older than that are not those of now."""

READINGS = {"power_w": "W", "temperature_c": "C"}
"""What an agent says of its GPUs, lowest and highest, and its unit."""

MOST = 1e6
"""A reading of that size or more is none."""


class Screen(Protocol):
    """Where progress is shown. `in_place` is True where a line can be rewritten: a terminal."""

    in_place: bool

    def line(self, text: str) -> None:
        """Write a whole line of its own."""
        ...

    def rewrite(self, text: str, *, last: bool = False) -> None:
        """Put this text in the place of the one before; `last` leaves it there and goes to the next line."""
        ...


class Progress:
    """Shows one command at a time on a screen: those that say what they do and take long."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._command: Command | None = None
        self._began = self._due = self._heard_at = 0.0
        self._readings: dict[str, tuple[float, float]] = {}
        self._ending = False

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
            self._screen.line(f"{_what(command)}, about {clock_time(command.typical_s)}")

    def said(self, command: Command, said: Mapping[str, object]) -> None:
        """What a running command says of itself; nothing, where it only runs."""
        if self._command is not command:
            return
        now = self._clock()
        if said.get(ENDING) is True and not self._ending:
            self._ending = True
            self._due = now
        readings = {name: span for name in READINGS if (span := _span(said.get(name)))}
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
        text = f"{_what(command)} ended after {clock_time(self._clock() - self._began)}"
        if self._screen.in_place:
            self._screen.rewrite(text, last=True)
        else:
            self._screen.line(text)

    def _text(self, command: Command) -> str:
        now = self._clock()
        took, usual = now - self._began, clock_time(command.typical_s)
        how_far = (
            f"{clock_time(took)} of about {usual}"
            if took <= command.typical_s
            else f"{clock_time(took)}, usually {usual}"
        )
        words = [_what(command), how_far]
        if self._readings and now - self._heard_at <= STALE_S:
            words += [f"{_between(*span)} {READINGS[name]}" for name, span in self._readings.items()]
        if self._ending:
            words.append("is told to end; Ctrl-C again kills it")
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

    def stop(self) -> None:
        """End everything that runs through the inner transport."""
        self._inner.stop()


def clock_time(seconds: float) -> str:
    """Minutes and seconds, 1:03; hours where there are any, 1:00:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _what(command: Command) -> str:
    text = command.says or command.line[:60]
    text = "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in text)
    return f"{text} (run {command.repeat + 1})" if command.repeat else text


def _span(said: object) -> tuple[float, float] | None:
    """Lowest and highest of a reading; None where a node says something else."""
    if not isinstance(said, list) or len(said) != 2 or not all(type(value) in (int, float) for value in said):
        return None
    low, high = said
    return (low, high) if abs(low) < MOST and abs(high) < MOST else None  # NaN is less than nothing


def _between(low: float, high: float) -> str:
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}-{high:.0f}"
