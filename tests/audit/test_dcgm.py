"""Readers of dcgmi: every case comes to its reading, and damage never makes a pass out of anything."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given as given_by
from hypothesis import settings
from hypothesis import strategies as st

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given
from pytest_gpuready.audit.readers.dcgm import READERS
from pytest_gpuready.audit.report import Finding, worst
from pytest_gpuready.audit.run import audit

CASES = Path(__file__).parents[1] / "data" / "cases"
MINE = ("001", "002", "005", "006", "007", "009", "011", "013", "014", "016")
OUTCOME = {"pass": "pass", "fail": "fail", "error": "not-measured", "skip": "not-applicable"}
READ = {reader.tool: reader for reader in READERS}

# Words of each case's suspect that name the part (or clear it), as our finding must say them.
SUSPECT: dict[str, tuple[str, ...]] = {
    "001": ("PCIe path of GPU 3", "slot", "not GPU memory"),
    "002": ("GPU 5 memory", "row remap pending", "GPU reset"),
    "005": ("host configuration", "persistence mode", "not the GPUs"),
    "006": ("PCIe link of GPU 6", "slot", "riser", "retimer"),
    "007": ("diagnostic configuration", "SKU", "is_allowed false"),
    "009": ("nv-hostengine on gx-r07-n3", "service down or port blocked"),
    "011": ("power or cooling of GPU 1",),
    "013": ("cooling of GPU 4", "fans", "not its memory"),
    "014": ("diagnostic configuration", "NVLink is not fitted", "no NVLink or GPU fault"),
    "016": ("GPU 0 link 4", "GPU 1 links 8,10,11"),
}


def case(number: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CASES / number / "case.yaml").read_text())
    return loaded


def findings(number: str) -> list[Finding]:
    report = audit([CASES / number], tool="", expect=Expectations({}, source="test"), exit_code=None)
    return report.inputs[0].findings


def values(found: list[Finding], metric: str, part: str = "") -> list[object]:
    return [f.value for f in found if f.metric == metric and (not part or f.part == part)]


@pytest.mark.parametrize("number", MINE)
def test_case_comes_to_its_reading(number: str) -> None:
    """Outcome, every check, and the part to look at are those of the case."""
    want = case(number)["correct_reading"]
    found = findings(number)
    assert worst(f.outcome for f in found) == OUTCOME[want["verdict"]]
    for check in want["checks"]:
        said = [f.outcome for f in found if f.metric == check["check"]]
        assert said, check
        assert worst(said) == OUTCOME[check["verdict"]], check
    bad = " ".join(f.suspect for f in found if f.outcome == OUTCOME[want["verdict"]])
    for words in SUSPECT[number]:
        assert words in bad


@pytest.mark.parametrize("number", MINE)
def test_case_is_recognised_by_its_content(number: str) -> None:
    """Without a name for the tool, the content tells it."""
    file = CASES / number / case(number)["inputs"][0]["file"]
    report = audit([file], tool="", expect=Expectations({}, source="test"), exit_code=None)
    assert report.inputs[0].tool == case(number)["tool"]


@pytest.mark.parametrize("number", [n for n in MINE if n not in ("009", "014", "016")])
def test_versions_and_failing_parts_are_extracted(number: str) -> None:
    """DCGM's version, the driver and every failing test, GPU and error id of the case stand among the findings."""
    want = case(number)["correct_reading"]["extract"]
    found = findings(number)
    if "driver" in want:
        assert values(found, "dcgm.driver") == [want["driver"]]
    for failed in want.get("failed", ()):
        metric, part = f"dcgm.{failed['test']}", f"GPU {failed['gpu']}"
        assert [f.outcome for f in found if f.metric == metric and f.part == part] == ["fail"]
        if "error_id" in failed:
            assert values(found, f"{metric}.error_id", part) == [failed["error_id"]]
        if "severity" in failed:
            said = (*values(found, f"{metric}.error_severity", part), *values(found, f"{metric}.error_severity_name"))
            assert failed["severity"] in said
        if "category" in failed:
            assert values(found, f"{metric}.error_category", part) == [failed["category"]]
    if "failed" in want:
        tests = {f"dcgm.{failed['test']}" for failed in want["failed"]}
        assert sum(f.outcome == "fail" and f.metric in tests for f in found) == len(want["failed"])
    if "passed_gpus" in want:
        test = f"dcgm.{want['failed'][0]['test']}"
        passed = [f.part for f in found if f.metric == test and f.outcome == "pass"]
        assert passed == [f"GPU {n}" for n in want["passed_gpus"]]


def test_other_values_of_the_cases() -> None:
    """Numbers that stand in messages or in the run as a whole are findings of their own."""
    assert values(findings("001"), "dcgm.PCIe.h2d.bandwidth", "GPU 3")[0] == 5.87
    assert [f.expected for f in findings("001") if f.value == 5.87 and f.expected] == [">= 10"]
    assert values(findings("005"), "dcgm.hardware_failures") == [0]
    assert values(findings("006"), "dcgm.pcie.pcie_replay_counter") == [14]
    assert "isolation" in str(values(findings("006"), "dcgm.exit_status")[0])
    assert values(findings("007"), "dcgm.skipped_tests") == [5]
    assert values(findings("009"), "dcgm.gpus") == [1]
    assert values(findings("009"), "dcgm.requested_host") == ["gx-r07-n3"]
    assert "unable to establish a connection" in str(values(findings("009"), "dcgm")[0])
    assert values(findings("011"), "dcgm.iterations") == [2]
    assert values(findings("011"), "dcgm.iterations_requested") == [5]
    assert values(findings("011"), "dcgm.targeted_stress.iteration", "GPU 1") == [2]
    assert values(findings("013"), "dcgm.GPU Memory.thermal_violation") == [7.6]
    assert values(findings("013"), "dcgm.GPU Memory.violation_start") == [12.4]
    assert values(findings("014"), "dcgm.PCIe.nvlinks_down", "GPU 0") == [12]
    assert values(findings("016"), "nvlink.down", "GPU 0") == [[4]]
    assert values(findings("016"), "nvlink.disabled", "GPU 1") == [[10, 11]]
    assert values(findings("016"), "nvlink.status") == [11, 9, 12]


def read(path: Path, text: str, **more: Any) -> list[Finding]:
    path.write_text(text)
    command, code = more.pop("command", ""), more.pop("exit_code", None)
    tool = more.pop("tool", "dcgmi-diag-json")
    given = Given(path=path, expect=Expectations(more, source="test"), command=command, exit_code=code)
    return list(READ[tool].read(given).findings)


def judged(path: Path, text: str, **more: Any) -> str:
    return worst(f.outcome for f in read(path, text, **more))


RESULT = '{"entity_group": "GPU", "entity_group_id": 1, "entity_id": %d, %s}'


def four(test: str, results: list[str], summary: str = '"status": "Pass"', gpus: int = 2, body: str = "") -> str:
    """A 4.x document with one test."""
    entities = ", ".join(f'{{"entity_id": {n}, "device_id": "2335"}}' for n in range(gpus))
    return (
        '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "'
        + test
        + '", "results": ['
        + ", ".join(RESULT % (n, r) for n, r in enumerate(results) if r)
        + "]"
        + (f', "test_summary": {{{summary}}}' if summary else "")
        + '}]}]}, "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": ['
        + entities
        + ']}], "metadata": {"version": "4.6.0"}'
        + body
        + "}\n"
    )


OK = '"status": "Pass"'
WARNED = '"status": "Pass", "warnings": [{"warning": "%s", "error_id": %d, "error_severity": 4, "error_category": 8}]'
ALLOCATION = "Couldn't allocate at least 75.0% of GPU memory on GPU 1"


def test_the_ways_not_to_have_run_are_told_apart(tmp_path: Path) -> None:
    """Skip, a missing GPU, a lost status, a lost summary and an unknown word: none of them passes."""
    file = tmp_path / "x"
    assert judged(file, four("memory", [OK, OK])) == "pass"
    assert judged(file, four("memory", [OK, '"status": "Skip"'])) == "not-measured"
    assert judged(file, four("memory", [OK, '"status": "Not Run"'])) == "not-measured"
    assert judged(file, four("memory", [OK, ""])) == "not-measured"
    assert judged(file, four("memory", [OK, '"info": []'])) == "not-measured"
    assert judged(file, four("memory", [OK, '"status": "Passed?"'])) == "not-measured"
    assert judged(file, four("memory", [OK, OK], summary="")) == "not-measured"
    assert judged(file, four("memory", [], summary='"status": "Skip"')) == "not-measured"
    assert judged(file, four("memory", [OK, OK], summary='"status": "Fail"')) == "fail"


def test_an_error_beside_a_pass_counts(tmp_path: Path) -> None:
    """A Pass beside an allocation error measured nothing; beside faulty memory, or a suppressed error, it failed."""
    file = tmp_path / "x"
    found = read(file, four("memory", [OK, WARNED % (ALLOCATION, 56)]))
    assert [(f.part, f.outcome) for f in found if f.metric == "dcgm.memory"] == [
        ("GPU 0", "pass"),
        ("GPU 1", "not-measured"),
    ]
    assert judged(file, four("memory", [OK, WARNED % ("Found 3 faulty memory elements on GPU 1", 52)])) == "fail"
    hidden = '"status": "Pass", "info": ["Suppressed error:  Detected XID 48 for GPU 1"]'
    found = read(file, four("memory", [OK, hidden]))
    bad = [f for f in found if f.outcome == "fail"]
    assert [f.part for f in bad] == ["GPU 1"]
    assert "suppressed by --ignoreErrorCodes" in bad[0].suspect


def test_a_failed_test_that_could_not_do_its_work_is_not_measured(tmp_path: Path) -> None:
    """A Fail whose only error says that the test was stopped or has no data is no verdict on the GPU."""
    stopped = '"status": "Fail", "warnings": [{"warning": "Test was aborted early due to user signal", "error_id": 47}]'
    found = read(tmp_path / "x", four("memory", [OK, stopped], summary='"status": "Fail"'), exit_code=226)
    assert worst(f.outcome for f in found if f.metric == "dcgm.memory") == "not-measured"


def test_unknown_error_ids_are_kept_and_shown(tmp_path: Path) -> None:
    """An id of a later version fails and is shown with DCGM's own severity."""
    later = '"status": "Fail", "warnings": [{"warning": "New on GPU 1", "error_id": 140, "error_severity": 2}]'
    found = read(tmp_path / "x", four("memory", [OK, later], summary='"status": "Fail"'), exit_code=205)
    assert values(found, "dcgm.memory.error_id") == [140]
    assert values(found, "dcgm.memory.error_severity_name") == ["ISOLATE"]
    assert ["140" in f.suspect for f in found if f.outcome == "fail"] == [True]


def test_two_documents_of_a_pass_that_was_stopped(tmp_path: Path) -> None:
    """A runtime_error beside iterations: the last entry is a copy of the pass before and counts for nothing."""
    one = four("memory", [OK, OK]).strip()
    error = '{"DCGM Diagnostic": {"runtime_error": "Return: (-53) : killed by a signal", "version": "4.6.0"}}'
    both = f'{error}\n{{"Overall Result": "Fail", "iterations": [{one}, {one}], "warning": "killed"}}\n'
    found = read(tmp_path / "x", both, iterations=2, exit_code=203)
    assert worst(f.outcome for f in found) == "not-measured"
    assert values(found, "dcgm.iterations") == [1]


def test_an_exit_code_without_a_failure_proves_nothing(tmp_path: Path) -> None:
    """All Pass with exit 226 is not measured; a Fail with exit 0 is a fail."""
    file = tmp_path / "x"
    assert judged(file, four("memory", [OK, OK]), exit_code=0) == "pass"
    assert judged(file, four("memory", [OK, OK]), exit_code=226) == "not-measured"
    assert judged(file, four("memory", [OK, OK]), exit_code=137) == "not-measured"
    assert judged(file, four("memory", [OK, '"status": "Fail"'], summary='"status": "Fail"'), exit_code=0) == "fail"


def test_local_results_for_a_remote_host(tmp_path: Path) -> None:
    """A Fail of the wrong machine is no Fail of the right one; with the host reached, its results count."""
    bad = four("memory", [OK, '"status": "Fail"'], summary='"status": "Fail"')
    line = "Error: unable to establish a connection to the specified host: gx-9\n"
    file = tmp_path / "x"
    assert judged(file, line + bad, command="dcgmi diag --host gx-9 -r 2 -j") == "not-measured"
    good = four("memory", [OK, OK])
    asked = {"command": "dcgmi diag --host gx-9 -r 2 -j", "requested_host": "gx-9"}
    assert judged(file, good, **asked) == "pass"
    assert judged(file, good, requested_host="gx-9", command="dcgmi diag --host gx-8 -r 2 -j") == "not-measured"


def test_null_results_of_three(tmp_path: Path) -> None:
    """A null in a 3.x result list is a GPU that did not run; level-1 ids may be numbers, others are texts."""
    text = """{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "GPU Memory",
    "results": [{"gpu_id": "0", "status": "Pass"}, null, {"gpu_id": 2, "status": "Pass", "info": "x"}]}]}]},
    "GPU Device IDs": ["2330", "2330", "2330"], "version": "3.3.9", "Driver Version Detected": "550.1"}"""
    found = read(tmp_path / "x", text, expected_gpus=3)
    by_part = {f.part: f.outcome for f in found if f.metric == "dcgm.GPU Memory"}
    assert by_part == {"GPU 0": "pass", "GPU 2": "pass", "GPU 1": "not-measured"}
    assert worst(f.outcome for f in found) == "not-measured"


TABLE = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.6.0                                          |
| GPU Device IDs Detected   | 2335, 2335                                     |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Warn                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | Found 3 faulty memory elements on GPU 1 Run a  |
|                           |  field diagnostic on the GPU.                  |
+---------------------------+------------------------------------------------+
"""


def test_warn_is_a_failure_in_both_forms(tmp_path: Path) -> None:
    """The table's Warn, which JSON prints as Fail, fails; its message is joined as it was written."""
    found = read(tmp_path / "x", TABLE, tool="dcgmi-diag-text", exit_code=226)
    assert [f.part for f in found if f.outcome == "fail"] == ["GPU 1"]
    assert values(found, "dcgm.memory.error_text") == [
        "Found 3 faulty memory elements on GPU 1 Run a field diagnostic on the GPU."
    ]
    assert values(found, "dcgm.memory.error_id") == [52]


def test_truncated_at_every_line_never_passes_what_was_asked(tmp_path: Path) -> None:
    """Cut anywhere, a run with two GPUs and two tests is not passed; a failure that was printed stays one."""
    file = tmp_path / "x"
    asked = {"expected_gpus": 8, "required_tests": ["software", "pcie"]}
    whole = (CASES / "006" / "diag.json").read_text().splitlines(keepends=True)
    seen = {judged(file, "".join(whole[:n]), **asked) for n in range(len(whole) - 1)}
    assert seen == {"not-measured", "fail"}
    healthy = whole[: next(i for i, line in enumerate(whole) if "Integration" in line)]
    assert {judged(file, "".join(healthy[:n])) for n in range(len(healthy))} == {"not-measured"}
    table = HEALTHY_TABLE.splitlines(keepends=True)
    assert {judged(file, "".join(table[:n]), tool="dcgmi-diag-text") for n in range(len(table))} == {"not-measured"}
    links = (CASES / "016" / "nvlink.txt").read_text().replace("D", "U").replace("X", "U").splitlines(keepends=True)
    key = len(links) - 1
    seen = {judged(file, "".join(links[:n]), tool="dcgmi-nvlink", expected_gpus=3) for n in range(key)}
    assert seen == {"not-measured"}


HEALTHY_TABLE = "".join(
    line.replace("Warn  ", "Pass  ").replace("GPU1: Fail", "GPU1: Pass")
    for line in TABLE.splitlines(keepends=True)
    if "Warning" not in line and "field diagnostic" not in line
)
PASSING = {
    "dcgmi-diag-json": (four("memory", [OK] * 4, gpus=4).replace(",", ",\n").replace("{", "{\n"), "memory", 4),
    "dcgmi-diag-text": (HEALTHY_TABLE, "memory", 2),
}


@pytest.mark.parametrize("tool", sorted(PASSING))
def test_the_undamaged_runs_pass(tmp_path: Path, tool: str) -> None:
    """What the damage below starts from does pass."""
    text, test, gpus = PASSING[tool]
    assert judged(tmp_path / "x", text, tool=tool, expected_gpus=gpus, required_tests=[test]) == "pass"


def new_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the next example is written: no test of this process has a file there now."""
    file = tmp_path_factory.getbasetemp() / "example-of-dcgm"
    file.unlink(missing_ok=True)
    return file


@settings(max_examples=150, deadline=None)
@given_by(seed=st.integers(0, 2**32), tool=st.sampled_from(sorted(PASSING)))
def test_damage_never_makes_a_pass(tmp_path_factory: pytest.TempPathFactory, seed: int, tool: str) -> None:
    """Lines deleted or doubled and characters changed in a failing run: never an exception and never a pass."""
    chance = random.Random(seed)
    text = (CASES / ("006" if "json" in tool else "013")).glob("diag.*")
    lines = next(iter(text)).read_text().splitlines(keepends=True)
    hurt = damaged(lines, chance)
    file = new_file(tmp_path_factory)
    asked = {"expected_gpus": 8, "required_tests": ["software", "pcie"] if "json" in tool else ["GPU Memory", "PCIe"]}
    assert judged(file, hurt, tool=tool, exit_code=226, **asked) in ("fail", "not-measured")


def damaged(lines: list[str], chance: random.Random) -> str:
    lines = list(lines)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        what = chance.random()
        if what < 0.35 and len(lines) > 1:
            del lines[at : at + (chance.randint(1, 12) if chance.random() < 0.5 else 1)]
            lines = lines or [""]
        elif what < 0.6:
            lines.insert(at, lines[at])
        elif lines[at]:
            place = chance.randrange(len(lines[at]))
            lines[at] = lines[at][:place] + chr(chance.randint(1, 0x2FF)) + lines[at][place + 1 :]
    return "".join(lines)


@settings(max_examples=150, deadline=None)
@given_by(seed=st.integers(0, 2**32), tool=st.sampled_from(sorted(PASSING)))
def test_a_damaged_run_passes_only_where_everything_asked_is_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int, tool: str
) -> None:
    """A pass that survives damage still has every GPU's Pass of the test that was asked for."""
    text, test, gpus = PASSING[tool]
    hurt = damaged(text.splitlines(keepends=True), random.Random(seed))
    file = new_file(tmp_path_factory)
    found = read(file, hurt, tool=tool, expected_gpus=gpus, required_tests=[test])
    if worst(f.outcome for f in found) == "pass":
        passed = {f.part for f in found if f.metric == f"dcgm.{test}" and f.outcome == "pass"}
        assert {f"GPU {n}" for n in range(gpus)} <= passed


@settings(max_examples=60, deadline=None)
@given_by(text=st.text(max_size=400), tool=st.sampled_from(sorted(READ)))
def test_any_text_is_read_without_an_exception(tmp_path_factory: pytest.TempPathFactory, text: str, tool: str) -> None:
    """Text of nobody is not measured (or a bare observation), never an exception, never a pass."""
    file = new_file(tmp_path_factory)
    file.write_text(text, encoding="utf-8", errors="replace")
    given = Given(path=file, expect=Expectations({}, source="test"))
    assert worst(f.outcome for f in READ[tool].read(given).findings) in ("not-measured", "observed")


COUNTERS = """+-----------------------------+------------------------------------------------+
| NVLINK Error Counts                                                          |
| GPU 1                                                                        |
+=============================+================================================+
| Link 7                      |                                                |
| -> Replay Error             | 12                                             |
| -> Recovery Error           | 3                                              |
+-----------------------------+------------------------------------------------+
"""


def test_nvlink_error_counters_against_limits(tmp_path: Path) -> None:
    """Each kind has its own limit and its own link; without limits counters are only observed."""
    file = tmp_path / "x"
    found = read(file, COUNTERS, tool="dcgmi-nvlink", max_replay_errors=100, max_recovery_errors=0)
    by_metric = {f.metric: (f.outcome, f.value, f.part) for f in found}
    assert by_metric["nvlink.replay_errors"] == ("pass", 12, "GPU 1 NVLink 7")
    assert by_metric["nvlink.recovery_errors"] == ("fail", 3, "GPU 1 NVLink 7")
    assert "GPU 1 NVLink 7" in next(f.suspect for f in found if f.outcome == "fail")
    assert judged(file, COUNTERS, tool="dcgmi-nvlink") == "observed"
    assert judged(file, COUNTERS, tool="dcgmi-nvlink", max_replay_errors=100, expected_gpus=8) == "not-measured"
    no_recovery = COUNTERS.replace("Recovery Error", "CRC Data Error")
    assert judged(file, no_recovery, tool="dcgmi-nvlink", max_recovery_errors=0) == "not-measured"


def test_links_without_an_expectation(tmp_path: Path) -> None:
    """A link down beside links that are up fails; all down, or all up, is only observed."""
    file = tmp_path / "x"
    text = (CASES / "016" / "nvlink.txt").read_text()
    assert judged(file, text, tool="dcgmi-nvlink") == "fail"

    def all_of(letter: str) -> str:
        return re.sub(r"(?m)^ {8}[UDX_ ]+$", lambda row: re.sub("[UDX]", letter, row[0]), text)

    assert judged(file, all_of("U"), tool="dcgmi-nvlink") == "observed"
    none = all_of("D")
    assert judged(file, none, tool="dcgmi-nvlink") == "observed"
    assert judged(file, none, tool="dcgmi-nvlink", expected_nvlinks_per_gpu=0) == "not-applicable"
    assert judged(file, none, tool="dcgmi-nvlink", expected_nvlinks_per_gpu=12) == "fail"


def test_health_warning_is_not_healthy(tmp_path: Path) -> None:
    """Warning and Failure fail with exit 0; a word that is none of DCGM's is not measured."""
    file = tmp_path / "x"
    text = '{"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}'
    assert judged(file, text, tool="dcgmi-health", exit_code=0) == "pass"
    assert judged(file, text.replace("Healthy", "Warning"), tool="dcgmi-health", exit_code=0) == "fail"
    assert judged(file, text.replace("Healthy", "Healthful"), tool="dcgmi-health") == "not-measured"
    assert judged(file, text[:-20], tool="dcgmi-health") == "not-measured"
    assert (
        judged(file, "Error: Health watches not enabled. Please enable watches.", tool="dcgmi-health") == "not-measured"
    )


def test_what_is_not_covered_is_said() -> None:
    """Skips, absent tests, blind floors and level 1's emptiness are told; a skipped test's floors are not."""
    report = audit([CASES / "007"], tool="", expect=Expectations({}, source="test"), exit_code=None).inputs[0]
    told = " | ".join(report.not_covered)
    assert "skipped, so not tested: pcie, diagnostic, targeted_stress, targeted_power, memory_bandwidth" in told
    assert "absent from the output and so not tested: memory, nvbandwidth, eud" in told
    assert "Gen5 link at Gen3" not in told
    report = audit([CASES / "001"], tool="", expect=Expectations({}, source="test"), exit_code=None).inputs[0]
    assert any("Gen5 link at Gen3" in text for text in report.not_covered)
    report = audit([CASES / "005"], tool="", expect=Expectations({}, source="test"), exit_code=None).inputs[0]
    assert any(text.startswith("level 1 looks at software") for text in report.not_covered)


def test_a_level_of_which_nothing_ran_is_not_measured(tmp_path: Path) -> None:
    """Level 2 was asked and only the software checks are in the output."""
    file = tmp_path / "x"
    text = four("software", [OK, OK])
    assert judged(file, text, command="dcgmi diag -r 1 -j") == "pass"
    assert judged(file, text, command="dcgmi diag -r 2 -j") == "not-measured"
    assert judged(file, text, command="dcgmi diag -r pcie -j") == "not-measured"
