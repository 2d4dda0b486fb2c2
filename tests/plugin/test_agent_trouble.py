"""An agent that dies, hangs, babbles or lies costs its own measurements and nothing else, and is never a pass."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuready.model import CommandResult
from tests.judged import cells, judged, parts
from tests.nodes import demo_results, write_recording
from tests.plugin.conftest import Accept

Trouble = Callable[[CommandResult], CommandResult]


def _edit(**fields: object) -> Trouble:
    def change(result: CommandResult) -> CommandResult:
        document = json.loads(result.stdout)
        document.update(fields)
        return dataclasses.replace(result, stdout=json.dumps(document))

    return change


TROUBLES: dict[str, Trouble] = {
    "killed": lambda r: dataclasses.replace(r, exit_code=-9, stdout=""),
    "killed after printing": lambda r: dataclasses.replace(r, exit_code=-9),
    "crashed": lambda r: dataclasses.replace(r, exit_code=1, stdout="", stderr="Traceback\nRuntimeError: no"),
    "hung": lambda r: dataclasses.replace(r, exit_code=None, timed_out=True, stdout=""),
    "hung after printing": lambda r: dataclasses.replace(r, exit_code=None, timed_out=True),
    "stuck in the driver": lambda r: dataclasses.replace(r, exit_code=None, unkillable="process 4711"),
    "silent": lambda r: dataclasses.replace(r, stdout=""),
    "garbage": lambda r: dataclasses.replace(r, stdout="Segmentation fault (core dumped)\n"),
    "garbage before": lambda r: dataclasses.replace(r, stdout=f"warning: libfoo\n{r.stdout}"),
    "half a JSON": lambda r: dataclasses.replace(r, stdout=r.stdout[: len(r.stdout) // 2]),
    "two documents": lambda r: dataclasses.replace(r, stdout=r.stdout + r.stdout),
    "not an object": lambda r: dataclasses.replace(r, stdout="[]"),
    "another protocol": _edit(gpuready_agent=2),
    "another probe": _edit(probe="other"),
    "unknown field": _edit(surprise=1),
    "empty data": _edit(data={}),
    "null data": _edit(data=None),
}


@pytest.mark.parametrize("probe", ["node", "nvml", "copies", "copies-together", "after"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_an_agent_in_trouble_is_not_measured(tmp_path: Path, probe: str, trouble: str) -> None:
    """Every clause of that agent has no measurement, nothing fails for it, and the run is INCOMPLETE."""
    results = [TROUBLES[trouble](r) if r.command.argv[3] == probe else r for r in demo_results()]
    files = probe == "copies"  # what is not there is written and drawn alike, whoever did not say it
    certificate = judged(tmp_path, write_recording(tmp_path / "node", results, gpus="2"), files=files)
    assert certificate.judged == "INCOMPLETE"
    assert cells(certificate, "FAIL") == {}
    hit, untouched = {
        "node": ("GPU-28", "GPU-9"),
        "nvml": ("GPU-9", "GPU-33"),
        "copies": ("PCIE-5", "GPU-9"),
        "copies-together": ("PCIE-21", "PCIE-5"),
        "after": ("AFTER-1", "PCIE-5"),
    }[probe]
    assert cells(certificate, "NOT MEASURED")[hit] == (0, 1)
    assert {part.outcome for part in parts(certificate, untouched)} == {"PASS"}
    assert all(" found " in part.line for part in parts(certificate, hit))


def test_one_gpu_in_trouble_costs_only_itself(tmp_path: Path) -> None:
    """The copies of one GPU that hang leave the other GPU's verdicts alone."""
    results = [TROUBLES["hung"](r) if r.command.argv[3:] == ("copies", "0000:00:07.0") else r for r in demo_results()]
    certificate = judged(tmp_path, write_recording(tmp_path / "node", results, gpus="2"))
    assert certificate.judged == "INCOMPLETE"
    assert [part.outcome for part in parts(certificate, "PCIE-5")] == ["PASS", "NOT MEASURED"]


def test_a_command_that_was_never_recorded_is_not_measured(accept: Accept) -> None:
    """A recording without copies cannot pass level 2."""
    results = [r for r in demo_results() if r.command.argv[3] != "copies"]
    write_recording(accept.path / "node", results, gpus="2")
    run = accept("--gpuready-replay", "node", "-m", "level2")
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert run.cells("NOT MEASURED")["PCIE-1"] == (0, 1)
    assert "expected a recorded result" in run.parts("PCIE-1")[0]["line"]


def test_a_node_without_nvml_is_not_accepted(tmp_path: Path) -> None:
    """The agent found no NVML library: GPUs on the bus are not condemned, nothing about them is measured."""

    def without(result: CommandResult) -> CommandResult:
        document = json.loads(result.stdout)
        document["data"] = {**document["data"], "problem": "NVML: LibraryNotFound", "gpus": [], "lost": {}}
        return dataclasses.replace(result, stdout=json.dumps(document))

    results = [without(r) if r.command.argv[3] == "nvml" else r for r in demo_results()]
    certificate = judged(tmp_path, write_recording(tmp_path / "node", results, gpus="2"))
    assert certificate.judged == "INCOMPLETE"
    assert cells(certificate, "FAIL") == {}
    assert cells(certificate, "NOT MEASURED")["GPU-1"] == (0, 1)
    assert "LibraryNotFound" in parts(certificate, "GPU-9")[0].line
