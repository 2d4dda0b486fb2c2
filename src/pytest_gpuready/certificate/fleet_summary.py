"""Several nodes on a terminal: how many came to which verdict, who is not accepted and why; about twelve lines."""

from __future__ import annotations

from collections import Counter

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, NodeEntry
from pytest_gpuready.certificate.findings import Finding, led
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.certificate.rule import by_reason
from pytest_gpuready.certificate.tables import ids_text

FAILURES_AT_MOST = 2
RANGES_AT_MOST = 10
RUNS_AT_MOST = 6

Lines = list[tuple[str, str]]


def verdicts(certificate: Certificate) -> Lines:
    """How many nodes have which verdict, and the names of those that are not accepted."""
    counts = Counter(node.judged for node in certificate.nodes)
    would = "" if certificate.basis == "hardware" else "would be "
    silent = Counter(node.judged for node in certificate.nodes if not node.answered)
    said = []
    for word in ("REJECTED", "INCOMPLETE", "ACCEPTED"):
        of_them = "" if silent[word] == counts[word] else f"{silent[word]} "
        quiet = f" ({of_them}gave no answer)" if silent[word] else ""
        said += [f"{counts[word]} {would}{word}{quiet}"] if counts[word] else []
    told: Lines = [("nodes", f"{', '.join(said)}, each by its own clauses")]
    for word in ("REJECTED", "INCOMPLETE"):
        names = [node.name for node in certificate.nodes if node.judged == word and node.answered]
        if names and len(names) < len(certificate.nodes):
            told.append((word.lower(), folded(names, RANGES_AT_MOST)))
    return told


def failures(certificate: Certificate, found: list[Finding], fail_text: dict[str, str]) -> Lines:
    """The first failures, each with its parts, and what to do about the worst; `fail_text` says what failed."""
    failed = [finding for finding in found if finding.outcome == "FAIL"]
    leads = led(failed)
    told: Lines = []
    for place, (finding, followers) in enumerate(leads[:FAILURES_AT_MOST]):
        also = ids_text([other.clause.id for other in followers], RUNS_AT_MOST)
        who = words.parts_text(finding.parts, True, 2)
        said = f"{who}: {fail_text[finding.clause.id]}" + (f"; also {also}" if also else "")
        told.append(("" if place else "why", said))
    if len(leads) > FAILURES_AT_MOST:
        told.append(("", f"and {len(leads) - FAILURES_AT_MOST} more, on the page"))
    if failed:
        worst = failed[0].worst
        action = worst.action or "read the finding on the page"
        told.append(("do next", action if worst.node in action else f"{worst.node}: {action}"))
    return told


def silence(nodes: list[NodeEntry]) -> Lines:
    """Who gave no answer, and why: that is no finding about their GPUs."""
    silent = ((node.name, node.problem) for node in nodes if not node.answered)
    ordered = sorted(by_reason(silent), key=lambda item: -len(item[1]))
    told = [("no answer", f"{folded(names, RUNS_AT_MOST)}: {why}") for why, names in ordered[:1]]
    rest = [name for _, names in ordered[1:] for name in names]
    return [*told, *([("", f"and for other reasons {folded(rest, RUNS_AT_MOST)}")] if rest else [])]
