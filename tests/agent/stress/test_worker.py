"""The worker's protocol, its one process and its one thread of orders, on an engine that has no GPU."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import orders
from pytest_gpuready.agent.stress.orders import Orders, Out
from pytest_gpuready.agent.stress.worker import idle, serve
from pytest_gpuready.model.stress_doc import GemmResult, IdleResult, Phase, Ready, ResultFault, Work, decode_result

BDF = "0000:19:00.0"
SOURCES = Path(__file__).parents[3] / "src"


class FakeEngine:
    """An engine whose phases do what the test says."""

    def __init__(self, bdf: str, phases: Callable[[Phase, Any], Any], opening: Exception | None = None) -> None:
        self.bdf, self._phases, self._opening = bdf, phases, opening

    def prepare(self, phases: list[Phase]) -> None:
        assert all(isinstance(phase, Phase) for phase in phases)

    def open(self) -> None:
        if self._opening:
            raise self._opening

    def ready(self) -> dict[str, Any]:
        return {"bdf": self.bdf, "name": "none", "compute": "9.0", "formats": ["bf16"]}

    def run(self, phase: Phase, work: Work, beat: Any) -> Any:
        return self._phases(phase, beat)


def talk(
    kinds: list[str],
    lines: list[dict[str, Any] | bytes],
    phases: Callable[[Phase, Any], Any] = lambda phase, beat: idle(phase.seconds, beat),
    opening: Exception | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[int, list[dict[str, Any]]]:
    """Everything that is said to work of these kinds and these lines after it; the end of stdin follows them."""
    work = msgspec.to_builtins(Work(phases=[Phase(kind=kind) for kind in kinds]))
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in [{"work": work}, *lines]]
    out = io.BytesIO()
    given = Orders(io.BytesIO(b"\n".join(texts) + b"\n"), lambda: None)
    code = serve(BDF, given, Out(out), lambda bdf: FakeEngine(bdf, phases, opening), clock)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_phase_is_answered_in_the_words_of_the_protocol() -> None:
    """ "ready" decodes as Ready, "done" as the result of its kind, and the end of stdin ends it with 0."""
    code, (ready, done) = talk(["idle"], [{"begin": 0, "at": time.monotonic()}])
    assert code == 0
    found = msgspec.convert(ready["ready"], Ready)
    assert (found.bdf, found.start_s > 0) == (BDF, True)
    assert done["done"] == 0
    assert isinstance(decode_result("idle", json.dumps(done["result"]).encode()), IdleResult)


def test_a_fault_costs_its_own_phase_alone() -> None:
    """A CUDA error, a defect of ours and a result that is none become "failed" in one line; the next phase runs."""

    def phases(phase: Phase, beat: Any) -> Any:
        if phase.kind == "gemm":
            raise CudaError("a kernel: expected CUDA_SUCCESS, found CUDA_ERROR_ECC_UNCORRECTABLE (214)")
        if phase.kind == "pulse":
            raise ZeroDivisionError("two\nlines")
        return {"what": object()} if phase.kind == "hbm" else IdleResult()

    begin = [{"begin": number, "at": 0} for number in range(4)]
    _, said = talk(["gemm", "pulse", "hbm", "idle"], begin, phases)
    assert [line.get("failed", line.get("done")) for line in said[1:]] == [0, 1, 2, 3]
    problems = [line["problem"] for line in said[1:4]]
    assert "gemm: a kernel" in problems[0]
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in problems[0]
    assert "ZeroDivisionError: two lines" in problems[1]
    assert "hbm: expected a result, found" in problems[2]
    assert "result" in said[4]


def test_a_number_that_is_none_costs_no_errors() -> None:
    """Rates that are infinite or no numbers are left out and noted; what was found, and where, is reported."""
    fault = ResultFault(pass_number=-1, row=1, col=2, tile=0, bit=0, expected="1", found="nan")
    wrong = GemmResult(
        passes=1, checked=1, tflops=[1.0, math.nan, math.inf], cv=math.nan, error_count=1, errors=[fault]
    )
    _, said = talk(["gemm"], [{"begin": 0, "at": 0}], lambda phase, beat: wrong)
    found = decode_result("gemm", json.dumps(said[1]["result"]).encode())
    assert isinstance(found, GemmResult)
    assert (found.tflops, found.cv, found.error_count, found.errors) == ([1.0], 0.0, 1, [fault])
    assert found.notes == ["3 numbers were infinite or none, and left out"]


def test_what_it_cannot_begin_with_is_a_problem() -> None:
    """A GPU that CUDA cannot open, and work of another version, are one "problem" and exit code 1."""
    code, (line,) = talk(["idle"], [], opening=CudaError("expected GPU, found none"))
    assert (code, line) == (1, {"problem": "expected GPU, found none"})
    out = io.BytesIO()
    given = Orders(io.BytesIO(b'{"work":{"phases":[{"sort":"gemm"}]}}\n'), lambda: None)
    assert serve(BDF, given, Out(out), lambda bdf: FakeEngine(bdf, lambda *_: None)) == 1
    assert b"expected work" in out.getvalue()


def test_what_is_no_beginning_fails() -> None:
    """A phase that does not exist, half a line and words that mean nothing are answered, and the worker goes on."""
    lines: list[dict[str, Any] | bytes] = [{"begin": 7, "at": 0}, b'{"beg', {"please": 1}, {"begin": 0, "at": 0}]
    _, said = talk(["idle"], lines)
    assert ["failed" in line for line in said[1:]] == [True, True, True, False]


def test_it_speaks_at_most_once_a_second() -> None:
    """Of ten words in five seconds of the clock, the first after each full second are said."""
    now = iter([10.0 + 0.5 * step for step in range(100)])

    def phases(phase: Phase, beat: Any) -> Any:
        for count in range(10):
            beat.say(passes=count)
        return IdleResult()

    _, said = talk(["idle"], [{"begin": 0, "at": 10.0}], phases, clock=lambda: next(now))
    times = [line["t"] for line in said if "said" in line]
    assert times == [1.0, 2.0, 3.0, 4.0]


def test_stop_cuts_a_phase_and_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "stop" while a phase runs: it is reported as cut; who does not end then is ended by the thread of orders."""
    monkeypatch.setattr(orders, "HUNG_S", 0.0)
    read, write = os.pipe()
    out, given_up = io.BytesIO(), threading.Event()
    work = msgspec.to_builtins(Work(phases=[Phase(kind="idle", seconds=60.0)]))

    def phases(phase: Phase, beat: Any) -> Any:
        os.write(write, b'{"stop":true}\n')
        return idle(phase.seconds, beat)

    with os.fdopen(read, "rb") as stdin:
        given = Orders(stdin, given_up.set)
        os.write(write, json.dumps({"work": work}).encode() + b'\n{"begin":0,"at":0}\n')
        assert serve(BDF, given, Out(out), lambda bdf: FakeEngine(bdf, phases)) == 0
        os.close(write)
    result = json.loads(out.getvalue().splitlines()[-1])["result"]
    assert result["cut"]
    assert result["seconds"] < 60
    assert given_up.wait(10)


def test_the_real_process_without_a_gpu_says_so() -> None:
    """The process itself, in a place without CUDA: one line of "problem" on stdout, nothing else there, exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpuready.agent.stress.worker", "ffff:ff:1f.7"],
        input=b'{"work":{"phases":[]}}\n',
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert "expected" in json.loads(line)["problem"]


def test_who_knows_enough_says_so_once_and_is_dismissed_by_number() -> None:
    """At once, not once a second; the word for another phase is none for this one."""
    read, write = os.pipe()
    out = io.BytesIO()
    seen: list[bool] = []

    def phases(phase: Phase, beat: Any) -> Any:
        beat.knows_enough()
        beat.knows_enough()
        for number in (7, 0):
            os.write(write, json.dumps({"enough": number}).encode() + b"\n")
            give_up = time.monotonic() + 10
            while given.enough != number and time.monotonic() < give_up:
                time.sleep(0.001)
            seen.append(beat.dismissed)
        return IdleResult()

    with os.fdopen(read, "rb") as stdin:
        given = Orders(stdin, lambda: None)
        work = msgspec.to_builtins(Work(phases=[Phase(kind="idle")]))
        os.write(write, json.dumps({"work": work}).encode() + b'\n{"begin":0,"at":0}\n')
        stop = threading.Thread(target=lambda: (until_said(out), os.close(write)))
        stop.start()
        serve(BDF, given, Out(out), lambda bdf: FakeEngine(bdf, phases))
        stop.join()
    assert seen == [False, True]
    assert [line.get("enough") for line in map(json.loads, out.getvalue().splitlines()) if "said" in line] == [True]


def until_said(out: io.BytesIO) -> None:
    """Wait for the end of a phase."""
    give_up = time.monotonic() + 20
    while b'"done"' not in out.getvalue() and time.monotonic() < give_up:
        time.sleep(0.005)
