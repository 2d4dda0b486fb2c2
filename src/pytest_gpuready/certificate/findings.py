"""What stands between a run and ACCEPTED, worst first, equal findings over parts folded into one.

Failures and unstable values are folded by clause; what was not measured or not tested is folded by its reason, because
one cause (a deadline, a closed gate) usually takes many clauses with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.words import number, rank

_BY_REASON = ("NOT MEASURED", "NOT TESTED", "OBSERVED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to say: an outcome on one clause (or on several with one reason) and the parts it was found on.

    `cells` are (clause, part) pairs, the worst first; there is always at least one.
    """

    outcome: str
    cells: tuple[tuple[ClauseEntry, PartEntry], ...]

    @property
    def clause(self) -> ClauseEntry:
        return self.cells[0][0]

    @property
    def worst(self) -> PartEntry:
        return self.cells[0][1]

    @property
    def clause_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(clause.id for clause, _ in self.cells))

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.part for _, part in self.cells))

    @property
    def reason(self) -> str:
        return self.worst.reason


def cells(certificate: Certificate) -> list[tuple[ClauseEntry, PartEntry]]:
    """Every clause on every part, in the order of the profile."""
    return [(c, p) for suite in certificate.suites for c in suite.clauses for p in c.parts]


def by_outcome(certificate: Certificate, outcome: str) -> list[Finding]:
    """All cells of an outcome, folded, in the order of the profile."""
    groups: dict[tuple[str, str], list[tuple[ClauseEntry, PartEntry]]] = {}
    for clause, part in cells(certificate):
        if part.outcome == outcome:
            key = ("", part.reason) if outcome in _BY_REASON else (clause.id, "")
            groups.setdefault(key, []).append((clause, part))
    return [Finding(outcome=outcome, cells=tuple(_worst_first(outcome, group))) for group in groups.values()]


def _worst_first(outcome: str, group: list[tuple[ClauseEntry, PartEntry]]) -> list[tuple[ClauseEntry, PartEntry]]:
    """Of one clause the part with the smallest margin first; the order of the profile otherwise."""
    if outcome in _BY_REASON:
        return group
    return sorted(group, key=lambda cell: -1e9 if cell[1].margin_percent is None else cell[1].margin_percent)


def findings(certificate: Certificate) -> list[Finding]:
    """Why the run is not ACCEPTED, worst first: outcome, then required, level, gate, order of the profile."""
    found = [f for o in ("FAIL", "NOT MEASURED", "UNSTABLE", "NOT TESTED") for f in by_outcome(certificate, o)]
    if certificate.judged != "ACCEPTED":
        found += [f for f in map(_required_only, by_outcome(certificate, "OBSERVED")) if f is not None]
    order = {clause.id: place for place, (clause, _) in enumerate(cells(certificate))}

    def key(finding: Finding) -> tuple[int, bool, int, bool, int]:
        clause = finding.clause
        return rank(finding.outcome), not clause.required, clause.level, not clause.gate, order[clause.id]

    return sorted(found, key=key)


def _required_only(finding: Finding) -> Finding | None:
    """Observed cells of clauses that ask for a verdict and have no limit: they keep a run from being ACCEPTED."""
    kept = tuple(cell for cell in finding.cells if cell[0].required and not cell[0].limit)
    return Finding(outcome=finding.outcome, cells=kept) if kept else None


def led(found: list[Finding]) -> list[tuple[Finding, tuple[Finding, ...]]]:
    """Findings with those that probably follow from them: later failures of the same suite on the same parts."""
    leads: list[tuple[Finding, list[Finding]]] = []
    for finding in found:
        lead = next((pair for pair in leads if _follows(pair[0], finding)), None)
        if lead is None:
            leads.append((finding, []))
        else:
            lead[1].append(finding)
    return [(finding, tuple(followers)) for finding, followers in leads]


def _follows(lead: Finding, finding: Finding) -> bool:
    both_failed = lead.outcome == finding.outcome == "FAIL"
    same_suite = lead.clause.id.rpartition("-")[0] == finding.clause.id.rpartition("-")[0]
    return both_failed and same_suite and set(lead.parts) == set(finding.parts)


def also_failing(finding: Finding, others: list[Finding]) -> list[str]:
    """Other clauses that fail on the same worst part: probably, not surely, one cause."""
    return [f.clause.id for f in others if f.outcome == "FAIL" and f is not finding and finding.worst.part in f.parts]


def closest(certificate: Certificate) -> tuple[ClauseEntry, PartEntry] | None:
    """The passing number nearest to its limit, in percent of the limit.

    A part that shows exactly what is promised (16 lanes of 16) is not close to it: such counts are left out.
    """
    best: tuple[float, ClauseEntry, PartEntry] | None = None
    for clause, part in cells(certificate):
        tight = clause.ceiling in (clause.at_least, clause.at_most) or part.value in (clause.at_least, clause.at_most)
        tight = tight and part.outcome == "PASS"
        if part.outcome not in ("PASS", "MARGINAL") or part.margin_percent is None or number(part.value) is None:
            continue
        if not tight and (best is None or part.margin_percent < best[0]):
            best = (part.margin_percent, clause, part)
    return best[1:] if best else None
