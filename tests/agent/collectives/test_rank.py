"""The rank's protocol and its one process, on an engine that has no GPU."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpuready.agent.collectives.hand import Here, Joined
from pytest_gpuready.agent.collectives.nccl import NcclError, WaitingError
from pytest_gpuready.agent.collectives.rank import serve
from pytest_gpuready.agent.stress.orders import Orders, Out
from pytest_gpuready.model.collectives_doc import RankWork, Step, StepHalf, StepResult

BDF = "0000:19:00.0"
SOURCES = Path(__file__).parents[3] / "src"
WORK = RankWork(rank=1, nranks=2, datatype="float32", check=True, seed=1, makes_id=True)
STEP = Step(number=4, op="all_reduce", asked_bytes=8, iterations=2, warmup=1, patience_s=1.0)
RESULT = StepResult(size_bytes=8, out_of_place=StepHalf(time_us=9.5, wrong=0), times_us=[9.0, 10.0])


class FakeEngine:
    """An engine that answers, and notes what it was told; `fail` raises in the method of that name."""

    told: list[Any]

    def __init__(self, bdf: str, work: RankWork, say: Callable[[str], None]) -> None:
        FakeEngine.told = [work]
        self._bdf, self._say = bdf, say

    def here(self) -> dict[str, Any]:
        return {"bdf": self._bdf, "name": "none", "nccl_version": "2.32.3", "packages": {}, "id": "ab" * 128}

    def join(self, unique_id: bytes) -> int:
        FakeEngine.told.append(unique_id)
        return 5

    def allocate(self, largest_bytes: int) -> None:
        FakeEngine.told.append(largest_bytes)

    def run(self, step: Step) -> StepResult:
        self._say("check")
        FakeEngine.told.append(step)
        return RESULT

    def leave(self) -> None:
        FakeEngine.told.append("leave")


ORDERS = [
    {"work": msgspec.to_builtins(WORK)},
    {"join": "ab" * 128},
    {"largest": 64},
    {"step": msgspec.to_builtins(STEP)},
]


def talk(engine: Any, orders: list[Any] = ORDERS) -> tuple[int, list[dict[str, Any]]]:
    """What is said to these orders; the end of stdin follows them."""
    out = io.BytesIO()
    given = Orders(io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in orders)), lambda: None)
    code = serve(BDF, given, Out(out), engine)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def test_it_answers_in_the_words_of_the_protocol() -> None:
    """Who it is, that it has joined, its memory, where it is in a step and its result; at the end it leaves."""
    code, (here, joined, allocated, said, done) = talk(FakeEngine)
    assert code == 0
    found = msgspec.convert(here["here"], Here)
    assert (found.bdf, found.pid, found.start_s > 0) == (BDF, os.getpid(), True)
    assert msgspec.convert(joined["joined"], Joined).free_bytes == 5
    assert allocated == {"allocated": 64}
    assert said == {"said": 4, "stage": "check"}
    assert (done["done"], msgspec.convert(done["result"], StepResult)) == (4, RESULT)
    assert FakeEngine.told == [WORK, b"\xab" * 128, 64, STEP, "leave"]


def failing(method: str, error: Exception) -> type[FakeEngine]:
    def fail(*_: Any) -> Any:
        raise error

    return type("Failing", (FakeEngine,), {method: fail})


@pytest.mark.parametrize(
    ("method", "error", "says"),
    [
        (
            "__init__",
            NcclError("expected the package nccl4py"),
            {"problem": "expected the package nccl4py", "waits": False},
        ),
        ("join", NcclError("two\nlines"), {"problem": "two lines", "waits": False}),
        ("run", WaitingError("still under way"), {"problem": "still under way", "waits": True}),
        ("run", ZeroDivisionError("a\nb"), {"problem": "expected a result, found ZeroDivisionError: a b"}),
        ("leave", NcclError("gone"), {"problem": "gone", "waits": False}),
    ],
)
def test_whatever_goes_wrong_is_one_line_and_its_end(method: str, error: Exception, says: dict[str, Any]) -> None:
    """The last thing that it says is why, with exit code 1; nothing is tried after it."""
    code, said = talk(failing(method, error))
    assert code == 1
    assert said[-1] == says


def test_a_time_that_is_none_is_no_result() -> None:
    """Infinite times are not reported as if they were a measurement."""
    odd = StepResult(size_bytes=8, out_of_place=StepHalf(time_us=math.inf))
    code, said = talk(type("Odd", (FakeEngine,), {"run": lambda self, step: odd}))
    assert (code, "times that are infinite" in said[-1]["problem"]) == (1, True)


def test_what_is_no_order_is_a_problem() -> None:
    """Work of another version, and a line that is no order."""
    for orders in ([{"work": {"rank": 1}}], [ORDERS[0], {"dance": 1}]):
        code, said = talk(FakeEngine, orders)
        assert code == 1
        assert said[-1]["problem"].startswith("expected a result, found ValidationError")


def test_the_process_without_cuda_says_so() -> None:
    """A real rank on a machine without GPU ends with 1 and one line; with no words it is called wrongly."""
    words = [sys.executable, "-m", "pytest_gpuready.agent.collectives.rank"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)}
    text = json.dumps(ORDERS[0]).encode() + b"\n"
    ran = subprocess.run([*words, BDF], input=text, capture_output=True, env=env, timeout=60, check=False)
    (line,) = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert json.loads(line)["problem"].startswith(("cuInit: expected", "expected the package cuda-bindings"))
    assert subprocess.run(words, env=env, capture_output=True, timeout=60, check=False).returncode == 2
