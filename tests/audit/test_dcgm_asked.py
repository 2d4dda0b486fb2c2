"""Audit of `dcgmi diag`: what was asked of which machine, and whether the run answers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.dcgm import READERS
from pytest_gpuready.audit.readers.dcgm_asked import host_of, same_host
from pytest_gpuready.audit.report import Finding, worst
from tests.parse.dcgm_made import four, healthy, three

READ = {reader.tool: reader for reader in READERS}


def reading(path: Path, document: object, command: str, **expected: Any) -> Reading:
    """What the reader makes of a document that this command printed with exit code 0."""
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    given = Given(path=path, expect=Expectations(expected, source="test"), command=command, exit_code=0)
    return READ["dcgmi-diag-json"].read(given)


def outcome(found: Reading) -> str:
    return worst(f.outcome for f in found.findings)


def bad(found: Reading) -> list[Finding]:
    return [f for f in found.findings if f.outcome in ("fail", "not-measured")]


@pytest.mark.parametrize(
    ("command", "host"),
    [
        ("ssh node1 dcgmi diag --host node2 -j", "node2"),
        ("ssh node1 dcgmi diag -r 1 -j", "node1"),
        ("ssh -J node1 root@node2 dcgmi diag -j", "node2"),
        ("ssh node1 ssh node2 dcgmi diag -j", "node2"),
        ("ssh node1 'cd /tmp; sudo dcgmi diag -j'", "node1"),
        ("ssh node1 true; dcgmi diag -j", ""),
        ("ssh node1 dcgmi diag --host localhost -j", "node1"),
        ("dcgmi diag --host=localhost:5555 -j", "localhost:5555"),
        ("dcgmi diag --host node1 --host node2 -j", "node1,node2"),
        ("srun -w node1 dcgmi diag -j", "node1"),
        ("srun --nodelist=node1 -n 1 /usr/bin/dcgmi diag -j", "node1"),
        ("kubectl exec -it pod-1 -- dcgmi diag -j", "pod-1"),
        ("dcgmi diag -r node1 -j", ""),
        ("", ""),
    ],
)
def test_the_machine_that_a_command_asks(command: str, host: str) -> None:
    """--host wins over the way there; of several hops the last counts; what is not known is nobody."""
    assert host_of(command) == host


def test_names_of_one_machine() -> None:
    """A port and a missing domain make no other machine; another name does."""
    assert same_host("node1:5555", "NODE1")
    assert same_host("node1.example.org", "node1")
    assert not same_host("node10", "node1")
    assert not same_host("node1,node2", "node1")


def test_a_run_about_another_host_does_not_pass(tmp_path: Path) -> None:
    """Asked from node1 about node2, and node1 was meant: not measured."""
    document = four(healthy("software"), healthy())
    found = reading(tmp_path / "x", document, "ssh node1 dcgmi diag --host node2 -j", requested_host="node1")
    assert [(f.metric, f.suspect) for f in bad(found)] == [("dcgm.requested_host", "the command asks node2")]
    found = reading(tmp_path / "x", document, "ssh node1 dcgmi diag -j", requested_host="node1")
    assert outcome(found) == "pass"


def test_the_last_of_many_runs_counts(tmp_path: Path) -> None:
    """100 runs that pass and one that fails: the run fails."""
    good = json.dumps(four(healthy()), indent=2)
    text = "\n".join([good] * 100 + [good.replace('"Pass"', '"Fail"')])
    assert outcome(reading(tmp_path / "x", text, "dcgmi diag -r memory -j", required_tests=["memory"])) == "fail"


def test_a_required_test_needs_results_of_gpus(tmp_path: Path) -> None:
    """A CPU's result, or a nameless one among the software checks, is none of a GPU."""
    cpu = {"entity_group": "CPU", "entity_group_id": 7, "entity_id": 0, "status": "Pass"}
    asked: dict[str, Any] = {"required_tests": ["memory"]}
    for expected in (asked, {**asked, "expected_gpus": 4}):
        document = four(healthy("software"), {**healthy(), "results": [cpu]})
        assert outcome(reading(tmp_path / "x", document, "dcgmi diag -r memory -j", **expected)) == "not-measured"
        del document["entity_groups"]
        document["DCGM Diagnostic"]["test_categories"][0]["tests"].pop(0)
        assert outcome(reading(tmp_path / "x", document, "dcgmi diag -r memory -j", **expected)) == "not-measured"
        old = three("GPU Memory", [{"status": "Pass"}], "Deployment")
        assert outcome(reading(tmp_path / "x", old, "dcgmi diag -r memory -j", **expected)) == "not-measured"


@pytest.mark.parametrize(
    ("asked", "ran", "result"),
    [
        ("d", "FP64 0, FP32 1, FP16 1", "not-measured"),
        ("dsh", "FP64 1, FP32 0, FP16 1", "not-measured"),
        ("d", "", "not-measured"),
        ("d", "FP64 1, FP32 0, FP16 0", "pass"),
        ("hs", "FP64 0, FP32 1, FP16 1", "pass"),
    ],
)
def test_the_precision_that_was_asked_must_have_run(tmp_path: Path, asked: str, ran: str, result: str) -> None:
    """On every GPU the info says so, or nothing is proven."""
    test = healthy("diagnostic")
    for row in test["results"]:
        row["info"] = [f"Running with precisions: {ran}"] if ran else []
    command = f"dcgmi diag -r diagnostic -j -p diagnostic.precision={asked}"
    assert outcome(reading(tmp_path / "x", four(test), command)) == result
    if result == "pass":
        test["results"][2]["info"] = ["Running with precisions: FP64 0, FP32 0, FP16 0"]
        assert outcome(reading(tmp_path / "x", four(test), command)) == "not-measured"


def test_errors_that_stand_elsewhere_count(tmp_path: Path) -> None:
    """A runtime_error beside the results leaves all open; a suppressed error in the summary fails its GPU."""
    command = "dcgmi diag -r memory -j"
    document = four(healthy())
    assert outcome(reading(tmp_path / "x", {**document, "runtime_error": "nvvs died"}, command)) == "not-measured"
    test = healthy()
    test["test_summary"]["info"] = ["Suppressed error:  GPU 3 had a thermal violation"]
    found = reading(tmp_path / "x", four(test), command)
    assert [(f.metric, f.part, f.outcome) for f in bad(found)] == [("dcgm.memory", "GPU 3", "fail")]


def test_nvlinks_are_counted_by_a_pcie_test_without_errors(tmp_path: Path) -> None:
    """Error 99 beside a Pass fails the links; another error, or a GPU without a result, leaves them open."""
    command = "dcgmi diag -r pcie -j -p pcie.gpu_nvlinks_expected_up=18"

    def links(document: object) -> list[str]:
        found = reading(tmp_path / "x", document, command, expected_nvlinks_per_gpu=18)
        return [f.outcome for f in found.findings if f.metric == "dcgm.nvlinks"]

    assert links(four(healthy("pcie"))) == ["pass"]
    test = healthy("pcie")
    few = {"warning": "GPU 3: Only 16 NvLinks are up out of the expected 18", "error_id": 99}
    test["results"][3]["warnings"] = [few]
    assert links(four(test)) == ["fail"]
    test["results"][3]["warnings"] = [{"warning": "link generation", "error_id": 45}]
    assert links(four(test)) == ["not-measured"]
    test["results"].pop(3)
    assert links(four(test)) == ["not-measured"]


@pytest.mark.parametrize(
    ("duration", "required", "observed"),
    [("1", "not-measured", True), ("119.9", "not-measured", True), ("x", "not-measured", True), ("120", "pass", False)],
)
def test_a_test_that_was_cut_short_is_not_the_one_required(
    tmp_path: Path, duration: str, required: str, observed: bool
) -> None:
    """Under DCGM's own default a required test is not measured; another one says first how short it was."""
    command = (
        f"dcgmi diag -r targeted_power -j -p targeted_power.test_duration={duration};targeted_power.target_power=1"
    )
    document = four(healthy("targeted_power"))
    found = reading(tmp_path / "x", document, command, required_tests=["Targeted Power"])
    assert outcome(found) == required
    found = reading(tmp_path / "x", document, command)
    assert [f.outcome for f in found.findings if f.metric == "dcgm.targeted_power.duration"] == ["observed"] * observed
    assert found.not_covered[0].startswith("targeted_power lasted") is observed
    assert any("targeted_power.target_power was set to 1" in text for text in found.not_covered)
