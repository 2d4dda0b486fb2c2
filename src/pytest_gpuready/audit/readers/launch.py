"""Judges what srun, mpirun and their kin said: whether the program ran at all, everywhere, to its end."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.launcher import Event

_SIGNALS = {
    4: "illegal instruction",
    6: "abort; read the lines above it",
    7: "bus error: often /dev/shm too small or a GPU lost",
    9: "killed: often out of memory, see the kernel log",
    11: "segmentation fault",
    15: "ended from outside",
}
_KINDS = (
    "killed",
    "not launched",
    "no address",
    "out of memory",
    "node failed",
    "cancelled",
    "lost",
    "ssh",
    "io error",
)


def short(host: str) -> str:
    """A host name without its domain; an address stays whole."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.split(".", maxsplit=1)[0]
    return host


def trouble(events: Sequence[Event], expect: Expectations, hosts: Mapping[int, str]) -> list[Finding]:
    """Findings on what stopped the job: one per event, the facts of the first beside it. `hosts`: host of a rank."""
    named = [
        replace(event, node=hosts.get(event.rank, "")) if not event.node and event.rank is not None else event
        for event in events
    ]
    ordered = _causes(sorted(named, key=_weight))
    found = [
        Finding(
            metric="launch",
            part=event.node,
            value=event.reason or event.kind,
            outcome="not-measured",
            source="the launcher's message",
            suspect=_suspect(event, expect),
            advice="nothing was judged: repair the launch and run again",
        )
        for event in ordered
    ]
    for event in ordered[:1]:
        facts: tuple[tuple[str, int | str | None], ...] = (
            ("node", event.node or None),
            ("rank", event.rank),
            ("signal", event.signal),
            ("exit_code", event.exit_code),
            ("step", event.step or None),
            ("reason", event.reason or None),
        )
        found += [
            Finding(metric=f"launch.{name}", part=event.node, value=value, outcome="observed")
            for name, value in facts
            if value is not None
        ]
    return found


def ran(hosts: Sequence[str], expect: Expectations, exit_code: int | None, *, events: bool) -> list[Finding]:
    """Findings on which nodes answered: all that were expected, or not measured."""
    answered = list(dict.fromkeys(hosts))
    names = {short(host) for host in answered}
    found = [Finding(metric="launch.answered", value=list(answered[:1000]), outcome="observed")] if answered else []
    wanted = expect.count("nodes")
    if events:
        return found
    outcome: Outcome = "observed"
    suspect = ""
    if exit_code not in (None, 0):
        outcome, suspect = "not-measured", f"exit code {exit_code} without a message: read the program's own output"
    elif wanted is not None:
        outcome = "pass" if len(names) == wanted else "not-measured"
        suspect = "" if outcome == "pass" else f"{len(names)} of {wanted} nodes answered"
    found.append(
        Finding(
            metric="launch",
            value=len(names),
            unit="nodes",
            outcome=outcome,
            expected="" if wanted is None else f"{wanted} nodes",
            source="" if wanted is None else expect.source,
            suspect=suspect,
        )
    )
    return found


def _causes(ordered: list[Event]) -> list[Event]:
    """One event per node, the best named first; what follows from a named one (aborted steps, echoes) is left out."""
    kept: list[Event] = []
    for event in ordered:
        known = any(event.node == other.node and (not event.node or event.rank in (None, other.rank)) for other in kept)
        echo = bool(kept) and not event.node and event.signal is None and event.rank is None
        if not known and not echo:
            kept.append(event)
    return kept


def _weight(event: Event) -> tuple[int, int]:
    named = (event.node != "") + (event.rank is not None) + (event.signal is not None) + (event.reason != "")
    return (-named, _KINDS.index(event.kind) if event.kind in _KINDS else len(_KINDS))


def _suspect(event: Event, expect: Expectations) -> str:
    node = short(event.node) if event.node else ""
    where = f"node {node}" if node else "the launch"
    if event.rank is not None:
        where += f", rank {event.rank}"
        per_node = expect.count("ranks_per_node")
        if per_node:
            where += f" (local rank {event.rank % per_node} of node {event.rank // per_node + 1})"
    reason = event.reason.lower()
    if event.signal is not None:
        return f"{where}: signal {event.signal}, {_SIGNALS.get(event.signal, 'see signal(7)')}; check dmesg there"
    if "address" in reason or event.kind == "no address" or "resolve" in reason:
        return f"cluster scheduler/DNS ({node or 'a node'} not resolvable); not the GPUs of the node"
    if "TIME LIMIT" in event.reason:
        return f"{where}: limit too short or a hang; not decided by this output"
    meaning = {"out of memory": "host memory limit of the job", "ssh": f"ssh ({event.reason})"}.get(event.kind, "")
    return f"{where}: {meaning or event.reason or event.text[:200]}"
