"""Every clause of the profile on every expected part, as the store has it and the tests of this run confirm it.

A cell gets its outcome from the store, judged again here, and only where a test of this run came to the same outcome.
So a clause that was deselected, skipped, stubbed out or lost has no verdict, and a test that says PASS about
something else than the store holds is not believed. A FAIL that the store knows stands whatever the tests did.

Cells are many and most of them say the same: equal texts, values' texts and lists of evidence are one object each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.certificate.document import ClauseEntry, OutcomeWord, PartEntry, SuiteEntry, WatchEntry
from pytest_gpuready.certificate.lines import action_text, finding_line, one_line
from pytest_gpuready.certificate.sentences import sentences, titles
from pytest_gpuready.model import Clause, Measurement, Outcome, Part, Value, Verdict
from pytest_gpuready.model.units import show

NOT_TESTED = "no test of this run judged it"
DIAGNOSED_AT_MOST = 144
"""Parts of one clause with neighbours, kernel log and watch; of the others the raw output has them."""
_WORDS: dict[Outcome, OutcomeWord] = {outcome: msgspec.convert(outcome.value, OutcomeWord) for outcome in Outcome}
_FINDINGS = (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.UNSTABLE)
# Handed to every cell that has none of it, and never changed: documents are frozen.
_NO_LIST: list[str] = []
_NO_VALUES: list[Value] = []
_NO_ROWS: dict[str, dict[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a test of this run said about a clause on a part: an outcome word, or "ERROR" where it broke."""

    outcome: str
    reason: str = ""


Records = Mapping[tuple[str, str], Sequence[Record]]


def suites(
    findings: Findings, level: int, records: Records, log_of: Callable[[Part], list[str]], silent: Mapping[str, str]
) -> list[SuiteEntry]:
    """The suites with all their cells up to a level; `silent` are nodes that gave no answer, and why."""
    cells = _Cells(findings, records, log_of, silent)
    by_suite: dict[str, list[Clause]] = {}
    for clause in findings.profile.up_to(level):
        if findings.inventory.parts(clause.per):
            by_suite.setdefault(clause.suite, []).append(clause)
    return [
        SuiteEntry(
            id=suite,
            title=titles().get(suite, suite),
            level=min(c.level for c in clauses),
            gate=any(c.gate for c in clauses),
            clauses=[cells.clause(c) for c in clauses],
        )
        for suite, clauses in by_suite.items()
    ]


def settled(clause: Clause, verdict: Verdict, records: Sequence[Record]) -> tuple[Outcome, str]:
    """The outcome and its reason that stand after what the tests said."""
    outcome = verdict.outcome
    if outcome in (Outcome.NOT_APPLICABLE, Outcome.FAIL):
        return outcome, verdict.reason
    if not records:
        return Outcome.NOT_TESTED, NOT_TESTED
    for record in records:
        if record.outcome == Outcome.NOT_TESTED.value:
            return Outcome.NOT_TESTED, record.reason or NOT_TESTED
        if record.outcome != outcome.value:
            said = one_line(record.reason or record.outcome)
            return Outcome.NOT_MEASURED, (
                verdict.reason
                if outcome is Outcome.NOT_MEASURED
                else f"the test ended as {record.outcome} ({said}), the store says {outcome.value}"
            )
    return outcome, verdict.reason


class _Cells:
    """Makes the entries; what was said once is not said in another object."""

    def __init__(
        self, findings: Findings, records: Records, log_of: Callable[[Part], list[str]], silent: Mapping[str, str]
    ) -> None:
        self._findings = findings
        self._records = records
        self._log_of = log_of
        self._silent = silent
        self._names: dict[str, list[tuple[Part, str]]] = {}
        self._lines: dict[str, str] = {"": ""}
        self._shown: dict[tuple[type, Value], str] = {}
        self._evidence: dict[tuple[str, ...], list[str]] = {(): _NO_LIST}
        self._rows: dict[tuple[str, str, bool], dict[str, str]] = {}
        self._logs: dict[Part, list[str]] = {}

    def clause(self, clause: Clause) -> ClauseEntry:
        limit = clause.limit
        if clause.per not in self._names:
            self._names[clause.per] = [(part, part.name) for part in self._findings.inventory.parts(clause.per)]
        room = {True: DIAGNOSED_AT_MOST, False: DIAGNOSED_AT_MOST}
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
            peers=str(clause.peers) if clause.peers else "",
            peers_source=str(clause.peers.source) if clause.peers else "",
            not_applicable=clause.not_applicable,
            parts=[self._part(clause, part, name, room) for part, name in self._names[clause.per]],
        )

    def _part(self, clause: Clause, part: Part, name: str, room: dict[bool, int]) -> PartEntry:
        findings = self._findings
        verdict = findings.verdict(clause, part)
        found = None if verdict.outcome is Outcome.NOT_APPLICABLE else findings.found(clause.metric, part)
        outcome, reason = settled(clause, verdict, self._records.get((clause.id, name), ()))
        unseen = self._silent.get(part.node, "") if outcome is Outcome.NOT_MEASURED else ""
        reason = self._line(unseen or reason)
        measured = found if isinstance(found, Measurement) and outcome is not Outcome.NOT_TESTED else None
        finding = outcome in _FINDINGS
        line = action = ""
        if unseen:
            action = self._line(f"see why {part.node} was not measured; nobody has looked at its GPUs")
        elif finding:
            stands = verdict
            if (outcome, reason) != (verdict.outcome, verdict.reason):
                stands = Verdict(
                    clause=clause.id, part=name, outcome=outcome, value=verdict.value, limit=clause.limit, reason=reason
                )
            line = finding_line(findings.inventory, clause, part, found, stands)
            action = self._line(action_text(findings.inventory, clause, part, outcome, found))
        watch = measured.watch if measured and (finding or clause.headline) else None
        told = (finding or watch is not None) and not unseen and room[finding] > 0
        if told:
            room[finding] -= 1
        beside = told and finding
        return PartEntry(
            part=name,
            outcome=_WORDS[outcome],
            shown=self._value(measured.value) if measured else "",
            value=measured.value if measured else None,
            repeats=list(measured.repeats) if measured and measured.repeats else _NO_VALUES,
            detail=self._line(measured.detail) if measured else "",
            conditions=self._line(measured.conditions) if measured else "",
            margin_percent=verdict.margin if measured else None,
            reason=reason,
            expected=self._line(verdict.against) if outcome is Outcome.FAIL else "",
            line=line,
            action=action,
            evidence=self._digests(found.evidence) if found else _NO_LIST,
            watch=WatchEntry(
                facts=dict(watch.facts),
                times_s=list(watch.times_s),
                series={column: list(values) for column, values in watch.series.items()},
                limits=dict(watch.limits) or msgspec.UNSET,
            )
            if watch and told
            else None,
            neighbours=self._neighbours(clause, part) if beside else _NO_ROWS,
            log=self._log(part) if beside else _NO_LIST,
        )

    def _line(self, text: str) -> str:
        said = self._lines.get(text)
        if said is None:
            said = self._lines[text] = one_line(text)
        return said

    def _value(self, value: Value) -> str:
        key = type(value), value
        said = self._shown.get(key)
        if said is None:
            said = self._shown[key] = self._line(show(value))
        return said

    def _digests(self, evidence: tuple[str, ...]) -> list[str]:
        return self._evidence.setdefault(evidence, list(evidence)) if evidence else _NO_LIST

    def _log(self, part: Part) -> list[str]:
        if part not in self._logs:
            self._logs[part] = [one_line(line) for line in self._log_of(part)]
        return self._logs[part]

    def _neighbours(self, clause: Clause, part: Part) -> dict[str, dict[str, str]]:
        """The clause's metric and its context on all GPUs of the node, side by side."""
        rows: dict[str, dict[str, str]] = {}
        for metric in (clause.metric, *clause.context):
            key = metric, part.node, part.index < 0
            if key not in self._rows:
                values = self._findings.peers(metric, part)
                self._rows[key] = {name: self._value(value) for name, value in values.items()}
            if self._rows[key]:
                rows[metric] = self._rows[key]
        return rows
