"""`ibqueryerrors` -> ports over a threshold, and the summary that ends the scan.

"port ALL" is the sum of a switch and no port. A 32-bit counter at 4294967295 is full and says "at least". With
`--report-port` the line after a port names its link partner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

PORTS_AT_MOST = 20_000
FULL = 0xFFFFFFFF

_NODE = re.compile(r'^Errors for (?:(?P<guid>0x[0-9a-fA-F]{1,16}) )?"(?P<name>[^"]{0,128})"\s*$')
_PORT = re.compile(r"^\s+GUID 0x[0-9a-fA-F]{1,16} port (?P<port>ALL|\d{1,3}):(?P<rest>.*)$")
_COUNTER = re.compile(r"\s*\[(?P<name>[A-Za-z][A-Za-z0-9]{1,63}) == (?P<value>\d{1,20})(?: \([^)\]]{1,24}\))?\]")
_PEER = re.compile(
    r'^\s+Link info:.*==>\s+0x[0-9a-fA-F]{1,16}\s+\d+\s+(?P<port>\d{1,3})\[[^\]]*\] "(?P<name>[^"]{1,128})"'
)
_NODES = re.compile(r"^## Summary: (\d{1,9}) nodes checked, (\d{1,9}) bad nodes found\s*$")
_PORTS = re.compile(r"^##\s+(\d{1,9}) ports checked, (\d{1,9}) ports have errors beyond threshold\s*$")
_PMA = re.compile(r"^##\s+(\d{1,9}) PMA query failures\s*$")
_THRESHOLD = re.compile(r"\[([A-Za-z0-9]{1,64}) = (\d{1,20})\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPort:
    """One port over a threshold. `switch`: its node is one; `peer` is (node, port) where the tool was asked for it."""

    node: str
    port: int
    switch: bool
    counters: dict[str, int]
    peer: tuple[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricScan:
    """What a scan found. Numbers of the summary are None where it is not there: then the scan did not end."""

    bad: tuple[BadPort, ...]
    nodes_checked: int | None
    ports_checked: int | None
    bad_ports: int | None
    thresholds: dict[str, int] | None
    suppressed: tuple[str, ...] | None
    failed_queries: int

    @property
    def ended(self) -> bool:
        """The summary is there to its last line."""
        return None not in (self.nodes_checked, self.ports_checked, self.bad_ports, self.suppressed)


def parse_ibqueryerrors(lines: Iterable[str]) -> FabricScan:
    """The scan.

    Raises:
        ParseError: nothing of a scan is there, a port line cannot be read, or there are two summaries.
    """
    node: tuple[str, bool] | None = None
    bad: list[BadPort] = []
    last_is_port = False
    summary: dict[str, int] = {}
    thresholds: dict[str, int] | None = None
    suppressed: tuple[str, ...] | None = None
    for line in lines:
        if found := _NODE.match(line):
            node, last_is_port = (found["name"], found["guid"] is not None), False
        elif found := _PORT.match(line):
            port = _port(node, found["port"], found["rest"])
            last_is_port = port is not None
            bad += [port] if port else []
        elif last_is_port and (found := _PEER.match(line)):
            old = bad[-1]
            bad[-1] = BadPort(
                node=old.node,
                port=old.port,
                switch=old.switch,
                counters=old.counters,
                peer=(found["name"], int(found["port"])),
            )
        elif line.startswith("##"):
            _summary(line, summary)
            if line.startswith("## Thresholds:") or line.startswith("## (null)"):
                thresholds = {name: int(value) for name, value in _THRESHOLD.findall(line)}
            if line.startswith("## Suppressed:"):
                suppressed = tuple(line.partition(":")[2].split())
        if len(bad) > PORTS_AT_MOST:
            raise ParseError(f"ibqueryerrors: expected at most {PORTS_AT_MOST} bad ports, found more; scan a part")
    if node is None and not summary:
        raise ParseError("ibqueryerrors: expected 'Errors for' or '## Summary', found neither; run the scan again")
    return FabricScan(
        bad=tuple(bad),
        nodes_checked=summary.get("nodes"),
        ports_checked=summary.get("ports"),
        bad_ports=summary.get("bad ports"),
        thresholds=thresholds,
        suppressed=suppressed,
        failed_queries=summary.get("pma", 0),
    )


def _port(node: tuple[str, bool] | None, port: str, rest: str) -> BadPort | None:
    """The port, or None for the sum of a switch."""
    counters = {m["name"]: int(m["value"]) for m in _COUNTER.finditer(rest)}
    if node is None or not counters or _COUNTER.sub("", rest).strip():
        raise ParseError(f"ibqueryerrors: expected counters of a known node, found {rest[:60]!r}; run the scan again")
    if port == "ALL":
        return None
    return BadPort(node=node[0], port=int(port), switch=node[1], counters=counters, peer=None)


def _summary(line: str, into: dict[str, int]) -> None:
    values: dict[str, int] = {}
    if found := _NODES.match(line):
        values = {"nodes": int(found[1]), "bad nodes": int(found[2])}
    elif found := _PORTS.match(line):
        values = {"ports": int(found[1]), "bad ports": int(found[2])}
    elif found := _PMA.match(line):
        values = {"pma": int(found[1])}
    for name, value in values.items():
        if into.setdefault(name, value) != value:
            raise ParseError("ibqueryerrors: expected one summary, found two; audit the scans apart")
