"""`parse.dcgm_diag`: what dcgmi printed, to stdout and stderr, becomes one typed run or one line of why not."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_diag import LARGEST, diag_run, exit_meaning
from pytest_gpuready.parse.dcgm_run import DiagRun, Status, canonical

RUNS = Path(__file__).parents[1] / "data" / "dcgm" / "4.6.0"
CASES = Path(__file__).parents[1] / "data" / "cases"
DIAGS = sorted(p.parent for p in RUNS.glob("*/*/command.txt") if "dcgmi diag" in p.read_text())


def recorded(name: str) -> DiagRun:
    folder = RUNS / name
    code = int((folder / "exit_code.txt").read_text())
    return diag_run((folder / "stdout").read_text(), (folder / "stderr").read_text(), code)


def test_a_level_3_run_is_read_whole() -> None:
    """Version, driver, GPU and every test with its status and info are there."""
    run = recorded("h200x1/r3-json")
    assert (run.version, run.driver, run.form, run.doubts, run.runtime_errors) == (
        "4.6.0",
        "580.159.04",
        "json",
        (),
        (),
    )
    (one,) = run.passes
    assert one.entities is not None
    assert [(e.kind, e.number, e.device_id, e.serial) for e in one.entities] == [("GPU", 0, "2335", "1650000000000")]
    names = ["software", "memory", "diagnostic", "nvbandwidth", "pcie", "targeted_stress", "targeted_power"]
    assert [test.name for test in one.tests] == names
    assert {r.status for test in one.tests for r in test.results} == {Status.PASS}
    assert one.tests[2].results[0].info[1] == "Running with precisions: FP64 1, FP32 1, FP16 1"


def test_json_and_table_say_the_same() -> None:
    """The same failing run as JSON and as table has the same results and the same message, joined from its pieces."""
    by_json, by_text = recorded("h200x1/pcie-gen6").passes[0], recorded("h200x1/pcie-gen6-text").passes[0]
    assert [t.key for t in by_json.tests] == [t.key for t in by_text.tests]
    for one, other in zip(by_json.tests, by_text.tests, strict=True):
        assert (one.summary, [(r.part, r.status) for r in one.results]) == (
            other.summary,
            [(r.part, r.status) for r in other.results],
        )
        assert [e.text for r in one.results for e in r.errors] == [e.text for r in other.results for e in r.errors]


def test_the_summary_does_not_repeat_an_error() -> None:
    """A summary repeats the errors of the GPUs: they are read once; errors of no GPU stay the test's own."""
    (test,) = recorded("injected/row-remap-failure-r1-json").passes[0].tests
    assert test.errors == ()
    assert [(r.number, [e.id for e in r.errors]) for r in test.results if r.errors] == [(3, [80])]
    (test,) = recorded("injected/nonroot-embedded").passes[0].tests
    assert (test.summary, [e.id for e in test.errors]) == (Status.FAIL, [96])
    assert {r.status for r in test.results} == {Status.PASS}


def test_iterations_of_both_forms() -> None:
    """Passes are counted; JSON holds the overall result, the table how many were asked for."""
    by_json, by_text = recorded("h200x1/r1-iterations2"), recorded("injected/iterations2-text")
    assert (len(by_json.passes), by_json.overall, by_json.iterated) == (2, "Pass", True)
    assert (len(by_text.passes), by_text.overall, by_text.iterations_asked) == (2, "Pass", 2)
    assert (by_json.doubts, by_text.doubts) == ((), ())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("h200x1/bad-level", "Error: Invalid value '9' specified for -r.."),
        ("injected/healthy-1gpu-unknown-option", "PARSE ERROR: Argument: --nosuch"),
        ("h200x1/unknown-test", "were not found among possible test choices"),
        ("injected/nvvs-absent-r1-text", "The NVVS binary was not found"),
        ("injected/mixed-models-r1-json", "homogeneous group"),
    ],
)
def test_a_run_without_results_says_why(name: str, says: str) -> None:
    """The reason stands in JSON, on stdout as text, or on stderr alone; there are no passes then."""
    run = recorded(name)
    assert run.passes == ()
    assert says in run.runtime_errors[0]


def test_an_unreachable_host_is_kept_beside_the_results() -> None:
    """Results follow the line about the host: both are in the run."""
    run = recorded("h200x1/r1-json-host-absent")
    assert (run.unreachable_host, len(run.passes), run.runtime_errors) == ("127.0.0.1:5555", 1, ())


@pytest.mark.parametrize("name", ["h200x1/memtest-8s", "injected/hostengine-killed-midrun-json-HUNG"])
def test_nothing_at_all_is_a_parse_error(name: str) -> None:
    """No output and no reason: the error says what was expected, found and the exit code's meaning."""
    with pytest.raises(
        ParseError, match=r"expected results or an error, found '' and exit code 137 \(killed by signal 9\)"
    ):
        recorded(name)


def test_two_documents() -> None:
    """A runtime_error document before the iterations: the entry that copies the pass before is dropped."""
    one = (RUNS / "h200x1" / "r1-json" / "stdout").read_text()
    error = (RUNS / "h200x1" / "sigint-5s" / "stdout").read_text()
    run = diag_run(f'{error}\n{{"Overall Result": "Fail", "iterations": [{one},{one}]}}')
    assert (len(run.passes), run.copied, len(run.runtime_errors)) == (1, 1, 1)
    assert "killed by a signal" in run.runtime_errors[0]


def test_text_around_json_does_not_matter() -> None:
    """Notes, colour codes, a byte order mark and braces in the notes are no part of the document."""
    text = (RUNS / "h200x1" / "r1-json" / "stdout").read_text()
    plain = diag_run(text)
    noisy = f"\ufeff\x1b[1mnode {{gx-1}}\x1b[0m\r\n{{not json\n{text}\nSuccessfully ran diagnostic for group.\n"
    assert diag_run(noisy).passes == plain.passes
    assert diag_run(noisy).doubts == ()


def test_a_failure_before_the_break_is_not_lost() -> None:
    """Cut after GPU 6's entry, case 006 still has its Fail, and says that it breaks off."""
    text = (CASES / "006" / "diag.json").read_text()
    cut = text[: text.index('"test_summary"', text.index("pcie_replay_counter"))]
    run = diag_run(cut)
    assert run.doubts == ("the JSON breaks off or is damaged",)
    assert [r.part for t in run.passes[0].tests for r in t.results if r.status is Status.FAIL] == ["GPU 6"]


def test_a_key_that_stands_twice_is_a_doubt_and_fail_wins() -> None:
    """Two statuses in one object: the run is in doubt, and a Fail is not covered by a Pass after it."""
    text = (
        (CASES / "006" / "diag.json").read_text().replace('"status" : "Fail",', '"status" : "Fail", "status" : "Pass",')
    )
    run = diag_run(text)
    assert run.doubts == ("'status' stands twice in one object",)
    assert [r.part for t in run.passes[0].tests for r in t.results if r.status is Status.FAIL] == ["GPU 6"]


def test_level_1_of_three_gives_each_error_to_its_gpu() -> None:
    """3.x prints one gpu_id beside the errors of several GPUs, with nulls between them."""
    text = """{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
    {"name": "Persistence Mode", "results": [{"gpu_id": 2, "status": "Fail", "warnings": [
      {"warnings": "Persistence mode for GPU 0 is disabled.", "error_id": 29}, null,
      {"warnings": "Persistence mode for GPU 2 is disabled.", "error_id": 29}]}]}]}]}, "version": "3.3.5"}"""
    (test,) = diag_run(text).passes[0].tests
    assert {r.part: [e.text for e in r.errors] for r in test.results} == {
        "GPU 2": ["Persistence mode for GPU 2 is disabled."],
        "GPU 0": ["Persistence mode for GPU 0 is disabled."],
    }


def test_the_cpu_eud_of_three_and_lists_of_gpus() -> None:
    """cpu_id is a CPU; "Skip - All" is a Skip; gpu_ids may list several GPUs."""
    text = """{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
    {"name": "CPU EUD", "results": [{"cpu_id": "0", "status": "Skip - All"}]},
    {"name": "EUD Test", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}]}]}, "version": "3.3.9"}"""
    cpu, eud = diag_run(text).passes[0].tests
    assert [(r.part, r.status) for r in cpu.results] == [("CPU 0", Status.SKIP)]
    assert [(eud.key, r.part, r.status) for r in eud.results] == [
        ("eud", "GPU 0", Status.PASS),
        ("eud", "GPU 1", Status.PASS),
    ]


def test_statuses_that_cannot_be_read_are_told() -> None:
    """A result without a status, with a number for one or with an unknown word is UNREADABLE, never a default."""
    body = (
        '{"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": [{"name": "memory", "results": [%s]}]}]}}'
    )
    for row in ('{"entity_group": "GPU", "entity_id": 0}', '{"entity_id": 0, "status": 1}', '{"entity_id": "x"}'):
        (test,) = diag_run(body % row).passes[0].tests
        assert [r.status for r in test.results] == [Status.UNREADABLE]


def test_a_list_of_gpus_that_is_cut_is_a_doubt() -> None:
    """The table cuts a long cell with three points: which GPUs it names is then not known."""
    cell = "Pass - GPUs: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,..."
    text = (CASES / "013" / "diag.txt").read_text().replace("Pass - All ".ljust(46), cell.ljust(46))
    assert cell in text
    assert diag_run(text).doubts == ("PCIe: the list of GPUs is cut",)


def test_an_oversized_input_is_refused() -> None:
    """Beyond the limit nothing is read."""
    with pytest.raises(ParseError, match="at most 16 MiB"):
        diag_run("x" * (LARGEST + 1))


def test_names_of_all_versions_meet() -> None:
    """A test has one key whatever version printed it."""
    pairs = {"GPU Memory": "memory", "PCIe": "pcie", "Targeted Power": "targeted_power", "EUD Test": "eud"}
    assert {old: canonical(old) for old in pairs} == pairs


def test_exit_codes_are_named() -> None:
    """dcgmi's codes, signals, and the rest."""
    assert [exit_meaning(n) for n in (222, 205, 137, 77)] == [
        "256 - 34: another diagnostic is running",
        "256 - 51: failed with an error that calls for isolation",
        "killed by signal 9",
        "not in our table",
    ]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), folder=st.sampled_from(DIAGS))
def test_damage_raises_nothing_but_parse_error(seed: int, folder: Path) -> None:
    """Any recorded output with lines lost or doubled and characters changed is a run or a ParseError."""
    chance = random.Random(seed)
    text = (folder / "stdout").read_text()
    for _ in range(chance.randint(1, 6)):
        lines = text.splitlines(keepends=True) or [""]
        at, upto = chance.randrange(len(lines)), chance.randint(0, 3)
        text = "".join([*lines[:at], *lines[at + upto :], *lines[at : at + chance.randint(0, 2)]])
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chr(chance.randint(1, 0x2FF)) + text[place + 1 :]
    with contextlib.suppress(ParseError):
        run = diag_run(text, "", chance.choice((None, 0, 226)))
        assert run.passes or run.runtime_errors or run.unreachable_host or run.doubts


@pytest.mark.parametrize(
    "text", ["{" * 5000, '{"a":' * 5000, '{"DCGM Diagnostic":' * 3000, "[" * 100_000, '{"iterations": [1, null, {}]}']
)
def test_hostile_nesting_is_refused(text: str) -> None:
    """Nesting beyond all measure ends in a ParseError or a doubt, soon."""
    with contextlib.suppress(ParseError):
        assert diag_run(text).passes == ()
