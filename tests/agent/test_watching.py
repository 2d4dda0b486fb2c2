"""The watch over all GPUs of a node: what hangs or fails costs only itself, and what comes from it is bounded."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from pytest_gpuready.agent import watch_process
from pytest_gpuready.agent.watch import KernelWindow, Watch
from pytest_gpuready.agent.watch_process import WatchProcess
from pytest_gpuready.agent.watching import Line, Seen, Watching

A, B = "0000:19:00.0", "0000:29:00.0"
XID = "NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus."


class StandInReadings:
    """STAND-IN for the readings of one GPU: no hardware. `hangs_on` names what never answers."""

    def __init__(self, power_w: float, *, hangs_on: str = "", alive: bool = True) -> None:
        self.errors: dict[str, str] = {} if alive else {"nvml": "GpuIsLost"}
        self.alive = alive
        self._power_w = power_w
        self._hangs_on = hangs_on
        self.sampled = 0

    def counters(self) -> dict[str, int]:
        self._answer("counters")
        return {"pcie_replay": 1}

    def sample(self) -> dict[str, float | None]:
        self._answer("sample")
        self.sampled += 1
        columns = ("sm_mhz", "memory_mhz", "memory_temperature_c", "reasons", "generation", "width", "utilisation")
        return {"power_w": self._power_w, "temperature_c": None, **dict.fromkeys(columns)}

    def generation_max(self) -> None:
        return None

    generation_max_device = generation_max

    def _answer(self, what: str) -> None:
        if what == self._hangs_on:
            threading.Event().wait()


def watching(tmp_path: Path, **readings: StandInReadings) -> Watching:
    """A watch over GPUs a and b with these readings, and a kernel log of its own."""
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    of = {A: readings["a"], B: readings["b"]}

    def make(bdf: str, period_s: float, **more) -> Watch:
        return Watch(bdf, period_s, readings=of[bdf], **more)

    return Watching((A, B), watch=make, window=KernelWindow(kmsg), period_s=0.01)


def until(what) -> None:
    end = time.monotonic() + 20
    while not what() and time.monotonic() < end:
        time.sleep(0.005)
    assert what()


def test_gpus_are_watched_together_and_the_log_once(tmp_path: Path) -> None:
    """Lowest and highest readings of the moment, a document a GPU in the order asked for, one window of the log."""
    both = watching(tmp_path, a=StandInReadings(700.0), b=StandInReadings(610.0))
    both.start()
    until(lambda: both.ready and both.now().power_w == (610.0, 700.0))
    assert both.now().temperature_c is None
    with (tmp_path / "kmsg").open("a") as log:
        log.write(f"4,2,2500000,-;{XID}\n")
    seen = both.end(10)
    assert list(seen.watch) == [A, B]
    assert [line.text for line in seen.log] == [XID]
    assert [doc.log for doc in seen.watch.values()] == [[], []]
    assert (seen.watch_problem, seen.log_problem) == ("", "")
    assert {doc.phases[0][0] for doc in seen.watch.values()} == {"tool"}


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (StandInReadings(1.0, hangs_on="counters"), f"NVML: no answer from the start ({B})"),
        (StandInReadings(1.0, alive=False), f"NVML: GpuIsLost ({B})"),
    ],
)
def test_one_gpu_in_trouble_costs_only_its_own_watch(tmp_path: Path, trouble: StandInReadings, says: str) -> None:
    """A GPU that hangs or is lost is absent with its reason; the other one has its document."""
    both = watching(tmp_path, a=StandInReadings(700.0), b=trouble)
    both.start()
    until(lambda: both.now().power_w == (700.0, 700.0))
    seen = both.end(0.5)
    assert list(seen.watch) == [A]
    assert seen.watch_problem == says


def test_a_sampler_that_hangs_leaves_what_was_read_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that stops answering while it is watched keeps its counters of before and says that it hangs."""
    monkeypatch.setattr("pytest_gpuready.agent.watching.GPUS_END_S", 1.0)
    both = watching(tmp_path, a=StandInReadings(700.0), b=StandInReadings(1.0, hangs_on="sample"))
    both.start()
    until(lambda: both.ready)
    doc = both.end(10).watch[B]
    assert (doc.before, doc.after) == ({"pcie_replay": 1}, {})
    assert "no answer" in doc.errors["sampler"]


def test_a_log_that_cannot_be_read_in_time_is_a_problem(tmp_path: Path) -> None:
    """A kernel log that is not there by the end is named as not read, never as empty."""
    both = watching(tmp_path, a=StandInReadings(1.0), b=StandInReadings(1.0))
    both._window = HangingWindow(tmp_path / "kmsg")
    both.start()
    seen = both.end(0.2)
    assert seen.log_problem == "not read within 0.2 s"


class HangingWindow(KernelWindow):
    """A window of a log whose reading never ends."""

    def open(self) -> None:
        threading.Event().wait()


def test_a_long_watch_is_thinned(tmp_path: Path) -> None:
    """Beyond the bound every second sample goes and the period doubles: few rows, in order, from first to last."""
    (tmp_path / "kmsg").touch()
    readings = StandInReadings(5.0)
    with Watch(A, 0.0001, readings=readings, kmsg=tmp_path / "kmsg", most=10) as watch:
        until(lambda: readings.sampled > 40)
    doc = watch.doc()
    times = doc.samples["t"]
    assert len(times) <= 10
    assert times == sorted(times)
    assert doc.period_s >= 0.0001 * 2**2
    assert times[0] < times[-1] / 4


# --- the agent's end of it --------------------------------------------------------------------------------------------

ENDED = Line(seen=Seen(watch={}, watch_problem="w", log=[], log_problem="l"))


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> WatchProcess:
    """A watch that cannot be started: what it prints is fed by hand."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    return WatchProcess((A,))


def test_a_watch_that_cannot_be_started_is_a_problem(process: WatchProcess) -> None:
    """Nothing was seen, and why stands in both places."""
    seen = process.close()
    assert process.ended
    assert seen.watch_problem == seen.log_problem == "expected to start the watch, found No such file or directory"


def test_lines_are_taken_however_they_are_cut(process: WatchProcess) -> None:
    """Ready, readings and the end arrive sign by sign as they do at once."""
    lines = (Line(ready=True), Line(power_w=(1.0, 2.0)), ENDED)
    for sign in b"".join(msgspec.json.encode(line) + b"\n" for line in lines):
        process.feed(bytes([sign]))
    assert process.ready
    assert process.now == Line(power_w=(1.0, 2.0))
    assert process.close() == ENDED.seen


def test_what_is_no_line_of_ours_is_a_problem_and_no_answer() -> None:
    """Something else on its stdout, and an end without a last line, leave nothing seen but a reason."""
    watch = WatchProcess((A,), module="this")
    assert watch.pipe is not None
    while not watch.ended:
        watch.feed(watch.pipe.read1(65536))
    assert watch.close().watch_problem == "expected lines of JSON from the watch, found others"


def test_an_endless_line_is_not_kept(process: WatchProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the bound is dropped and named."""
    monkeypatch.setattr(watch_process, "LARGEST", 100)
    process._problem = ""
    process.feed(b"x" * 101)
    assert process.close().watch_problem == "expected lines of at most 100 bytes from the watch, found a longer"
