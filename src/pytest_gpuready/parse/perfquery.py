"""`perfquery` -> counters by port. Each header starts a port; several tables of one port are read together.

The plain tables saturate: a counter at its greatest value says "at least". `PortXmitData` counts four octets at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

PORTS_AT_MOST = 20_000
ALL_PORTS = 255

SATURATED: dict[str, int] = {
    "SymbolErrorCounter": 0xFFFF,
    "LinkErrorRecoveryCounter": 0xFF,
    "LinkDownedCounter": 0xFF,
    "PortRcvErrors": 0xFFFF,
    "PortRcvRemotePhysicalErrors": 0xFFFF,
    "PortRcvSwitchRelayErrors": 0xFFFF,
    "PortXmitDiscards": 0xFFFF,
    "PortXmitConstraintErrors": 0xFF,
    "PortRcvConstraintErrors": 0xFF,
    "LocalLinkIntegrityErrors": 0xF,
    "ExcessiveBufferOverrunErrors": 0xF,
    "VL15Dropped": 0xFFFF,
    "QP1Dropped": 0xFFFF,
    "PortXmitData": 0xFFFFFFFF,
    "PortRcvData": 0xFFFFFFFF,
    "PortXmitPkts": 0xFFFFFFFF,
    "PortRcvPkts": 0xFFFFFFFF,
    "PortXmitWait": 0xFFFFFFFF,
}
"""Greatest value of each counter in the plain table (linux-rdma, IBA PortCounters)."""

_HEAD = re.compile(
    r"^# (?P<table>[A-Za-z]+(?: [a-z]+)* counters|[A-Za-z]+): (?P<at>.+?) port (?P<port>\d{1,3})(?: \(.*\))?\s*$"
)
_VALUE = re.compile(r"^(?P<name>[A-Za-z][A-Za-z0-9]{1,63}):\.*(?P<value>\S*)\s*$")
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,20}")
_NO_COUNTERS = {"PortSelect", "CounterSelect", "CounterSelect2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCounters:
    """Counters of one port by the tool's names: the largest value of each. `saturated`: these are "at least"."""

    at: str
    port: int
    counters: dict[str, int]
    saturated: tuple[str, ...]
    unreadable: tuple[str, ...]

    @property
    def name(self) -> str:
        """ "Lid 1204 port 2"; port 255 is the sum of all ports of a node."""
        return f"{self.at} port {self.port}" + (" (all ports)" if self.port == ALL_PORTS else "")


def parse_perfquery(lines: Iterable[str]) -> tuple[PortCounters, ...]:
    """Every port, in order of first appearance; lines before the first header and notes of the tool are not counters.

    Raises:
        ParseError: no table is there, or a table says it is of another port.
    """
    ports: dict[tuple[str, int], list[tuple[bool, dict[str, int], set[str]]]] = {}
    table: tuple[bool, dict[str, int], set[str]] | None = None
    port = -1
    for line in lines:
        if found := _HEAD.match(line):
            port = int(found["port"])
            table = ("extended" in found["table"].lower(), {}, set())
            ports.setdefault((found["at"][:64], port), []).append(table)
            if len(ports) > PORTS_AT_MOST:
                raise ParseError(f"perfquery: expected at most {PORTS_AT_MOST} ports, found more; audit fewer at once")
        elif line.startswith("# "):
            table = None
        elif table is not None and (found := _VALUE.match(line)):
            _take(found["name"], found["value"], port, table)
    if not ports:
        raise ParseError("perfquery: expected '# Port counters: Lid ...', found none; run perfquery -x again")
    return tuple(_joined(at, number, tables) for (at, number), tables in ports.items())


def _take(name: str, text: str, port: int, table: tuple[bool, dict[str, int], set[str]]) -> None:
    _, counters, unreadable = table
    if not _NUMBER.fullmatch(text):
        unreadable.add(name)
        return
    value = int(text, 16 if text.startswith("0x") else 10)
    if name == "PortSelect" and value != port:
        raise ParseError(f"perfquery: expected PortSelect {port}, found {value}; take the output again")
    if name in _NO_COUNTERS:
        return
    if counters.setdefault(name, value) != value:
        unreadable.add(name)


def _joined(at: str, port: int, tables: list[tuple[bool, dict[str, int], set[str]]]) -> PortCounters:
    """All tables of a port; where a wide counter is there, the narrow one says nothing more."""
    counters: dict[str, int] = {}
    wide = {name for extended, values, _ in tables if extended for name in values}
    for extended, values, _ in tables:
        for name, value in values.items():
            if extended or name not in wide:
                counters[name] = max(value, counters.get(name, 0))
    unreadable = {name for _, _, names in tables for name in names}
    full = {n for n, v in counters.items() if n not in wide and v == SATURATED.get(n, -1)}
    return PortCounters(
        at=at,
        port=port,
        counters={n: v for n, v in counters.items() if n not in unreadable},
        saturated=tuple(sorted(full)),
        unreadable=tuple(sorted(unreadable)),
    )
