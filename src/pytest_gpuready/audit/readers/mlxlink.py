"""mlxlink: state, rate by lanes, error counters and bit error rates of links.

Limits where nothing was expected: NVIDIA's procedure for returning NDR links to service (symbol errors over time,
module temperature), IEEE 802.3 for what RS(544,514) corrects, the InfiniBand specification for what is left after it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pytest_gpuready.audit.asked import ADVICE_CUT, ended_badly, unanswered, unreadable, within
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.mlxlink import Dumps, Link, parse_mlxlink

ANSWERS = (
    "expected_rate_gbit_per_s",
    "expected_ports",
    "max_symbol_errors",
    "max_link_downed",
    "max_effective_errors",
)
RAW_AT_MOST, LEFT_AT_MOST, MODULE_AT_MOST_C = 2.4e-4, 1e-12, 70.0
SHORT_S, SHORT_BER, LONG_BER = 720.0, 1e-14, 1e-15
OWN = "the tool's own verdict"
NOT_COVERED = (
    "the recommendation judges the physical training only: 'No issue was observed' says nothing of width or rate",
    "counters run since they were cleared; an idle link shows no errors",
)
_UP = {"Active", "ACTIVE"}


def read(given: Given) -> Reading:
    """What `mlxlink` says."""
    owed = unanswered(given, "mlxlink", ANSWERS)
    try:
        dumps = parse_mlxlink(given.lines(), given.command)
    except ParseError as error:
        return Reading(findings=(unreadable("mlxlink.state", str(error)), *owed), not_covered=NOT_COVERED)
    findings = [f for link in dumps.links for f in _link(link, given)]
    findings += [*_ports(dumps, given), *_whole(dumps, given), *owed]
    version = next((v for link in dumps.links if (v := link.text("MFT Version"))), "")
    return Reading(findings=tuple(findings), tool_version=version, not_covered=NOT_COVERED)


def _short(device: str) -> str:
    """ "mt4123_pciconf1" of "/dev/mst/mt4123_pciconf1"."""
    return device.rsplit("/", 1)[-1] or "link"


def _link(link: Link, given: Given) -> Iterator[Finding]:
    part = _short(link.device)
    state = link.text("State")
    up = state in _UP
    said = link.text("Recommendation") or ""
    yield Finding(
        metric="mlxlink.state",
        outcome="not-measured" if state is None else "pass" if up else "fail",
        part=part,
        value=state,
        expected="Active",
        source=OWN,
        suspect="" if up else "the state is not in the output" if state is None else _down(part, said),
        advice=said[:200] if state is not None and not up else "",
    )
    if up or state is None:
        yield from _rate(link, part, given)
        yield from _errors(link, part, given)
    yield from _module(link, part)
    for key in link.twice:
        yield unreadable("mlxlink.output", f"{key} of {part} is printed with two values")


def _down(part: str, said: str) -> str:
    words = said.lower()
    if "command" in words or "disabled" in words or "admin" in words:
        return f"configuration: port {part} is switched off"
    if "unplugged" in words or "no cable" in words:
        return f"cable or transceiver of {part} is not plugged in"
    return f"cable, transceiver or switch port of {part}"


def _rate(link: Link, part: str, given: Given) -> Iterator[Finding]:
    expected = given.expect.number("expected_rate_gbit_per_s")
    gbit, lane, width = link.gbit, link.lane_gbit, link.width
    slow = expected is not None and gbit is not None and gbit < expected
    narrow = slow and lane is not None and width is not None and width < 4 <= expected / lane  # type: ignore[operator]
    suspect = ""
    if narrow:
        suspect = f"cable type (splitter/{link.text('Speed')} on {width} lanes) or dead lanes on {part}"
        if width == 2:
            suspect = (
                f"cable type (splitter/{(link.text('Speed') or '').removeprefix('IB-')}100) or two dead lanes on {part}"
            )
    elif slow:
        suspect = f"cable type, forced speed or autonegotiation of {part}"
    outcome: Outcome = (
        "observed" if expected is None else "not-measured" if gbit is None else "fail" if slow else "pass"
    )
    source = given.expect.source if expected is not None else ""
    yield Finding(
        metric="mlxlink.rate",
        outcome=outcome,
        part=part,
        value=_plain(gbit),
        unit="Gbit/s",
        expected=f">= {expected:g}" if expected is not None else "",
        source=source,
        suspect=suspect or ("speed or width is not in the output" if outcome == "not-measured" else ""),
    )
    if width is not None:
        wide: Outcome = "observed" if outcome in ("observed", "not-measured") else "fail" if narrow else "pass"
        needed = f">= {max(1, math.ceil(expected / lane))}x" if expected is not None and lane else ""
        yield Finding(
            metric="mlxlink.width",
            outcome=wide,
            part=part,
            value=width,
            unit="lanes",
            expected=needed,
            source=source,
            suspect=suspect if narrow else "",
            advice="fewer than four lanes: a splitter or dead lanes" if lane and width < 4 and not narrow else "",
        )
    if speed := link.text("Speed"):
        fault = slow and not narrow
        yield Finding(
            metric="mlxlink.speed",
            outcome="fail" if fault else "observed",
            part=part,
            value=speed,
            suspect=suspect if fault else "",
        )


def _plain(value: float | None) -> float | int | None:
    return int(value) if value is not None and value.is_integer() else value


def _errors(link: Link, part: str, given: Given) -> Iterator[Finding]:
    cable = f"cable or transceiver of {part}"
    source = given.expect.source
    for key, name, metric in (
        ("max_symbol_errors", "Symbol Errors", "mlxlink.symbol_errors"),
        ("max_effective_errors", "Effective Physical Errors", "mlxlink.effective_errors"),
        ("max_link_downed", "Link Down Counter", "mlxlink.link_downed"),
    ):
        limit, value = given.expect.number(key), link.count(name)
        if limit is not None:
            yield from within(value, limit, metric=metric, part=part, unit="", source=source, suspect=cable)
        elif name in link.fields and value is None:
            yield unreadable(metric, f"{name} of {part} cannot be read: {link.fields[name][:40]!r}")
        elif value is not None:
            yield _own_count(metric, value, link, part)
    for name, metric, most in (
        ("Symbol BER", "mlxlink.symbol_ber", LEFT_AT_MOST),
        ("Effective Physical BER", "mlxlink.effective_ber", LEFT_AT_MOST),
        ("Raw Physical BER", "mlxlink.raw_ber", RAW_AT_MOST),
    ):
        if (ber := link.ber(name)) is not None:
            yield Finding(
                metric=metric,
                outcome="pass" if ber <= most else "fail",
                part=part,
                value=ber,
                expected=f"<= {most:g}",
                source="IEEE 802.3 RS(544,514)" if most == RAW_AT_MOST else "InfiniBand specification",
                suspect="" if ber <= most else f"{cable}, dirty optics",
            )
    if lanes := link.text("Raw Physical Errors Per Lane"):
        yield Finding(
            metric="mlxlink.raw_errors",
            outcome="observed",
            part=part,
            value=lanes[:200],
            advice="errors before correction are normal on PAM4 links",
        )


def _own_count(metric: str, value: int, link: Link, part: str) -> Finding:
    """Symbol errors over the time since the counters were cleared; others are judged by their rate or observed."""
    outcome: Outcome = "observed"
    expected = ""
    minutes, gbit = link.minutes(), link.gbit
    if metric == "mlxlink.symbol_errors" and minutes and gbit:
        bits = gbit * 1e9
        most = math.floor(max(bits * min(minutes * 60, SHORT_S) * SHORT_BER, bits * minutes * 60 * LONG_BER))
        outcome, expected = "pass" if value <= most else "fail", f"<= {most} in {minutes:g} min"
    return Finding(
        metric=metric,
        outcome=outcome,
        part=part,
        value=value,
        expected=expected,
        source="NVIDIA NDR link validation procedure" if expected else "",
        suspect=f"cable or transceiver of {part}" if outcome == "fail" else "",
    )


def _module(link: Link, part: str) -> Iterator[Finding]:
    found = re.match(r"(\d{1,3})(?:\.\d+)?(?: \[-?\d{1,3}\.\.(\d{1,3})\])?", link.text("Temperature [C]") or "")
    if found:
        hot = int(found[1]) > int(found[2]) if found[2] else int(found[1]) > MODULE_AT_MOST_C
        warm = int(found[1]) > MODULE_AT_MOST_C
        yield Finding(
            metric="mlxlink.module_temperature",
            outcome="fail" if hot else "marginal" if warm else "pass",
            part=part,
            value=int(found[1]),
            unit="C",
            expected=f"<= {MODULE_AT_MOST_C:g}",
            source="NVIDIA NDR link validation procedure",
            suspect=f"airflow at the module of {part}" if hot or warm else "",
        )


def _ports(dumps: Dumps, given: Given) -> Iterator[Finding]:
    expected = given.expect.count("expected_ports")
    if expected is None:
        return
    active = sum(link.text("State") in _UP for link in dumps.links)
    yield Finding(
        metric="mlxlink.ports_active",
        outcome="pass" if active >= expected else "not-measured" if len(dumps.links) < expected else "fail",
        value=active,
        unit="ports",
        expected=f">= {expected} Active",
        source=given.expect.source,
        suspect="" if active >= expected else f"{len(dumps.links)} of {expected} ports are in the output",
    )


def _whole(dumps: Dumps, given: Given) -> Iterator[Finding]:
    """What tells that dumps are missing or short: messages, exit code, sections that were asked for, a cut."""
    harmless = [e for e in dumps.errors if "not supported" in e and dumps.links]
    for text in dumps.errors:
        yield Finding(
            metric="mlxlink.message",
            outcome="observed" if text in harmless else "not-measured",
            value=text[:200],
            suspect="" if text in harmless else "device, option or permission, not the link",
        )
    if not harmless:
        yield from ended_badly(given, "mlxlink.exit_code")
    for link in dumps.links:
        part = _short(link.device)
        counters = re.search(r"(^|\s)(-c|--show_counters)(\s|$)", given.command) is not None
        if counters and link.text("State") in _UP and "Raw Physical BER" not in link.fields:
            yield unreadable("mlxlink.counters", f"counters of {part} were asked for and are not in the output")
        missing = [key for key in ("State", "Physical state") if key not in link.fields]
        if missing:
            yield unreadable("mlxlink.output", f"{' and '.join(missing)} of {part} not in the output")
    ended = ["Recommendation" in link.fields or "MFT Version" in link.fields for link in dumps.links]
    if dumps.cut or (any(ended) and not all(ended)):
        yield Finding(
            metric="mlxlink.output", outcome="not-measured", suspect="the output ends inside a dump", advice=ADVICE_CUT
        )
