"""The stand-in for dcgmi prints what the real one printed: every comparison is with a recorded run, byte by byte.

A scenario repeats what is known of the recorded machine. What is left out of the comparison is the mark " stand-in"
at the driver's version and the GPU's name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.parse.dcgm_diag import diag_run
from pytest_gpuready.parse.dcgm_parts import Says, part_results
from pytest_gpuready.parse.dcgmi_discovery import discovery
from pytest_gpuready.parse.dcgmi_health import health
from tests.dcgm_scenarios import PROGRAM, by_name, install
from tests.standin.playing import run
from tests.standin.standin_dcgm.main import UNUSABLE
from tests.standin.standin_dcgm.scenario import VARIABLE

RUNS = Path(__file__).parent / "data" / "dcgm" / "4.6.0"
MARK = " stand-in"
DEADLINE_S = 30

Scenario = dict[str, Any]


def injected(count: int) -> Scenario:
    """GPUs as the recordings with injected NVML have them."""
    return {
        "count": count,
        "serials": ["fake_serial_0", *(f"165000000{n:04d}" for n in range(1, count))],
        "bus_ids": [f"00000000:{n + 1}0:00.0" for n in range(count)],
    }


REAL: Scenario = {"gpus": {"count": 1, "bus_ids": ["00000000:00:06.0"]}}
ONE: Scenario = {"gpus": injected(1)}
TWO: Scenario = {"gpus": injected(2)}
EIGHT: Scenario = {"gpus": injected(8)}
STUB_CUDA: Scenario = {"all": {"status": "Skip", "errors": [{"id": 51}]}}
UNKNOWN_GPU: Scenario = {
    "gpus": {**injected(1), "device_id": "29ff"},
    "sku_known": False,
    "plugins": ["memory", "pcie", "diagnostic", "nvbandwidth", "targeted_stress", "targeted_power"],
    "tests": dict.fromkeys(("pcie", "targeted_stress", "targeted_power"), STUB_CUDA),
}


def software(**told: Any) -> Scenario:
    """A scenario part: what the software checks say."""
    return {"tests": {"software": told}}


def pcie(d2h: float, h2d: float, bidir: float, *latencies: float) -> Scenario:
    """A scenario part: figures of a recorded pcie run."""
    names = ("d2h_us", "h2d_us", "bidir_us")
    return {"measured": {"all": {"d2h": d2h, "h2d": h2d, "bidir": bidir, **dict(zip(names, latencies, strict=True))}}}


R3 = {
    "plugins": ["memory", "diagnostic", "nvbandwidth", "pcie", "targeted_stress", "targeted_power"],
    **pcie(55.16, 55.08, 101.03, 1.960, 2.182, 3.811),
}
GEN6 = "pcie.h2d_d2h_single_pinned.min_pci_generation=6"
OTHER_GENERATION = {"all": {"status": "Fail"}}
PERSISTENCE = {"all": {"errors": [{"id": 29}]}}
REMAP = {"gpus": {3: {"errors": [{"id": 80}]}}}
NOBODY = {"root": False, "host_engine": "embedded"}
BAD_ENVIRONMENT = {
    "all": {"status": "Fail"},
    "summary_errors": [
        {"id": 28, "values": {"name": "NSIGHT_CUDA_DEBUGGER"}},
        {"id": 28, "values": {"name": "CUDA_INJECTION64_PATH"}},
    ],
}
RECOVER = {"all": {"status": "Fail"}, "gpus": {1: {"status": "Fail", "errors": [{"id": 125}]}}}
OPEN_ONLY = {"plugins": ["memory", "pcie", "diagnostic", "nvbandwidth", "targeted_stress", "targeted_power", "memtest"]}

# recorded run, scenario, words after `dcgmi`
RECORDED: tuple[tuple[str, Scenario, str], ...] = (
    ("h200x1/bad-level", REAL, "diag -r 9 -j"),
    (
        "h200x1/diagnostic-bf16-6s",
        {**REAL, "measured": {"all": {"gflops": 256573.22}}},
        "diag -r diagnostic -p diagnostic.test_duration=6;diagnostic.precision=bf16 -j",
    ),
    ("h200x1/discovery", REAL, "discovery -l"),
    ("h200x1/discovery-no-hostengine", {**REAL, "host_engine": "embedded"}, "discovery -l"),
    ("h200x1/health-check", REAL, "health -c"),
    ("h200x1/health-check-json", REAL, "health -c -j"),
    ("h200x1/health-set", REAL, "health -s a"),
    (
        "h200x1/memory-while-110GB-held",
        {**REAL, "tests": {"memory": {"all": {"status": "Skip"}}}},
        "diag -r memory -j",
    ),
    ("h200x1/n-gpu8", REAL, "diag -r 1 -j --expectedNumEntities gpu:8"),
    ("h200x1/nvbandwidth", REAL, "diag -r nvbandwidth -j"),
    (
        "h200x1/pcie-gen5",
        {**REAL, **pcie(55.16, 55.04, 101.06, 2.216, 2.501, 4.436)},
        "diag -r pcie -p pcie.h2d_d2h_single_pinned.min_pci_generation=5 -j",
    ),
    ("h200x1/pcie-gen6", {**REAL, **pcie(55.15, 55.14, 100.97, 2.568, 2.637, 4.658)}, f"diag -r pcie -p {GEN6} -j"),
    (
        "h200x1/pcie-gen6-iterations2",
        {**REAL, **pcie(55.10, 55.23, 101.02, 1.713, 2.071, 2.781)},
        f"diag -r pcie -p {GEN6} -j --iterations 2",
    ),
    ("h200x1/pcie-gen6-text", REAL, f"diag -r pcie -p {GEN6}"),
    ("h200x1/r1-iterations2", REAL, "diag -r 1 -j --iterations 2"),
    ("h200x1/r1-json", REAL, "diag -r 1 -j"),
    ("h200x1/r1-json-embedded", {**REAL, "host_engine": "embedded"}, "diag -r 1 -j"),
    ("h200x1/r1-json-host-absent", REAL, "diag -r 1 -j --host 127.0.0.1:5555"),
    ("h200x1/r1-json-while-other-runs", {**REAL, "busy": True}, "diag -r 1 -j"),
    ("h200x1/r1-text-while-other-runs", {**REAL, "busy": True}, "diag -r 1"),
    ("h200x1/r2-json", REAL, "diag -r 2 -j"),
    ("h200x1/r3-json", {**REAL, **R3}, "diag -r 3 -j"),
    ("h200x1/unknown-param-test", REAL, "diag -r memory -p nosuch.test_duration=1 -j"),
    ("h200x1/unknown-test", REAL, "diag -r nosuchtest -j"),
    ("h200x1/version", REAL, "-v"),
    ("injected/bad-cuda-env-embedded", {**ONE, **software(**BAD_ENVIRONMENT)}, "diag -r 1 -j"),
    ("injected/check-interval-alone", EIGHT, "diag -r 1 -j --check-interval 5"),
    (
        "injected/dev-node-missing-r1-json",
        {**EIGHT, **software(**OTHER_GENERATION, summary_errors=[{"id": 20}])},
        "diag -r 1 -j",
    ),
    (
        "injected/fabric-in-progress-r1-json",
        {**TWO, **software(**OTHER_GENERATION, summary_errors=[{"id": 112}])},
        "diag -r 1 -j",
    ),
    ("injected/fail-early", EIGHT, "diag -r 1 -j --fail-early --check-interval 5"),
    ("injected/gpu-not-in-sku-file-r2-json", UNKNOWN_GPU, "diag -r 2 -j"),
    ("injected/gpu-not-in-sku-file-r2-text", UNKNOWN_GPU, "diag -r 2"),
    ("injected/gpu-not-in-sku-file-r3-json", UNKNOWN_GPU, "diag -r 3 -j"),
    ("injected/gpuList-old-option", EIGHT, "diag -r 1 -j --gpuList 0,1"),
    ("injected/healthy-1gpu-bad-entity", ONE, "diag -r 1 -j -i 7"),
    ("injected/healthy-1gpu-bad-param-syntax", ONE, "diag -r memory -j -p memoryminimum"),
    ("injected/healthy-1gpu-config-absent", ONE, "diag -r 1 -j -c /nonexistent.yaml"),
    ("injected/healthy-1gpu-discovery-unreachable", ONE, "discovery -l --host 127.0.0.9:5599"),
    (
        "injected/healthy-1gpu-dup-param",
        ONE,
        "diag -r memory -j -p memory.minimum_allocation_percentage=75;memory.minimum_allocation_percentage=80",
    ),
    ("injected/healthy-1gpu-health-unreachable", ONE, "health -c --host 127.0.0.9:5599"),
    ("injected/healthy-1gpu-ignore-bad", ONE, "diag -r 1 -j --ignoreErrorCodes *:50"),
    ("injected/healthy-1gpu-iterations0", ONE, "diag -r 1 -j --iterations 0"),
    ("injected/healthy-1gpu-name-software", ONE, "diag -r software -j"),
    ("injected/healthy-1gpu-no-run", ONE, "diag -j"),
    ("injected/healthy-1gpu-train", ONE, "diag --train"),
    ("injected/healthy-8gpu-discovery", EIGHT, "discovery -l"),
    ("injected/healthy-8gpu-n8", EIGHT, "diag -r 1 -j -n gpu:8"),
    ("injected/healthy-8gpu-r1-json", EIGHT, "diag -r 1 -j"),
    ("injected/iterations2-text", EIGHT, "diag -r 1 --iterations 2"),
    (
        "injected/mixed-models-r1-json",
        {"gpus": {**injected(2), "device_ids": ["2335", "26b9"]}},
        "diag -r 1 -j",
    ),
    ("injected/no-gpu-discovery", {"gpus": {"count": 0}}, "discovery -l"),
    ("injected/nonroot-embedded", {**EIGHT, **NOBODY}, "diag -r 1 -j"),
    ("injected/nonroot-client", {**EIGHT, "root": False}, "diag -r 1 -j"),
    ("injected/nvvs-absent-r1-json", {**ONE, "nvvs": False}, "diag -r 1 -j"),
    ("injected/nvvs-absent-r1-text", {**ONE, "nvvs": False}, "diag -r 1"),
    ("injected/one-plugin-absent-closed-plugin", {**ONE, **OPEN_ONLY}, "diag -r pulse_test -j"),
    ("injected/one-plugin-absent-closed-plugin-eud", {**ONE, **OPEN_ONLY}, "diag -r eud -j"),
    (
        "injected/one-plugin-absent-r2-json",
        {**ONE, "plugins": ["pcie"], "tests": {"pcie": STUB_CUDA}},
        "diag -r 2 -j -p pcie.is_allowed=false",
    ),
    ("injected/persistence-off-r1-json", {**TWO, **software(**PERSISTENCE)}, "diag -r 1 -j"),
    ("injected/plugins-absent-r1-json", {**ONE, "plugin_folder": False}, "diag -r 1 -j"),
    ("injected/recovery-action-reset-r1-json", {**TWO, **software(**RECOVER)}, "diag -r 1 -j"),
    ("injected/row-remap-failure-iterations2", {**EIGHT, **software(**REMAP)}, "diag -r 1 -j --iterations 2"),
    ("injected/row-remap-failure-r1-json", {**EIGHT, **software(**REMAP)}, "diag -r 1 -j"),
    (
        "injected/row-remap-pending-r1-json",
        {**TWO, **software(gpus={1: {"errors": [{"id": 84}]}})},
        "diag -r 1 -j",
    ),
    ("injected/timeout-exceeded-json", {**EIGHT, **software(seconds=1.6)}, "diag -r 1 -j -t 1"),
    ("injected/version", EIGHT, "--version"),
)


def start(program: Path, words: str) -> subprocess.Popen[str]:
    """The stand-in as a child of its own."""
    pipe = subprocess.PIPE
    return subprocess.Popen([str(program), *words.split()], stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def until(path: Path) -> None:
    """Waits until a file is there."""
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.01)


def end(child: subprocess.Popen[str]) -> tuple[str, str, int]:
    """What the child printed until it ended; killed at the deadline."""
    try:
        stdout, stderr = child.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    return stdout, stderr, child.returncode


def same_but_the_mark(printed: str) -> str:
    """What was printed without the mark; in a table blanks take its place."""
    return "".join(
        line.replace(MARK, " " * len(MARK) if line.startswith("|") else "")
        for line in printed.splitlines(keepends=True)
    )


@pytest.mark.parametrize(("name", "scenario", "words"), RECORDED, ids=[row[0] for row in RECORDED])
def test_prints_what_was_recorded(name: str, scenario: Scenario, words: str, tmp_path: Path) -> None:
    """stdout, stderr and exit code are those of the recorded run."""
    stdout, stderr, code = run(tmp_path, scenario, words.split())
    assert same_but_the_mark(stdout) == (RUNS / name / "stdout").read_text()
    assert stderr == (RUNS / name / "stderr").read_text()
    assert code == int((RUNS / name / "exit_code.txt").read_text())


def test_ends_a_signal_as_recorded(tmp_path: Path) -> None:
    """SIGINT and SIGTERM end it with exit 203 and the recorded JSON, and the engine is free again."""
    for number, name in ((signal.SIGINT, "h200x1/sigint-5s"), (signal.SIGTERM, "injected/sigterm-json")):
        program = install(tmp_path, {**REAL, "state_file": "running", "tests": {"diagnostic": {"hang": True}}})
        child = start(program, "diag -r diagnostic -j")
        until(tmp_path / "running")
        child.send_signal(number)
        stdout, _, code = end(child)
        assert (stdout, code) == ((RUNS / name / "stdout").read_text(), 203)
        assert not (tmp_path / "running").exists()


def test_what_sigkill_leaves_keeps_the_engine_busy(tmp_path: Path) -> None:
    """After SIGKILL the next run gets 222 as recorded, until the diagnostic is said to have ended."""
    told: Scenario = {**REAL, "state_file": "running", "tests": {"diagnostic": {"hang": "deaf"}}}
    child = start(install(tmp_path, told), "diag -r diagnostic -j")
    until(tmp_path / "running")
    child.kill()
    assert end(child)[::2] == ("", -signal.SIGKILL)
    recorded = (RUNS / "h200x1" / "r1-json-after-client-sigkill" / "stdout").read_text()
    assert run(tmp_path, told, ["diag", "-r", "1", "-j"]) == (recorded, "", 222)
    (tmp_path / "running").unlink()
    assert run(tmp_path, told, ["diag", "-r", "1", "-j"])[2] == 0


def test_is_deaf_where_the_engine_died(tmp_path: Path) -> None:
    """A run that hangs deaf heeds neither SIGINT nor SIGTERM."""
    told: Scenario = {**REAL, "state_file": "running", "time_scale": 0.1}
    child = start(install(tmp_path, {**told, "tests": {"software": {"hang": "deaf"}}}), "diag -r 1 -j")
    until(tmp_path / "running")
    status = Path(f"/proc/{child.pid}/status")
    deadline = time.monotonic() + DEADLINE_S
    while not _ignores(status.read_text(), signal.SIGTERM, signal.SIGINT):
        assert time.monotonic() < deadline, "it never became deaf"
        time.sleep(0.01)
    child.kill()
    assert end(child)[::2] == ("", -signal.SIGKILL)


def _ignores(status: str, *numbers: int) -> bool:
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return all(mask >> (number - 1) & 1 for number in numbers)


def test_two_runs_at_once_get_in_each_others_way(tmp_path: Path) -> None:
    """While one diagnostic runs, another one gets 222."""
    told: Scenario = {**REAL, "state_file": "running", "tests": {"diagnostic": {"hang": True}}}
    child = start(install(tmp_path, told), "diag -r diagnostic -j")
    until(tmp_path / "running")
    second = run(tmp_path, told, ["diag", "-r", "1"])
    assert (tmp_path / "running").exists()
    child.terminate()
    assert end(child)[2] == 203
    assert second == ((RUNS / "h200x1" / "r1-text-while-other-runs" / "stdout").read_text(), "", 222)


def test_unknown_option_is_refused_as_recorded(tmp_path: Path) -> None:
    """Exit 1, nothing on stdout, the parser's first lines on stderr."""
    stdout, stderr, code = run(tmp_path, ONE, ["diag", "-r", "1", "--nosuch"])
    recorded = (RUNS / "injected" / "healthy-1gpu-unknown-option" / "stderr").read_text()
    assert (stdout, code) == ("", 1)
    assert stderr.splitlines()[:4] == recorded.splitlines()[:4]


def test_names_itself_a_stand_in(tmp_path: Path) -> None:
    """Its first line, every result and every listed GPU say what it is, whatever driver the scenario names."""
    assert "stand-in" in PROGRAM.read_text().splitlines()[1]
    assert os.access(PROGRAM, os.X_OK)
    for version in ("4.6.0", "3.3.9"):
        told = {"version": version, "driver": "580.1"}
        assert diag_run(run(tmp_path, told, ["diag", "-r", "2", "-j"])[0]).driver == "580.1 stand-in"
        assert diag_run(run(tmp_path, told, ["diag", "-r", "2"])[0]).driver == "580.1 stand-in"
        listed = discovery(run(tmp_path, told, ["discovery", "-l"])[0].splitlines())
        assert {gpu.name for gpu in listed.gpus} == {"NVIDIA H200 stand-in"}
        assert len(listed.gpus) == 8


def test_takes_its_scenario_from_the_variable(tmp_path: Path) -> None:
    """The program itself reads YAML from the file that the variable names."""
    (tmp_path / "one.yaml").write_text("gpus: {count: 2}\ntests: {memory: {gpus: {1: {errors: [{id: 58}]}}}}\n")
    done = subprocess.run(
        [sys.executable, "-B", str(PROGRAM), "diag", "-r", "memory", "-j"],
        env={**os.environ, VARIABLE: str(tmp_path / "one.yaml")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 205
    (failed,) = (one for one in part_results(diag_run(done.stdout).passes[0]) if one.says is Says.FAILED)
    assert (failed.gpu, [error.id for error in failed.errors]) == (1, [58])


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"gpu": {}}, "unknown gpu"),
        ({"tests": {"memory": {"gpus": {"1": {"state": "Fail"}}}}}, "unknown state"),
        ({"tests": {"mem": {}}}, "no such test"),
        ({"measured": {"all": {"speed": 1}}}, "unknown speed"),
        ({"tests": {"pcie": {"all": {"errors": [{"id": 777}]}}}}, "no wording"),
    ],
)
def test_a_misspelt_scenario_is_no_healthy_node(told: Scenario, why: str, tmp_path: Path) -> None:
    """What a scenario says and the stand-in does not know ends it, with nothing on stdout."""
    stdout, stderr, code = run(tmp_path, told, ["diag", "-r", "2", "-j"])
    assert (stdout, code) == ("", UNUSABLE)
    assert why in stderr


def test_old_software_checks_are_tests(tmp_path: Path) -> None:
    """3.3.9 prints nine checks; the one that fails has a numeric gpu_id and its text under `warnings`."""
    stdout, _, code = run(tmp_path, by_name("row-remap-pending-3.3.9").scenario, ["diag", "-r", "1", "-j"])
    tests = json.loads(stdout)["DCGM GPU Diagnostic"]["test_categories"][0]["tests"]
    (bad,) = (test for test in tests if test["results"] != [{"status": "Pass"}])
    assert (len(tests), code, bad["name"]) == (9, 226, "Page Retirement/Row Remap")
    assert bad["results"][0]["gpu_id"] == 5
    assert bad["results"][0]["warnings"][0].keys() == {"error_category", "error_id", "error_severity", "warnings"}


def test_old_tests_name_gpus_by_text(tmp_path: Path) -> None:
    """3.3.9 prints "gpu_id": "4", one text of info, null for what did not run, and no summary."""
    told = by_name("thermal-violation-3.3.9").scenario
    results = json.loads(run(tmp_path, told, ["diag", "-r", "memory", "-j"])[0])["DCGM GPU Diagnostic"]
    memory = results["test_categories"][-1]["tests"][0]
    assert memory.keys() == {"name", "results"}
    assert memory["results"][4]["gpu_id"] == "4"
    assert isinstance(memory["results"][4]["info"], str)
    told = by_name("not-run-3.3.9").scenario
    results = json.loads(run(tmp_path, told, ["diag", "-r", "targeted_power", "-j"])[0])["DCGM GPU Diagnostic"]
    assert results["test_categories"][-1]["tests"][0]["results"][5] is None


def test_tables_tell_what_the_json_tells(tmp_path: Path) -> None:
    """The table of each version gives the same failed GPUs as its JSON."""
    for name in ("thermal-violation", "thermal-violation-3.3.9"):
        case = by_name(name)
        (test,) = case.follows
        words = list(case.argv(test)[1:])
        as_json = diag_run(*run(tmp_path, case.scenario, words))
        as_table = diag_run(*run(tmp_path, case.scenario, [word for word in words if word != "-j"]))
        assert (as_json.form, as_table.form) == ("json", "text")
        bad = [{one.gpu for one in part_results(r.passes[0]) if one.says is Says.FAILED} for r in (as_json, as_table)]
        assert bad == [{4}, {4}]


def test_health_shows_incidents(tmp_path: Path) -> None:
    """A failure of the watches is in the recorded JSON shape, and the table says the same."""
    lines = [
        "GPU 1 requires a reset to recover from a fault.",
        "Recovery action: 1 (GPU_RESET). Terminate all GPU",
        "processes and reset the GPU.",
    ]
    told: Scenario = {**TWO, "health": {"gpus": {"1": {"Driver": {"health": "Failure", "lines": lines}}}}}
    set_first, _, _ = run(tmp_path, told, ["health", "-s", "a"])
    as_json, _, code = run(tmp_path, told, ["health", "-c", "-j"])
    assert set_first + as_json == (RUNS / "injected" / "recovery-action-reset-health" / "stdout").read_text()
    assert code == 0
    table = health(run(tmp_path, told, ["health", "-c"])[0])
    assert [(one.number, one.system, one.health) for one in table.incidents] == [(1, "Driver", "Failure")]
