"""The certificate as one self-contained HTML file: no script, no request, readable on paper, phone and screen.

Every string that a template prints goes through `clean` (control and bidirectional characters, length) and is then
escaped by Jinja's autoescape; figures are built with the same escaping in `plots`.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_gpuready.certificate import facts, notes, page, peers_figure, plots, tables, uncovered, watched, words
from pytest_gpuready.certificate.commands import command, plans
from pytest_gpuready.certificate.diagnostics import Diagnosis, diagnoses
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, EvidenceEntry
from pytest_gpuready.certificate.findings import Finding, by_outcome, cells, counted, findings, led
from pytest_gpuready.certificate.fleet import fleet
from pytest_gpuready.certificate.outliers import spreads
from pytest_gpuready.certificate.rule import MORE_REASONS, NO_ANSWER
from pytest_gpuready.certificate.spent import spent
from pytest_gpuready.certificate.spent_lines import clock, times_text
from pytest_gpuready.certificate.timeline import METRICS as BURN_IN
from pytest_gpuready.certificate.timeline import timelines
from pytest_gpuready.model.units import show

ENVIRONMENTS_AT_MOST = 64
CELLS_AT_MOST = 5000
"""Cells of several nodes that the page shows one by one; of more it shows the worst and counts the rest."""
DIAGNOSED_AT_MOST = 24
"""Findings over several nodes with their evidence on the page, the worst first."""
UNTESTED_AT_MOST = 60
EVIDENCE_AT_MOST = 400
EVIDENCE_OF_MANY = 60


def render(certificate: Certificate) -> str:
    """The whole page, of one node or of several. It says what the document says and decides nothing."""
    many = len(certificate.nodes) > 1
    found = findings(certificate)
    if not many:
        context = _context(certificate, found, diagnoses(certificate, found))
        return _environment().get_template("page.html").render(context)
    whole = certificate.counts.cells <= CELLS_AT_MOST
    context = _context(certificate, found, diagnoses(certificate, found[:DIAGNOSED_AT_MOST]), whole=whole)
    peers = spreads(certificate)
    if not whole:
        context["BOXES"] = 0
    context |= {
        "fleet": fleet(certificate, found, peers),
        "whole": whole,
        "spreads": peers,
        "same_environment": facts.same_environment(certificate),
        "untested": context["untested"][:UNTESTED_AT_MOST],
        "untested_more": max(len(context["untested"]) - UNTESTED_AT_MOST, 0),
    }
    return _environment().get_template("fleet.html").render(context)


def _context(
    certificate: Certificate, found: list[Finding], diagnosed: list[Diagnosis], *, whole: bool = True
) -> dict[str, Any]:
    """What the templates lay out; cell by cell only where the page has room for the `whole`."""
    many = len(certificate.nodes) > 1
    band = page.band(certificate)
    failing = {part.part for _, part in cells(certificate) if part.outcome == "FAIL"}
    burn_in = timelines(certificate, many)
    evidence = _evidence(certificate, whole)
    rows_of_page_one = page.promised(certificate, many)
    suites = []
    for suite in certificate.suites:
        rows = [tables.row(clause, many) for clause in suite.clauses]
        suites.append((suite, rows, tables.matrices(rows) if whole else [], notes.notes(suite.clauses)))
    counts = counted(certificate)
    node_environments, judging_environment = ([], []) if many else facts.environment(certificate)
    return {
        "c": certificate,
        "many": many,
        "hardware": certificate.basis == "hardware",
        "band": band,
        "footer": f"{facts.nodes_text(certificate)} - {certificate.number} - {band.short} - basis {band.basis}",
        "triad": None if many else page.triad(certificate, found, many),
        "facts": facts.facts(certificate),
        "measured": facts.measured(certificate),
        "findings": found,
        "leads": led(found),
        "diagnosed": [one.finding for one in diagnosed],
        "diagnoses": diagnosed,
        "other_why": _other_why(certificate),
        "promised": rows_of_page_one,
        "brief": len(rows_of_page_one) > page.ROWS_AT_MOST,
        "has_bullets": any(isinstance(row, tables.Row) and row.figure == "bullet" for row in rows_of_page_one),
        "not_covered": uncovered.not_covered(certificate, many),
        "exclusions": uncovered.exclusions(certificate),
        "taken_out": uncovered.taken_out(certificate),
        "failing": failing,
        "told_apart": _told_apart(certificate) if many else frozenset(),
        "silent": frozenset(node.name for node in certificate.nodes if many and not node.answered),
        "files": {entry.sha256: entry.file for entry in certificate.evidence},
        "gpu_tables": [tables.gpu_table(node) for node in certificate.nodes] if whole else [],
        "suites": suites,
        "counts_text": words.listed([f"{words.grouped(counts[o])} {o}" for o in words.WORST_FIRST if counts.get(o)], 9),
        "watched": watched.blocks(certificate, frozenset(BURN_IN)),
        "burn_in": burn_in,
        "spent": spent(certificate),
        "untested": [f for o in (*words.OPEN, "HIDDEN", "NOT APPLICABLE") for f in by_outcome(certificate, o)],
        "node_environments": node_environments[:ENVIRONMENTS_AT_MOST],
        "judging_environment": judging_environment,
        "glossary": words.glossary(counts),
        "keep": page.node_names(certificate),
        "where": lambda part: page.where_text(certificate, part),
        "evidence": evidence,
        "plans": plans(evidence),
        "watch_figure": watched.Figures(certificate, many),
    }


def _told_apart(certificate: Certificate) -> frozenset[str]:
    """Reasons for which several clauses have no value on several nodes' parts: each stands under "What was not tested",
    and not once more beside every clause."""
    shared = (finding for finding in by_outcome(certificate, "NOT MEASURED") if len(finding.clause_ids) > 1)
    return frozenset(part.reason for finding in shared for _, part in finding.cells)


def _evidence(certificate: Certificate, whole: bool) -> list[EvidenceEntry]:
    """The raw outputs that the page lists: where it has no room for all cells, those of nodes with findings first."""
    if whole:
        return sorted(certificate.evidence[:EVIDENCE_AT_MOST], key=lambda entry: entry.started)
    accepted = {node.name for node in certificate.nodes if node.judged == "ACCEPTED"}
    return sorted(certificate.evidence, key=lambda entry: entry.node in accepted)[:EVIDENCE_OF_MANY]


def _other_why(certificate: Certificate) -> list[str]:
    """Reasons that are not the outcome of a cell ("the profile has no clause of level 4"): those stand as findings."""
    if certificate.judged == "ACCEPTED":
        return []
    told = {clause.id for suite in certificate.suites for clause in suite.clauses}
    lines = [
        line for line in certificate.why if not (_of_cells(line) and re.split("[ ,]", line, maxsplit=1)[0] in told)
    ]
    told_apart = NO_ANSWER if len(certificate.nodes) > 1 else "\n"
    lines = [line for line in lines if told_apart not in line and not line.endswith(MORE_REASONS)]
    return [line for line in lines if certificate.finished or line != "the run has not ended"]


def _of_cells(line: str) -> bool:
    """True where a reason is made of cells: clauses, an outcome, and on which parts."""
    return any(f" {word} on " in line for word in ("FAIL", *words.OPEN, "OBSERVED"))


def _inner(clause: ClauseEntry) -> str:
    """The stricter inner limit, with sign."""
    if clause.marginal is None:
        return ""
    sign = "\u2265" if clause.at_least is not None else "\u2264"
    return f"{sign}{words.NBSP}{words.grouped(clause.marginal, words.decimals(clause))}"


def _ceiling(clause: ClauseEntry) -> str:
    if clause.ceiling is None:
        return words.DASH
    return words.grouped(clause.ceiling, 1 if clause.ceiling < 100 and words.decimals(clause) else 0)


def _finalize(value: Any) -> Any:
    """The last step before escaping: no string leaves a template uncleaned, and None never shows."""
    if value is None:
        return ""
    return words.clean(value, 4000) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def _environment() -> Environment:
    """Templates, compiled once per process; filters are the typography of `words`."""
    env = Environment(
        loader=PackageLoader("pytest_gpuready.certificate", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        anchor=words.anchor,
        ceiling=_ceiling,
        command=command,
        clip=lambda text, bound: text if isinstance(text, Markup) else words.clean(str(text), bound),
        count=words.count_text,
        decimals=words.decimals,
        grouped=words.grouped,
        css=lambda text: Markup(words.css_string(text)),  # noqa: S704 - css_string leaves no sign that ends a string
        fail_text=page.fail_text,
        finding_title=page.finding_title,
        ids=tables.ids_text,
        inner=_inner,
        levels=tables.levels_text,
        limit=words.limit_text,
        limit_short=lambda clause: words.limit_text(clause, unit=False),
        part=words.part_text,
        peers=notes.peers,
        said=words.said,
        parts=words.parts_text,
        seconds=words.seconds_text,
        shown=show,
        sentence=page.sentence,
        size=words.size_text,
        source=words.source_text,
        source_kind=lambda clause: words.typo(words.clean(clause.source_kind or "source", 40)),
        stopped=lambda text: text if text.rstrip().endswith((".", "!", "?")) else f"{text.rstrip()}.",
        suite_counts=tables.suite_counts,
        time=words.time_text,
        typo=words.typo,
        unit=words.unit_text,
        value=words.value_text,
    )
    env.tests["told"] = notes.told
    env.tests["fold"] = lambda row: isinstance(row, page.Fold)
    env.globals.update(
        WORDS=words.WORDS,
        OPEN=words.OPEN,
        BOXES=plots.BOXES_AT_MOST,
        FINDINGS=page.FINDINGS_AT_MOST,
        bullet=plots.bullet,
        boxes=plots.boxes,
        strip=plots.strip,
        peers_strip=peers_figure.peers_strip,
        far_text=peers_figure.far_text,
        clock=clock,
        counts_sentence=plots.counts_sentence,
        word_counts=tables.word_counts,
        span_text=plots.span_text,
        times_text=times_text,
    )
    return env
