"""Several nodes on one page: which of them are accepted, what is wrong with the others, worst first.

Views for the templates; every word is the document's. All lists are bounded: a page has to open on a phone even if
every cell of a thousand nodes failed, and says how much more stands in certificate.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, NodeEntry
from pytest_gpuready.certificate.findings import Finding, findings, led
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.certificate.outliers import Spread
from pytest_gpuready.certificate.page import fail_text, name_of
from pytest_gpuready.certificate.rule import Cell, by_reason, of_any
from pytest_gpuready.certificate.tables import ids_text

NODES_LISTED = 128
"""From so many nodes on only those are listed that somebody has to look at."""
ROWS_AT_MOST = 400
WORST_AT_MOST = 20
SPLIT_AT_MOST = 3
"""A finding on more nodes than this is one row for all of them."""
NODES_IN_FULL = 32
FINDINGS_OF_NODE = 6
TABLE_ROWS = (8, 25)
"""Rows of one table of the heat map: at least, at most."""
_HEAT = ("FAIL", "NOT MEASURED", "UNSTABLE", "NOT TESTED", "MARGINAL", "WAIVED", "PASS")
_HEAT_RANK = {word: place for place, word in enumerate((*_HEAT, "EXCLUDED", "HIDDEN", "OBSERVED", "NOT APPLICABLE"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """A row of "worst parts first": where, what, and what to do next."""

    nodes: str
    parts: str
    outcome: str
    ids: str
    found: str
    notes: tuple[str, ...]
    action: str
    anchor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A node in the heat map: one word for each suite. `anchor` leads to its findings, "" where it has none here."""

    node: NodeEntry
    cells: tuple[str, ...]
    anchor: str
    far: str
    """What of it is far from its peers; "" for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFindings:
    """A node that is not accepted, with its findings."""

    node: NodeEntry
    anchor: str
    counts: str
    leads: tuple[tuple[Finding, tuple[Finding, ...]], ...]
    more: int

    @property
    def gpus(self) -> dict[str, int]:
        """How many GPUs the node has, by its name."""
        return {self.node.name: len(self.node.gpus)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All that the page of several nodes says beyond that of one."""

    verdicts: tuple[tuple[str, str, str, int, str], ...]
    """Box by box: look, glyph, word, how many nodes, a note."""
    worst: tuple[Worst, ...]
    worst_more: int
    unanswered: tuple[tuple[str, int, str], ...]
    """(nodes, how many, why)."""
    columns: tuple[tuple[str, str, int], ...]
    """The suites of the heat map: short name, title, level."""
    heat: tuple[tuple[HeatRow, ...], ...]
    legend: tuple[str, ...]
    not_listed: tuple[tuple[str, int, str], ...]
    """(verdict, how many, nodes) of those that stand in no row."""
    in_full: tuple[NodeFindings, ...]
    in_full_more: int


def fleet(certificate: Certificate, found: list[Finding], spreads: Sequence[Spread]) -> Fleet:
    """The view of a certificate over several nodes; `found` are its findings."""
    silent = {node.name for node in certificate.nodes if not node.answered}
    rejected_first = sorted(
        certificate.nodes, key=lambda node: ("REJECTED", "INCOMPLETE", "ACCEPTED").index(node.judged)
    )
    to_tell = [node for node in rejected_first if node.judged != "ACCEPTED" and node.name not in silent]
    anchors = {node.name: f"n{place}" for place, node in enumerate(to_tell[:NODES_IN_FULL], 1)}
    far = _far(spreads)
    heat, own = _heat(certificate, anchors)
    listed = [
        node
        for node in certificate.nodes
        if len(certificate.nodes) < NODES_LISTED or node.judged != "ACCEPTED" or node.name in far
    ]
    if len(listed) > ROWS_AT_MOST:
        order = {node.name: place for place, node in enumerate(rejected_first)}
        kept = sorted(listed, key=lambda node: order[node.name])[:ROWS_AT_MOST]
        names = {node.name for node in kept}
        listed = [node for node in listed if node.name in names]
    rows = [
        HeatRow(
            node=node,
            cells=tuple(heat[node.name]),
            anchor=anchors.get(node.name, ""),
            far="; ".join(far.get(node.name, ())[:3]),
        )
        for node in listed
    ]
    leads = [pair for pair in led(found) if pair[0].worst.node not in silent]
    worst, more = _worst(leads, anchors, {node.name: len(node.gpus) for node in certificate.nodes})
    return Fleet(
        verdicts=_verdicts(certificate, silent),
        worst=worst,
        worst_more=more,
        unanswered=_unanswered(certificate),
        columns=tuple((_short(suite.clauses[0].id), suite.title, suite.level) for suite in certificate.suites),
        heat=_tables(rows),
        legend=tuple(word for word in _HEAT_RANK if any(word in row.cells for row in rows)),
        not_listed=_not_listed(certificate, {node.name for node in listed}),
        in_full=tuple(
            _in_full(certificate, node, own[node.name], anchors[node.name]) for node in to_tell[:NODES_IN_FULL]
        ),
        in_full_more=max(len(to_tell) - NODES_IN_FULL, 0),
    )


def only(certificate: Certificate, node: NodeEntry, cells: Iterable[Cell]) -> Certificate:
    """The certificate as it would be about one of its nodes, whose cells these are, in the order of the profile."""
    own: dict[str, list[Cell]] = {}
    for clause, part in cells:
        own.setdefault(clause.id, []).append((clause, part))
    suites = []
    for suite in certificate.suites:
        clauses = [
            msgspec.structs.replace(clause, parts=[part for _, part in own[clause.id]])
            for clause in suite.clauses
            if clause.id in own
        ]
        suites += [msgspec.structs.replace(suite, clauses=clauses)] if clauses else []
    return msgspec.structs.replace(
        certificate, nodes=[node], suites=suites, judged=node.judged, verdict="", level_reached=node.level_reached
    )


def _verdicts(certificate: Certificate, silent: set[str]) -> tuple[tuple[str, str, str, int, str], ...]:
    counts = Counter(node.judged for node in certificate.nodes)
    marginal = sum("MARGINAL" in node.outcomes for node in certificate.nodes if node.judged == "ACCEPTED")
    quiet = f"{len(silent)} of them gave no answer" if silent else "nothing failed; not an acceptance"
    would = "" if certificate.basis == "hardware" else "would be "
    return (
        ("c-r", "g-fail", f"{would}REJECTED", counts["REJECTED"], "a required clause failed"),
        ("c-i", "g-nm", f"{would}INCOMPLETE", counts["INCOMPLETE"], quiet),
        (
            "c-a",
            "g-pass",
            f"{would}ACCEPTED",
            counts["ACCEPTED"],
            f"{marginal} of them with a MARGINAL value" if marginal else "every required clause inside its limit",
        ),
    )


def _unanswered(certificate: Certificate) -> tuple[tuple[str, int, str], ...]:
    """Nodes from which nothing came, by why."""
    silent = ((node.name, node.problem or "it gave no answer") for node in certificate.nodes if not node.answered)
    ordered = sorted(by_reason(silent), key=lambda item: -len(item[1]))
    rows = [(folded(names, 24), len(names), why) for why, names in ordered[:WORST_AT_MOST]]
    rest = [name for _, names in ordered[WORST_AT_MOST:] for name in names]
    return (*rows, *([(folded(rest, 24), len(rest), "other reasons, in certificate.json")] if rest else []))


def _worst(
    leads: Sequence[tuple[Finding, tuple[Finding, ...]]], anchors: dict[str, str], gpus: dict[str, int]
) -> tuple[tuple[Worst, ...], int]:
    """The rows, and how many more there would be."""
    rows: list[Worst] = []
    for place, (finding, followers) in enumerate(leads):
        if len(rows) >= WORST_AT_MOST:
            return tuple(rows), len(leads) - place
        nodes: dict[str, list[Cell]] = {}
        for cell in finding.cells:
            nodes.setdefault(cell[1].node, []).append(cell)
        groups = [[*cells] for cells in nodes.values()] if len(nodes) <= SPLIT_AT_MOST else [list(finding.cells)]
        for cells in groups:
            own = Finding(outcome=finding.outcome, cells=tuple(cells), cause=finding.cause, follows=finding.follows)
            rows.append(_row(own, followers, list(dict.fromkeys(part.node for _, part in cells)), anchors, gpus))
    return tuple(rows), 0


def _row(
    finding: Finding, followers: Sequence[Finding], nodes: list[str], anchors: dict[str, str], gpus: dict[str, int]
) -> Worst:
    worst = finding.worst
    alone = len(nodes) == 1
    parts = finding.parts
    whole = all(words.split_part(part)[1] < 0 for part in parts)
    indices = {words.split_part(part)[1] for part in parts}
    who = (
        "whole node"
        if whole
        else words.parts_text(parts, False, gpus=gpus)
        if alone
        else words.count_text(len(parts), "part")
    )
    if len(indices) == 1 and not alone and not whole:
        who = f"GPU{words.NBSP}{indices.pop()} of each"
    notes = []
    if finding.outcome == "FAIL":
        said = fail_text(finding)
        notes += [words.clean(worst.detail, 160)] if worst.detail else []
        notes += [worst.reason] if worst.reason else []
    else:
        ids = finding.clause_ids
        said = words.clean(name_of(finding.clause), 90) if len(ids) == 1 else words.count_text(len(ids), "clause")
        notes.append(of_any(finding.reason, worst.label, worst.node))
    if len(parts) > 1 and finding.outcome == "FAIL" and worst.shown:
        notes.append(f"worst: {words.part_text(worst.part, True)}")
    if followers:
        notes.append(f"also {ids_text([other.clause.id for other in followers], 6)}, probably one cause")
    if not finding.required:
        notes.append("not required")
    return Worst(
        nodes=folded(nodes, 8),
        parts=who,
        outcome=finding.outcome,
        ids=ids_text(finding.clause_ids, 4),
        found=said,
        notes=tuple(notes),
        action=f"begin with {worst.node}: {finding.action}" if finding.action and not alone else finding.action,
        anchor=anchors.get(nodes[0], "") if alone else "",
    )


def _heat(certificate: Certificate, wanted: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, list[Cell]]]:
    """The worst word of each suite on each node, and the cells of the nodes wanted.

    What is not required counts neither way, so it is nobody's worst; a pass is more than what was only observed.
    """
    count, last = len(certificate.suites), len(_HEAT_RANK) - 1
    ranks = {node.name: [last] * count for node in certificate.nodes}
    own: dict[str, list[Cell]] = {name: [] for name in wanted}
    bad = {*words.OPEN, "FAIL"}
    for column, suite in enumerate(certificate.suites):
        for clause in suite.clauses:
            for part in clause.parts:
                node = part.node
                if node in own:
                    own[node].append((clause, part))
                word = words.said(part)
                row = ranks.get(node)
                if row is None or (word in bad and not clause.required):
                    continue
                row[column] = min(row[column], _HEAT_RANK[word])
    named = tuple(_HEAT_RANK)
    return {name: [named[rank] for rank in row] for name, row in ranks.items()}, own


def _far(spreads: Sequence[Spread]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for spread in spreads:
        for part, _ in spread.far:
            found.setdefault(part.node, []).append(f"{spread.clause.id} {words.part_text(part.part, False)}")
    return found


def _tables(rows: Sequence[HeatRow]) -> tuple[tuple[HeatRow, ...], ...]:
    """The rows in up to four tables side by side, more where paper needs it."""
    tall = min(max(-(-len(rows) // 4), TABLE_ROWS[0]), TABLE_ROWS[1])
    return tuple(tuple(rows[first : first + tall]) for first in range(0, len(rows), tall))


def _not_listed(certificate: Certificate, listed: set[str]) -> tuple[tuple[str, int, str], ...]:
    groups: dict[str, list[str]] = {}
    for node in certificate.nodes:
        if node.name not in listed:
            groups.setdefault(node.verdict or node.judged, []).append(node.name)
    return tuple((verdict, len(names), folded(names, 24)) for verdict, names in groups.items())


def _in_full(certificate: Certificate, node: NodeEntry, cells: list[Cell], anchor: str) -> NodeFindings:
    leads = led(findings(only(certificate, node, cells)))
    counts = Counter(words.said(part) for _, part in cells)
    return NodeFindings(
        node=node,
        anchor=anchor,
        counts=words.listed([f"{words.grouped(counts[o])} {o}" for o in words.WORST_FIRST if counts[o]], 9),
        leads=tuple(leads[:FINDINGS_OF_NODE]),
        more=max(len(leads) - FINDINGS_OF_NODE, 0),
    )


def _short(clause_id: str) -> str:
    """The letters of a suite's clauses: PCIE of PCIE-5."""
    return words.clean(clause_id.rpartition("-")[0] or clause_id, 8)
