"""What stands between a run and ACCEPTED, worst first, equal findings over parts folded into one.

Failures and unstable values are folded by clause; what was not measured or not tested is folded by its reason, because
one cause (a deadline, a closed gate, a GPU that is gone) usually takes many clauses with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from pytest_gpuready.campaign.store import NOT_AGAIN
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.rule import of_any, tried
from pytest_gpuready.certificate.words import OPEN, clean, number, part_text, parts_text, rank, said

_BY_REASON = ("NOT MEASURED", "NOT TESTED", "OBSERVED", "HIDDEN", "EXCLUDED", "NOT APPLICABLE")
_FOLDED = {"EXCLUDED": "NOT APPLICABLE", "HIDDEN": "OBSERVED"}
"""Words that the document folds into others."""
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PRESENT = "gpu.present"
"""The metric whose failure explains why nothing else of the part was measured."""

_Cell: TypeAlias = tuple[ClauseEntry, PartEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to say: an outcome on one clause (or on several with one reason) and the parts it was found on.

    `cells` are (clause, part) pairs, the worst first; there is always at least one. `cause` says where the parts are
    missing themselves, `follows` names the clause that fails because of it; both are "" elsewhere. `alike`: the reasons
    of the cells differ in their numbers.
    """

    outcome: str
    cells: tuple[_Cell, ...]
    cause: str = ""
    follows: str = ""
    alike: bool = False

    @property
    def clause(self) -> ClauseEntry:
        return self.cells[0][0]

    @property
    def worst(self) -> PartEntry:
        return self.cells[0][1]

    @property
    def required(self) -> bool:
        """True where one of its clauses is required: else it counts neither way."""
        return any(clause.required for clause, _ in self.cells)

    @property
    def clause_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(clause.id for clause, _ in self.cells))

    @property
    def required_ids(self) -> tuple[str, ...]:
        """Those of them that are required."""
        return tuple(dict.fromkeys(clause.id for clause, _ in self.cells if clause.required))

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.part for _, part in self.cells))

    @property
    def reason(self) -> str:
        """The cause, or what the cells say, without the part's name in front: whoever shows it names the parts."""
        own = self.cause or self.worst.reason.removeprefix(f"{self.worst.label}: ")
        given_up = not self.cause and any(part.reason != tried(part.reason) for _, part in self.cells)
        said = f"{tried(own)} (so {self.worst.label}; the others with other numbers)" if self.alike else tried(own)
        return said + NOT_AGAIN if given_up else said if self.alike else own

    @property
    def action(self) -> str:
        return f"begin with {self.follows}" if self.follows else self.worst.action


def cells(certificate: Certificate) -> Iterator[_Cell]:
    """Every clause on every part, in the order of the profile: many, so that nobody keeps a list of them."""
    return ((c, p) for suite in certificate.suites for c in suite.clauses for p in c.parts)


def counted(certificate: Certificate) -> Counter[str]:
    """How many cells have which word."""
    return Counter(said(part) for _, part in cells(certificate))


def absences(certificate: Certificate) -> dict[str, _Cell]:
    """Parts that are not there -> the cell that says so: of such a part nothing else can have a value."""
    clauses = (c for suite in certificate.suites for c in suite.clauses if c.metric == _PRESENT)
    return {p.part: (c, p) for c in clauses for p in c.parts if p.outcome == "FAIL"}


def without_verdict(certificate: Certificate, *, required: bool = True) -> list[str]:
    """Ids of the clauses that have no verdict on some part, in the order of the profile: the required ones, or the
    others."""
    ids = (c.id for c, p in cells(certificate) if p.outcome in OPEN and c.required is required)
    return list(dict.fromkeys(ids))


def by_outcome(certificate: Certificate, outcome: str) -> list[Finding]:
    """All cells with this word (see `words.said`), folded, in the order of the profile.

    What missing parts left unmeasured is one finding, whatever the single clauses say about it.
    """
    many = len(certificate.nodes) > 1
    absent = absences(certificate) if outcome == "NOT MEASURED" else {}
    groups: dict[tuple[str, str], list[_Cell]] = {}
    in_document = _FOLDED.get(outcome, outcome)
    for clause, part in cells(certificate):
        if part.outcome != in_document or said(part) != outcome:
            continue
        if part.part in absent:
            key = (_PRESENT, absent[part.part][1].shown)
        elif outcome in _BY_REASON:
            key = ("", _cause(part, many))
        else:
            key = (clause.id, "")
        groups.setdefault(key, []).append((clause, part))
    found = [_finding(outcome, group, absent, many) for group in groups.values()]
    return _alike(found) if outcome in OPEN and outcome in _BY_REASON else found


def _alike(found: list[Finding]) -> list[Finding]:
    """Findings of optional clauses whose reasons differ in their numbers alone are one: each GPU has its own numbers,
    and none of them stands in the way of anything."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for place, finding in enumerate(found):
        own = finding.required or finding.cause
        key = (str(place),) if own else ("", *finding.clause_ids, _NUMBER.sub("0", finding.reason))
        groups.setdefault(key, []).append(finding)
    return [
        one[0] if len(one) == 1 else replace(one[0], cells=tuple(c for f in one for c in f.cells), alike=True)
        for one in groups.values()
    ]


def _cause(part: PartEntry, many: bool) -> str:
    """What equal causes have in common: the reason without the part in front; of several nodes, without it anywhere."""
    reason = tried(part.reason)
    if not many:
        return of_any(reason, part.label, part.node)
    return reason.replace(part.label, "").replace(part.node, "")


def _finding(outcome: str, group: list[_Cell], absent: dict[str, _Cell], many: bool) -> Finding:
    found = Finding(outcome=outcome, cells=_worst_first(outcome, group))
    if found.worst.part not in absent:
        return found
    clause, part = absent[found.worst.part]
    seen = clean(part.shown or "missing", 80)
    if len(found.parts) > 1:
        return replace(found, cause=f"{parts_text(found.parts, many)} are {seen}", follows=clause.id)
    detail = f" ({clean(part.detail, 200)})" if part.detail else ""
    return replace(found, cause=f"{part_text(part.part, many)} is {seen}{detail}", follows=clause.id)


def _worst_first(outcome: str, group: list[_Cell]) -> tuple[_Cell, ...]:
    """Of one clause the part with the smallest margin first; the order of the profile otherwise."""
    if outcome in _BY_REASON:
        return tuple(group)
    return tuple(sorted(group, key=lambda cell: -1e9 if cell[1].margin_percent is None else cell[1].margin_percent))


def findings(certificate: Certificate) -> list[Finding]:
    """What somebody has to look at, worst first: outcome, required, what ran and broke before what left nothing behind,
    level, gate, order of the profile. That an optional clause has no value is nothing to look at: it is not covered."""
    found = [f for o in ("FAIL", "NOT MEASURED", "UNSTABLE", "NOT TESTED") for f in by_outcome(certificate, o)]
    found = [f for f in found if f.required or f.outcome not in ("NOT MEASURED", "NOT TESTED")]
    if certificate.judged != "ACCEPTED":
        found += [f for f in map(_required_only, by_outcome(certificate, "OBSERVED")) if f is not None]
    clauses = (clause.id for suite in certificate.suites for clause in suite.clauses)
    order = {clause_id: place for place, clause_id in enumerate(clauses)}

    def key(finding: Finding) -> tuple[int, bool, bool, int, bool, int]:
        clause, ran = finding.clause, any(part.evidence for _, part in finding.cells)
        return rank(finding.outcome), not finding.required, not ran, clause.level, not clause.gate, order[clause.id]

    return sorted(found, key=key)


def _required_only(finding: Finding) -> Finding | None:
    """Observed cells of clauses that ask for a verdict and have no limit: they keep a run from being ACCEPTED."""
    kept = tuple(cell for cell in finding.cells if cell[0].required and not cell[0].limit)
    return Finding(outcome=finding.outcome, cells=kept) if kept else None


def led(found: list[Finding]) -> list[tuple[Finding, tuple[Finding, ...]]]:
    """Findings with those that probably follow from them: later failures of the same suite on the same parts."""
    leads: list[tuple[Finding, list[Finding]]] = []
    failures: list[tuple[Finding, list[Finding]]] = []
    for finding in found:
        lead = next((pair for pair in failures if _follows(pair[0], finding)), None)
        if lead is None and finding.outcome == "FAIL":
            failures.append((finding, []))
            leads.append(failures[-1])
        elif lead is None:
            leads.append((finding, []))
        else:
            lead[1].append(finding)
    return [(finding, tuple(followers)) for finding, followers in leads]


def _follows(lead: Finding, finding: Finding) -> bool:
    """Of two failures."""
    same_suite = lead.clause.id.rpartition("-")[0] == finding.clause.id.rpartition("-")[0]
    alike = finding.outcome == "FAIL" and same_suite and len(lead.cells) == len(finding.cells)
    return alike and set(lead.parts) == set(finding.parts)


def also_failing(finding: Finding, others: list[Finding]) -> list[str]:
    """Other clauses that fail on the same worst part: probably, not surely, one cause."""
    return [f.clause.id for f in others if f.outcome == "FAIL" and f is not finding and finding.worst.part in f.parts]


def closest(certificate: Certificate) -> tuple[ClauseEntry, PartEntry] | None:
    """The passing number of a required clause nearest to its limit, in percent of the limit."""
    clauses = [clause for suite in certificate.suites for clause in suite.clauses if clause.required]
    return nearest(clauses)


def nearest(clauses: Iterable[ClauseEntry]) -> _Cell | None:
    """The same of these clauses.

    A number can only have come close to its limit if it could have come out otherwise. One that is whole and the same
    on every part is a count, a setting or a share that was asked for (16 lanes of 16, 95 % of the memory), and so is
    one that is exactly what is promised: neither is close to anything, unless it is MARGINAL.
    """
    best: tuple[float, ClauseEntry, PartEntry] | None = None
    for clause in clauses:
        if clause.at_least is None and clause.at_most is None:
            continue
        values = {part.value for part in clause.parts if part.value is not None}
        only = number(next(iter(values))) if len(values) == 1 else None
        full = clause.ceiling is not None and clause.ceiling in (clause.at_least, clause.at_most)
        fixed = full or (only is not None and only.is_integer())
        for part in clause.parts:
            if part.margin_percent is None or (best is not None and part.margin_percent >= best[0]):
                continue
            tight = fixed or part.value in (clause.at_least, clause.at_most)
            if part.outcome == "MARGINAL" or (part.outcome == "PASS" and not tight and number(part.value) is not None):
                best = (part.margin_percent, clause, part)
    return best[1:] if best else None
