"""The network fabric: ports, counters, links and network cards; how their tools are recognised."""

from __future__ import annotations

import re

from pytest_gpuready.audit.late import late
from pytest_gpuready.audit.reader import Reader


def _is_ibstat(head: str) -> int:
    start = head.lstrip()[:4096]
    return 95 if start.startswith("CA '") and "\n\tCA type:" in start else 90 if start.startswith("CA: '") else 0


def _is_ibstatus(head: str) -> int:
    start = head.lstrip()[:4096]
    return 95 if start.startswith("Infiniband device '") and "status:" in start.split("\n", 1)[0] else 0


def _is_perfquery(head: str) -> int:
    if "PortSelect:...." not in head:
        return 0
    return 95 if re.search(r"^# Port[A-Za-z ]* ?[Cc]ounters: Lid .* port \d", head, re.M) else 0


def _is_ibqueryerrors(head: str) -> int:
    if "## Summary: " in head and re.search(r"^## Summary: \d+ nodes checked", head, re.M):
        return 95
    if "Errors for " not in head:
        return 0
    return 85 if re.search(r'^Errors for (0x[0-9a-f]+ )?".*"\n\s+GUID 0x[0-9a-f]+ port ', head, re.M) else 0


def _is_mlxlink(head: str) -> int:
    if "Operational Info" not in head or "Physical state" not in head:
        return 0
    return 92 if re.search(r"Operational Info\s*\n-+\s*\n", head) or '"Operational Info"' in head else 0


def _is_ethtool(head: str) -> int:
    if "NIC statistics:" not in head:
        return 0
    return 92 if re.search(r"^NIC statistics:\s*\n\s+\S.*: \d", head, re.M) else 0


READERS: tuple[Reader, ...] = (
    Reader(tool="ibstat", recognise=_is_ibstat, read=late("ib_ports", "read_ibstat")),
    Reader(tool="ibstatus", recognise=_is_ibstatus, read=late("ib_ports", "read_ibstatus")),
    Reader(tool="perfquery", recognise=_is_perfquery, read=late("ib_errors", "read_perfquery")),
    Reader(tool="ibqueryerrors", recognise=_is_ibqueryerrors, read=late("ib_errors", "read_ibqueryerrors")),
    Reader(tool="mlxlink", recognise=_is_mlxlink, read=late("mlxlink")),
    Reader(tool="ethtool-S", recognise=_is_ethtool, read=late("ethtool")),
)
