"""`parse.dcgm_documents`: every document is found whatever stands around it, and nothing is left out in silence."""

from __future__ import annotations

import json

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_diag import diag_run
from pytest_gpuready.parse.dcgm_documents import DOCUMENTS_AT_MOST, documents
from pytest_gpuready.parse.dcgm_parts import Says
from tests.parse.dcgm_made import four, healthy, said

GOOD = json.dumps(four(healthy()), indent=2)
BAD = GOOD.replace('"Pass"', '"Fail"')


@pytest.mark.parametrize("garbage", ["{ debug\n", '{"debug": 1\n', "{}\n", '{"debug": {"a": 1}}\n', "}]{[\n"])
@pytest.mark.parametrize("count", [25, 2000])
def test_garbage_hides_no_document(garbage: str, count: int) -> None:
    """Behind any number of braces and lines of a log, a healthy document is read and a failing one is found."""
    run = diag_run(garbage * count + GOOD)
    assert (len(run.passes), run.doubts) == (1, ())
    run = diag_run(GOOD + "\n" + garbage * count + BAD, "", 0)
    assert Says.FAILED in said(run).values()


def test_damaged_json_beyond_the_bound_is_a_doubt() -> None:
    """Where the search gives up, the run is in doubt."""
    deep = '{"a":' * 3000 + "\n"
    run = diag_run(GOOD + deep * 40 + BAD, "", 0)
    assert run.doubts[0] == "there is more damaged JSON than is searched for results"


def test_a_document_behind_one_that_breaks_off_is_found() -> None:
    """A document that is cut does not swallow the one behind it, and leaves a doubt."""
    for cut in (len(GOOD) // 3, len(GOOD) // 2, len(GOOD) - 3):
        run = diag_run(GOOD[:cut] + "\n" + BAD, "", 0)
        assert Says.FAILED in said(run).values()
        assert "the JSON breaks off or is damaged" in run.doubts


def test_a_broken_document_beside_a_healthy_one_is_a_doubt() -> None:
    """Results that could not be decoded are not forgotten because others could."""
    run = diag_run(f'{GOOD}\n{{"DCGM Diagnostic": }}\n')
    assert run.doubts == ("the JSON breaks off or is damaged",)
    run = diag_run(f'{GOOD}\n{{"wrapped": {BAD}}}\n')
    assert run.doubts == ("results stand inside of another document",)


def test_more_than_a_hundred_runs_are_all_read() -> None:
    """The last of 101 runs fails: it is found. Beyond the bound the rest is a doubt."""
    run = diag_run("\n".join([GOOD] * 100 + [BAD]))
    assert len(run.passes) == 101
    assert Says.FAILED in said(run).values()
    small = json.dumps(four(healthy(gpus=1), gpus=1))
    found, _, doubts = documents("\n".join([small] * (DOCUMENTS_AT_MOST + 1)))
    assert len(found) == DOCUMENTS_AT_MOST
    assert doubts == [f"there are more than {DOCUMENTS_AT_MOST} runs in one text"]


def test_a_table_beside_json_is_a_doubt() -> None:
    """What the table says is not read with the JSON, so it is not left out in silence."""
    assert diag_run(f"{GOOD}\n| Diagnostic                | Result        |\n").doubts == (
        "a table stands beside the JSON",
    )


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """No text of a run holds what cannot be written; whole pairs and escaped backslashes stay."""
    document = four(healthy())
    row = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][3]
    row["warnings"] = [{"warning": "GPU 3 \ud800 bad \udc00\U0001f600 \\ud800", "error_id": 58}]
    row["info"] = ["\udfff"]
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False)):
        run = diag_run(text, "Error: \ud800", 226)
        result = run.passes[0].tests[0].results[3]
        assert result.errors[0].text == "GPU 3 \ufffd bad \ufffd\U0001f600 \\ud800"
        assert "".join((*result.info, *run.doubts)).encode()
    with pytest.raises(ParseError) as raised:
        diag_run("\ud800 nothing")
    assert str(raised.value).encode()


def test_more_than_any_machine_has_is_refused() -> None:
    """Entities, results and errors without end are refused, not worked through."""
    with pytest.raises(ParseError, match="at most 1024 GPUs"):
        diag_run(json.dumps(four(*[healthy(f"t{n}", gpus=2) for n in range(300)], gpus=20_000)))
    with pytest.raises(ParseError, match="at most 1024 GPUs"):
        diag_run(json.dumps(four(healthy(gpus=1025), gpus=8)))
    with pytest.raises(ParseError, match="500000 results"):
        diag_run(json.dumps(four(*[healthy(f"t{n}", gpus=1) for n in range(1000)], gpus=1024)))
    document = four(healthy())
    row = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][3]
    row["warnings"] = [f"strange words {n}" for n in range(20_000)]
    with pytest.raises(ParseError, match="10000 errors"):
        diag_run(json.dumps(document))
