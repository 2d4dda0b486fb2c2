"""Burn-in: several formats in turns, and memory traffic between them, for any time.

A turn of a format is products of it, each compared with the first result; a turn of memory is a seeded pattern written,
checked while its complement is written, and checked again over a quarter of the free memory; those that were checked to
their end are counted. Each format is prepared,
and its first result looked at, at its first turn, so the load begins when it should. Errors of memory have the format
"memory" and their place in bytes as the column.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from pytest_gpuready.agent.stress.control import together
from pytest_gpuready.agent.stress.cublas import Cublas
from pytest_gpuready.agent.stress.flow import Beat, Flow, keep_busy
from pytest_gpuready.agent.stress.gemm import Prepared, format_of, planted
from pytest_gpuready.agent.stress.memory import pattern
from pytest_gpuready.model.stress_doc import (
    MOST_ERRORS,
    BurnResult,
    BurnWindow,
    MemoryFault,
    Phase,
    ResultFault,
)

SECONDS = 60.0
MIX = ("bf16", "fp8_e4m3", "tf32", "fp16", "int8", "fp64")
TURN_S = 5.0
MEMORY_SHARE = 0.25
MEMORY = "memory"
MOST_WINDOWS = 480


class _Turns:
    """What all turns came to."""

    def __init__(self) -> None:
        self.windows: list[BurnWindow] = []
        self.every = 1
        self.seen = 0
        self.totals: dict[str, Flow] = {}
        self.errors: list[ResultFault] = []
        self.memory_errors = self.memory_turns = self.memory_bytes = 0
        self.controls: list[str] = []

    def note(self, window: BurnWindow) -> None:
        """Keep a window; of too many, every second, fourth and so on is kept."""
        if self.seen % self.every == 0:
            self.windows.append(window)
        self.seen += 1
        if len(self.windows) > MOST_WINDOWS:
            self.windows = self.windows[::2]
            self.every *= 2

    def products(self, name: str, flow: Flow, flop: float, t: float) -> None:
        total = self.totals.setdefault(name, Flow())
        for seconds, passes in flow.batches:
            total.add(seconds, passes)
        total.cut = flow.cut
        for place, rate in enumerate(flow.windows(flop)):
            self.note(BurnWindow(t=t + place * flow.window_s, format=name, tflops=rate / 1e12))


def burn(gpu: Any, lt: Cublas, phase: Phase, seed: int, beat: Beat) -> BurnResult:
    """One phase of kind "burn"."""
    names = phase.formats or [name for name in MIX if gpu.compute >= format_of(name, (99, 0)).least_compute]
    for name in names:
        format_of(name, gpu.compute)
    plant = planted(phase)
    seconds = phase.seconds or SECONDS
    turn_s = min(TURN_S, seconds / (2 * len(names)))
    turns, ready = _Turns(), dict[str, Prepared]()
    numbers = dict.fromkeys(names, 1)

    with contextlib.ExitStack() as held:

        def prepared(name: str) -> Prepared:
            if name not in ready:
                form = format_of(name, gpu.compute)
                shape = (phase.m or form.shape[0], phase.n or form.shape[1], phase.k or form.shape[2])
                one = held.enter_context(Prepared(gpu, lt, form, shape, seed=seed, plant=plant))
                one.look(beat)
                ready[name] = one
            return ready[name]

        prepared(names[0])
        late_s = beat.start()
        begun = time.monotonic()
        place = 0
        while not beat.stopped and (left := seconds - (time.monotonic() - begun)) > 0.01:
            name = names[place % len(names)]
            one = prepared(name)
            t, left = time.monotonic() - begun, seconds - (time.monotonic() - begun)
            flow = keep_busy(
                gpu,
                one.queue,
                seconds=max(0.0, min(turn_s, left)),
                pass_s=one.product.pass_s,
                beat=beat,
                first=numbers[name],
            )
            numbers[name] += flow.passes
            turns.products(name, flow, one.flop, t)
            place += 1
            if place % len(names) == 0 and not beat.stopped and seconds - (time.monotonic() - begun) > turn_s / 2:
                _memory_turn(gpu, seed + place, begun, turns, beat)
        ended = time.monotonic()
        each = [one.result(turns.totals.get(name, Flow()), cublas=lt.version) for name, one in ready.items()]
    errors = [error for one in each for error in one.errors] + turns.errors
    return BurnResult(
        seconds=ended - begun,
        late_s=late_s,
        cut=beat.stopped and ended - begun < seconds,
        windows=turns.windows,
        each=each,
        passes=sum(one.passes for one in each),
        checked=sum(one.checked for one in each),
        error_count=sum(one.error_count for one in each) + turns.memory_errors,
        errors=errors[:MOST_ERRORS],
        memory_turns=turns.memory_turns,
        memory_bytes=turns.memory_bytes,
        control=together([*(one.control for one in each), *turns.controls]),
    )


def _memory_turn(gpu: Any, seed: int, begun: float, turns: _Turns, beat: Beat) -> None:
    t = time.monotonic() - begun
    size = int(gpu.free_bytes() * MEMORY_SHARE)
    asked = Phase(kind="pattern", pattern="random", size_bytes=size)
    seen = pattern(gpu, asked, 0.0, seed, _Within(beat))
    turns.note(BurnWindow(t=t, format=MEMORY, tflops=0.0, gb_per_s=seen.gb_per_s))
    turns.memory_errors += seen.error_count
    if not seen.cut and seen.checked_bytes > 0:
        turns.memory_turns += 1
        turns.memory_bytes += seen.checked_bytes
        turns.controls.append(seen.control)
    turns.errors += [_as_result(error) for error in seen.errors][: MOST_ERRORS - len(turns.errors)]


def _as_result(error: MemoryFault) -> ResultFault:
    return ResultFault(
        pass_number=0,
        row=0,
        col=error.address,
        tile=0,
        bit=error.bit,
        expected=error.expected,
        found=error.found,
        format=MEMORY,
    )


class _Within:
    """The worker's beat for a part of a phase that has begun."""

    def __init__(self, beat: Beat) -> None:
        self._beat = beat

    @property
    def stopped(self) -> bool:
        return self._beat.stopped

    @property
    def dismissed(self) -> bool:
        return False

    @property
    def process_s(self) -> float:
        return self._beat.process_s

    def start(self) -> float:
        return 0.0

    def say(self, **numbers: float | int | str) -> None:
        self._beat.say(**numbers)

    def knows_enough(self) -> None:
        """A part of a phase decides nothing."""
