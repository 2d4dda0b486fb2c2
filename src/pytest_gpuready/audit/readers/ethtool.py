"""ethtool -S: which counters of a RoCE card are faults of the link, which are corrected, which are congestion."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_gpuready.audit.asked import ADVICE_CUT, ended_badly, unanswered, unreadable
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ethtool import CardCounters, parse_ethtool

RAW_AT_MOST = 2.4e-4
LANE = re.compile(r"rx_err_lane_(\d{1,2})_phy")
SYMBOLS = ("rx_symbol_err_phy", "rx_pcs_symbol_err_phy")
CRC = ("rx_crc_errors_phy", "rx_crc_errors", "rx_fcs_errors", "rx_fcs_err_frames", "rx_fcs_error")
DOWNS = ("link_down_events_phy", "link_down_events")
UNCORRECTED = ("rx_pcs_symbol_err_phy",)
MODULE: dict[str, str] = {
    "module_high_temp": "airflow",
    "module_bad_shorted": "transceiver module is shorted",
    "module_bus_stuck": "transceiver module's bus is stuck",
}
OWN = "not corrected by FEC: none on a good link"
NOT_COVERED = (
    "counters run since the driver was loaded: how fast errors come is not in them, and an idle link shows none",
    "the far end, the switch's counters and its PFC and ECN settings are not in this output",
    "the format has no end mark: counters that were cut off cannot be told from counters that the driver lacks",
)


def read(given: Given) -> Reading:
    """What an `ethtool -S` says."""
    answers = ("max_symbol_errors", "max_link_downed", "max_effective_errors")
    owed = [*unanswered(given, "ethtool -S", answers), *ended_badly(given, "eth.exit_code")]
    try:
        cards = parse_ethtool(given.lines(), given.command)
    except ParseError as error:
        return Reading(findings=(unreadable("eth.counters", str(error)), *owed), not_covered=NOT_COVERED)
    findings = [f for card in cards for f in _card(card, given)]
    if not findings:
        findings = [unreadable("eth.counters", "no counter of the physical layer is in the output")]
    return Reading(findings=(*findings, *owed), not_covered=NOT_COVERED)


def _card(card: CardCounters, given: Given) -> Iterator[Finding]:
    part = card.card or "card"
    bad = any(card.counters.get(n) for n in (*SYMBOLS, *CRC))
    lanes = {int(m[1]): v for n, v in card.counters.items() if (m := LANE.fullmatch(n))}
    suspect = _suspect(part, lanes) if bad else ""
    yield from _kind(
        card, given, part=part, metric="eth.symbol_errors", names=SYMBOLS, key="max_symbol_errors", suspect=suspect
    )
    yield from _kind(card, given, part=part, metric="eth.crc_errors", names=CRC, key="", suspect=suspect)
    if given.expect.number("max_effective_errors") is not None:
        yield from _kind(
            card,
            given,
            part=part,
            metric="eth.effective_errors",
            names=UNCORRECTED,
            key="max_effective_errors",
            suspect=suspect,
        )
    down = f"cable, transceiver or switch port of {part}"
    yield from _kind(card, given, part=part, metric="eth.link_downed", names=DOWNS, key="max_link_downed", suspect=down)
    yield from _lanes(lanes, part, bad)
    yield from _corrected(card, part)
    yield from _module(card, part)
    yield from _congestion(card, part)
    for name in card.unreadable:
        if name in (*SYMBOLS, *CRC, *DOWNS) or LANE.fullmatch(name):
            yield unreadable(f"eth.{name}", f"{name} of {part} has no number, or two")


def _suspect(part: str, lanes: dict[int, int]) -> str:
    """Equal counts on all lanes point to the module, one lane to its fibre or connector."""
    if len(lanes) > 1 and max(lanes.values()) > 0:
        top, *rest = sorted(lanes.values(), reverse=True)
        if top <= 1.05 * rest[-1]:
            return f"transceiver module as a whole (not supported or underpowered) on {part}"
        if top >= 10 * max(rest[0], 1):
            lane = max(lanes, key=lambda n: lanes[n])
            return f"fibre or connector of lane {lane} of {part}: clean the optics"
    return f"cable or transceiver of {part}"


def _kind(
    card: CardCounters, given: Given, *, part: str, metric: str, names: tuple[str, ...], key: str, suspect: str
) -> Iterator[Finding]:
    """Counters of one kind against the limit, or by what they are; one link-down may be the first plug-in."""
    limit = given.expect.number(key) if key else None
    present = [n for n in names if n in card.counters]
    if limit is not None and not present:
        yield Finding(
            metric=metric,
            outcome="not-measured",
            part=part,
            expected=f"<= {limit:g}",
            source=given.expect.source,
            suspect=f"{names[0]} is not in the output",
            advice=ADVICE_CUT,
        )
    for name in present:
        value = card.counters[name]
        outcome: Outcome = "fail" if value > (limit or 0) else "pass"
        if limit is None and metric == "eth.link_downed" and value == 1:
            outcome = "observed"
        yield Finding(
            metric=metric,
            outcome=outcome,
            part=f"{part} {name}",
            value=value,
            expected=f"<= {limit or 0:g}",
            source=given.expect.source if limit is not None else OWN,
            suspect=suspect if outcome == "fail" else "",
            advice="clear or note the counters, load the link, read again" if outcome != "pass" else "",
        )


def _lanes(lanes: dict[int, int], part: str, bad: bool) -> Iterator[Finding]:
    if not lanes or not any(lanes.values()):
        return
    equal = max(lanes.values()) <= 1.05 * min(lanes.values())
    says = "all lanes alike" if equal else "before correction: normal on PAM4 links" if not bad else "lanes differ"
    counts: list[float | int | str] = [lanes[n] for n in sorted(lanes)]
    yield Finding(metric="eth.lane_errors", outcome="observed", part=part, value=counts, advice=says)
    yield Finding(metric="eth.lanes_equal", outcome="observed", part=part, value="true" if equal else "false")


def _corrected(card: CardCounters, part: str) -> Iterator[Finding]:
    corrected, bits = card.counters.get("rx_corrected_bits_phy"), card.counters.get("rx_bits_phy")
    if corrected is not None and bits:
        rate = corrected / bits
        yield Finding(
            metric="eth.pre_fec_ber",
            outcome="pass" if rate <= RAW_AT_MOST else "fail",
            part=part,
            value=float(f"{rate:.3g}"),
            expected=f"<= {RAW_AT_MOST:g}",
            source="IEEE 802.3 RS(544,514)",
            suspect="" if rate <= RAW_AT_MOST else f"cable or transceiver of {part}, dirty optics",
        )
    elif corrected:
        says = "corrected by FEC: millions are normal on PAM4 links"
        yield Finding(metric="eth.corrected_bits", outcome="observed", part=part, value=corrected, advice=says)


def _module(card: CardCounters, part: str) -> Iterator[Finding]:
    for name, says in MODULE.items():
        if value := card.counters.get(name):
            suspect = f"{says} at the module of {part}" if name == "module_high_temp" else f"{says}: {part}"
            yield Finding(
                metric="eth.module",
                outcome="fail",
                part=f"{part} {name}",
                value=value,
                expected="0",
                source=OWN,
                suspect=suspect,
            )


def _congestion(card: CardCounters, part: str) -> Iterator[Finding]:
    """Pauses, discards and odd sizes: not the cable, and no verdict without a window and the switch's settings."""
    drops = sum(card.counters.get(n, 0) for n in ("rx_discards_phy", "tx_discards_phy", "rx_out_of_buffer"))
    pauses = sum(v for n, v in card.counters.items() if re.fullmatch(r"[rt]x_prio\d_pause|[rt]x_pause_ctrl_phy", n))
    told: list[tuple[str, int, str]] = []
    for name, value in card.counters.items():
        if not value:
            continue
        if name in ("rx_discards_phy", "tx_discards_phy", "rx_out_of_buffer") or re.fullmatch(
            r"rx_prio\d_discards", name
        ):
            says = "dropped for want of a buffer: congestion or a slow receiver, not the cable"
            told.append((name, value, says if pauses else f"{says}; no pause frames beside drops: PFC may be off"))
        elif re.fullmatch(r"[rt]x_prio\d_pause|[rt]x_pause_ctrl_phy|[rt]x_global_pause", name):
            told.append((name, value, "flow control works: some congestion, not the cable"))
        elif name in ("rx_oversize_pkts_phy", "rx_out_of_range_len_phy", "rx_in_range_len_errors_phy"):
            told.append((name, value, "MTU differs between the ends"))
        elif name.startswith("tx_pause_storm_warning"):
            told.append((name, value, "a receiver comes near to stalling the net"))
        elif name.startswith("module_unplug"):
            told.append((name, value, "the module was taken out since the driver was loaded"))
    for name, value, says in told:
        yield Finding(metric=f"eth.{name}", outcome="observed", part=part, value=value, advice=says)
    if storms := card.counters.get("tx_pause_storm_error_events"):
        yield Finding(
            metric="eth.pause_storm",
            outcome="fail",
            part=part,
            value=storms,
            expected="0",
            source="a receiver that stalls the net",
            suspect=f"receiver behind {part} (host, PCIe or its GPU stalls), not the cable"
            + (" and drops" if drops else ""),
        )
