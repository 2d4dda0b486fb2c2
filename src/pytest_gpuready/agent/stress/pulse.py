"""Full load and idle in turns, in step on CLOCK_MONOTONIC, so that all GPUs of a node rise and fall together.

Cycle c begins at begin + c · period (+ place · stagger) and is under load for duty · period. Its products are small, so
that a load of a few milliseconds is full of them; as many are queued as will fit by the time that one takes, a piece of
`PIECE_S` after the other while the load lasts, for under load the clocks sink and a product takes longer than it did.
The last product of each load is compared with the first result, each time after another sixteenth of D was overwritten
before it. `late_max_s` is the largest lateness of a beginning or
an end, as the host saw it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress.control import together
from pytest_gpuready.agent.stress.cublas import Cublas
from pytest_gpuready.agent.stress.flow import PATIENCE_S, Beat, Flow
from pytest_gpuready.agent.stress.gemm import Prepared, format_of, planted
from pytest_gpuready.model.stress_doc import MOST_ERRORS, Phase, PulseResult

PERIOD_S, DUTY, SECONDS = 1.0, 0.5, 10.0
LEAST_PERIOD_S, MOST_PERIOD_S = 0.01, 10.0
PIECE_S = 0.01
POLL_S = 0.0005
SPIN_S = 0.0015
"""So long before a moment the host stops sleeping and looks at the clock."""
DEPTH = 2048
"""K of a product: short enough for loads of a few milliseconds."""


@dataclass(slots=True)
class _Beats:
    cycles: int = 0
    passes: int = 0
    compared: int = 0
    late_s: float = 0.0
    pass_s: float = 0.001


def pulse(gpu: Any, lt: Cublas, phase: Phase, seed: int, beat: Beat, *, place: int = 0) -> PulseResult:
    """One phase of kind "pulse"."""
    period, duty = phase.period_s or PERIOD_S, phase.duty or DUTY
    if not (LEAST_PERIOD_S <= period <= MOST_PERIOD_S and 0 < duty < 1):
        raise CudaError(
            f"expected a period from {LEAST_PERIOD_S:g} to {MOST_PERIOD_S:g} s and a duty between 0 and 1, "
            f"found {period:g} s and {duty:g}"
        )
    names = phase.formats or [phase.format or "bf16"]
    plant = planted(phase)
    with contextlib.ExitStack() as held:
        prepared = []
        for name in names:
            form = format_of(name, gpu.compute)
            shape = (phase.m or form.shape[0], phase.n or form.shape[1], phase.k or DEPTH)
            one = held.enter_context(Prepared(gpu, lt, form, shape, seed=seed, plant=plant))
            one.look(beat)
            prepared.append(one)
        gpu.drain()
        late_s = beat.start()
        begun = time.monotonic()
        first = begun - late_s + place * phase.stagger_s
        seen = _Beats(late_s=late_s)
        times = [one.product.pass_s for one in prepared]
        while not beat.stopped:
            due = first + seen.cycles * period
            if due + period > begun + (phase.seconds or SECONDS) + 1e-6:
                break
            which = seen.cycles % len(prepared)
            seen.pass_s = times[which]
            _until(due, lambda: beat.stopped)
            if beat.stopped:
                break
            _load(gpu, prepared[which], seen, beat, due=due, end=due + period * duty)
            times[which] = seen.pass_s
            seen.cycles += 1
            beat.say(cycles=seen.cycles, late_max_s=seen.late_s)
        if not beat.stopped:
            _until(first + seen.cycles * period, lambda: beat.stopped)
        seconds = time.monotonic() - begun
        results = [one.result(Flow()) for one in prepared]
        m, n, _ = prepared[0].shape
        return PulseResult(
            seconds=seconds,
            late_s=late_s,
            cut=beat.stopped,
            notes=[note for one in prepared for note in one.notes],
            period_s=period,
            duty=duty,
            cycles=seen.cycles,
            late_max_s=seen.late_s,
            checked=seen.compared * m * n,
            error_count=sum(one.error_count for one in results),
            errors=[error for one in results for error in one.errors][:MOST_ERRORS],
            control=together(one.control for one in results),
        )


def _until(moment: float, stopped: Callable[[], bool]) -> None:
    """Wait for a moment of CLOCK_MONOTONIC: asleep at first, then looking at the clock."""
    while (left := moment - time.monotonic()) > 0:
        if stopped():
            return
        if left > SPIN_S:
            time.sleep(min(left - SPIN_S, 0.05))


def _load(gpu: Any, one: Prepared, seen: _Beats, beat: Beat, *, due: float, end: float) -> None:
    """One load: from now until `end`, no more than two pieces queued, so that what a product takes now is known."""
    begin = gpu.mark()
    since = time.monotonic()
    seen.late_s = max(seen.late_s, since - due)
    pieces: list[tuple[Any, int]] = []
    waiting = passes = 0
    while True:
        while pieces and gpu.passed(pieces[0][0]):
            event, count = pieces.pop(0)
            seen.pass_s = gpu.seconds_between(begin, event) / count
            gpu.forget(begin)
            begin, since = event, time.monotonic()
            waiting -= count
        now = time.monotonic()
        busy_until = max(now, since + waiting * seen.pass_s)
        count = int(min(end - busy_until, PIECE_S) / seen.pass_s + 0.5)
        if beat.stopped or (count <= 0 and passes):
            break
        if len(pieces) < 2:
            for _ in range(max(count, 1)):
                seen.passes += 1
                one.multiply(seen.passes)
            passes, waiting = passes + max(count, 1), waiting + max(count, 1)
            pieces.append((gpu.mark(), max(count, 1)))
        else:
            time.sleep(POLL_S)
        if now - since > PATIENCE_S:
            raise CudaError(f"expected a piece of a load to end within {PATIENCE_S:g} s, found it still under way")
    if passes:
        one.compare(seen.passes)
        seen.compared += 1
    last = gpu.mark()
    give_up = time.monotonic() + PATIENCE_S
    while not gpu.passed(last):
        if time.monotonic() > give_up:
            raise CudaError(f"expected one load to end within {PATIENCE_S:g} s, found it still under way")
        time.sleep(POLL_S / 2)
    seen.late_s = max(seen.late_s, time.monotonic() - end)
    if waiting:
        seen.pass_s = gpu.seconds_between(begin, last) / waiting
    for event in (begin, last, *(event for event, _ in pieces)):
        gpu.forget(event)
