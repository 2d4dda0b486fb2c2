"""A dry run: the plan is what a run then does, in that order; nothing is measured, written or accepted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import pytest_gpuready.acceptance
from pytest_gpuready.acceptance import Acceptance
from pytest_gpuready.campaign.plan import Plan, plan
from pytest_gpuready.campaign.plan_lines import NOTHING
from pytest_gpuready.errors import StoreError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport.recording import append
from pytest_gpuready.transport.replay import Replay
from tests.nodes import as_another, demo_results
from tests.plugin.conftest import LIGHT, SUITES, Accept

DRY = "--gpuready-dry-run"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Every command that a replay is asked for, in order."""
    asked: list[Command] = []
    run = Replay.run

    def noted(self: Replay, command: Command) -> CommandResult:
        asked.append(command)
        return run(self, command)

    monkeypatch.setattr(Replay, "run", noted)
    return asked


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that were made."""
    made: list[Plan] = []

    def noted(**given: Any) -> Plan:
        made.append(plan(**given))
        return made[-1]

    monkeypatch.setattr(pytest_gpuready.acceptance, "plan", noted)
    return made


def several(directory: Path) -> None:
    """A recording of two nodes made of one; of a third the site file says that it is there, and nobody answers."""
    results = [as_another(r, number, f"node{number:02d}") for number in (1, 2) for r in demo_results()]
    append(directory, results, nodes=["node03"], composed="two nodes made of one")
    nodes = '"node[01-03]": {gpus: 2, nvlink: full, virtual: true}'
    site = f'site: 1\nnodes:\n  {nodes}\nenvironment: {{NCCL_NVLS_ENABLE: "0"}}\n'
    (directory / "site.yaml").write_text(site)


def without_certificate(_acceptance: Acceptance, _records: object, *, finished: bool, blockers: object = ()) -> None:
    """In the place of what builds a certificate: these tests look at what is measured only."""
    if finished:
        raise StoreError("no certificate is asked for here")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpuready-replay", "demo-dcgm", "-m", "level4"),
        ("--gpuready-replay", "demo", "-m", "level4", "-k", "after or lowest", "--gpuready-keep-going"),
        ("--gpuready-replay", "nodes", "-m", "level2"),
    ],
)
def test_the_plan_is_what_a_run_then_takes(
    accept: Accept,
    ran: list[Command],
    planned: list[Plan],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    """Every command of a run stands in the plan, with its words, in the order in which it is taken, and no other; the
    dry run itself asks for the inventory alone, judges nothing and leaves nothing. Where a node gave no answer one line
    says so, and the exit code is not 0."""
    several(accept.path / "nodes")
    before = set(accept.path.iterdir())
    dry = accept(*arguments, DRY)
    code = int("nodes" in arguments)
    assert dry.code == code
    short = [line for line in dry.result.outlines if line.startswith("no plan ")]
    said = "no plan     for 1 of 3 nodes, node03: no answer that counts, nothing can be measured there; exit code 1"
    assert short == [said] * code
    assert set(accept.path.iterdir()) - before <= {accept.path / "own_lease.py", accept.path / "__pycache__"}
    (made,) = planned
    asked = [(command.node, command.argv) for command in ran]
    promised = [(c.node, c.argv) for step in made.steps for c in step.commands]
    inventory = sum(len(step.commands) for step in made.steps[: made.asked_now])
    assert sorted(asked) == sorted(promised[:inventory])
    assert 0 < inventory < len(promised)
    dry.result.stdout.fnmatch_lines(["*dry run: the plan*", "*agent copies*", f"dry run *{NOTHING}", "=*"])
    assert " passed in " not in dry.result.stdout.str()
    assert '"phases"' not in dry.result.stdout.str()
    ran.clear()
    monkeypatch.setattr(Acceptance, "conclude", without_certificate)
    accept(*arguments, "--tb=no")
    taken = [(command.node, command.argv) for command in ran]
    assert sorted(taken[:inventory]) == sorted(promised[:inventory])
    assert taken[inventory:] == promised[inventory:]


def test_a_dry_run_needs_no_workers_and_shows_its_plan_when_quiet(
    accept: Accept, pytester: pytest.Pytester, ran: list[Command]
) -> None:
    """With -n the controlling process makes the plan itself, and -q keeps no plan back; tests of others are counted
    and not run."""
    pytester.makepyfile(test_mine="def test_mine():\n    raise SystemExit('a dry run runs no test')")
    arguments = ("--gpuready-replay", "demo", "-m", "level1 or not clause", "-q", "-n", "2", DRY)
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess(
        *LIGHT, "-p", "own_lease", *arguments, str(SUITES / "test_gpu_health.py"), "."
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["nodes       node01", "*agent node", "besides     1 tests *", f"dry run *{NOTHING}"])
    assert [command.argv[3:] for command in ran] in ([("node",), ("nvml",)], [("nvml",), ("node",)])


def test_where_collection_broke_there_is_no_plan(accept: Accept, pytester: pytest.Pytester) -> None:
    """A file that cannot be collected ends a dry run as it ends any other: its tests are missing in the plan."""
    pytester.makepyfile(test_broken="import nothing_of_that_name")
    run = accept("--gpuready-replay", "demo", DRY, ".", suites=False)
    assert run.code == 2
    assert "the plan" not in run.result.stdout.str()


def test_a_plan_for_the_only_node_needs_its_answer(accept: Accept) -> None:
    """Of one node that says nothing of itself there is no plan, and -k that leaves no test keeps pytest's own code."""
    (accept.path / "mute").mkdir()
    silent = [dataclasses.replace(result, stdout="") for result in demo_results()]
    append(accept.path / "mute", silent)
    dry = accept("--gpuready-replay", "mute", "-m", "level1", DRY)
    assert dry.code == 1
    dry.result.stdout.fnmatch_lines(["no plan     for node01: *", f"dry run *{NOTHING}"])
    assert accept("--gpuready-replay", "mute", "-m", "level1", "-k", "no_such_test", DRY).code == 5
