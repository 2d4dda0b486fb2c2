"""What the page does not cover: a reader must not take for tested what is not, or is only just."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.findings import Finding, by_outcome, cells, findings, led
from pytest_gpuready.certificate.page import FINDINGS_AT_MOST, node_names, sentence
from pytest_gpuready.certificate.rule import of_any
from pytest_gpuready.certificate.tables import ids_text

LIST_AT_MOST = 8
CONTINUED = "continued: "
"""How the line begins that says what a run kept of an earlier one: it assumes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """One group of the column "Not covered": entries are (outcome or "", strong words, text)."""

    title: str
    entries: tuple[tuple[str, str, str], ...]
    more: int = 0
    told: bool = False
    """True where the findings under the verdict say all of it."""


def exclusions(certificate: Certificate) -> list[tuple[tuple[str, ...], str]]:
    """Every clause that the site file took out, by reason as it is spelled there; none is left out."""
    groups: dict[str, dict[str, None]] = {}
    for entry in certificate.exclusions:
        groups.setdefault(entry.reason.strip(), {})[words.clean(entry.clause, 60)] = None
    known = {entry.clause for entry in certificate.exclusions}
    for finding in by_outcome(certificate, "EXCLUDED"):
        for clause_id in finding.clause_ids:
            if clause_id not in known:
                groups.setdefault(finding.reason.partition(": ")[2], {})[clause_id] = None
    return [(tuple(ids), reason or "no reason given") for reason, ids in groups.items()]


def taken_out(certificate: Certificate) -> str:
    """How many clauses the site file took out, of how many of each level: "3 clauses (2 of 40 of level 1, ...)"."""
    ids = {one for group, _ in exclusions(certificate) for one in group}
    levels = {words.clean(clause.id, 60): clause.level for suite in certificate.suites for clause in suite.clauses}
    out, of = Counter(levels[one] for one in ids if one in levels), Counter(levels.values())
    told = ", ".join(f"{out[level]} of {of[level]} of level {level}" for level in sorted(out))
    return words.count_text(len(ids), "clause") + (f" ({told})" if told else "")


def not_covered(certificate: Certificate, many: bool) -> list[Uncovered]:
    """Everything a reader could take for tested and that is not, or is only just."""
    names = node_names(certificate)
    groups: list[Uncovered] = []
    few = len(led(findings(certificate))) <= FINDINGS_AT_MOST

    def add(title: str, entries: list[tuple[str, str, str]], *, found: bool = False) -> None:
        if entries:
            shown = tuple(entries[:LIST_AT_MOST])
            groups.append(Uncovered(title=title, entries=shown, more=len(entries) - len(shown), told=found and few))

    gpus = {node.name: len(node.gpus) for node in certificate.nodes} if many else None

    def folded(outcome: str, *, required: bool | None = True) -> list[tuple[str, str, str]]:
        entries = []
        for finding in by_outcome(certificate, outcome):
            if required is not None and finding.required is not required:
                continue
            who = "" if outcome == "NOT TESTED" else f" on {words.parts_text(finding.parts, many, 4, gpus)}"
            reason = of_any(finding.reason, finding.worst.node) if many else finding.reason
            entries.append((outcome, ids_text(finding.clause_ids) + who, sentence(reason, names)))
        return entries

    if not certificate.finished:
        add(
            "The run has not ended",
            [("", "", f"State of {words.time_text(certificate.issued)} UTC; what follows is missing.")],
        )
    add("Not tested", folded("NOT TESTED"), found=True)
    add("Not measured", folded("NOT MEASURED"), found=True)
    add("Unstable", folded("UNSTABLE"), found=True)
    add("Unstable, and not required", folded("UNSTABLE", required=False), found=True)
    optional = [entry for outcome in ("NOT MEASURED", "NOT TESTED") for entry in folded(outcome, required=False)]
    add("Without a value, and not required", optional)
    if certificate.level_asked < 4:
        above = {1: "Levels 2 to 4 were", 2: "Levels 3 and 4 were", 3: "Level 4 was"}.get(
            certificate.level_asked, "Levels 1 to 4 were"
        )
        add("Not asked for", [("", f"{above} not asked for.", "This page says nothing about them.")])
    if exclusions(certificate):
        count = taken_out(certificate)
        add("Excluded by the site file", [("EXCLUDED", f"{count}.", "All of them stand under the verdict.")])
    add("Waived", folded("WAIVED", required=None))
    marginal = [
        ("MARGINAL", f"{f.clause.id} {words.parts_text(f.parts, many, 4)}", _marginal_text(f))
        for f in by_outcome(certificate, "MARGINAL")
    ]
    add("Close to the limit", marginal)
    hidden = [("HIDDEN", ids, text) for ids, text in _by_reason(certificate, "HIDDEN")]
    add("Hidden by the virtual machine", hidden)
    observed = _by_reason(certificate, "OBSERVED")
    add("Observed without a limit", [("", ids, text or "No promise, no pass.") for ids, text in observed])
    add("Not applicable", [("", ids, text) for ids, text in _by_reason(certificate, "NOT APPLICABLE")])
    continued = [text for text in certificate.assumptions if many and text.startswith(CONTINUED)]
    add("Continued", [("", "", sentence(text.removeprefix(CONTINUED), names)) for text in continued])
    add("Assumed", [("", "", sentence(text, names)) for text in certificate.assumptions if text not in continued])
    return groups


def _marginal_text(finding: Finding) -> str:
    clause, worst = finding.clause, finding.worst
    value = words.with_unit(words.value_text(clause, worst), clause.unit)
    inner = words.grouped(clause.marginal, words.decimals(clause)) if clause.marginal is not None else ""
    return f"{value}, limit {words.limit_text(clause, unit=False)}" + (f", inner limit {inner}" if inner else "") + "."


def _by_reason(certificate: Certificate, word: str) -> list[tuple[str, str]]:
    """Clauses with this word by reason; what the title of the group says already is left out of it."""
    groups: dict[str, dict[str, None]] = {}
    names = node_names(certificate)
    raw: dict[tuple[str, str], None] = {}
    for clause, part in cells(certificate):
        if words.said(part) == word:
            reason = clause.not_applicable if word == "NOT APPLICABLE" and clause.not_applicable else part.reason
            raw[reason, clause.id] = None
    for reason, clause_id in raw:
        text = "" if "gives no limit" in reason else reason.removeprefix(f"{words.HIDDEN_BY}: ")
        groups.setdefault(sentence(text, names), {})[clause_id] = None
    return [(ids_text(list(ids)), reason) for reason, ids in groups.items()]
