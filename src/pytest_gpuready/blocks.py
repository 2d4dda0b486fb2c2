"""Under pytest's own failures: each finding with its evidence, and why nodes gave no answer, each reason once."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.certificate.rule import by_reason
from pytest_gpuready.certificate.summary import finding_block
from pytest_gpuready.certificate.tables import ids_text

Lost: TypeAlias = dict[tuple[str, str], dict[str, None]]
"""Node and why no answer came from it any more -> the clauses that have no value there."""

AT_MOST = 20
"""Blocks of one kind."""


def write_blocks(reporter: pytest.TerminalReporter, certificate: Certificate, lost: Lost) -> None:
    """Write them; where there are more, the certificate has the rest."""
    findings = [
        (clause, part)
        for suite in certificate.suites
        for clause in suite.clauses
        for part in clause.parts
        if part.outcome == "FAIL"
    ]
    for clause, part in findings[:AT_MOST]:
        reporter.write_sep("_", f"{clause.id} [{part.part}]")
        reporter.write_line(clause.sentence)
        if reporter.config.option.tbstyle == "no":
            reporter.write_line(part.line)
        for line in finding_block(part, clause):
            reporter.write_line(line)
    if len(findings) > AT_MOST:
        reporter.write_line(f"{len(findings) - AT_MOST} more findings stand on the certificate")
    silent = [(node.name, node.problem) for node in certificate.nodes if not node.answered]
    for reason, names in by_reason(silent)[:AT_MOST] if len(certificate.nodes) > 1 else ():
        reporter.write_sep("_", f"no answer [{folded(names, 8)}]")
        reporter.write_line(reason)
    for reason, names in by_reason(lost)[:AT_MOST]:
        known = set(names)
        clauses = dict.fromkeys(clause for (node, _), ids in lost.items() if node in known for clause in ids)
        reporter.write_sep("_", f"no later answer [{folded(names, 8)}]")
        reporter.write_line(reason)
        reporter.write_line(f"so no value of {ids_text(list(clauses), 16)}")
