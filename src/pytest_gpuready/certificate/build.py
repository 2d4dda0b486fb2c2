"""From verdicts to the certificate: the profile x the expected hardware, looked up; never the collected tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from pytest_gpuready import __version__
from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.certificate.cells import NOT_TESTED, Record, suites
from pytest_gpuready.certificate.document import (
    Certificate,
    Counts,
    EvidenceEntry,
    ExclusionEntry,
    NodeEntry,
    ProfileEntry,
    SiteEntry,
    verdict_text,
)
from pytest_gpuready.certificate.folded import folded, folded_lines
from pytest_gpuready.certificate.rule import OPEN, Asked, Cell, Ruling, held_by_all, hidden, of_any, rule
from pytest_gpuready.certificate.words import ON_THE_NODE
from pytest_gpuready.certificate.written import number
from pytest_gpuready.model import Outcome, Part

__all__ = ["NOT_TESTED", "Facts", "Record", "build", "ruled"]

STEPS_AT_MOST = 5
NODE_WHY_AT_MOST = 4


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
    standing: Callable[[], Collection[str]] = frozenset
    """The nodes that the command that takes this run up again does not measure again, for something of them failed;
    asked only where that may be."""
    nodes: tuple[NodeEntry, ...] = ()
    evidence: tuple[EvidenceEntry, ...] = ()


def build(
    *,
    findings: Findings,
    records: Mapping[tuple[str, str], Sequence[Record]],
    facts: Facts,
    log_of: Callable[[Part], list[str]],
    opening: bool = False,
) -> Certificate:
    """The certificate of a run; `opening` is that of one in which nothing is measured yet, and it has no cells."""
    several = len(findings.inventory.nodes) > 1
    silent = {node.name: node.problem for node in facts.nodes if not node.answered} if several else {}
    tested = [] if opening else suites(findings, facts.level_asked, records, log_of, silent)
    cells = [(clause, part) for suite in tested for clause in suite.clauses for part in clause.parts]
    profile = findings.profile
    asked = Asked(
        level=facts.level_asked,
        finished=facts.finished,
        profile="" if opening else profile.name,  # without cells there is nothing to say about it
        levels=frozenset(clause.level for clause in profile.clauses),
        blockers=facts.blockers,
        silent=silent,
    )
    basis = _basis(facts.basis)
    nodes = ruled(facts.nodes, cells, asked, basis)
    whole = rule(cells, asked, several=several)
    if several:
        whole = held_by_all(whole, {node.name: node.why for node in nodes if node.judged != "ACCEPTED"})
    exclusions = [
        ExclusionEntry(clause=c.id, reason=c.excluded) for c in profile.up_to(facts.level_asked) if c.excluded
    ]
    outcomes = Counter(part.outcome for _, part in cells)
    certificate = Certificate(
        number="",
        judged=whole.judged,
        basis=basis,
        basis_note=facts.basis_note,
        says=_says(whole, facts, cells, {entry.clause for entry in exclusions}),
        finished=facts.finished,
        why=whole.why,
        do_next=_do_next(whole, facts, cells, several),
        started=facts.started,
        issued=facts.issued,
        level_asked=facts.level_asked,
        level_reached=whole.level_reached,
        keep_going=facts.keep_going,
        product=f"pytest-gpuready {__version__}",
        profile=ProfileEntry(
            name=profile.name,
            version=profile.version,
            title=profile.title,
            sha256=profile.sha256,
            notes=list(profile.notes),
        ),
        site=facts.site,
        nodes=nodes,
        assumptions=folded_lines(findings.inventory.assumptions, (node.name for node in findings.inventory.nodes)),
        exclusions=exclusions,
        suites=tested,
        counts=Counts(
            clauses=sum(len(suite.clauses) for suite in tested),
            cells=len(cells),
            outcomes={o.value: outcomes[o.value] for o in Outcome if outcomes[o.value]},
        ),
        environment=dict(facts.environment),
        evidence=list(facts.evidence),
    )
    return msgspec.structs.replace(certificate, number=number(certificate))


def ruled(
    nodes: Sequence[NodeEntry], cells: Sequence[Cell], asked: Asked, basis: Literal["hardware", "replay", "stand-in"]
) -> list[NodeEntry]:
    """The nodes with what the cells of each come to, by the rule of the whole."""
    own: dict[str, list[Cell]] = {node.name: [] for node in nodes}
    for cell in cells:
        own.setdefault(cell[1].node, []).append(cell)
    entries = []
    for node in nodes:
        ruling = rule(own[node.name], asked)
        why = ruling.why if node.name not in asked.silent else [f"no answer: {of_any(node.problem, node.name)}"]
        outcomes = Counter(part.outcome for _, part in own[node.name])
        more = len(why) - NODE_WHY_AT_MOST
        entries.append(
            msgspec.structs.replace(
                node,
                verdict=verdict_text(ruling.judged, basis),
                judged=ruling.judged,
                level_reached=ruling.level_reached,
                outcomes={o.value: outcomes[o.value] for o in Outcome if outcomes[o.value]},
                why=[*why[:NODE_WHY_AT_MOST], *([f"and {more} more"] if more > 0 else [])],
            )
        )
    return entries


def _says(whole: Ruling, facts: Facts, cells: Sequence[Cell], excluded: set[str]) -> str:
    if not facts.finished:
        return "The run has not ended. Nothing on this page is a verdict yet."
    level = f"Level {whole.level_reached} of {facts.level_asked}"
    if whole.judged == "ACCEPTED":
        taken_out = len({clause.id for clause, _ in cells if clause.id in excluded})
        total = len({clause.id for clause, _ in cells})
        unseen = len({clause.id for clause, part in cells if clause.required and hidden(part)})
        but = [f"{taken_out} of {total} that the site file excludes"] if taken_out else []
        but += [f"{unseen} that the virtual machine hides"] if unseen else []
        every = (
            f"Every required clause of the profile, but for {' and '.join(but)}," if but else "Every required clause"
        )
        return f"{every} was measured on every expected part and lies inside its limit. {level}."
    if whole.judged == "REJECTED":
        failed = [(clause, part) for clause, part in cells if part.outcome == "FAIL" and clause.required]
        parts = sorted({part.label for _, part in failed})
        clauses = len({clause.id for clause, _ in failed})
        at = parts[0] if len(parts) == 1 else f"{len(parts)} parts"
        return f"{clauses} {'clause' if clauses == 1 else 'clauses'} failed, at {at}. {level} reached."
    without = len({clause.id for clause, part in cells if part.outcome in OPEN and clause.required})
    total = len({clause.id for clause, _ in cells})
    return "Nothing failed, and this is not an acceptance: " + (
        f"{without} of {total} clauses have no verdict." if without else "see below what is missing."
    )


def _do_next(whole: Ruling, facts: Facts, cells: Sequence[Cell], several: bool) -> list[str]:
    steps: list[str] = []
    standing = facts.standing() if several and facts.finished and whole.judged == "INCOMPLETE" else ()
    if standing:
        it, they = ("it", "it") if len(standing) == 1 else ("them", "they")
        steps.append(
            f"{folded(sorted(standing), 6)}: something failed, so what {they} said stands, and the same command "
            f"does not measure {it} again; to have {it} measured anew choose another --gpuready-out"
        )
    if facts.basis == "replay":
        return [*steps, f"{ON_THE_NODE}{facts.command}"]
    for clause, part in cells if whole.judged == "REJECTED" else ():
        if part.outcome == "FAIL" and clause.required and part.action and len(steps) < STEPS_AT_MOST:
            node = part.node
            step = part.action if not several or node in part.action else f"{node}: {part.action}"
            if step not in steps:
                steps.append(step)
    if whole.judged != "ACCEPTED":
        steps.append(facts.command)
    return steps


def _basis(basis: str) -> Literal["hardware", "replay", "stand-in"]:
    return "replay" if basis == "replay" else "stand-in" if basis == "stand-in" else "hardware"
