"""A clause that is not required counts neither way, wherever it is read: JUnit, terminal, page."""

from __future__ import annotations

import msgspec
import pytest
from lxml import etree

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.facts import facts
from pytest_gpuready.certificate.findings import findings
from pytest_gpuready.certificate.junit import junit
from pytest_gpuready.certificate.summary import summary_lines
from tests.certificate import samples
from tests.certificate.dcgm_node import without_engine
from tests.judged import judged


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Certificate]:
    """The recording with real runs of dcgmi: at level 2 only DCGM-4, not required, has no verdict."""
    recording = without_engine(tmp_path_factory.mktemp("recording"))
    return {level: judged(tmp_path_factory.mktemp("run"), recording, level=level) for level in (2, 4)}


def text(certificate: Certificate) -> str:
    return " ".join(" ".join(f"{label} {line}".split()) for label, line in summary_lines(certificate, "out"))


def test_junit_is_green_on_an_accepted_run(demo: dict[int, Certificate]) -> None:
    """Neither failure nor error stands in the file; the open clause is skipped, and says that it is not required."""
    root = etree.fromstring(junit(demo[2]))
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    (case,) = root.xpath("//testcase[@name='DCGM-4[node01]']")
    (skipped,) = case.findall("skipped")
    assert skipped.get("message").startswith("not required: DCGM-4 dcgm.plugins: NOT MEASURED")


@pytest.mark.parametrize("outcome", ["FAIL", "NOT MEASURED", "UNSTABLE", "NOT TESTED"])
@pytest.mark.parametrize("required", [True, False])
def test_junit_is_red_by_required_clauses_alone(outcome: str, required: bool) -> None:
    """Whatever the outcome, a required clause is a failure or an error, and another one never is."""
    whole = samples.accepted()
    suite = whole.suites[0]
    clause = suite.clauses[0]
    part = msgspec.structs.replace(clause.parts[0], outcome=outcome, line="", reason="why")
    changed = msgspec.structs.replace(clause, required=required, parts=[part])
    suites = [msgspec.structs.replace(suite, clauses=[changed])]
    root = etree.fromstring(junit(msgspec.structs.replace(whole, suites=suites)))
    assert (len(root.findall(".//failure")) + len(root.findall(".//error")) == 1) is required
    assert [s.get("message") for s in root.findall(".//skipped")] == (
        [] if required else [f"not required: {outcome}: why"]
    )


def test_the_terminal_counts_required_clauses(demo: dict[int, Certificate]) -> None:
    """An accepted run misses nothing; the banner and the counts of another one agree."""
    said = text(demo[2])
    assert "optional DCGM-4: not required, has no value on some part, counts neither way" in said
    assert "; none missing excluded" in said
    assert "DCGM-4 NOT MEASURED" not in said
    said = text(demo[4])
    assert f"8 of {demo[4].counts.clauses} clauses have no verdict." in demo[4].says
    assert "; 8 clauses without verdict excluded" in said
    assert "optional DCGM-4: not required, has no value on some part, counts neither way" in said
    assert dict(facts(demo[4]))["Clauses"].endswith("8\u00a0clauses without verdict; 1 not required without a value")


def test_what_ran_and_broke_stands_before_what_left_nothing() -> None:
    """A test that was killed is worth more than three that were not recorded; one finding more is one finding."""
    whole = samples.accepted()
    suite = whole.suites[0]
    clauses = []
    for place, clause in enumerate(suite.clauses[:5]):
        seen = {"reason": f"why {place}", "evidence": ["0" * 64] if place == 4 else []}
        part = msgspec.structs.replace(clause.parts[0], outcome="NOT MEASURED", value=None, shown="", **seen)
        clauses.append(msgspec.structs.replace(clause, required=True, parts=[part]))
    suites = [msgspec.structs.replace(suite, clauses=clauses)]
    broken = msgspec.structs.replace(whole, judged="INCOMPLETE", verdict="", suites=suites)
    assert [f.worst.reason for f in findings(broken)] == ["why 4", "why 0", "why 1", "why 2", "why 3"]
    assert "and 1 more finding, on the page" in text(broken)
