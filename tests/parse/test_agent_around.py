"""The document of "around": what it must say, when it may come late, and when it contradicts itself."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import AroundDoc, LogLine, WatchDoc, encode
from pytest_gpuready.parse.agent import around_doc, envelope

A, B = "0000:19:00.0", "0000:29:00.0"
WORDS = ("dcgmi", "diag", "-r", "1", "-j")
WATCH = WatchDoc(
    period_s=2.0,
    before={},
    after={},
    samples={"t": [0.1, 2.1], "power_w": [80.0, None]},
    phases=[("tool", 0.0, 5.9)],
)
DOC = AroundDoc(argv=list(WORDS), exit_code=226, stdout="{}", seconds=5.0, watch={A: WATCH, B: WATCH})


def result(doc: AroundDoc, **other: object) -> CommandResult:
    argv = ("python", "-m", "pytest_gpuready.agent", "around", f"{A},{B}", "--", *WORDS)
    printed = encode(probe="around", host="node01", boot_id="0-1", data=doc).decode() + "\n"
    command = Command(node="node01", argv=argv, timeout_s=60.0)
    good = CommandResult(
        command=command, exit_code=0, stdout=printed, stderr="", started="2026-12-01T00:00:00Z", duration_s=5.2
    )
    return dataclasses.replace(good, **other)  # type: ignore[arg-type]


def changed(**fields: object) -> AroundDoc:
    return msgspec.structs.replace(DOC, **fields)


def late(doc: AroundDoc) -> CommandResult:
    return result(doc, exit_code=None, timed_out=True)


def test_it_comes_back_as_it_was() -> None:
    """What the agent said is what the parser gives, whatever the tool's exit code."""
    assert around_doc(result(DOC)) == DOC


def test_the_kernel_log_is_in_every_watch() -> None:
    """The one window of the node belongs to each GPU, what kept it from being read too."""
    line = LogLine(t=2.5, text="NVRM: Xid (PCI:0000:19:00): 79")
    doc = around_doc(result(changed(log=[line], log_problem="records were lost")))
    assert {bdf: (watch.log, watch.log_problem) for bdf, watch in doc.watch.items()} == {
        A: ([line], "records were lost"),
        B: ([line], "records were lost"),
    }


def test_after_the_deadline_it_counts_if_it_was_ended_early() -> None:
    """A whole document from the grace of the command is read, its envelope too."""
    doc = changed(ended_early=True, exit_code=203)
    assert around_doc(late(doc)) == doc
    assert envelope(late(doc), "around").boot_id == "0-1"


def test_after_the_deadline_nothing_ends_by_itself() -> None:
    """A document that came too late and does not say that it was ended contradicts its result."""
    with pytest.raises(ParseError, match="expected a tool that was ended early"):
        around_doc(late(DOC))


@pytest.mark.parametrize("printed", ["", "{", "Killed"])
def test_after_the_deadline_without_a_document_it_is_the_deadline(printed: str) -> None:
    """Where there is no whole document the deadline is what is said."""
    with pytest.raises(ToolError, match="expected an answer within 60 s, found none"):
        around_doc(dataclasses.replace(late(DOC), stdout=printed))


def test_an_agent_that_cannot_be_killed_has_no_document() -> None:
    """A process that hangs in the driver is what is said, whatever it printed."""
    with pytest.raises(ToolError, match="cannot be killed"):
        around_doc(dataclasses.replace(late(changed(ended_early=True)), unkillable="process 4711"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"argv": ["dcgmi", "diag", "-r", "2", "-j"]}, "expected the output of 'dcgmi diag -r 1 -j', found that of"),
        ({"exit_code": None}, "expected an exit code or a problem, found neither"),
        ({"problem": "no such file"}, "expected an exit code or a problem, found both"),
        ({"exit_code": -1}, "expected an exit code from 0 to 255, found -1"),
        ({"exit_code": 256}, "expected an exit code from 0 to 255, found 256"),
        ({"seconds": -0.5}, "expected a run of 0 s or more, found -0.5 s"),
        ({"watch": {A: WATCH}}, "expected a watch over 2 GPUs, found 1 and no reason"),
        ({"watch": {A: WATCH, "0000:99:00.0": WATCH}}, "found one over '0000:99:00.0'"),
        (
            {"watch": {A: WATCH, B: msgspec.structs.replace(WATCH, samples={"t": [0.1], "power_w": []})}},
            "expected sample columns of equal length",
        ),
        (
            {"watch": {A: WATCH, B: msgspec.structs.replace(WATCH, phases=[("tool", 0.0, 60.0)])}},
            "expected samples until phase 'tool' ends at 60 s, found the last at 2.1 s",
        ),
    ],
)
def test_contradictions_are_refused(fields: dict[str, object], says: str) -> None:
    """A document that cannot be true is no measurement, and the message says what in it cannot be."""
    with pytest.raises(ParseError, match="on node01") as caught:
        around_doc(result(changed(**fields)))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["argv", "exit_code", "stdout", "stderr", "ended_early", "problem", "cut", "watch", "watch_problem", "log"]
)
def test_what_must_be_said_has_no_default(name: str) -> None:
    """An agent that leaves out a field has not answered: nobody fills it in."""
    raw = msgspec.to_builtins(DOC)
    del raw[name]
    with pytest.raises(ParseError, match=name):
        around_doc(result(raw))


def test_a_reason_makes_up_for_a_gpu_that_was_not_watched() -> None:
    """A GPU may be absent where the document says why."""
    doc = changed(watch={A: WATCH}, watch_problem=f"NVML: GpuIsLost ({B})")
    assert around_doc(result(doc)) == doc
