"""What each second bought: every measurement that was taken, how long it took, and what rests on it.

All of it is read from the raw outputs that the certificate lists and from the cells that name them. Seconds are those
of the commands, added up node by node; of several nodes, which are measured side by side, the slowest one counts and
the median stands beside it. What no clause rests on (an attempt that counts no more, say) is told apart.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, EvidenceEntry, PartEntry
from pytest_gpuready.certificate.findings import nearest
from pytest_gpuready.certificate.words import number, worst_number
from pytest_gpuready.model.shown import shown

LONGEST_S = 1e8
PARTS_TRIED = 64
_OF_ONE = re.compile(r" GPU \d+$")
_LEVEL = re.compile(r" \(level \d\)$")
_ADDRESS = re.compile(r" [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](?=[ ,]|$)")
_AGENT = re.compile(r"^\S+ -m pytest_gpuready\.agent ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds on each of several nodes: that of the slowest, its name, the median, and how many nodes there are."""

    slowest_s: float
    slowest: str
    median_s: float
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """One measurement. `clauses` rest on it, in the order of the profile; `example` is one thing that it found.

    `commands` ran on the slowest node, `again` of them were the same once more: a retest.
    """

    what: str
    level: int
    times: Times
    commands: int
    again: int
    clauses: tuple[str, ...]
    example: tuple[ClauseEntry, PartEntry] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """All measurements in the order of levels; of each level the sum and how many clauses rest on it; the sum of all;
    how many raw outputs no clause rests on, and their seconds."""

    rows: tuple[Bought, ...]
    levels: tuple[tuple[int, Times, int], ...]
    whole: Times
    idle_s: float
    idle: int


@dataclass(slots=True)
class _Gathered:
    """What is known of one measurement while the cells are read."""

    entries: dict[str, list[EvidenceEntry]] = field(default_factory=dict)
    """Node -> its raw outputs."""
    clauses: dict[str, ClauseEntry] = field(default_factory=dict)


def what(entry: EvidenceEntry) -> str:
    """What a command measures, the same for every GPU and node: its own words, else the command without addresses."""
    if entry.says:
        return _OF_ONE.sub("", _LEVEL.sub("", entry.says))
    return _ADDRESS.sub("", _AGENT.sub("", shown(entry.command)))


def spent(certificate: Certificate) -> Spent | None:
    """What the seconds of this run bought; None where no raw output is left."""
    if not certificate.evidence:
        return None
    by_digest: dict[str, set[str]] = {}
    gathered: dict[str, _Gathered] = {}
    for entry in certificate.evidence:
        name = what(entry)
        by_digest.setdefault(entry.sha256, set()).add(name)
        gathered.setdefault(name, _Gathered()).entries.setdefault(entry.node, []).append(entry)
    cited: set[str] = set()
    for suite in certificate.suites:
        for clause in suite.clauses:
            for digest in _digests(clause):
                cited.add(digest)
                for name in by_digest.get(digest, ()):
                    gathered[name].clauses[clause.id] = clause
    idle = [entry for entry in certificate.evidence if entry.sha256 not in cited]
    order = {entry.sha256: place for place, entry in enumerate(_by_start(certificate.evidence))}
    rows = []
    sums: dict[int, dict[str, float]] = {}
    for name, one in gathered.items():
        counted = {node: kept for node, own in one.entries.items() if (kept := [e for e in own if e.sha256 in cited])}
        if not counted:
            continue
        # What the profile asks for first is why it was taken; higher levels may rest on it too.
        level = min(clause.level for clause in one.clauses.values())
        seconds = {node: sum(map(_seconds, own)) for node, own in counted.items()}
        for node, took in seconds.items():
            own_sums = sums.setdefault(level, {})
            own_sums[node] = own_sums.get(node, 0.0) + took
        times = _times(seconds)
        on_slowest = counted[times.slowest]
        bought = Bought(
            what=name,
            level=level,
            times=times,
            commands=len(on_slowest),
            again=len(on_slowest) - len({entry.command for entry in on_slowest}),
            clauses=tuple(one.clauses),
            example=_example(one.clauses.values(), {e.sha256 for own in counted.values() for e in own}),
        )
        rows.append((level, min(order[e.sha256] for own in counted.values() for e in own), bought))
    if not rows:
        return None
    whole: dict[str, float] = {}
    for own_sums in sums.values():
        for node, took in own_sums.items():
            whole[node] = whole.get(node, 0.0) + took
    return Spent(
        rows=tuple(bought for _, _, bought in sorted(rows, key=lambda row: row[:2])),
        levels=tuple(
            (level, _times(sums[level]), len({c for at, _, row in rows if at == level for c in row.clauses}))
            for level in sorted(sums)
        ),
        whole=_times(whole),
        idle_s=sum(map(_seconds, idle)),
        idle=len(idle),
    )


def _digests(clause: ClauseEntry) -> set[str]:
    """What the parts of a clause rest on; cells of one node share their lists, so that few of them are looked at."""
    lists = {id(part.evidence): part.evidence for part in clause.parts if part.evidence}
    return {digest for evidence in lists.values() for digest in evidence}


def _by_start(evidence: Iterable[EvidenceEntry]) -> list[EvidenceEntry]:
    """In the order of time; where two have one digest, the first of them counts."""
    return sorted(evidence, key=lambda entry: entry.started, reverse=True)[::-1]


def _seconds(entry: EvidenceEntry) -> float:
    took = entry.duration_s
    return min(max(took, 0.0), LONGEST_S) if math.isfinite(took) else 0.0


def _times(seconds: dict[str, float]) -> Times:
    slowest = max(seconds, key=lambda node: seconds[node])
    return Times(
        slowest_s=seconds[slowest],
        slowest=slowest,
        median_s=statistics.median(seconds.values()),
        nodes=len(seconds),
    )


def _example(clauses: Iterable[ClauseEntry], digests: set[str]) -> tuple[ClauseEntry, PartEntry] | None:
    """One thing that a measurement found: the worst word of its clauses if one is bad, else the passing number nearest
    to its limit, else a number of page one, else whatever has a value."""
    own = [clause for clause in clauses if clause.parts]
    bad = {"FAIL": 0, "UNSTABLE": 1, "NOT MEASURED": 2}
    worst: tuple[int, float] | None = None
    found: tuple[ClauseEntry, PartEntry] | None = None
    for clause in own:
        for part in clause.parts if clause.required else ():
            if part.outcome not in bad or digests.isdisjoint(part.evidence):
                continue
            key = bad[part.outcome], 0.0 if part.margin_percent is None else part.margin_percent
            if worst is None or key < worst:
                worst, found = key, (clause, part)
    if found is not None:
        return found
    return nearest([clause for clause in own if clause.required and clause.headline]) or _first(own, digests)


def _first(clauses: list[ClauseEntry], digests: set[str]) -> tuple[ClauseEntry, PartEntry] | None:
    def key(clause: ClauseEntry) -> tuple[bool, bool, bool, bool]:
        value = number(clause.parts[0].value)
        return not clause.headline, not (clause.unit and value), not value, value is None

    for clause in sorted(clauses, key=key):
        measured = worst_number(clause)
        for part in ([measured[0]] if measured else []) + clause.parts[:PARTS_TRIED]:
            if part.shown and not digests.isdisjoint(part.evidence):
                return clause, part
    return None
