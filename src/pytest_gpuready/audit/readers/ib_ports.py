"""ibstat and ibstatus: are the rails there, active, and at their full rate. One cause is one finding."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_gpuready.audit.asked import ADVICE_CUT, ended_badly, unanswered, unreadable
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ib_ports import ACTIVE, ARMED, INITIALIZING, LINK_UP, IbPort, parse_ib_ports

ANSWERS = ("fabric", "expected_ports", "expected_rate_gbit_per_s")
NOT_COVERED = (
    "a state and a rate at one moment: no error counter, no traffic, no earlier flap of a link is in this output",
    "which leaf switch each port is cabled to is not in this output",
)
_NO_SM = "fabric: subnet manager not running or not reachable (one cause)"


def read_ibstat(given: Given) -> Reading:
    """What an `ibstat` says."""
    return _read(given, "ibstat")


def read_ibstatus(given: Given) -> Reading:
    """What an `ibstatus` says."""
    return _read(given, "ibstatus")


def _read(given: Given, tool: str) -> Reading:
    owed = [*unanswered(given, tool, ANSWERS), *ended_badly(given, "ib.exit_code")]
    try:
        ports = parse_ib_ports(given.lines())
        layer = _layer(given.expect.text("fabric"))
    except ParseError as error:
        why = f"{error} (no adapter, or the drivers mlx5_ib and ib_umad are not loaded)" if _silent(given) else error
        return Reading(findings=(unreadable("ib.ports_active", str(why)), *owed), not_covered=NOT_COVERED)
    rails, others = _rails(ports, given, layer)
    findings = [*_active(rails, given), *_physical(rails, _asked(given)), *_rates(rails, given)]
    findings += [_observed(port) for port in others]
    findings += [*_cut(ports), *owed]
    note = [f"{port.name} ({port.layer}) is not counted as a rail" for port in others]
    return Reading(findings=tuple(findings), not_covered=(*NOT_COVERED, *note))


def _silent(given: Given) -> bool:
    return not given.head().strip()


def _layer(fabric: str | None) -> str:
    if fabric is None:
        return ""
    word = fabric.lower()
    if word not in ("infiniband", "ib", "roce", "ethernet"):
        raise ParseError(f"fabric: expected infiniband or roce, found {fabric[:40]!r}; correct the expectation")
    return "Ethernet" if word in ("roce", "ethernet") else "InfiniBand"


def _rails(ports: tuple[IbPort, ...], given: Given, layer: str) -> tuple[list[IbPort], list[IbPort]]:
    """Ports that are rails, and the others: storage, management, a second port that nobody uses.

    Without `fabric` the InfiniBand ports are the rails where there are any, unless only all ports together are as many
    as expected. More ports than expected are no fault as long as as many as expected are good.
    """
    expected = given.expect.count("expected_ports")
    if not layer and expected != len(ports) and any(p.layer == "InfiniBand" for p in ports):
        layer = "InfiniBand"
    rails = [p for p in ports if not layer or p.layer in (layer, None)]
    good = [p for p in rails if p.whole and p.state == ACTIVE and not _slow(p, given)]
    if expected is not None and len(rails) > expected and len(good) >= expected:
        rails = good
    return rails, [p for p in ports if p not in rails]


def _asked(given: Given) -> bool:
    return not set(ANSWERS).isdisjoint(given.expect.keys())


def _slow(port: IbPort, given: Given) -> bool:
    expected = given.expect.number("expected_rate_gbit_per_s")
    rates = [r for r in (port.rate_gbit, port.effective_gbit) if r is not None]
    return expected is not None and bool(rates) and min(rates) < expected


def _active(rails: list[IbPort], given: Given) -> list[Finding]:
    """How many are active: one finding that names the others by cause."""
    expected = given.expect.count("expected_ports")
    active = [p for p in rails if p.state == ACTIVE]
    bad = [p for p in rails if p.state not in (ACTIVE, None)]
    missing = max(0, (expected or 0) - len(rails))
    unread = any(p.state is None for p in rails)
    outcome: Outcome = "observed"
    if _asked(given):
        short = missing > 0 or not rails
        outcome = "fail" if bad or (short and not unread) else "not-measured" if unread or short else "pass"
    suspects = _suspects(bad, rails)
    if missing:
        suspects.append(f"{missing} of {expected} ports are not in the output: adapter not enumerated, or output cut")
    word = f">= {expected}" if expected is not None else "every rail"
    found = [
        Finding(
            metric="ib.ports_active",
            outcome=outcome,
            part=", ".join(p.name for p in bad[:16]),
            value=len(active),
            unit="ports",
            expected=f"{word} {ACTIVE}" if _asked(given) else "",
            source=given.expect.source if _asked(given) else "",
            suspect="; ".join(suspects) if outcome != "pass" else "",
            advice=_advice(bad),
        )
    ]
    lids = {p.sm_lid for p in bad if p.state == INITIALIZING and p.sm_lid is not None}
    for state in (INITIALIZING, ARMED):
        if count := sum(p.state == state for p in bad):
            found.append(Finding(metric=f"ib.ports_{state.lower()}", outcome="observed", value=count, unit="ports"))
    found += [Finding(metric="ib.sm_lid", outcome="observed", value=lid) for lid in sorted(lids)]
    return found


def _suspects(bad: list[IbPort], rails: list[IbPort]) -> list[str]:
    """One sentence by cause: no subnet manager, switched off, no link partner, training."""
    said: list[str] = []
    waiting = [p for p in bad if p.state in (INITIALIZING, ARMED) and p.physical == LINK_UP]
    if waiting:
        every = len(waiting) == len(rails)
        count = {8: "eight"}.get(len(waiting), str(len(waiting)))
        said.append(
            f"{_NO_SM}, not {count} cables"
            if every
            else f"fabric: subnet manager has not configured {_and(waiting)} (other switch, partition), not the cable"
        )
    rest = [p for p in bad if p not in waiting]
    off = [p for p in rest if p.physical == "Disabled"]
    if off:
        said.append(f"configuration: port{'s' if len(off) > 1 else ''} {_and(off)} disabled")
    others = [p for p in rest if p not in off]
    if others:
        said.append(f"cable, transceiver or switch port of {_and(others)}")
    return said


def _advice(bad: list[IbPort]) -> str:
    if any(p.physical == "Disabled" for p in bad):
        return "switch the port on (ip link set, ibportstate enable), or correct what is expected"
    if any(p.state in (INITIALIZING, ARMED) for p in bad):
        return "start opensm or look at the fabric manager (sminfo), then read again"
    return "swap the cable with a good port's and see what the fault follows" if bad else ""


def _physical(rails: list[IbPort], asked: bool) -> list[Finding]:
    """LinkUp everywhere is one finding; each port without it is one, with its state as the value."""
    known = [p for p in rails if p.physical is not None]
    down = [p for p in known if p.physical != LINK_UP]
    if not known:
        return []
    if not down:
        return [_finding("ib.phys_state", "pass" if asked else "observed", "", LINK_UP)]
    return [
        Finding(
            metric="ib.phys_state",
            outcome="fail" if asked and p.state != ACTIVE else "observed",
            part=p.name,
            value=p.physical,
            expected=LINK_UP,
            source="the tool's own verdict",
            suspect="; ".join(_suspects([p], rails)),
        )
        for p in down
    ]


def _finding(metric: str, outcome: Outcome, part: str, value: str) -> Finding:
    return Finding(
        metric=metric, outcome=outcome, part=part, value=value, expected=value, source="the tool's own verdict"
    )


def _rates(rails: list[IbPort], given: Given) -> list[Finding]:
    """The rate of every trained port; that of a port without a link is a nominal one and says nothing."""
    expected = given.expect.number("expected_rate_gbit_per_s")
    found: list[Finding] = []
    trained = [p for p in rails if p.physical in (LINK_UP, None) or p.state == ACTIVE]
    for p in trained:
        slow = _slow(p, given)
        value = p.effective_gbit if slow and p.effective_gbit is not None else p.rate_gbit
        outcome: Outcome = "observed" if expected is None else "not-measured" if p.rate_gbit is None else "pass"
        found.append(
            Finding(
                metric="ib.rate",
                outcome="fail" if slow else outcome,
                part=p.name,
                value=int(value) if value is not None and value.is_integer() else value,
                unit="Gbit/s",
                expected=f">= {expected:g}" if expected is not None else "",
                source=given.expect.source if expected is not None else "",
                suspect=f"cable or transceiver of {p.name}, or a switch port split in two" if slow else "",
                advice="compare width and speed at both ends (mlxlink, iblinkinfo)" if slow else "",
            )
        )
    if expected is not None:
        if not trained:
            found.append(_no_rate(expected, given))
        at_rate = sum(not _slow(p, given) and p.rate_gbit is not None for p in trained)
        found.append(Finding(metric="ib.ports_at_rate", outcome="observed", value=at_rate, unit="ports"))
    return found


def _no_rate(expected: float, given: Given) -> Finding:
    return Finding(
        metric="ib.rate",
        outcome="not-measured",
        expected=f">= {expected:g}",
        source=given.expect.source,
        suspect="no rail has a link, a nominal rate says nothing",
    )


def _observed(port: IbPort) -> Finding:
    says = f"{port.state or '?'}/{port.physical or '?'} {port.rate_gbit or '?'} Gbit/s {port.layer or '?'}"
    return Finding(metric="ib.other_port", outcome="observed", part=port.name, value=says)


def _cut(ports: tuple[IbPort, ...]) -> list[Finding]:
    """Ports of which lines are missing, and adapters with fewer ports than they say."""
    broken = {p.name for p in ports if not p.whole}
    by_device: dict[str, int] = {}
    for p in ports:
        by_device[p.device] = by_device.get(p.device, 0) + 1
    broken |= {p.device for p in ports if p.declared_ports is not None and p.declared_ports > by_device[p.device]}
    return [
        Finding(
            metric="ib.complete",
            outcome="not-measured",
            part=name,
            suspect=f"lines of {name} are missing: the output was cut or filtered",
            advice=ADVICE_CUT,
        )
        for name in sorted(broken)
    ]


def _and(ports: Iterable[IbPort]) -> str:
    names = [p.name for p in ports]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
