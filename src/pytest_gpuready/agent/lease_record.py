"""What stands in the lease file of a node: one line of JSON, padded to a fixed size, or nothing.

`until` is on the node's CLOCK_BOOTTIME beside the node's boot id: no wall clock matters, and a reboot ends it. 0 means
that the lease ends with the process that has the lock. Anybody on the node may have written what is read here: it is
bounded, checked, and shown with every character that cannot be printed replaced.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

SIZE = 2048
"""Bytes of a record. The file never grows or shrinks: a disk that filled up meanwhile does not matter."""

HOLD_S = 300.0
"""How long a node is kept for the next command of a run from which nothing is heard."""

HOLD_MOST_S = 3600.0
"""A record that wants to keep the node for longer than this from now is not believed."""

WAIT_S = 5.0
"""How long a command waits for another one of its run to end, or for somebody who only looks."""

_TEXT = {"run": 64, "user": 64, "host": 64, "since": 40, "out": 200}
_NUMBERS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """For whom an agent measures: what a controller gives to each of its agent commands.

    `run` names the run; commands with the same name share the node. `host` and `pid` are the controller's, `since` is
    its start in UTC, `out` its directory. `hold_s` is how long the node is kept after a command: 0 where the taker is
    the run itself and keeps the lock for its whole life. `path` is the lease file, "" for the node's usual one.
    """

    run: str
    user: str
    host: str
    pid: int
    since: str
    out: str
    hold_s: float = HOLD_S
    wait_s: float = WAIT_S
    path: str = ""

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("a ticket needs the name of its run")
        if not (0 <= self.hold_s <= HOLD_MOST_S and 0 <= self.wait_s <= HOLD_MOST_S):
            raise ValueError(f"a ticket holds and waits 0 to {HOLD_MOST_S:.0f} s, got {self.hold_s} and {self.wait_s}")

    @property
    def text(self) -> str:
        """The ticket as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def holder(self) -> str:
        """Who it is, in words."""
        return (
            f"an acceptance run of {self.user} ({self.host} pid {self.pid}) since {self.since}, "
            f"which writes to {self.out}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who has the node. `until` as in the module's docstring; `most` is the same for a command that runs to its
    deadline."""

    ticket: Ticket
    boot: str
    until: float
    most: float

    def encode(self) -> bytes:
        """The record as bytes, SIZE of them."""
        said = {name: getattr(self.ticket, name) for name in (*_TEXT, "pid")}
        said |= {"boot": self.boot, "until": self.until, "most": self.most}
        for name, most in _TEXT.items():
            said[name] = plain(said[name], most)
        return json.dumps(said, ensure_ascii=False).encode("utf-8").ljust(SIZE - 1) + b"\n"


EMPTY = b"".ljust(SIZE - 1) + b"\n"
"""What stands in the file of a node that nobody has."""


def decode(found: bytes) -> Record | None:
    """The record; None where there is none.

    Raises:
        ValueError: it cannot be read as a record.
    """
    if len(found) > SIZE:
        raise ValueError(f"more than {SIZE} bytes")
    if not found.strip():
        return None
    try:
        said = json.loads(found)
        texts = {name: said[name] for name in (*_TEXT, "boot")}
        numbers = {name: said[name] for name in ("pid", "until", "most")}
    except (ValueError, RecursionError, KeyError, TypeError, IndexError) as error:
        raise ValueError("no record of a run") from error
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("no record of a run")
    if not all(isinstance(number, (int, float)) and 0 <= number < _NUMBERS for number in numbers.values()):
        raise ValueError("no record of a run")
    who = {name: plain(texts[name], most) for name, most in _TEXT.items()}
    return Record(
        ticket=Ticket(
            run=who["run"],
            user=who["user"],
            host=who["host"],
            pid=int(numbers["pid"]),
            since=who["since"],
            out=who["out"],
        ),
        boot=texts["boot"],
        until=float(numbers["until"]),
        most=float(numbers["most"]),
    )


def ticket_of(text: str) -> Ticket:
    """The ticket that a controller gave.

    Raises:
        ValueError: it is none.
    """
    try:
        said = json.loads(text)
        if not isinstance(said, dict):
            raise ValueError("no object")
        return Ticket(**{**said, "run": str(said["run"])})
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError(f"no ticket: {error}") from error


def plain(text: str, most: int) -> str:
    """What somebody else wrote, fit for a line of ours."""
    return "".join(c if c.isprintable() else "?" for c in text[:most])


def span(seconds: float) -> str:
    """Seconds in words, rounded up: "4 min 10 s"."""
    whole = int(-(-seconds // 1))
    hours, minutes = whole // 3600, whole // 60 % 60
    words = [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0)
    if not hours and (whole % 60 or not words):
        words.append(f"{whole % 60} s")
    return " ".join(words)
