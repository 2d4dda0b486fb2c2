"""Every recorded run of dcgmi 4.6.0 has its right reading: what it proves, what it fails, what it leaves unmeasured.

The readings are decided from what the machine was and what DCGM's documentation and source say of such a run, one
line of reason each; see tests/data/dcgm/4.6.0/README.md for how the runs were made.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.dcgm import READERS
from pytest_gpuready.audit.report import worst

RUNS = Path(__file__).parents[1] / "data" / "dcgm" / "4.6.0"
READ = {reader.tool: reader for reader in READERS}

PASS, FAIL, NOT, SEEN = "pass", "fail", "not-measured", "observed"

# run, outcome, finding that decides it (metric and part), word of its suspect, why.
READINGS: tuple[tuple[str, str, str, str, str], ...] = (
    ("h200x1/bad-level", NOT, "dcgm", "command line", "254, stdout empty: the command line was refused, nothing ran"),
    ("h200x1/diagnostic-bf16-6s", NOT, "dcgm.diagnostic.precision", "no bf16", "BF16 was asked, FP32 and FP16 ran"),
    ("h200x1/diagnostic-fp8-12s", NOT, "dcgm.diagnostic.precision", "no fp8", "FP8 was asked, FP32 and FP16 ran"),
    ("h200x1/discovery", SEEN, "dcgm.gpus", "", "one GPU is listed; a list judges nothing without an expectation"),
    ("h200x1/discovery-no-hostengine", NOT, "dcgm.gpus", "nv-hostengine", "235: no host engine, so no list"),
    ("h200x1/health-check", PASS, "dcgm.health", "", "DCGM's own word is Healthy"),
    ("h200x1/health-check-json", PASS, "dcgm.health", "", "the same as JSON"),
    ("h200x1/health-set", SEEN, "dcgm.health.watches", "", "watches were set; nothing was asked about health"),
    ("h200x1/memory-while-110GB-held", NOT, "dcgm.memory GPU 0", "another process", "Skip without a word, exit 0"),
    ("h200x1/memtest-8s", NOT, "dcgm", "signal 9", "killed after 60 s with nothing printed"),
    ("h200x1/n-gpu8", NOT, "dcgm", "number of GPUs", "255: -n gpu:8 on one GPU, runtime_error, no results"),
    ("h200x1/nvbandwidth", PASS, "dcgm.nvbandwidth GPU 0", "", "ran and passed; its figures are not in the output"),
    ("h200x1/nvlink-status", SEEN, "nvlink.status GPU 0", "no link is up", "all links not supported in this VM"),
    ("h200x1/pcie-gen5", PASS, "dcgm.pcie GPU 0", "", "generation 5 was asked and is there"),
    ("h200x1/pcie-gen6", FAIL, "dcgm.pcie GPU 0", "PCIe path of GPU 0", "error 45: generation 5 below the 6 asked"),
    ("h200x1/pcie-gen6-iterations2", FAIL, "dcgm.pcie GPU 0", "PCIe path of GPU 0", "failed in pass 1 of 2"),
    ("h200x1/pcie-gen6-text", FAIL, "dcgm.pcie GPU 0", "PCIe path of GPU 0", "the same as table"),
    ("h200x1/r1-iterations2", PASS, "dcgm.iterations", "", "both passes are there and pass"),
    ("h200x1/r1-json", PASS, "dcgm.software GPU 0", "", "software checks pass; nothing else was asked"),
    ("h200x1/r1-json-after-client-sigkill", NOT, "dcgm", "another diagnostic", "222: the killed client's diag runs on"),
    ("h200x1/r1-json-after-wait", NOT, "dcgm", "another diagnostic", "222, still 9 s later"),
    ("h200x1/r1-json-embedded", PASS, "dcgm.software GPU 0", "", "embedded engine on the same machine, no --host"),
    ("h200x1/r1-json-host-absent", NOT, "dcgm 127.0.0.1:5555", "nv-hostengine", "another engine's results, exit 0"),
    ("h200x1/r1-json-while-other-runs", NOT, "dcgm", "another diagnostic", "222: affected resource is in use"),
    ("h200x1/r1-text-while-other-runs", NOT, "dcgm", "another diagnostic", "the same as text"),
    ("h200x1/r2-json", PASS, "dcgm.memory GPU 0", "", "software, memory and pcie ran and pass"),
    ("h200x1/r3-json", PASS, "dcgm.targeted_power GPU 0", "", "all that is in it passes; absent tests: not covered"),
    ("h200x1/sigint-5s", NOT, "dcgm", "stopped", "203: killed by a signal"),
    ("h200x1/sigkill-5s", NOT, "dcgm", "signal 9", "killed with nothing printed"),
    ("h200x1/unknown-param-test", NOT, "dcgm", "no such test", "198: parameter of a test that is not loaded"),
    ("h200x1/unknown-test", NOT, "dcgm", "no such test", "198: no such test"),
    ("h200x1/version", NOT, "dcgm.version", "no version", "dcgmi -v prints nothing"),
    ("injected/bad-cuda-env-embedded", FAIL, "dcgm.software", "environment variable", "error 28, twice, names no GPU"),
    ("injected/check-interval-alone", NOT, "dcgm", "command line", "254: an option needs another one"),
    ("injected/dev-node-missing-r1-json", FAIL, "dcgm.software", "host configuration", "error 20 in the summary alone"),
    ("injected/fabric-in-progress-r1-json", FAIL, "dcgm.software", "fabric manager", "error 112: training in progress"),
    ("injected/fail-early", PASS, "dcgm.software GPU 7", "", "a valid combination; all eight pass"),
    (
        "injected/gpu-not-in-sku-file-r2-json",
        FAIL,
        "dcgm.pcie GPU 0",
        "CUDA",
        "summary Fail with error 51 beside a Skip",
    ),
    ("injected/gpu-not-in-sku-file-r2-text", FAIL, "dcgm.pcie GPU 0", "CUDA", "the same as table"),
    ("injected/gpu-not-in-sku-file-r3-json", FAIL, "dcgm.targeted_power GPU 0", "CUDA", "the same, and tests skipped"),
    ("injected/gpuList-old-option", PASS, "dcgm.software GPU 1", "", "the two GPUs that were chosen pass"),
    ("injected/healthy-1gpu-bad-entity", NOT, "dcgm", "no such GPU", "226 with runtime_error: nothing ran"),
    ("injected/healthy-1gpu-bad-param-syntax", NOT, "dcgm", "command line", "254"),
    ("injected/healthy-1gpu-config-absent", NOT, "dcgm", "command line", "254"),
    (
        "injected/healthy-1gpu-discovery-unreachable",
        NOT,
        "dcgm.gpus",
        "127.0.0.9:5599",
        "235: that host did not answer",
    ),
    ("injected/healthy-1gpu-dup-param", NOT, "dcgm", "command line", "254"),
    ("injected/healthy-1gpu-health-unreachable", NOT, "dcgm.health", "127.0.0.9:5599", "235: that host did not answer"),
    ("injected/healthy-1gpu-ignore-bad", NOT, "dcgm", "command line", "226 with runtime_error: nothing ran"),
    ("injected/healthy-1gpu-iterations0", NOT, "dcgm", "command line", "254"),
    ("injected/healthy-1gpu-name-software", NOT, "dcgm", "no such test", "198: software is not chosen by name"),
    ("injected/healthy-1gpu-no-run", NOT, "dcgm", "command line", "254"),
    ("injected/healthy-1gpu-r1-json", PASS, "dcgm.software GPU 0", "", "healthy"),
    ("injected/healthy-1gpu-train", NOT, "dcgm", "command line", "254: --train was removed"),
    ("injected/healthy-1gpu-unknown-option", NOT, "dcgm", "command line", "1: unknown option"),
    ("injected/healthy-8gpu-discovery", SEEN, "dcgm.gpus", "", "eight GPUs are listed"),
    ("injected/healthy-8gpu-n8", PASS, "dcgm.software GPU 7", "", "-n gpu:8 is met and all pass"),
    ("injected/healthy-8gpu-nvlink", SEEN, "nvlink.status GPU 7", "no link is up", "all links not supported"),
    ("injected/healthy-8gpu-r1-json", PASS, "dcgm.software GPU 7", "", "healthy"),
    ("injected/hostengine-killed-midrun-json-HUNG", NOT, "dcgm", "signal 9", "hung, killed with nothing printed"),
    ("injected/iterations2-text", PASS, "dcgm.iterations", "", "both passes are there, and the line that says so"),
    ("injected/mixed-models-r1-json", NOT, "dcgm", "different models", "233 with runtime_error: nothing ran"),
    ("injected/no-gpu-discovery", SEEN, "dcgm.gpus", "", "no GPU is listed, exit 0; nothing was expected"),
    ("injected/nonroot-client", PASS, "dcgm.software GPU 7", "", "the root host engine did the work"),
    ("injected/nonroot-embedded", FAIL, "dcgm.software", "rights", "error 96: every GPU Pass, the summary alone Fail"),
    ("injected/nvvs-absent-r1-json", NOT, "dcgm", "nvvs is missing", "204"),
    ("injected/nvvs-absent-r1-text", NOT, "dcgm", "nvvs is missing", "204, the same as text"),
    ("injected/one-plugin-absent-closed-plugin", NOT, "dcgm", "package is missing", "198: pulse_test is not installed"),
    ("injected/one-plugin-absent-closed-plugin-eud", NOT, "dcgm", "package is missing", "198: eud is not installed"),
    ("injected/one-plugin-absent-r2-json", FAIL, "dcgm.pcie GPU 0", "CUDA", "error 51; memory is absent: not covered"),
    ("injected/persistence-off-r1-json", FAIL, "dcgm.software GPU 1", "persistence mode", "error 29, a host setting"),
    ("injected/plugins-absent-r1-json", NOT, "dcgm", "no plug-ins", "226 with runtime_error: nothing ran"),
    ("injected/r1-after-nvvs-killed", PASS, "dcgm.software GPU 7", "", "the run after a killed nvvs is fine"),
    ("injected/recovery-action-reset-health", FAIL, "dcgm.health.Driver GPU 1", "GPU 1", "Failure, exit 0"),
    ("injected/recovery-action-reset-r1-json", FAIL, "dcgm.software GPU 1", "GPU 1", "error 125; GPU 0 is not blamed"),
    ("injected/row-remap-failure-health", NOT, "dcgm.health", "same breath", "Healthy by watches without data"),
    ("injected/row-remap-failure-health-text", PASS, "dcgm.health", "", "DCGM's word; its blindness is not covered"),
    ("injected/row-remap-failure-iterations2", FAIL, "dcgm.software GPU 3", "GPU 3 memory", "error 80 in pass 1 of 2"),
    ("injected/row-remap-failure-r1-json", FAIL, "dcgm.software GPU 3", "GPU 3 memory", "error 80, only GPU 3"),
    ("injected/row-remap-pending-r1-json", FAIL, "dcgm.software GPU 1", "GPU 1 memory", "error 84, only GPU 1"),
    ("injected/sigint-text", NOT, "dcgm", "stopped", "203 as text"),
    ("injected/sigterm-json", NOT, "dcgm", "stopped", "203"),
    ("injected/timeout-exceeded-json", NOT, "dcgm", "time limit", "245: dcgmi's own time limit"),
    ("injected/version", SEEN, "dcgm.version", "", "a version, which judges nothing"),
    ("injected/volatile-dbe-health", NOT, "dcgm.health", "same breath", "Healthy by watches without data"),
    ("injected/volatile-dbe-health-text", PASS, "dcgm.health", "", "DCGM's word; its blindness is not covered"),
    (
        "injected/volatile-dbe-r1-json",
        PASS,
        "dcgm.software GPU 1",
        "",
        "what DCGM says of it; perhaps the injection's doing",
    ),
)


def tool_of(command: str) -> str:
    """The reader for a command; what is audited without its command is recognised by its content."""
    for word in ("health", "nvlink", "discovery"):
        if f"dcgmi {word}" in command:
            return f"dcgmi-{word}"
    if "dcgmi diag" not in command:
        return "dcgmi-version"
    return "dcgmi-diag-json" if re.search(r"\s-j\b", command) else "dcgmi-diag-text"


def reading_of(run: str, **expected: object) -> Reading:
    """What the reader makes of a recorded run."""
    folder = RUNS / run
    command = (folder / "command.txt").read_text().strip()
    given = Given(
        path=folder / "stdout",
        expect=Expectations(expected, source="test"),
        command=command,
        exit_code=int((folder / "exit_code.txt").read_text()),
    )
    return READ[tool_of(command)].read(given)


def test_every_recorded_run_has_a_reading() -> None:
    """No run is left out, none is there twice."""
    folders = sorted(str(p.parent.relative_to(RUNS)) for p in RUNS.glob("*/*/command.txt"))
    assert sorted(row[0] for row in READINGS) == folders
    assert len(folders) == 86


@pytest.mark.parametrize(("run", "outcome", "decides", "suspect", "why"), READINGS, ids=[row[0] for row in READINGS])
def test_recorded_run(run: str, outcome: str, decides: str, suspect: str, why: str) -> None:
    """The run comes to its right outcome, by the finding that decides it, naming the part to look at."""
    found = reading_of(run).findings
    assert worst(finding.outcome for finding in found) == outcome, why
    deciding = [f for f in found if f"{f.metric} {f.part}".strip() == decides and f.outcome == outcome]
    assert deciding, [f"{f.metric} {f.part}: {f.outcome}" for f in found]
    assert suspect in deciding[0].suspect
    if outcome in (PASS, SEEN):
        assert not [f for f in found if f.outcome in (FAIL, NOT)]


@pytest.mark.parametrize("run", [row[0] for row in READINGS])
def test_recorded_run_is_recognised(run: str) -> None:
    """What a run printed is recognised by its content; where nothing was printed, by nobody."""
    text = (RUNS / run / "stdout").read_text()
    sure = {reader.tool: reader.recognise(text) for reader in READERS}
    best = max(sure, key=lambda tool: sure[tool])
    if not text.strip():
        assert set(sure.values()) == {0}
    elif run == "injected/healthy-1gpu-health-unreachable":
        assert best == "dcgmi-discovery"  # word for word what discovery prints
    else:
        assert best == tool_of((RUNS / run / "command.txt").read_text().strip())
        assert sorted(sure.values())[-2] < 30


def test_absent_tests_of_a_level_are_told() -> None:
    """Level 3 without its closed plug-ins passes what is there and says which tests of that level are absent."""
    reading = reading_of("h200x1/r3-json")
    assert any("absent from the output" in text and "memory_bandwidth, eud" in text for text in reading.not_covered)
    asked = reading_of("h200x1/r3-json", required_tests=["memory_bandwidth", "diagnostic"]).findings
    assert worst(f.outcome for f in asked) == NOT
    assert [f.metric for f in asked if f.outcome == NOT] == ["dcgm.memory_bandwidth"]


def test_a_healthy_gpu_is_not_blamed_for_its_neighbour() -> None:
    """DCGM fails both GPUs for a fault of GPU 1: GPU 0 is neither failed nor passed."""
    found = {
        f.part: f.outcome for f in reading_of("injected/recovery-action-reset-r1-json").findings if f.value == "Fail"
    }
    assert found == {"GPU 1": FAIL, "GPU 0": NOT}


@pytest.mark.parametrize(
    ("run", "expected", "outcome"),
    [
        ("h200x1/discovery", {"expected_gpus": 1, "expected_model": "NVIDIA H200"}, PASS),
        ("h200x1/discovery", {"expected_gpus": 8}, FAIL),
        ("h200x1/discovery", {"expected_model": "NVIDIA L40S"}, FAIL),
        ("injected/no-gpu-discovery", {"expected_gpus": 8}, FAIL),
        ("injected/healthy-8gpu-discovery", {"expected_gpus": 8}, PASS),
        ("h200x1/nvlink-status", {"expected_nvlinks_per_gpu": 18}, FAIL),
        ("h200x1/nvlink-status", {"expected_nvlinks_per_gpu": 0, "expected_gpus": 1}, "not-applicable"),
        ("injected/healthy-8gpu-r1-json", {"expected_gpus": 8, "expected_model": "NVIDIA H200"}, PASS),
        ("injected/healthy-8gpu-r1-json", {"expected_gpus": 4}, FAIL),
        ("injected/gpuList-old-option", {"expected_gpus": 8}, NOT),
        ("h200x1/r2-json", {"expected_gpus": 8}, FAIL),
        ("h200x1/r2-json", {"required_tests": ["memory", "PCIe"]}, PASS),
        ("h200x1/r2-json", {"expected_nvlinks_per_gpu": 18}, NOT),
        ("h200x1/r2-json", {"expected_pcie_gen": 5}, NOT),
        ("h200x1/r2-json", {"requested_host": "gx-1"}, NOT),
        ("h200x1/r1-iterations2", {"iterations": 2}, PASS),
        ("h200x1/r1-iterations2", {"iterations": 3}, NOT),
        ("h200x1/r1-json", {"iterations": 2}, NOT),
        ("h200x1/health-check", {"expected_gpus": 1}, NOT),
    ],
)
def test_expectations_on_recorded_runs(run: str, expected: dict[str, object], outcome: str) -> None:
    """An expectation that the text answers passes or fails; one that it cannot answer is not measured."""
    assert worst(f.outcome for f in reading_of(run, **expected).findings) == outcome
