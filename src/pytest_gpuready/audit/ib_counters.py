"""Which InfiniBand counter means what: link errors, errors of another link, congestion and routing.

Sources: Linux kernel ABI documentation of the counters; NVIDIA's procedure for returning links to service (at most
1e-12 of the packets received bad).
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gpuready.audit.report import Finding, Outcome

SYMBOL, DOWNED, RECOVERY = "SymbolErrorCounter", "LinkDownedCounter", "LinkErrorRecoveryCounter"
UNCORRECTED = "PortFECUncorrectableBlockCtr"
RECEIVED, PACKETS = "PortRcvErrors", "PortRcvPkts"
BAD_PACKETS_AT_MOST = 1e-12

METRICS: dict[str, str] = {
    SYMBOL: "ib.symbol_errors",
    DOWNED: "ib.link_downed",
    UNCORRECTED: "ib.effective_errors",
    RECOVERY: "ib.link_recovery",
    RECEIVED: "ib.rcv_errors",
    "LocalLinkIntegrityErrors": "ib.local_integrity",
    "PortLocalPhysicalErrors": "ib.local_physical",
}
LIMITS: dict[str, str] = {
    "max_symbol_errors": SYMBOL,
    "max_link_downed": DOWNED,
    "max_effective_errors": UNCORRECTED,
}
"""Expectation -> the counter that answers it."""

SAYS: dict[str, str] = {
    "PortXmitWait": "data waited for credit: congestion or a slow receiver, not a link error",
    "PortRcvSwitchRelayErrors": "multicast or routing noise, not a link error",
    "PortXmitDiscards": "dropped on output: congestion or a dead partner, not a link error of this port",
    "PortRcvRemotePhysicalErrors": "packets marked bad upstream: the faulty link is another one",
    "ExcessiveBufferOverrunErrors": "flow control: congestion, not a link error",
    "VL15Dropped": "management packets dropped, not a link error",
    "QP1Dropped": "management packets dropped, not a link error",
    "PortXmitConstraintErrors": "partition or raw filter, a configuration matter",
    "PortRcvConstraintErrors": "partition or raw filter, a configuration matter",
}
"""What a counter that is no link error says."""

_SUSPECT = {
    DOWNED: "cable or transceiver of {part} (link went down), or a port that was reset",
    SYMBOL: "cable or transceiver of {part}",
    RECOVERY: "cable or transceiver of {part} (link retrained)",
}
OWN = "link errors do not grow on a good link"


def suspect(name: str, part: str) -> str:
    """The part that a link error counter points at."""
    return _SUSPECT.get(name, "cable, transceiver or port of {part}").format(part=part)


def judged(
    name: str, value: int, *, part: str, limit: float | None, source: str, counters: Mapping[str, int], full: bool
) -> Finding:
    """One link error counter against what was expected, or by what it is.

    Without an expectation none is good, one link-down may be the first plug-in, and received errors are a share of
    the packets where those are known. A full counter says "at least": it never passes.
    """
    said = f"<= {limit:g}" if limit is not None else ""
    bad = value > limit if limit is not None else value > 0
    outcome: Outcome = "fail" if bad else "pass"
    if limit is None:
        source, said = OWN, "0"
        packets = counters.get(PACKETS, 0)
        if name == RECEIVED and packets and value:
            said = f"<= {BAD_PACKETS_AT_MOST:g} of {packets} packets"
            outcome = "pass" if value / packets <= BAD_PACKETS_AT_MOST else "fail"
        elif name == DOWNED and value == 1:
            outcome = "observed"
    if full and outcome != "fail":
        outcome = "not-measured"
    return Finding(
        metric=METRICS[name],
        outcome=outcome,
        part=part,
        value=value,
        expected=said,
        source=source,
        suspect=""
        if outcome == "pass"
        else "the counter is full"
        if outcome == "not-measured"
        else suspect(name, part),
        advice=_advice(outcome, name, full=full),
    )


def _advice(outcome: Outcome, name: str, *, full: bool) -> str:
    if full and outcome == "fail":
        return "the counter is full, this is at least the value: clear it, load the link, read again"
    if outcome == "observed":
        return "a first plug-in may count once: clear the counters, load the link, read again"
    if outcome == "not-measured":
        return "read the 64-bit counters (perfquery -x), or clear and read again"
    if outcome == "fail" and name == DOWNED:
        return "swap the cable first, then clear the counters and load the link"
    return "clear the counters, load the link, read again" if outcome == "fail" else ""
