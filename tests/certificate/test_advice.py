"""What to do stands once: the problem's own words where it has any, the general advice elsewhere."""

from __future__ import annotations

import pytest

from pytest_gpuready.certificate.html import render
from pytest_gpuready.certificate.lines import action_text, finding_line
from pytest_gpuready.certificate.page import sentence
from pytest_gpuready.model import Clause, Inventory, Node, Outcome, Part, Problem, ProblemKind, Verdict
from pytest_gpuready.parse.dcgm_errors import ERRORS, UNMEASURED
from pytest_gpuready.parse.dcgm_reasons import _REASONS
from pytest_gpuready.probes.dcgm_tests import TESTS, package_of
from tests.judged import judged, parts

NODE = Node(name="node01", slots=())
INVENTORY = Inventory(nodes=(NODE,))
GENERAL = "run level 3 again; if it stays unmeasured, treat that as a finding about node01"


def clause(*, required: bool = True) -> Clause:
    return Clause(id="X-1", suite="x", level=3, metric="x", per="node", required=required)


def problem(says: str) -> Problem:
    return Problem(metric="x", part="node01", kind=ProblemKind.NOT_MEASURED, says=says)


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ("expected a, found b; install c, or correct PATH", "install c, or correct PATH"),
        ("expected a; found b; read nvvs.log", "read nvvs.log"),
        ("expected results, found none; it was ended after 5 s", ""),
        ("expected the fan to run, found it off; running hot", ""),
        ("read nvvs.log", ""),
        ("", ""),
        ("expected a; ", ""),
    ],
)
def test_an_advice_is_what_begins_with_a_verb_behind_the_last_semicolon(says: str, advice: str) -> None:
    """Whatever else stands behind a semicolon tells nobody to do anything."""
    assert problem(says).advice == advice
    found = problem(says)
    verdict = Verdict(clause="X-1", part="node01", outcome=Outcome.NOT_MEASURED, reason=says)
    line = finding_line(INVENTORY, clause(), Part(node="node01"), found, verdict)
    assert action_text(INVENTORY, clause(), Part(node="node01"), Outcome.NOT_MEASURED, found) == (advice or GENERAL)
    assert line.endswith(advice or GENERAL)
    assert line.count(advice or GENERAL) == 1


def test_nobody_repeats_what_is_not_required() -> None:
    """A clause that counts neither way is no finding about a part."""
    assert action_text(INVENTORY, clause(required=False), Part(node="node01"), Outcome.NOT_MEASURED, problem("x")) == ""


REMEDIES = {r for *_, r in _REASONS} | {e.remedy for e in ERRORS.values() if e.weight == UNMEASURED}


@pytest.mark.parametrize("remedy", sorted(REMEDIES))
def test_every_remedy_of_dcgm_is_an_advice(remedy: str) -> None:
    """What our tables of DCGM's reasons and errors advise is taken for advice."""
    last = remedy.rpartition("; ")[2]
    assert problem(f"expected results; {remedy}").advice in (remedy, last)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_the_package_of_a_test_is_named(test) -> None:
    """Closed plug-ins come with the proprietary package, the others with that of a CUDA version."""
    closed = test.name in ("memory_bandwidth", "pulse_test", "eud", "cpu_eud")
    assert package_of(test.name).startswith("datacenter-gpu-manager-4-" + ("proprietary" if closed else "cuda"))


def test_a_missing_plug_in_names_its_package(tmp_path) -> None:
    """A closed test that DCGM does not know: install its package; nothing else is advised, on any page."""
    certificate = judged(tmp_path, "demo-dcgm", level=4)
    (part,) = parts(certificate, "DCGM-12")
    advice = "install datacenter-gpu-manager-4-proprietary"
    assert part.action == advice
    assert part.line.endswith(advice)
    assert "correct the test's name" not in part.line
    (killed,) = parts(certificate, "DCGM-13")
    page = render(certificate)
    for said in (part, killed):
        assert "if it stays unmeasured" not in said.line + said.action
    assert page.count("I" + advice[1:] + ".") + page.count(advice) > 0
    (node,) = parts(certificate, "DCGM-4")
    assert node.reason.endswith("found none; which tests have a plug-in shows when each runs")
    assert node.action == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python -m pytest --gpuready-out x -m level1", "python -m pytest --gpuready-out x -m level1"),
        ("python -m pytest_gpuready.agent node: found nothing", "python -m pytest_gpuready.agent node: found nothing."),
        ("scontrol -o show node: no such node", "scontrol -o show node: no such node."),
        ("reset GPU 3; run again", "Reset GPU 3; run again."),
        ("power - as it is set", "Power - as it is set."),
    ],
)
def test_a_command_keeps_its_small_letter(line: str, said: str) -> None:
    """A sentence may begin with a command; a command alone has no full stop either."""
    assert sentence(line) == said
