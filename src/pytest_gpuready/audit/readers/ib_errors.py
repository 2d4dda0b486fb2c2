"""perfquery and ibqueryerrors: error counters of InfiniBand ports, on one node and over the fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_gpuready.audit.asked import ADVICE_CUT, ended_badly, unanswered, unreadable
from pytest_gpuready.audit.ib_counters import DOWNED, LIMITS, METRICS, SAYS, judged
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome, worst
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ibqueryerrors import FULL, BadPort, FabricScan, parse_ibqueryerrors
from pytest_gpuready.parse.perfquery import PortCounters, parse_perfquery

CUMULATIVE = (
    "counters run since the driver was loaded or they were cleared: they say nothing about how fast errors come, and "
    "links that carried no traffic could not show any"
)
OCTETS = 4


def read_perfquery(given: Given) -> Reading:
    """What a `perfquery` says."""
    owed = [*unanswered(given, "perfquery", (*LIMITS, "expected_ports")), *ended_badly(given, "ib.exit_code")]
    try:
        ports = parse_perfquery(given.lines())
    except ParseError as error:
        return Reading(findings=(unreadable("ib.counters", str(error)), *owed), not_covered=(CUMULATIVE,))
    findings = [f for port in ports for f in _port(port, given)]
    expected = given.expect.count("expected_ports")
    outcome: Outcome = "observed" if expected is None else "pass" if len(ports) >= expected else "not-measured"
    findings.append(
        Finding(
            metric="ib.ports_read",
            outcome=outcome,
            value=len(ports),
            unit="ports",
            expected=f">= {expected}" if expected is not None else "",
            source=given.expect.source if expected is not None else "",
            suspect="" if outcome != "not-measured" else "counters of the other ports are not in the output",
        )
    )
    idle = [p.name for p in ports if p.counters.get("PortXmitData") == 0 or p.counters.get("PortRcvData") == 0]
    notes = [f"{name} carried no traffic in one direction: its errors could not show" for name in idle[:16]]
    return Reading(findings=(*findings, *owed), not_covered=(CUMULATIVE, *notes))


def _port(port: PortCounters, given: Given) -> Iterator[Finding]:
    """Link errors judged, other counters that are not 0 told, expectations without their counter not measured."""
    limits = {name: given.expect.number(key) for key, name in LIMITS.items()}
    for name in METRICS:
        limit = limits.get(name)
        if name in port.counters:
            yield judged(
                name,
                port.counters[name],
                part=port.name,
                limit=limit,
                source=given.expect.source,
                counters=port.counters,
                full=name in port.saturated,
            )
        elif limit is not None:
            why = "cannot be read" if name in port.unreadable else "is not in the output"
            yield Finding(
                metric=METRICS[name],
                outcome="not-measured",
                part=port.name,
                expected=f"<= {limit:g}",
                source=given.expect.source,
                suspect=f"{name} {why}",
                advice="perfquery -T shows uncorrected blocks"
                if name == LIMITS["max_effective_errors"]
                else ADVICE_CUT,
            )
    for name in port.unreadable:
        yield Finding(metric=f"ib.{name}", outcome="not-measured", part=port.name, suspect="its value cannot be read")
    for name, value in port.counters.items():
        if name not in METRICS and value and (name in SAYS or "Err" in name or "Drop" in name):
            yield _told(name, value, port.name, full=name in port.saturated)
    if "PortXmitData" in port.counters and "PortXmitData" not in port.saturated:
        sent = port.counters["PortXmitData"] * OCTETS
        yield Finding(metric="ib.xmit_bytes", outcome="observed", part=port.name, value=sent, unit="B")


def _told(name: str, value: int, part: str, *, full: bool) -> Finding:
    """A counter that is no link error."""
    says = SAYS.get(name, "")
    advice = f"{says}; the counter is full, this is at least the value" if full else says
    return Finding(metric=f"ib.{name}", outcome="observed", part=part, value=value, advice=advice.lstrip("; "))


def read_ibqueryerrors(given: Given) -> Reading:
    """What a scan by `ibqueryerrors` says."""
    owed = [
        *unanswered(given, "ibqueryerrors", (*LIMITS, "expected_ports")),
        *ended_badly(given, "ib.exit_code", normal=(0, 1)),
    ]
    try:
        scan = parse_ibqueryerrors(given.lines())
    except ParseError as error:
        return Reading(findings=(unreadable("ib.fabric_errors", str(error)), *owed), not_covered=(CUMULATIVE,))
    ends = _ends(scan)
    findings = [f for port in scan.bad for f in _bad_port(port, given, ends)]
    findings += [_fabric(scan, findings, given), *_doubts(scan, given), *owed]
    notes = [CUMULATIVE]
    if scan.suppressed:
        notes.append(f"the scan left out {', '.join(scan.suppressed[:20])}")
    if scan.thresholds:
        floors = ", ".join(f"{name} {value}" for name, value in list(scan.thresholds.items())[:20])
        notes.append(f"ports at or under these thresholds are not listed: {floors}")
    return Reading(findings=tuple(findings), not_covered=tuple(notes))


def _name(node: str, port: int, switch: bool) -> str:
    """As people write it: "leaf-07 port 33", "gx-r02-n07 mlx5_2" (the only port of an adapter is no news)."""
    short = re.match(r"MF0;([^:]+):", node)
    label = short[1] if short else node
    return f"{label} port {port}" if switch or port != 1 else label


def _ends(scan: FabricScan) -> dict[tuple[str, int], str]:
    """Bad port -> the cable it is on: the tool names its partner, or one port at a switch and one at a host count the
    same number of link-downs and no other port does."""
    cables: dict[tuple[str, int], str] = {}
    listed = {(p.node, p.port): p for p in scan.bad}
    for port in scan.bad:
        if port.peer:
            peer = listed.get(port.peer)
            far = _name(*port.peer, switch=peer.switch if peer else not port.switch)
            near = _name(port.node, port.port, port.switch)
            cables[port.node, port.port] = f"the cable between {' and '.join(sorted((near, far)))}"
    by_downs: dict[int, list[BadPort]] = {}
    for port in scan.bad:
        if DOWNED in port.counters and (port.node, port.port) not in cables:
            by_downs.setdefault(port.counters[DOWNED], []).append(port)
    for ports in by_downs.values():
        hosts, switches = [p for p in ports if not p.switch], [p for p in ports if p.switch]
        if len(hosts) == len(switches) == 1:
            host, switch = (_name(p.node, p.port, p.switch) for p in (hosts[0], switches[0]))
            for p in ports:
                cables[p.node, p.port] = f"the cable between {host} and {switch}"
    return cables


def _bad_port(port: BadPort, given: Given, cables: dict[tuple[str, int], str]) -> Iterator[Finding]:
    limits = {name: given.expect.number(key) for key, name in LIMITS.items()}
    part = f"{port.node} port {port.port}"
    for name, value in port.counters.items():
        if name not in METRICS:
            if name in SAYS or "Err" in name or "Discard" in name or "Drop" in name:
                yield _told(name, value, part, full=value == FULL)
            continue
        limit = limits.get(name)
        found = judged(
            name, value, part=part, limit=limit, source=given.expect.source, counters=port.counters, full=value == FULL
        )
        if limit is None and found.outcome == "observed":
            found = _failed(found)
        cable = cables.get((port.node, port.port))
        yield _on(found, cable) if cable and found.outcome == "fail" else found


def _failed(found: Finding) -> Finding:
    """The scan lists a port only for what is over a threshold, so a single link-down counts here."""
    return _copy(found, outcome="fail", source="the scan's threshold")


def _on(found: Finding, cable: str) -> Finding:
    return _copy(found, outcome=found.outcome, source=found.source, suspect=cable)


def _copy(found: Finding, *, outcome: Outcome, source: str, suspect: str | None = None) -> Finding:
    return Finding(
        metric=found.metric,
        outcome=outcome,
        part=found.part,
        value=found.value,
        expected=found.expected,
        source=source,
        suspect=found.suspect if suspect is None else suspect,
        advice=found.advice,
    )


def _fabric(scan: FabricScan, ports: list[Finding], given: Given) -> Finding:
    """The whole scan: link errors anywhere fail it; it is clean only when it ended and lists what it counts."""
    failed = [f for f in ports if f.outcome == "fail"]
    listed = len({(p.node, p.port) for p in scan.bad})
    whole = scan.ended and scan.bad_ports == listed and not scan.failed_queries
    outcome: Outcome = "fail" if failed else "pass" if whole else "not-measured"
    suspects = list(dict.fromkeys(f.suspect for f in failed))
    if outcome == "not-measured":
        suspects = _why(scan, listed)
    code = given.exit_code
    if outcome == "pass" and code == 1 and not scan.bad:
        outcome, suspects = "not-measured", ["exit code 1 says bad ports, and none is listed"]
    return Finding(
        metric="ib.fabric_errors",
        outcome=outcome,
        value=len({f.part for f in failed}),
        unit="ports with link errors",
        expected="0",
        source="the scan's thresholds",
        suspect="; ".join(suspects[:8]),
    )


def _why(scan: FabricScan, listed: int) -> list[str]:
    if not scan.ended:
        return ["the summary that ends a scan is not there: cut, or the scan did not end"]
    if scan.failed_queries:
        return [f"{scan.failed_queries} ports did not answer: the scan saw a part of the fabric"]
    return [f"the summary counts {scan.bad_ports} bad ports and {listed} are listed"]


def _doubts(scan: FabricScan, given: Given) -> Iterator[Finding]:
    """Size of the scan, and expectations that are stricter than what the scan lists."""
    expected = given.expect.count("expected_ports")
    if scan.ports_checked is not None or expected is not None:
        enough = expected is not None and scan.ports_checked is not None and scan.ports_checked >= expected
        yield Finding(
            metric="ib.ports_checked",
            outcome="observed" if expected is None else "pass" if enough else "not-measured",
            value=scan.ports_checked,
            unit="ports",
            expected=f">= {expected}" if expected is not None else "",
            source=given.expect.source if expected is not None else "",
            suspect="" if enough or expected is None else "the scan did not reach as many ports",
        )
    if scan.failed_queries:
        yield unreadable(
            "ib.failed_queries", f"{scan.failed_queries} performance queries failed: those ports are unseen"
        )
    for key, name in LIMITS.items():
        limit = given.expect.number(key)
        if limit is None:
            continue
        over = [_outcome(p, name, limit) for p in scan.bad if name in p.counters]
        hidden = (scan.thresholds or {}).get(name, 0) > limit or name in (scan.suppressed or ())
        sure = scan.ended and not hidden and not scan.failed_queries and key != "max_effective_errors"
        outcome = worst([*over, "pass" if sure else "not-measured"])
        yield Finding(
            metric=METRICS[name],
            outcome=outcome,
            part="all ports",
            expected=f"<= {limit:g}",
            source=given.expect.source,
            suspect="" if outcome != "not-measured" else f"the scan does not list every {name} over {limit:g}",
            advice="" if outcome != "not-measured" else "scan with thresholds of 0 and nothing suppressed",
        )


def _outcome(port: BadPort, name: str, limit: float) -> Outcome:
    return "fail" if port.counters[name] > limit else "pass"
