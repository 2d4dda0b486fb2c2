"""`parse.dcgm_json` and `parse.dcgm_parts`: nothing that a result says is passed over or blamed wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.parse.dcgm_diag import diag_run
from pytest_gpuready.parse.dcgm_parts import Says
from pytest_gpuready.parse.dcgm_run import Status, status_of
from tests.parse.dcgm_made import changed, four, healthy, said, three

RUNS = Path(__file__).parents[1] / "data" / "dcgm" / "4.6.0"
DIAGS = sorted(p.parent for p in RUNS.glob("*/*/command.txt") if "dcgmi diag" in p.read_text())
PASSED, FAILED, UNMEASURED = Says.PASSED, Says.FAILED, Says.UNMEASURED
MISMATCH = {"warning": "GPU 3 mismatch", "error_id": 58}


def test_the_document_passes_before_it_is_changed() -> None:
    """What the changes below start from passes on every GPU, without a doubt."""
    run = changed(lambda document, row: None)
    assert said(run) == {f"GPU {n}": PASSED for n in range(4)}
    assert run.doubts == ()


@pytest.mark.parametrize("name", ["memory", "software"])
@pytest.mark.parametrize("summary", ["Skip", "Not Run", "skip"])
def test_a_summary_that_did_not_run_is_not_covered_by_its_results(name: str, summary: str) -> None:
    """A summary that reads Skip or Not Run over results that read Pass leaves the test unmeasured as a whole."""
    run = diag_run(json.dumps(four(healthy(name, summary=summary))), "", 0)
    assert said(run)[""] is UNMEASURED


def test_a_summary_that_skips_adds_nothing_to_results_that_skip() -> None:
    """Where the results skip as well there is no contradiction, and no part is made up."""
    document = four(healthy(summary="Skip"))
    for row in document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"]:
        row["status"] = "Skip"
    assert said(diag_run(json.dumps(document))) == {f"GPU {n}": UNMEASURED for n in range(4)}


@pytest.mark.parametrize(
    "info",
    [
        [" Suppressed error:  GPU 3 had a memory mismatch was detected"],
        "Allocated 1 bytes\nSuppressed error:  GPU 3 bad",
        ["Allocated 1 bytes. SUPPRESSED ERROR: GPU 3 bad"],
        ["x" * 5000 + " suppressed error: GPU 3 bad"],
        ["x" * 3990 + " suppressed error: GPU 3 bad"],
    ],
)
def test_a_suppressed_error_counts_wherever_it_stands(info: object) -> None:
    """Beside a result, in one long note, after blanks, behind the cut and in any case: it fails the GPU."""
    assert said(changed(lambda document, row: row.update(info=info)))["GPU 3"] is FAILED


def test_a_suppressed_error_in_the_summary_counts() -> None:
    """It fails the GPU that its words name, or the test as a whole; what stands at a result is told once."""
    document = four(healthy())
    test = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["test_summary"]["info"] = ["Suppressed error:  GPU 3 had a thermal violation"]
    assert said(diag_run(json.dumps(document)))["GPU 3"] is FAILED
    test["test_summary"]["info"] = ["note; suppressed errors: something"]
    assert said(diag_run(json.dumps(document)))[""] is FAILED
    test["results"][3]["info"] = test["test_summary"]["info"]
    assert "" not in said(diag_run(json.dumps(document)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("warning", "GPU 3 mismatch"),
        ("errors", [MISMATCH]),
        ("Warnings", [MISMATCH]),
        ("error", MISMATCH),
        ("warnings", [["GPU 3 mismatch"]]),
        ("warnings", {"0": MISMATCH}),
        ("warnings", [{"warnings": "GPU 3 mismatch"}]),
        ("warnings", [{"error_id": 58.0}]),
    ],
)
def test_an_error_under_another_word_counts(key: str, value: object) -> None:
    """An error whose shape is clear fails its GPU whatever the key is called."""
    run = changed(lambda document, row: row.update({key: value}))
    assert said(run)["GPU 3"] is FAILED
    assert run.doubts == ()


@pytest.mark.parametrize("value", [[58], [{}], {"x": 1}, True, [[[[[[[["deep"]]]]]]]]])
def test_an_error_of_unclear_shape_is_a_doubt(value: object) -> None:
    """What stands where errors stand and cannot be read leaves the run in doubt."""
    assert changed(lambda document, row: row.update(warnings=value)).doubts == (
        "an error beside a result in the test 'memory' that cannot be read",
    )


def _at(path: str) -> Any:
    def change(document: dict[str, Any], row: dict[str, Any]) -> None:
        body = document["DCGM Diagnostic"]
        category = body["test_categories"][0]
        test = category["tests"][0]
        places = {
            "row": row,
            "test": test,
            "summary": test["test_summary"],
            "category": category,
            "body": body,
            "root": document,
        }
        places[path]["gpu3_state"] = "broken"

    return change


@pytest.mark.parametrize("path", ["row", "test", "summary", "category", "body", "root"])
def test_an_unknown_key_is_a_doubt(path: str) -> None:
    """A key that no version of DCGM prints there is a doubt: nobody knows what it says."""
    run = changed(_at(path))
    assert ["gpu3_state" in one for one in run.doubts] == [True]


def test_a_result_of_a_gpu_that_is_not_listed_is_a_doubt() -> None:
    """The list and the results contradict each other: one of them is of another machine, or cut."""
    document = four(healthy(gpus=5), gpus=4)
    assert diag_run(json.dumps(document), "", 0).doubts == ("GPU 4 has a result and is not in the list of GPUs",)


def test_shapes_that_hold_no_results_are_doubts() -> None:
    """Results that are no list, a result that is a text, a note that is a number."""
    document = four(healthy("nccl_tests"))
    test = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    for results in ({"0": {"status": "Fail"}}, ["GPU 3 failed"], [{**test["results"][3], "info": [7]}]):
        test["results"] = results
        assert diag_run(json.dumps(document)).doubts


@pytest.mark.parametrize("folder", DIAGS, ids=lambda p: p.name)
def test_keys_of_recorded_runs_are_known(folder: Path) -> None:
    """No recorded run has an unknown key, and none that passes has a word on stderr."""
    stdout, stderr = (folder / "stdout").read_text(), (folder / "stderr").read_text()
    if not stdout.strip():
        assert not any("Pass" in text for text in (stdout, stderr))
        return
    run = diag_run(stdout, stderr, int((folder / "exit_code.txt").read_text()))
    assert run.doubts == ()
    assert not (run.passes and stderr.strip())


def test_status_words() -> None:
    """ "- All" is cut off a status and nothing else is: more words make it unreadable."""
    assert [status_of(w) for w in ("Skip - All", "pass", " Fail ", "Pass - all")] == [
        Status.SKIP,
        Status.PASS,
        Status.FAIL,
        Status.PASS,
    ]
    for word in ("Pass - GPU 3 failed", "Pass - GPUs: 0", "Pass?", 1, None, "", "Pass - All but 3", ["Pass"]):
        assert status_of(word) is Status.UNREADABLE


@pytest.mark.parametrize("place", ["root", "body"])
def test_a_runtime_error_counts_wherever_it_stands(place: str) -> None:
    """Beside the body or in it, also beside results and beside iterations."""
    document = four(healthy())
    (document if place == "root" else document["DCGM Diagnostic"])["runtime_error"] = "nvvs died"
    run = diag_run(json.dumps(document), "", 0)
    assert (run.runtime_errors, len(run.passes)) == (("nvvs died",), 1)
    whole = {"Overall Result": "Pass", "iterations": [four(healthy())] * 2, "runtime_error": "nvvs died"}
    assert diag_run(json.dumps(whole)).runtime_errors == ("nvvs died",)


def test_iterations_hide_nothing_beside_them() -> None:
    """A body, an unknown key or a warning beside passing iterations is a doubt; a warning beside a Fail is DCGM's."""
    whole = {"Overall Result": "Pass", "iterations": [four(healthy())] * 2}
    assert diag_run(json.dumps(whole)).doubts == ()
    assert diag_run(json.dumps({**whole, **four(healthy())})).doubts
    assert diag_run(json.dumps({**whole, "errors": ["GPU 3"]})).doubts
    assert diag_run(json.dumps({**whole, "warning": "returned an error"})).doubts
    assert diag_run(json.dumps({**whole, "Overall Result": "Fail", "warning": "returned an error"})).doubts == ()


@pytest.mark.parametrize("status", ["Fail", "Pass"])
def test_the_gpu_that_an_error_names_wins_over_the_row_of_three(status: str) -> None:
    """3.x, gpu_id 0, and the one error names GPU 3: GPU 3 failed, and of GPU 0 nothing is known."""
    error = {"warning": "GPU 3 had a memory mismatch was detected", "error_id": 58}
    rows: list[Any] = [{"gpu_id": str(n), "status": "Pass"} for n in range(4)]
    rows[0] = {"gpu_id": "0", "status": status, "warnings": [error]}
    found = said(diag_run(json.dumps(three("GPU Memory", rows))))
    assert (found["GPU 3"], found["GPU 0"], found["GPU 1"]) == (FAILED, UNMEASURED, PASSED)
    peer = {"warning": "GPU 1 could not write to GPU 0", "error_id": 86}
    rows[0] = {"gpu_id": "0", "status": "Fail", "warnings": [peer]}
    found = said(diag_run(json.dumps(three("PCIe", rows))))
    assert (found["GPU 0"], found["GPU 1"]) == (FAILED, PASSED)


def test_an_error_of_no_gpu_in_three_fails_the_check() -> None:
    """3.x prints gpu_id -1 for an error of no GPU: the check failed as a whole."""
    row = {"gpu_id": -1, "status": "Fail", "warnings": [{"warnings": "Cannot open library", "error_id": 22}]}
    assert said(diag_run(json.dumps(three("NVML Library", [row], "Deployment")))) == {"": FAILED}


def test_error_id_0_is_no_error() -> None:
    """Id 0 is OK: beside a Pass it is a note, beside a Fail it is no reason; words that mean an error count."""
    note = {"warning": "note", "error_id": 0}
    run = changed(lambda document, row: row.update(warnings=[note]))
    assert said(run)["GPU 3"] is PASSED
    assert run.passes[0].tests[0].results[3].info == ("note",)
    run = changed(lambda document, row: row.update(warnings=[note], status="Fail"))
    assert said(run)["GPU 3"] is FAILED
    known = {"warning": "Found 3 faulty memory elements on GPU 3", "error_id": 0}
    assert said(changed(lambda document, row: row.update(warnings=[known])))["GPU 3"] is FAILED


@pytest.mark.parametrize("stderr", ["Error: nvvs crashed with signal 11\n", "x\nterminate called after throwing\n"])
def test_an_error_on_stderr_beside_results_is_a_doubt(stderr: str) -> None:
    """dcgmi or nvvs said that something broke: passes are in doubt; by a note of the loader or of ssh not."""
    text = json.dumps(four(healthy()))
    assert "an error line beside the results" in diag_run(text, stderr, 0).doubts[0]
    harmless = (
        "Warning: Permanently added 'n1' to the list\nERROR: ld.so: object 'x.so' cannot be preloaded: ignored.\n"
    )
    assert diag_run(text, harmless, 0).doubts == ()


def test_a_gpu_test_says_nothing_of_gpus_without_a_result() -> None:
    """A CPU's Pass, or a nameless Pass among the software checks, measures no GPU; CPU EUD is about CPUs alone."""
    cpu = {"entity_group": "CPU", "entity_group_id": 7, "entity_id": 0, "status": "Pass"}
    for name, outcome in (("memory", UNMEASURED), ("cpu_eud", None)):
        run = diag_run(json.dumps(four({**healthy(name), "results": [cpu]})))
        assert said(run).get("GPU 3") is outcome
    found = said(diag_run(json.dumps(three("GPU Memory", [{"status": "Pass"}], "Deployment"))))
    assert found["GPU 3"] is UNMEASURED
    assert said(diag_run(json.dumps(three("Denylist", [{"status": "Pass"}], "Deployment")))) == {"": PASSED}
