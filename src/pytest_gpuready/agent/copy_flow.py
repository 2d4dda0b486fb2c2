"""Copies back to back on CUDA streams, timed by events: the number that nvbandwidth's copy-engine tests give.

Same sizes as there: 512 MiB a copy, four copies to warm up, then batches of 16 between two events. A spinning kernel
that holds the stream until everything is queued is not needed: at least two batches are always queued ahead, so the
copy engine never waits for the host. Every wait has a deadline.

A phase ends when its rate is known well enough: most of the time that it could take would say the same once more.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError, CudaGpu
from pytest_gpuready.agent.stress import figures

POLL_S = 0.002
AHEAD = 2
LEAST_BATCHES = 3
LONGEST_BATCH_S = 1.0
FEWEST = 6
"""Rates from which a phase may be known; those `AHEAD` of them are measured as well."""
SHARED_PARTS = 8
"""Of the time that two directions share, each with a rate of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is copied.

    A phase is `seconds` under load, or at least `least_s` if then the mean rate is known to `within` of itself (95 %,
    neighbours' likeness counted); `patience_s` is the longest wait for it. `loop` copies make a batch; on links so slow
    that a batch would take over a second, fewer do.
    """

    size_bytes: int = 512 * 2**20
    loop: int = 16
    loop_both: int = 4
    warm_up: int = 4
    seconds: float = 1.8
    least_s: float = 0.9
    within: float = 0.01
    patience_s: float = 30.0


class Flow:
    """One stream of equal copies. `times_s` are the ends of batches, the first one the end of the warm-up."""

    def __init__(self, gpu: CudaGpu, enqueue: Callable[[Any], None], size_bytes: int) -> None:
        self._gpu = gpu
        self._enqueue = enqueue
        self.size_bytes = size_bytes
        self.stream = gpu.stream()
        self.loop = 1
        self.copied = 0
        self.marks: list[Any] = []
        self.passed_at: list[float] = []
        """When the host saw each mark passed, monotonic seconds."""

    def copies(self, count: int) -> None:
        for _ in range(count):
            self._enqueue(self.stream)
        self.copied += count

    def mark(self) -> None:
        self.marks.append(self._gpu.mark(self.stream))

    def fill(self) -> None:
        """Keep `AHEAD` batches queued behind the one that runs."""
        while len(self.marks) - len(self.passed_at) <= AHEAD:
            self.copies(self.loop)
            self.mark()

    def look(self) -> None:
        """Note the marks that were passed meanwhile."""
        while len(self.passed_at) < len(self.marks) and self._gpu.passed(self.marks[len(self.passed_at)]):
            self.passed_at.append(time.monotonic())

    def elapsed_s(self) -> float:
        """Time of the GPU from the end of the warm-up to the last mark passed."""
        done = len(self.passed_at)
        return self._gpu.seconds_between(self.marks[0], self.marks[done - 1]) if done > 1 else 0.0

    @property
    def done(self) -> bool:
        return len(self.passed_at) == len(self.marks)

    @property
    def moved_bytes(self) -> int:
        return self.copied * self.size_bytes

    @property
    def batch_bytes(self) -> int:
        return self.loop * self.size_bytes


def run(
    gpu: CudaGpu,
    flows: Sequence[Flow],
    plan: Plan,
    *,
    loop: int,
    under_load: Callable[[], None] = lambda: None,
    until: float | None = None,
) -> None:
    """Run flows at the same time as long as the plan says, or until that monotonic time; `under_load` is called once,
    early enough for the shortest run.

    Raises: CudaError on any CUDA error and where the copies do not end in time.
    """
    give_up = time.monotonic() + plan.patience_s
    _settle_loop(gpu, flows, plan, loop, give_up)
    lead = flows[0]
    for flow in flows:
        flow.copies(plan.warm_up)
    lead.mark()
    for flow in flows[1:]:
        gpu.wait_for(flow.stream, lead.marks[0])
        flow.mark()
    told = False
    while True:
        for flow in flows:
            flow.fill()
            flow.look()
        if not told and all(flow.elapsed_s() > min(plan.least_s, plan.seconds) / 2 for flow in flows):
            under_load()
            told = True
        enough = all(len(flow.passed_at) > LEAST_BATCHES for flow in flows)
        if enough and (time.monotonic() > until if until else _may_end(gpu, flows, plan)):
            break
        _nap(give_up, plan)
    for flow in flows:
        while not flow.done:
            flow.look()
            _nap(give_up, plan)


def _may_end(gpu: CudaGpu, flows: Sequence[Flow], plan: Plan) -> bool:
    """True where the time is over, or the rate is known: that of one flow, or what several move together."""
    lasted = min(flow.elapsed_s() for flow in flows)
    if lasted >= plan.seconds or lasted < plan.least_s:
        return lasted >= plan.seconds
    zero = flows[0].marks[0]
    tracks = [(times_s(gpu, flow, zero), flow.batch_bytes) for flow in flows]
    each = rates(*tracks[0]) if len(tracks) == 1 else [sum(part) for part in shared_rates(tracks, SHARED_PARTS)]
    return figures.enough(each, within=plan.within, fewest=FEWEST)


def _settle_loop(gpu: CudaGpu, flows: Sequence[Flow], plan: Plan, loop: int, give_up: float) -> None:
    """Time one copy of each flow and choose the copies of a batch so that a batch ends within a second."""
    for flow in flows:
        flow.copies(1)
        first = gpu.mark(flow.stream)
        flow.copies(1)
        second = gpu.mark(flow.stream)
        while not gpu.passed(second):
            _nap(give_up, plan)
        one_s = gpu.seconds_between(first, second)
        flow.loop = max(1, min(loop, int(LONGEST_BATCH_S / one_s))) if one_s > 0 else loop


def _nap(give_up: float, plan: Plan) -> None:
    if time.monotonic() > give_up:
        raise CudaError(
            f"expected copies to end within {plan.patience_s:g} s, found them still under way; "
            "read the kernel log and the PCIe link of this GPU"
        )
    time.sleep(POLL_S)


def times_s(gpu: CudaGpu, flow: Flow, zero: Any) -> list[float]:
    """Ends of batches that were passed, in seconds since the mark `zero` of the same GPU."""
    return [gpu.seconds_between(zero, mark) for mark in flow.marks[: len(flow.passed_at)]]


def rates(times: Sequence[float], batch_bytes: int) -> list[float]:
    """GB/s of each batch, from the times at which one ended and the next began."""
    return [batch_bytes / (b - a) / 1e9 for a, b in itertools.pairwise(times)]


def shared_rates(tracks: Sequence[tuple[Sequence[float], int]], parts: int) -> list[tuple[float, ...]]:
    """GB/s of every track in each of `parts` equal parts of the time in which all of them ran.

    A track is the ends of its batches and the bytes of a batch; inside a batch bytes count as evenly spread.
    """
    begin = max(times[0] for times, _ in tracks)
    end = min(times[-1] for times, _ in tracks)
    edges = [begin + (end - begin) * i / parts for i in range(parts + 1)]
    span = (end - begin) / parts
    return [
        tuple((_bytes_at(times, size, b) - _bytes_at(times, size, a)) / span / 1e9 for times, size in tracks)
        for a, b in itertools.pairwise(edges)
    ]


def _bytes_at(times: Sequence[float], batch_bytes: int, moment: float) -> float:
    """Bytes of a track that had moved at a moment within it."""
    for index, (a, b) in enumerate(itertools.pairwise(times)):
        if moment <= b:
            return batch_bytes * (index + (moment - a) / (b - a))
    return float(batch_bytes * (len(times) - 1))


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))
