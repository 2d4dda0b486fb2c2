"""From verdicts to the certificate: the profile x the expected hardware, looked up; never the collected tests.

A cell gets its outcome from the store, judged again here, and only where a test of this run came to the same outcome.
So a clause that was deselected, skipped, stubbed out or lost has no verdict, and a test that says PASS about
something else than the store holds is not believed. A FAIL that the store knows stands whatever the tests did.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from pytest_gpuready import __version__
from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.certificate.document import (
    Certificate,
    ClauseEntry,
    Counts,
    EvidenceEntry,
    ExclusionEntry,
    NodeEntry,
    OutcomeWord,
    PartEntry,
    ProfileEntry,
    SiteEntry,
    SuiteEntry,
    WatchEntry,
)
from pytest_gpuready.certificate.lines import action_text, finding_line, one_line
from pytest_gpuready.certificate.sentences import sentences, titles
from pytest_gpuready.judge import Found
from pytest_gpuready.model import Clause, Measurement, Outcome, Part, Problem, Status, Verdict
from pytest_gpuready.model.units import show
from pytest_gpuready.profiles.metrics import AFTER_LOAD

NOT_TESTED = "no test of this run judged it"
_EMPTY = (Outcome.NOT_APPLICABLE, Outcome.OBSERVED)
_WORST_FIRST = (Outcome.FAIL, Outcome.UNSTABLE, Outcome.NOT_MEASURED, Outcome.NOT_TESTED, Outcome.OBSERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a test of this run said about a clause on a part: an outcome word, or "ERROR" where it broke."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the certificate says about the run besides its verdicts. Times are UTC ISO 8601."""

    started: str
    issued: str
    finished: bool
    level_asked: int
    basis: str
    basis_note: str = ""
    keep_going: bool = False
    blockers: tuple[str, ...] = ()
    """Why this run cannot be ACCEPTED, whatever its verdicts: one line each."""
    command: str = "pytest"
    """What takes this run up again, or asks the same of the node itself."""
    site: SiteEntry | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[NodeEntry, ...] = ()
    evidence: tuple[EvidenceEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    clause: Clause
    part: Part
    verdict: Verdict
    found: Found | None


def build(
    *,
    findings: Findings | None,
    records: Mapping[tuple[str, str], Sequence[Record]],
    facts: Facts,
    log_of: Callable[[Part], list[str]],
) -> Certificate:
    """The certificate of a run; with `findings` None (nothing could be opened) it holds the reasons alone."""
    cells: list[_Cell] = []
    if findings is not None:
        for clause in findings.profile.up_to(facts.level_asked):
            for part in findings.inventory.parts(clause.per):
                cells.append(_cell(findings, clause, part, records.get((clause.id, part.name), ())))
    why, status = _status(cells, facts, findings)
    reached = _level_reached(cells, facts.level_asked)
    suites = _suites(findings, cells, log_of) if findings else []
    outcomes = Counter(cell.verdict.outcome for cell in cells)
    counts = Counts(
        clauses=len({cell.clause.id for cell in cells}),
        cells=len(cells),
        outcomes={o.value: outcomes[o] for o in Outcome if outcomes[o]},
    )
    profile = findings.profile if findings else None
    certificate = Certificate(
        number="",
        judged=status.value,
        basis=_basis(facts.basis),
        basis_note=facts.basis_note,
        says=_says(status, facts, cells, reached),
        finished=facts.finished,
        why=why,
        do_next=_do_next(status, facts, cells, findings),
        started=facts.started,
        issued=facts.issued,
        level_asked=facts.level_asked,
        level_reached=reached,
        keep_going=facts.keep_going,
        product=f"pytest-gpuready {__version__}",
        profile=ProfileEntry(
            name=profile.name,
            version=profile.version,
            title=profile.title,
            sha256=profile.sha256,
            notes=list(profile.notes),
        )
        if profile
        else None,
        site=facts.site,
        nodes=list(facts.nodes),
        assumptions=list(findings.inventory.assumptions) if findings else [],
        exclusions=[
            ExclusionEntry(clause=c.id, reason=c.excluded)
            for c in (profile.up_to(facts.level_asked) if profile else ())
            if c.excluded
        ],
        suites=suites,
        counts=counts,
        environment=dict(facts.environment),
        evidence=list(facts.evidence),
    )
    number = "GR-" + hashlib.sha256(msgspec.json.encode(certificate, order="deterministic")).hexdigest()[:12]
    return msgspec.structs.replace(certificate, number=number)


def _cell(findings: Findings, clause: Clause, part: Part, records: Sequence[Record]) -> _Cell:
    verdict = findings.verdict(clause, part, take=False)
    judged = verdict.outcome is not Outcome.NOT_APPLICABLE
    found = findings.found(clause.metric, part, take=False) if judged else None

    def cell(outcome: Outcome, reason: str) -> _Cell:
        changed = Verdict(
            clause=clause.id,
            part=part.name,
            outcome=outcome,
            value=verdict.value,
            limit=clause.limit,
            reason=reason,
            margin=verdict.margin,
        )
        return _Cell(clause=clause, part=part, verdict=changed, found=found)

    if not judged or verdict.outcome is Outcome.FAIL:
        return _Cell(clause=clause, part=part, verdict=verdict, found=found)
    if not records:
        return cell(Outcome.NOT_TESTED, NOT_TESTED)
    for record in records:
        if record.outcome == Outcome.NOT_TESTED.value:
            return cell(Outcome.NOT_TESTED, record.reason or NOT_TESTED)
        if record.outcome != verdict.outcome.value:
            said = record.reason or record.outcome
            return cell(
                Outcome.NOT_MEASURED,
                verdict.reason
                if verdict.outcome is Outcome.NOT_MEASURED
                else f"the test ended as {record.outcome} ({one_line(said)}), the store says {verdict.outcome.value}",
            )
    return _Cell(clause=clause, part=part, verdict=verdict, found=found)


def _hidden(cell: _Cell) -> bool:
    """True where a virtual machine hides what a clause asks for, and the clause allows that."""
    return cell.verdict.outcome is Outcome.OBSERVED and isinstance(cell.found, Problem)


def _counts_against(cell: _Cell) -> bool:
    """True where a cell without a limit or verdict stands in the way of ACCEPTED."""
    if not cell.clause.required:
        return False
    if cell.verdict.outcome is Outcome.OBSERVED:
        return not _hidden(cell)
    return cell.verdict.outcome.open


def _status(cells: Sequence[_Cell], facts: Facts, findings: Findings | None) -> tuple[list[str], Status]:
    why: list[str] = []
    rejected = False
    incomplete = not facts.finished or bool(facts.blockers) or findings is None
    grouped: dict[tuple[int, str, str, str], list[_Cell]] = {}
    if findings is not None:
        for cell in cells:
            outcome = cell.verdict.outcome
            bad = (outcome is Outcome.FAIL and cell.clause.required) or _counts_against(cell)
            if not bad:
                continue
            rejected |= outcome is Outcome.FAIL
            incomplete |= outcome is not Outcome.FAIL
            key = (_WORST_FIRST.index(outcome), cell.clause.id, outcome.value, cell.verdict.reason)
            grouped.setdefault(key, []).append(cell)
        if not any(cell.verdict.outcome in (Outcome.PASS, Outcome.MARGINAL) for cell in cells):
            incomplete = True
            why.append("nothing passed: no clause has a verdict inside its limit")
        for level in range(1, facts.level_asked + 1):
            there = [c for c in cells if c.clause.level == level]
            # That a load did no harm is nothing to accept: there must have been a load.
            needed = [c for c in there if c.clause.required and c.clause.metric not in AFTER_LOAD]
            if there and not needed:
                incomplete = True
                why.append(f"the profile {findings.profile.name} requires nothing at level {level}")
            elif needed and all(c.verdict.outcome in _EMPTY for c in needed):
                incomplete = True
                why.append(f"nothing of level {level} passed: what it requires is excluded or hidden")
        missing = [
            n for n in range(1, facts.level_asked + 1) if not any(c.level == n for c in findings.profile.clauses)
        ]
        if missing:
            incomplete = True
            levels = ", ".join(str(n) for n in missing)
            why.append(
                f"the profile {findings.profile.name} has no clause of level {levels}: nothing can be accepted there"
            )
    for (_, clause, outcome_word, reason), group in sorted(grouped.items(), key=lambda item: item[0][:1]):
        parts = group[0].part.label if len(group) == 1 else f"{len(group)} parts from {group[0].part.label} on"
        line = f"{clause} {outcome_word} on {parts}"
        if outcome_word == Outcome.FAIL.value:
            value = show(group[0].verdict.value, group[0].clause.unit) if group[0].verdict.value is not None else ""
            line += f": {value}, expected {group[0].clause.limit}" if value else ""
        why.append(one_line(f"{line}: {reason}" if reason else line))
    why = [*facts.blockers, *([] if facts.finished else ["the run has not ended"]), *why]
    status = Status.REJECTED if rejected else Status.INCOMPLETE if incomplete else Status.ACCEPTED
    return why, status


def _level_reached(cells: Sequence[_Cell], asked: int) -> int:
    """The highest level up to which every required cell has a verdict."""
    reached = 0
    for level in range(1, asked + 1):
        here = [c for c in cells if c.clause.level == level and c.clause.required]
        if not here or any(c.verdict.outcome.open for c in here):
            break
        reached = level
    return reached


def _says(status: Status, facts: Facts, cells: Sequence[_Cell], reached: int) -> str:
    if not facts.finished:
        return "The run has not ended. Nothing on this page is a verdict yet."
    if status is Status.ACCEPTED:
        excluded = len({c.clause.id for c in cells if c.clause.excluded})
        hidden = len({c.clause.id for c in cells if c.clause.required and _hidden(c)})
        but = [f"{excluded} that the site file excludes"] if excluded else []
        but += [f"{hidden} that the virtual machine hides"] if hidden else []
        every = (
            f"Every required clause of the profile, but for {' and '.join(but)}," if but else "Every required clause"
        )
        return (
            f"{every} was measured on every expected part and lies inside its limit. "
            f"Level {reached} of {facts.level_asked}."
        )
    failed = sorted({c.part.label for c in cells if c.verdict.outcome is Outcome.FAIL and c.clause.required})
    clauses = len({c.clause.id for c in cells if c.verdict.outcome is Outcome.FAIL and c.clause.required})
    if status is Status.REJECTED:
        at = failed[0] if len(failed) == 1 else f"{len(failed)} parts"
        many = "clause" if clauses == 1 else "clauses"
        return f"{clauses} {many} failed, at {at}. Level {reached} of {facts.level_asked} reached."
    open_clauses = len({c.clause.id for c in cells if c.verdict.outcome.open and c.clause.required})
    total = len({c.clause.id for c in cells})
    return "Nothing failed, and this is not an acceptance: " + (
        f"{open_clauses} of {total} clauses have no verdict." if open_clauses else "see below what is missing."
    )


def _do_next(status: Status, facts: Facts, cells: Sequence[_Cell], findings: Findings | None) -> list[str]:
    if findings is None:
        return []
    if facts.basis == "replay":
        return [f"on the node itself: {facts.command}"]
    steps: list[str] = []
    if status is Status.REJECTED:
        for cell in cells:
            if cell.verdict.outcome is Outcome.FAIL and cell.clause.required:
                step = action_text(findings.inventory, cell.clause, cell.part, Outcome.FAIL)
                if step and step not in steps:
                    steps.append(step)
    steps = steps[:5]
    if status is not Status.ACCEPTED:
        steps.append(facts.command)
    return steps


def _suites(findings: Findings, cells: Sequence[_Cell], log_of: Callable[[Part], list[str]]) -> list[SuiteEntry]:
    by_clause: dict[str, list[_Cell]] = {}
    by_suite: dict[str, list[Clause]] = {}
    for cell in cells:
        by_clause.setdefault(cell.clause.id, []).append(cell)
    for clause in findings.profile.clauses:
        if clause.id in by_clause:
            by_suite.setdefault(clause.suite, []).append(clause)
    return [
        SuiteEntry(
            id=suite,
            title=titles().get(suite, suite),
            level=min(c.level for c in clauses),
            gate=any(c.gate for c in clauses),
            clauses=[_clause(findings, c, by_clause[c.id], log_of) for c in clauses],
        )
        for suite, clauses in by_suite.items()
    ]


def _clause(
    findings: Findings, clause: Clause, cells: Sequence[_Cell], log_of: Callable[[Part], list[str]]
) -> ClauseEntry:
    limit = clause.limit
    return ClauseEntry(
        id=clause.id,
        sentence=sentences().get(clause.id, clause.metric),
        metric=clause.metric,
        unit=clause.unit,
        level=clause.level,
        gate=clause.gate,
        required=clause.required,
        per="gpu" if clause.per == "gpu" else "node",
        headline=clause.headline,
        limit=str(limit) if limit else "",
        at_least=limit.at_least if limit else None,
        at_most=limit.at_most if limit else None,
        equals=limit.equals if limit else None,
        uniform=bool(limit and limit.uniform),
        marginal=limit.marginal if limit else None,
        ceiling=limit.ceiling if limit else None,
        source_kind=limit.source.kind if limit else "",
        source=str(limit.source) if limit else "",
        not_applicable=clause.not_applicable,
        parts=[_part(findings, cell, log_of) for cell in cells],
    )


def _part(findings: Findings, cell: _Cell, log_of: Callable[[Part], list[str]]) -> PartEntry:
    clause, verdict, found = cell.clause, cell.verdict, cell.found
    measured = found if isinstance(found, Measurement) and verdict.outcome is not Outcome.NOT_TESTED else None
    finding = verdict.outcome in (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.UNSTABLE)
    watch = measured.watch if measured else None
    return PartEntry(
        part=cell.part.name,
        label=cell.part.label,
        outcome=_word(verdict.outcome),
        shown=one_line(show(measured.value)) if measured else "",
        value=measured.value if measured else None,
        repeats=list(measured.repeats) if measured else [],
        detail=one_line(measured.detail) if measured else "",
        conditions=one_line(measured.conditions) if measured else "",
        margin_percent=verdict.margin if measured else None,
        reason=one_line(verdict.reason),
        line=finding_line(findings.inventory, clause, cell.part, found, verdict) if finding else "",
        action=action_text(findings.inventory, clause, cell.part, verdict.outcome, found) if finding else "",
        evidence=list(found.evidence) if found else [],
        watch=WatchEntry(
            facts=dict(watch.facts),
            times_s=list(watch.times_s),
            series={name: list(values) for name, values in watch.series.items()},
        )
        if watch and (finding or clause.headline)
        else None,
        neighbours=_neighbours(findings, clause, cell.part) if finding else {},
        log=[one_line(line) for line in log_of(cell.part)] if finding else [],
    )


def _neighbours(findings: Findings, clause: Clause, part: Part) -> dict[str, dict[str, str]]:
    """The clause's metric and its context on all GPUs of the node, side by side."""
    rows: dict[str, dict[str, str]] = {}
    for metric in (clause.metric, *clause.context):
        values = findings.peers(metric, part)
        if values:
            rows[metric] = {name: one_line(show(value)) for name, value in values.items()}
    return rows


def _word(outcome: Outcome) -> OutcomeWord:
    word: OutcomeWord = msgspec.convert(outcome.value, OutcomeWord)
    return word


def _basis(basis: str) -> Literal["hardware", "replay", "stand-in"]:
    return "replay" if basis == "replay" else "stand-in" if basis == "stand-in" else "hardware"
