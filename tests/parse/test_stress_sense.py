"""A document of the engine that contradicts its command, or its windows each other, is no answer."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.agent import stress_doc
from tests.probes.stress_docs import BDFS, Change, document, node, result


def _change(path: str, value: Any) -> Change:
    *steps, last = path.split(".")

    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at[step]
        at[last] = value

    return change


def _without(path: str) -> Change:
    *steps, last = path.split(".")

    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at[step]
        del at[int(last) if isinstance(at, list) else last]

    return change


PHASE = "gpus.0.phases.0"
BURN = f"{PHASE}.burn"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_change("plan.seed", 7), "expected the results of the plan that was asked for"),
        (_without("plan"), "expected the results of the plan that was asked for"),
        (_change("plan.phases.0.seconds", 60.0), "expected the results of the plan that was asked for"),
        (_without("gpus.1"), f"expected GPUs {BDFS[0]}, {BDFS[1]}, found {BDFS[0]}"),
        (_change("gpus.0.bdf", "0000:99:00.0"), "expected GPUs"),
        (_change("windows", []), "expected a window of phase 0"),
        (_change("windows.0.end", 0.0), "expected windows one after the other"),
        (_change("windows.0.end", 900.0), "expected windows within the 241.768 s of the run"),
        (_change("seconds", 1.0), "expected windows within the 1 s of the run"),
        (lambda data: data["windows"].append({"phase": 0, "begin": 241.5, "end": 241.6}), "one window of each phase"),
    ],
)
def test_what_cannot_be_is_refused(change: Change, expected: str) -> None:
    """Another plan, other GPUs, windows that cannot be: one line says what, and nothing is read."""
    data = document("burn")
    change(data)
    with pytest.raises(ParseError) as raised:
        stress_doc(result("burn", data, node()))
    assert expected in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_count_that_nobody_gave_is_not_none() -> None:
    """A result without its count of errors, or of what was compared, does not read."""
    for path in (f"{BURN}.error_count", f"{BURN}.checked", f"{BURN}.each.1.error_count"):
        data = document("burn")
        _without(path)(data)
        with pytest.raises(ParseError, match="expected a StressDoc"):
            stress_doc(result("burn", data, node()))


def test_what_was_recorded_is_believed() -> None:
    """Real runs contradict nothing."""
    for piece in ("patterns", "pulse", "burn"):
        assert len(stress_doc(result(piece, document(piece), node())).gpus) == 2


def test_a_late_document_counts_only_where_it_was_ended() -> None:
    """After the deadline a run that says it ended by itself is not believed; one that was ended early is."""
    data = document("burn")
    with pytest.raises(ParseError, match="ended early"):
        stress_doc(result("burn", data, node(), timed_out=True))
    data["ended_early"] = True
    assert stress_doc(result("burn", data, node(), timed_out=True)).ended_early
