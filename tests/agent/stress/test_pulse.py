"""Pulses on a GPU whose time passes when the host sleeps, and whose products take longer under a long load."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.agent.stress import pulse
from pytest_gpuready.agent.stress.flow import Flow
from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.model.stress_doc import GemmResult, Phase


class Machine:
    """A host clock, and a GPU with a queue. A product takes 0.4 ms, after 0.1 s of load without a pause 0.5 ms."""

    def __init__(self) -> None:
        self.now = 100.0
        self.compute = (9, 0)
        self.end_of_queue = 0.0
        self.loaded_since = 0.0
        self.busy: list[tuple[float, float]] = []
        self.compared = 0

    def product(self) -> None:
        start = max(self.now, self.end_of_queue)
        if start > self.end_of_queue:
            self.loaded_since = start
        took = 0.0004 if start - self.loaded_since < 0.1 else 0.0005
        self.end_of_queue = start + took
        self.busy.append((start, self.end_of_queue))
        self.now += 0.00001  # what the host takes to queue it

    def mark(self) -> float:
        return max(self.now, self.end_of_queue)

    def passed(self, mark: float) -> bool:
        self.now += 0.000002
        return mark <= self.now

    def seconds_between(self, first: float, last: float) -> float:
        return last - first

    def forget(self, mark: float) -> None:
        pass

    def drain(self) -> None:
        self.now = max(self.now, self.end_of_queue)


class FakePrepared:
    """A product on that machine."""

    def __init__(self, machine: Machine, *_: Any, **__: Any) -> None:
        self._machine = machine
        self.shape, self.notes = (512, 512, 512), ["a note"]
        self.product = type("P", (), {"pass_s": 0.0004})()

    def __enter__(self) -> FakePrepared:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def look(self, beat: Any) -> None:
        pass

    def multiply(self, number: int) -> None:
        self._machine.product()

    def compare(self, number: int) -> None:
        self._machine.compared += 1

    def result(self, flow: Flow) -> GemmResult:
        return GemmResult(passes=0, checked=0, error_count=0)


class Beat:
    """Begins at once; stops when its time has come."""

    process_s = 0.0

    def __init__(self, machine: Machine, stop_at: float = 1e9) -> None:
        self._machine, self._stop_at = machine, stop_at

    @property
    def stopped(self) -> bool:
        return self._machine.now >= self._stop_at

    def start(self) -> float:
        return 0.0

    def say(self, **_: Any) -> None:
        pass


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Its clock is the clock of the pulse."""
    made = Machine()

    def sleep(seconds: float) -> None:
        made.now += seconds + 0.00005

    def monotonic() -> float:
        made.now += 0.000002
        return made.now

    monkeypatch.setattr(pulse.time, "sleep", sleep)
    monkeypatch.setattr(pulse.time, "monotonic", monotonic)
    monkeypatch.setattr(pulse, "Prepared", FakePrepared)
    monkeypatch.setattr(pulse, "format_of", lambda name, compute: FORMATS[name])
    return made


@pytest.mark.parametrize(("period", "duty"), [(0.01, 0.5), (0.1, 0.3), (2.0, 0.5)])
def test_loads_begin_and_end_in_step(machine: Machine, period: float, duty: float) -> None:
    """Every load begins and ends within 3 ms of its moments although products become slower; the GPU idles between."""
    cycles = 4
    phase = Phase(kind="pulse", format="bf16", period_s=period, duty=duty, seconds=cycles * period)
    done = pulse.pulse(machine, None, phase, 1, Beat(machine))  # type: ignore[arg-type]
    assert done.cycles == machine.compared == cycles
    assert done.late_max_s < 0.003
    first = machine.busy[0][0]
    for cycle in range(cycles):
        own = [b for b in machine.busy if cycle * period <= b[0] - first + 0.001 < (cycle + 1) * period]
        assert own[0][0] - first == pytest.approx(cycle * period, abs=0.002)
        assert own[-1][1] - first == pytest.approx((cycle + duty) * period, abs=0.003)
        assert sum(b[1] - b[0] for b in own) == pytest.approx(duty * period, abs=0.003)


def test_each_gpu_begins_later_where_the_pulse_is_staggered(machine: Machine) -> None:
    """The third GPU begins twice the stagger after the first."""
    phase = Phase(kind="pulse", format="bf16", period_s=0.1, duty=0.5, seconds=0.3, stagger_s=0.02)
    pulse.pulse(machine, None, phase, 1, Beat(machine), place=2)  # type: ignore[arg-type]
    assert machine.busy[0][0] == pytest.approx(100.04, abs=0.001)


def test_a_stop_ends_a_long_load(machine: Machine) -> None:
    """Told to stop within a load of five seconds, it ends within 50 ms and says that it was cut."""
    phase = Phase(kind="pulse", format="bf16", period_s=10.0, duty=0.5, seconds=60.0)
    done = pulse.pulse(machine, None, phase, 1, Beat(machine, stop_at=101.0))  # type: ignore[arg-type]
    assert done.cut
    assert machine.now < 101.05


@pytest.mark.parametrize(("period", "duty"), [(0.001, 0.5), (60.0, 0.5), (1.0, 1.0)])
def test_impossible_pulses_are_refused(machine: Machine, period: float, duty: float) -> None:
    """One line says what a period and a duty may be."""
    with pytest.raises(pulse.CudaError, match=r"expected a period from 0\.01"):
        pulse.pulse(machine, None, Phase(kind="pulse", period_s=period, duty=duty), 1, Beat(machine))  # type: ignore[arg-type]
