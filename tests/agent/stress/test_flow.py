"""A GPU kept busy: on a GPU whose time passes when the host sleeps, so that a gap in its work would show."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.agent.stress import flow
from pytest_gpuready.agent.stress.flow import Flow, keep_busy, knows_enough
from pytest_gpuready.model.stress_doc import Phase


class FakeGpu:
    """Work of `pass_s` each in a queue; `idle_s` is how long the GPU had nothing to do after its first work."""

    def __init__(self, pass_s: float) -> None:
        self.now = 0.0
        self.end_of_queue = 0.0
        self.pass_s, self.idle_s = pass_s, 0.0
        self.passes = 0

    def work(self, number: int) -> None:
        if self.passes and self.end_of_queue < self.now:
            self.idle_s += self.now - self.end_of_queue
        self.end_of_queue = max(self.now, self.end_of_queue) + self.pass_s
        self.passes += 1

    def mark(self) -> float:
        return self.end_of_queue

    def passed(self, mark: float) -> bool:
        return mark <= self.now + 1e-9

    def seconds_between(self, first: float, last: float) -> float:
        return last - first

    def forget(self, mark: float) -> None:
        pass


class Beat:
    """Stops after so many looks at `stopped`."""

    process_s = 0.0
    dismissed = False
    knew = 0

    def __init__(self, looks: int = 10**9) -> None:
        self._looks = looks
        self.said: list[dict[str, Any]] = []

    @property
    def stopped(self) -> bool:
        self._looks -= 1
        return self._looks < 0

    def start(self) -> float:
        return 0.0

    def knows_enough(self) -> None:
        self.knew += 1

    def say(self, **numbers: Any) -> None:
        self.said.append(numbers)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Its clock is the clock of the flow."""
    fake = FakeGpu(0.003)

    def sleep(seconds: float) -> None:
        fake.now += seconds * 3  # a host that comes back late

    monkeypatch.setattr(flow.time, "sleep", sleep)
    monkeypatch.setattr(flow.time, "monotonic", lambda: fake.now)
    return fake


def test_the_gpu_never_waits(gpu: FakeGpu) -> None:
    """Ten seconds of passes: the GPU is idle for no moment, the windows add up, each pass is counted once."""
    done = keep_busy(gpu, gpu.work, seconds=10.0, pass_s=0.001, beat=Beat())
    assert gpu.idle_s == 0
    assert done.passes == gpu.passes
    assert done.seconds == pytest.approx(10.0, abs=0.05)
    assert not done.cut
    rates = done.windows(1.0)
    assert len(rates) == pytest.approx(40, abs=3)
    assert rates == pytest.approx([1 / 0.003] * len(rates))


def test_a_stop_leaves_little_in_the_queue(gpu: FakeGpu) -> None:
    """After a stop nothing is queued, and what was queued lasts under half a second."""
    beat = Beat(looks=400)
    done = keep_busy(gpu, gpu.work, seconds=1000.0, pass_s=0.003, beat=beat)
    assert done.cut
    assert done.passes == gpu.passes
    assert flow.AHEAD_S + 2 * flow.BATCH_S < 0.5


def test_it_goes_on_until_all_know_enough(gpu: FakeGpu) -> None:
    """It says once that it knows enough, keeps its GPU busy, and ends soon after it is dismissed, not cut."""

    class Dismissed(Beat):
        @property
        def dismissed(self) -> bool:
            return self.knew > 0 and gpu.now > 20.0

    beat = Dismissed()
    phase = Phase(kind="gemm", seconds=1000.0, within=0.01, least_s=5.0)
    done = keep_busy(
        gpu,
        gpu.work,
        seconds=1000.0,
        pass_s=0.003,
        beat=beat,
        enough=lambda flow: knows_enough(phase, flow.seconds, flow.windows(1.0)),
    )
    assert beat.knew == 1
    assert (done.dismissed, done.cut) == (True, False)
    assert 20.0 <= done.seconds < 21.0
    assert gpu.idle_s == 0


def test_who_has_not_the_time_or_not_the_certainty_does_not_know() -> None:
    """The least time and the width both count, over the second half; without `within` nobody ever knows."""
    rates = [500.0] * 20 + [700.0, 701.0] * 10
    phase = Phase(kind="gemm", seconds=60.0, within=0.01, least_s=5.0)
    assert knows_enough(phase, 5.0, rates)
    assert not knows_enough(phase, 4.9, rates)
    assert not knows_enough(phase, 9.0, rates[:14])
    assert not knows_enough(phase, 9.0, [*rates, *[500.0, 900.0] * 10])
    assert not knows_enough(Phase(kind="gemm", seconds=60.0), 9.0, rates)


def test_a_gpu_that_hangs_is_given_up(gpu: FakeGpu) -> None:
    """Passes that never end become an error, not a wait without end."""
    gpu.pass_s = 1e9
    with pytest.raises(flow.CudaError, match="expected queued passes to end"):
        keep_busy(gpu, gpu.work, seconds=1.0, pass_s=0.001, beat=Beat())


def test_the_burst_is_the_fastest_batch_of_the_first_second() -> None:
    """A faster batch that comes later is no burst."""
    done = Flow()
    for seconds in (0.5, 0.25, 0.4, 0.1):
        done.add(seconds, 1)
    assert done.burst(1.0) == pytest.approx(4.0)


def test_a_day_of_batches_stays_small() -> None:
    """Neighbours are put together, passes and seconds stay the same, and the windows are bounded."""
    done = Flow()
    for _ in range(100_000):
        done.add(0.025, 3)
    assert len(done.batches) <= flow.MOST_BATCHES
    assert sum(count for _, count in done.batches) == done.passes == 300_000
    assert len(done.windows(1.0)) <= flow.MOST_WINDOWS * 1.1
