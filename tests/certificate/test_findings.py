"""Findings: one cause is one finding, and what the document folds is told apart."""

from __future__ import annotations

import msgspec

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.findings import by_outcome, counted
from tests.certificate import samples


def _with_reasons(certificate: Certificate, reasons: dict[str, str]) -> Certificate:
    """The certificate with these NOT MEASURED cells of clause GPU-2, part -> reason."""
    suites = []
    for suite in certificate.suites:
        clauses = []
        for clause in suite.clauses:
            parts = [
                msgspec.structs.replace(p, outcome="NOT MEASURED", reason=reasons[p.part])
                if clause.id == "GPU-2" and p.part in reasons
                else p
                for p in clause.parts
            ]
            clauses.append(msgspec.structs.replace(clause, parts=parts))
        suites.append(msgspec.structs.replace(suite, clauses=clauses))
    return msgspec.structs.replace(certificate, suites=suites)


def test_one_reason_on_several_parts_is_one_finding() -> None:
    """Reasons that differ by the name of the part in front alone are one, told without that name."""
    said = {f"node01/gpu{n}": f"node01 GPU {n}: nvml says nothing about it" for n in (0, 1)}
    (finding,) = by_outcome(_with_reasons(samples.accepted(), said), "NOT MEASURED")
    assert finding.parts == ("node01/gpu0", "node01/gpu1")
    assert finding.reason == "nvml says nothing about it"


def test_two_reasons_are_two_findings() -> None:
    """Reasons that differ otherwise stay apart; the part is named beside them."""
    said = {"node01/gpu0": "node01 GPU 0: timed out", "node01/gpu1": "node01 GPU 1: unreadable"}
    found = by_outcome(_with_reasons(samples.accepted(), said), "NOT MEASURED")
    assert [finding.reason for finding in found] == ["timed out", "unreadable"]


def test_missing_parts_are_one_cause() -> None:
    """All that missing GPUs left unmeasured is one finding that follows the clause about their presence."""
    (finding,) = by_outcome(samples.lost(), "NOT MEASURED")
    assert finding.follows == "GPU-1"
    assert finding.cause == "GPU\u00a03 is absent (NVML shows 7 GPUs, none at 0000:4c:00.0)"
    assert finding.action == "begin with GPU-1"
    assert len(finding.cells) == counted(samples.lost())["NOT MEASURED"]


def test_counts_tell_apart_what_nobody_could_see() -> None:
    """Excluded and hidden cells are counted under their own words, and no cell twice."""
    found = counted(samples.excluded())
    assert found["EXCLUDED"] == 9 * 2 + 1  # nine clauses on two GPUs, one on the node
    assert counted(samples.virtual())["HIDDEN"] == 6
    assert sum(found.values()) == samples.excluded().counts.cells
