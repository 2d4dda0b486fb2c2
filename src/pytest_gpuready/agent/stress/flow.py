"""A GPU kept busy for a while: passes queued ahead, timed by events, never drained in between.

Passes are queued in batches of about `BATCH_S`, and about `AHEAD_S` of them always lie in the queue, so the GPU never
waits for the host, and what is queued ends soon after a stop. An event stands between batches; windows are made of
whole batches afterwards.

A phase may end early (`Phase.within`). A GPU that knows its rate well enough says so and stays under load until it is
dismissed, which all GPUs are at once when each of them has said it: the whole node stays as hot as it is meant to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import figures
from pytest_gpuready.model.stress_doc import Phase

BATCH_S = 0.025
AHEAD_S = 0.3
WINDOW_S = 0.25
MOST_WINDOWS, MOST_BATCHES = 1200, 6000
POLL_S = 0.004
PATIENCE_S = 30.0
BURST_S = 1.0
"""The burst is the fastest batch of so many first seconds: before the power limit has taken hold."""


class Beat(Protocol):
    """The worker as a phase sees it."""

    @property
    def stopped(self) -> bool: ...

    @property
    def dismissed(self) -> bool:
        """True where this phase may end, because all GPUs have said that they know enough."""

    @property
    def process_s(self) -> float:
        """Seconds since the process was started."""

    def start(self) -> float:
        """Wait for the moment at which the phase begins; how many seconds late that was."""

    def say(self, **numbers: float | int | str) -> None:
        """Tell how far it is; more than once a second is left out."""

    def knows_enough(self) -> None:
        """Tell, once, that longer would say nothing new here."""


@dataclass(slots=True)
class Flow:
    """What was done: seconds and passes of each batch, in order. Over a long time neighbours are put together."""

    batches: list[tuple[float, int]] = field(default_factory=list)
    early: list[tuple[float, int]] = field(default_factory=list)
    """Batches of the first `BURST_S`, as they were."""
    passes: int = 0
    seconds: float = 0.0
    cut: bool = False
    dismissed: bool = False
    """Ended before its time because all GPUs knew enough."""

    def add(self, seconds: float, passes: int) -> None:
        if self.seconds < BURST_S:
            self.early.append((seconds, passes))
        self.seconds += seconds
        self.passes += passes
        self.batches.append((seconds, passes))
        if len(self.batches) > MOST_BATCHES:
            pairs = zip(self.batches[::2], self.batches[1::2], strict=False)
            rest = self.batches[len(self.batches) // 2 * 2 :]
            self.batches = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs] + rest

    def burst(self, work: float) -> float:
        """Work a second in the fastest batch of the first second, `work` being that of one pass."""
        return max((work * passes / seconds for seconds, passes in self.early if seconds > 0), default=0.0)

    @property
    def window_s(self) -> float:
        """How long a window is: so long that there are not too many."""
        return max(WINDOW_S, self.seconds / MOST_WINDOWS)

    def windows(self, work: float) -> list[float]:
        """Work a second in windows of about `window_s`; what is left at the end joins none, unless it is all."""
        rates, seconds, passes = [], 0.0, 0
        for one, count in self.batches:
            seconds, passes = seconds + one, passes + count
            if seconds >= self.window_s * 0.98:
                rates.append(work * passes / seconds)
                seconds, passes = 0.0, 0
        if not rates and seconds > 0:
            rates.append(work * passes / seconds)
        return rates


def knows_enough(phase: Phase, seconds: float, rates: Sequence[float]) -> bool:
    """True where a phase that has lasted so long, with these rates, need not go on for the sake of this GPU."""
    if not phase.within or seconds < phase.least_s:
        return False
    return figures.enough(figures.second_half(rates), within=phase.within)


def keep_busy(
    gpu: Any,
    enqueue: Callable[[int], None],
    *,
    seconds: float,
    pass_s: float,
    beat: Beat,
    first: int = 0,
    enough: Callable[[Flow], bool] | None = None,
) -> Flow:
    """Queue pass after pass, `enqueue(number)` from `first` on, for so many seconds of the GPU's time or until stopped.

    When `enough` says so of what was done, that is told to the others, and the work goes on until we are dismissed.

    Raises: CudaError where CUDA reports one, or a batch does not end within PATIENCE_S.
    """
    flow, begun = Flow(), time.monotonic()
    marks: list[tuple[Any, int]] = [(gpu.mark(), 0)]
    queued = 0
    moved = begun
    asked_s = 0.0

    def over() -> bool:
        return beat.stopped or flow.dismissed

    while True:
        while len(marks) > 1 and gpu.passed(marks[1][0]):
            (before, _), (after, count) = marks[0], marks[1]
            took = gpu.seconds_between(before, after)
            flow.add(took, count)
            if took > 0 and count:
                pass_s = took / count
            gpu.forget(before)
            del marks[0]
            moved = time.monotonic()
        waiting = sum(count for _, count in marks[1:])
        early = flow.seconds + waiting * pass_s < seconds
        flow.dismissed = flow.dismissed or (beat.dismissed and early and not flow.cut)
        flow.cut = flow.cut or (beat.stopped and early and not flow.dismissed)
        if enough and flow.seconds >= asked_s + WINDOW_S:
            asked_s = flow.seconds
            if enough(flow):
                beat.knows_enough()
                enough = None
        per_batch = max(1, round(BATCH_S / max(pass_s, 1e-6)))
        while not over() and waiting * pass_s < AHEAD_S and flow.seconds + waiting * pass_s < seconds:
            for _ in range(per_batch):
                enqueue(first + queued)
                queued += 1
            marks.append((gpu.mark(), per_batch))
            waiting += per_batch
        if len(marks) == 1:
            break
        if time.monotonic() - moved > PATIENCE_S:
            raise CudaError(f"expected queued passes to end within {PATIENCE_S:g} s, found none that did")
        if flow.batches:
            took, count = flow.batches[-1]
            beat.say(passes=flow.passes, pass_s=took / max(count, 1))
        time.sleep(POLL_S)
    gpu.forget(marks[0][0])
    return flow
