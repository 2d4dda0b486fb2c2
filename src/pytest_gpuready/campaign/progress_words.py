"""What progress is written with: the screen, times as on a clock, readings of GPUs, and text that cannot harm it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pytest_gpuready.inventory.nodeset import NAME, fold
from pytest_gpuready.model import Command

LOG_EVERY_S = 60.0
STALE_S = 15.0
"""Readings older than that are not those of now."""

READINGS = {"power_w": "W", "temperature_c": "C"}
"""What an agent says of its GPUs, lowest and highest, and its unit."""

MOST = 1e6
"""A reading of that size or more is none."""

NAMED = 4
"""Nodes that are called by name in one line."""

ENDS = "is told to end; Ctrl-C again kills it"

Span = tuple[float, float]


class Screen(Protocol):
    """Where progress is shown. `in_place` is True where a line can be rewritten: a terminal."""

    in_place: bool

    def line(self, text: str) -> None:
        """Write a whole line of its own."""
        ...

    def rewrite(self, text: str, *, last: bool = False) -> None:
        """Put this text in the place of the one before; `last` leaves it there and goes to the next line."""
        ...


def clock_time(seconds: float) -> str:
    """Minutes and seconds, 1:03; hours where there are any, 1:00:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def how_far(took_s: float, typical_s: float) -> str:
    """How long it has taken, and of what: "1:03 of about 2:10", "4:10, usually 2:10", "0:07" where nobody knows."""
    if typical_s <= 0:
        return clock_time(took_s)
    usual = clock_time(typical_s)
    return f"{clock_time(took_s)} of about {usual}" if took_s <= typical_s else f"{clock_time(took_s)}, usually {usual}"


def what(command: Command) -> str:
    """What a command does, and that it is a retest where it is one."""
    text = plain(command.says or command.shown[:60])
    return f"{text} (run {command.repeat + 1})" if command.repeat else text


def plain(text: str) -> str:
    """The text in ASCII without control characters."""
    return "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in text)


def names(nodes: Iterable[str]) -> str:
    """The first few of these nodes in one word, and how many more there are: node[003,017-018] and 12 more."""
    every = sorted(nodes)
    shown = every[:NAMED]
    told = fold(shown) if all(NAME.fullmatch(name) for name in shown) else plain(", ".join(shown)[:80])
    return told if len(every) <= NAMED else f"{told} and {len(every) - NAMED} more"


def span(said: object) -> Span | None:
    """Lowest and highest of a reading; None where a node says something else."""
    if not isinstance(said, list) or len(said) != 2 or not all(type(value) in (int, float) for value in said):
        return None
    low, high = said
    return (low, high) if abs(low) < MOST and abs(high) < MOST else None  # NaN is less than nothing


def between(low: float, high: float) -> str:
    """ "612-698", "58" where both are the same."""
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}-{high:.0f}"
