"""Every case of every tool, cut and damaged: the audit answers, and breaks off with nothing but an answer.

What may still pass then is held to the text tool by tool, in the tests of each family (`survives`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.audit.case_reading import CASES, case, read_text
from tests.parse.damage import damages

NUMBERS = sorted(path.name for path in CASES.iterdir() if path.is_dir())
RIGHT = {"pass", "marginal", "fail", "not-measured", "not-applicable", "observed"}


def answers(tmp_path: Path, number: str, entry: dict, text: str) -> None:
    """The reader of this case says something about the text, in the words of an outcome."""
    told = case(number)
    given_ = told.get("given") or {}
    reading = read_text(tmp_path, told["tool"], text, given_, exit_code=entry["exit_code"], command=entry["command"])
    assert reading.findings
    assert {finding.outcome for finding in reading.findings} <= RIGHT


@pytest.mark.parametrize("number", NUMBERS)
def test_cut_at_every_line(tmp_path: Path, number: str) -> None:
    """However many of its lines are left, also none and half of one, there is an answer."""
    for entry in case(number)["inputs"]:
        lines = (CASES / number / entry["file"]).read_text(encoding="utf-8").splitlines(keepends=True)
        for count in range(len(lines)):
            kept = "".join(lines[:count])
            answers(tmp_path, number, entry, kept)
            answers(tmp_path, number, entry, kept + lines[count][: len(lines[count]) // 2])


@pytest.mark.parametrize("number", NUMBERS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_after_accidents(tmp_path: Path, number: str, data: st.DataObject) -> None:
    """Lines lost, doubled and cut, characters turned into others: there is an answer."""
    for entry in case(number)["inputs"]:
        text = (CASES / number / entry["file"]).read_text(encoding="utf-8")
        answers(tmp_path, number, entry, data.draw(damages(text)))


@pytest.mark.parametrize("tool", sorted({case(number)["tool"] for number in NUMBERS}))
def test_another_layout_never_passes(tmp_path: Path, tool: str) -> None:
    """What another tool printed, and text that nobody printed, is no pass of this tool, whatever was expected."""
    expected = next(case(number).get("given") or {} for number in NUMBERS if case(number)["tool"] == tool)
    family = tool.partition("-")[0]
    others = {told: number for number in NUMBERS if (told := case(number)["tool"]).partition("-")[0] != family}
    texts = {
        other: (CASES / number / case(number)["inputs"][0]["file"]).read_text(encoding="utf-8")
        for other, number in others.items()
    }
    texts |= {"words": "all tests passed\nPASS\nok 8 of 8\n", "table": "| a | b |\n| 1 | 2 |\n", "nothing": ""}
    passed = [
        other
        for other, text in texts.items()
        if {f.outcome for f in read_text(tmp_path, tool, text, expected).findings} <= {"pass", "marginal"}
    ]
    assert passed == []
