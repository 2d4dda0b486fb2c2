"""`ethtool -S` -> counters by card. The tool prints no name: it comes from a heading, a prompt or the command."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

CARDS_AT_MOST = 4096
COUNTERS_AT_MOST = 100_000

_COMMAND = re.compile(r"ethtool\s+(?:-S|--statistics)\s+([\w.@:-]{1,32})")
_BANNER = re.compile(r"^(?:=+|#+|-{2,})\s*([\w.@-]{1,32})\s*(?:=*|#*|-*)\s*:?\s*$")
_NAME_LINE = re.compile(r"^([A-Za-z][\w.@-]{1,31}):\s*$")
_COUNTER = re.compile(r"^\s+(?P<name>[A-Za-z\[][^:]{0,100}(?::[^:\s][^:]{0,60})??)\s*:\s*(?P<value>\S+)\s*$")
_QUEUE = re.compile(r"^\s+(?P<name>\[\d{1,4}\]: [A-Za-z]\w{0,80}):\s*(?P<value>\S+)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCounters:
    """Counters of one card by the driver's names; those of `unreadable` have no number, or two."""

    card: str
    counters: dict[str, int]
    unreadable: tuple[str, ...]


def parse_ethtool(lines: Iterable[str], command: str = "") -> tuple[CardCounters, ...]:
    """Every card, in order.

    Raises:
        ParseError: no statistics are there, or far too many.
    """
    named = _COMMAND.search(command)
    card = named[1] if named else ""
    cards: list[tuple[str, dict[str, int], set[str]]] = []
    total = 0
    for line in lines:
        if line.strip() == "NIC statistics:":
            cards.append((card, {}, set()))
        elif cards and (found := _QUEUE.match(line) or _COUNTER.match(line)):
            total += 1
            _take(cards[-1], found["name"].strip(), found["value"])
        elif found := _COMMAND.search(line) or _BANNER.match(line) or _NAME_LINE.match(line):
            card = found[1]
        if len(cards) > CARDS_AT_MOST or total > COUNTERS_AT_MOST:
            raise ParseError(
                "ethtool: expected at most 4096 cards and 100000 counters, found more; audit fewer at once"
            )
    if not cards:
        raise ParseError("ethtool: expected 'NIC statistics:', found none; run ethtool -S again")
    return tuple(CardCounters(card=c, counters=v, unreadable=tuple(sorted(u))) for c, v, u in cards)


def _take(card: tuple[str, dict[str, int], set[str]], name: str, value: str) -> None:
    _, counters, unreadable = card
    if not re.fullmatch(r"\d{1,20}", value) or counters.get(name, int(value)) != int(value):
        counters.pop(name, None)
        unreadable.add(name)
    elif name not in unreadable:
        counters[name] = int(value)
