"""Findings: one cause is one finding, and what the document folds is told apart."""

from __future__ import annotations

import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.findings import by_outcome, closest, counted, findings
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


def _optional(certificate: Certificate, clause_id: str) -> Certificate:
    """The certificate in which this clause is not required."""
    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[msgspec.structs.replace(c, required=False) if c.id == clause_id else c for c in suite.clauses],
        )
        for suite in certificate.suites
    ]
    return msgspec.structs.replace(certificate, suites=suites)


def test_reasons_that_differ_in_numbers_are_one_where_nobody_asks() -> None:
    """GPUs that lack an optional value for one reason, each with numbers of its own, are one finding; where the clause
    is required each stays apart."""
    said = {f"node01/gpu{n}": f"node01 GPU {n}: found it from {40 + n} to {5 + n}.5 C" for n in (0, 1)}
    required = _with_reasons(samples.accepted(), said)
    assert len(by_outcome(required, "NOT MEASURED")) == 2
    (finding,) = by_outcome(_optional(required, "GPU-2"), "NOT MEASURED")
    assert finding.parts == ("node01/gpu0", "node01/gpu1")
    assert finding.reason == "found it from 40 to 5.5 C (so node01 GPU 0; the others with other numbers)"
    other = {"node01/gpu0": "node01 GPU 0: timed out after 3 s", "node01/gpu1": "node01 GPU 1: unreadable after 3 s"}
    assert len(by_outcome(_optional(_with_reasons(samples.accepted(), other), "GPU-2"), "NOT MEASURED")) == 2


def test_what_nobody_asks_for_is_no_finding() -> None:
    """An optional clause without a value is nothing to look at; one that fails is."""
    said = {"node01/gpu0": "node01 GPU 0: timed out"}
    missing = _with_reasons(samples.accepted(), said)
    assert [f.clause.id for f in findings(missing)] == ["GPU-2"]
    assert findings(_optional(missing, "GPU-2")) == []
    failed = _optional(samples.foreign(), "GPU-32")
    assert [(f.clause.id, f.outcome) for f in findings(failed)] == [("GPU-32", "FAIL")]


def _only(clause_id: str, values: dict[str, float], **changed: object) -> tuple[ClauseEntry, PartEntry] | None:
    """What comes closest where all but one clause are taken out, with these values."""
    whole = samples.accepted()
    (clause,) = [c for s in whole.suites for c in s.clauses if c.id == clause_id]
    outcome = changed.pop("outcome", "PASS")
    fields: dict[str, object] = {"at_least": 90.0, "at_most": None, "ceiling": None, **changed}
    parts = [
        msgspec.structs.replace(p, value=values[p.part], margin_percent=100 * (values[p.part] - 90) / 90)
        for p in clause.parts
    ]
    fields["parts"] = [msgspec.structs.replace(p, outcome=outcome) for p in parts]
    suites = [msgspec.structs.replace(whole.suites[0], clauses=[msgspec.structs.replace(clause, **fields)])]
    return closest(msgspec.structs.replace(whole, suites=suites))


GPU0, GPU1 = "node01/gpu0", "node01/gpu1"


@pytest.mark.parametrize(
    ("values", "changed", "found"),
    [
        ({GPU0: 95.0, GPU1: 95.0}, {}, None),
        ({GPU0: 95.0, GPU1: 95.0}, {"ceiling": 100.0}, None),
        ({GPU0: 95.0, GPU1: 94.0}, {}, GPU1),
        ({GPU0: 95.2, GPU1: 95.2}, {}, GPU0),
        ({GPU0: 90.0, GPU1: 95.2}, {}, GPU1),
        ({GPU0: 95.2, GPU1: 95.4}, {"ceiling": 90.0}, None),
        ({GPU0: 95.2, GPU1: 95.4}, {"required": False}, None),
        ({GPU0: 95.0, GPU1: 95.0}, {"outcome": "MARGINAL"}, GPU0),
        ({GPU0: 95.2, GPU1: 95.4}, {"outcome": "FAIL"}, None),
    ],
)
def test_only_what_could_have_come_out_otherwise_is_close(
    values: dict[str, float], changed: dict[str, object], found: str | None
) -> None:
    """A whole number that all parts share was asked for, and one that is exactly what is promised is a count: neither
    came close to its limit, but what is MARGINAL did."""
    pair = _only("PCIE-5", values, **changed)
    assert (pair[1].part if pair else None) == found
