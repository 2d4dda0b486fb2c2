"""What the catalogue says that follows is what the project's own parsers read from the stand-in's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_diag import diag_run, exit_meaning
from pytest_gpuready.parse.dcgm_parts import PartResult, Says, part_results
from pytest_gpuready.parse.dcgm_reasons import reason
from pytest_gpuready.parse.dcgm_run import DiagRun
from tests.dcgm_scenarios import CASES, GPUS, WHOLE, Case, by_name
from tests.standin.playing import run

Reading = dict[int | str, tuple[str, str]]
"""GPU, or WHOLE -> outcome and reason."""

WORST_FIRST = ("FAIL", "NOT MEASURED", "PASS")
WORDS = {Says.PASSED: "PASS", Says.FAILED: "FAIL", Says.UNMEASURED: "NOT MEASURED"}


def reading(case: Case, test: str, folder: Path) -> Reading:
    """What one command of a case says of every expected GPU."""
    stdout, stderr, code = run(folder, case.scenario, list(case.argv(test)[1:]))
    try:
        found = diag_run(stdout, stderr, code)
    except ParseError as error:
        return dict.fromkeys(range(GPUS), ("NOT MEASURED", str(error)))
    why = _why_not(case, found)
    read: Reading = {}
    for one in (row for made in found.passes for row in part_results(made)):
        if (
            one.test.key == test
            or (test == "software" and _software(one))
            or (_software(one) and one.says is Says.FAILED and one.gpu is not None)
        ):
            _take(read, one)
    if why:
        return {gpu: read[gpu] if read.get(gpu, ("",))[0] == "FAIL" else ("NOT MEASURED", why) for gpu in range(GPUS)}
    if test == "software" and WHOLE in read and read[WHOLE][0] == "PASS":  # 3.x: one result for all GPUs
        read |= {gpu: read.get(gpu, read[WHOLE]) for gpu in range(GPUS)}
    if WHOLE in read and read[WHOLE][0] != "PASS":
        # The node has a clause of its own for the software checks; of other tests the GPUs' clauses are all there is.
        unblamed = ("NOT MEASURED", "no error names this part") if test == "software" else read[WHOLE]
        read |= {gpu: unblamed for gpu in range(GPUS) if read.get(gpu, ("PASS",))[0] == "PASS"}
    if code and not any(one.test.failed for made in found.passes for one in part_results(made)):
        says = f"exit code {code}: {exit_meaning(code)}"
        read |= {gpu: ("NOT MEASURED", says) for gpu, (outcome, _) in read.items() if outcome == "PASS"}
    return {**dict.fromkeys(range(GPUS), ("NOT MEASURED", f"no result of {test}")), **read}


def _software(one: PartResult) -> bool:
    return one.test.key == "software" or one.test.software_check


def _take(read: Reading, one: PartResult) -> None:
    key = one.gpu if one.gpu is not None else WHOLE
    new = (WORDS[one.says], one.suspect)
    read[key] = min(read.get(key, new), new, key=lambda row: WORST_FIRST.index(row[0]))


def _why_not(case: Case, found: DiagRun) -> str:
    """Why nothing of this run counts as passed, "" where it may."""
    if found.unreachable_host:
        return f"nv-hostengine on {found.unreachable_host}: results are of another machine"
    if found.runtime_errors:
        return reason(found.runtime_errors[0])[0]
    if found.doubts:
        return "; ".join(found.doubts)
    asked = case.parameters.get("diagnostic", {}).get("diagnostic.precision", "")
    info = [text for made in found.passes for one in part_results(made) for text in one.info]
    if asked and any("FP64 0" in text for text in info):
        return f"DCGM has no {asked}: {next(text for text in info if 'FP64 0' in text)}"
    return ""


@pytest.mark.parametrize("case", [case for case in CASES if not case.hangs], ids=lambda case: case.name)
def test_what_follows_from_a_case(case: Case, tmp_path: Path) -> None:
    """Every command of the case says what the catalogue says that follows, GPU by GPU and in its words."""
    if case.left_behind:
        (tmp_path / str(case.scenario["state_file"])).touch()
    assert set(case.follows) <= set(case.tests)
    for test in case.tests:
        read = reading(case, test, tmp_path)
        for gpu in range(GPUS):
            says = case.follow(test, gpu)
            assert read[gpu][0] == says.outcome, (test, gpu, read)
            assert says.words in read[gpu][1], (test, gpu, read)
        whole = case.follows.get(test, {}).get(WHOLE)
        assert (whole is not None) == (read.get(WHOLE, ("PASS",))[0] != "PASS")
        if whole is not None:
            assert read[WHOLE][0] == whole.outcome
            assert whole.words in read[WHOLE][1]


def test_only_the_healthy_pass() -> None:
    """Every other case has a test that does not pass, and names are unique."""
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    passing = {case.name for case in CASES if not case.follows}
    healthy = {"healthy-4.6.0", "healthy-3.3.9", "embedded-engine", "text-around-json"}
    assert passing == {*healthy, "pcie-generation-3-not-in-p0"}


def test_dcgm_alone_is_blind_to_what_the_parameters_see(tmp_path: Path) -> None:
    """Without stricter parameters the stand-in passes slow links and slow memory, as DCGM does."""
    for name in ("pcie-generation-3", "pcie-slow", "nvlinks-too-few", "hbm-slow", "gflops-low"):
        case = by_name(name)
        (test,) = case.follows
        assert run(tmp_path, case.scenario, ["diag", "-r", test, "-j"])[2] == 0
        assert run(tmp_path, case.scenario, list(case.argv(test)[1:]))[2] == 226
