"""The crew's end of one worker: deadlines, and an end whatever it does."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_gpuready.agent.stress import children, hand
from pytest_gpuready.agent.stress.hand import Hand
from pytest_gpuready.model.stress_doc import HbmResult, Phase, Work

BDF = "0000:19:00.0"
HBM = Phase(kind="hbm", kernel="copy", limit_s=0.1)


def turn(worker: Hand, done: Callable[[], bool]) -> None:
    """What a loop does, until that is so."""
    assert worker.process is not None
    assert worker.process.stdout is not None
    pipe = worker.process.stdout.fileno()
    os.set_blocking(pipe, False)
    give_up = time.monotonic() + 20
    while not done() and time.monotonic() < give_up:
        try:
            worker.hear(os.read(pipe, 65536))
        except BlockingIOError:
            time.sleep(0.005)
        worker.look()
    assert done()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Hand]]:
    """Hires a worker that behaves like that."""
    hired: list[Hand] = []

    def hire(behaviour: str) -> Hand:
        monkeypatch.setenv("BEHAVE", json.dumps({BDF: behaviour}))
        hired.append(Hand(BDF, (sys.executable, "-S", str(Path(__file__).parent / "fake_worker.py"))))
        return hired[-1]

    yield hire
    for one in hired:
        one.close()
        assert one.process is not None
        assert one.process.poll() is not None


def test_a_phase_that_never_ends_is_ended(worker: Callable[..., Hand]) -> None:
    """Beyond the limit of the phase it counts as hung: it is killed, and what it reported before stays."""
    one = worker("hang@1")
    one.give(Work(phases=[HBM, HBM]), 20.0)
    turn(one, lambda: one.usable)
    assert one.ready is not None
    one.begin(0, Phase(kind="hbm", kernel="copy", limit_s=20.0), time.monotonic())
    assert one.busy
    turn(one, lambda: not one.busy)
    one.begin(1, HBM, time.monotonic())
    turn(one, lambda: one.over)
    assert one.problem == "expected the end of the phase within 0.1 s, found none: it hangs"
    assert isinstance(one.results[0], HbmResult)
    assert list(one.results) == [0]


def test_one_that_is_never_ready_is_ended(worker: Callable[..., Hand]) -> None:
    """The deadline is its own; it need not read what it was told either."""
    one = worker("hang@start")
    one.give(Work(phases=[Phase(kind="hbm", kernel="x" * 200_000)]), 0.1)
    turn(one, lambda: one.over)
    assert one.problem == "expected it ready within 0.1 s, found no answer"


def test_one_that_will_not_stop_is_ended(worker: Callable[..., Hand], monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop between phases, it has as long as anybody."""
    monkeypatch.setattr(hand, "STOP_S", 0.1)
    one = worker("stay")
    one.give(Work(phases=[HBM]), 20.0)
    turn(one, lambda: one.usable)
    one.stop()
    assert not one.usable
    turn(one, lambda: one.over)
    assert one.problem == "expected its end within 0.1 s of being told, found none: it hangs"


def test_one_that_cannot_be_started_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over at once, and telling it anything is harmless."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    one = Hand(BDF, ("/nowhere/python",))
    one.give(Work(phases=[HBM]), 1.0)
    one.stop()
    one.look()
    one.close()
    assert one.over
    assert one.problem == "expected to start the worker, found No such file or directory"


def test_results_that_nobody_could_read_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker cannot make the document too large for whoever has to read it."""
    monkeypatch.setattr(hand, "KEPT", 1000)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    one = Hand(BDF, ("/nowhere/python",))
    one.problem = ""
    one.hear(json.dumps({"ready": {"bdf": BDF}}).encode() + b"\n")
    one.begin(0, HBM, time.monotonic() - 1.0)
    one.hear(json.dumps({"done": 0, "result": {"kernel": "copy", "gb_per_s": [4200.0] * 500}}).encode() + b"\n")
    assert one.problem == "expected results of at most 1000 bytes, found more"
    assert not one.results


def test_an_end_is_told_in_words() -> None:
    """Exit codes and signals, those without a name too."""
    told = [children.how_it_ended(code) for code in (0, 3, -9, -99, None)]
    assert told == ["exit code 0", "exit code 3", "signal SIGKILL", "signal 99", "no end of it"]
