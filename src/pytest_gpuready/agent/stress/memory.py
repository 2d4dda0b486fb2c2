"""All memory that can be had: taken and written, and the patterns over it.

Each pattern is a list of sweeps; a sweep writes, checks, or checks and writes the complement, upwards or downwards.
`checked_bytes` counts what was compared, `gb_per_s` what was read and written over the time of the GPU.

    walking      one bit set, the others clear, and the complement, for each of the 32 places in every word
    inversions   moving inversions of 0, 0x55555555 and a seeded word: up, checking and complementing, then down
    address      every 8 bytes hold their own address, then its complement
    random       seeded, then its complement
    modulo20     every twentieth word differs from the others, for each of the 20 places, and the complement
    fade         all ones, a pause, checked; all zeros, a pause, checked

Where the share asked for is not to be had, less is taken and said so. A phase with `seconds` repeats its sweeps until
they are over; one without does them once. After the last check, which every pattern ends with, the same check has to
find a bit that is flipped on purpose (`control`).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import kernels_memory
from pytest_gpuready.agent.stress.control import chosen, control
from pytest_gpuready.agent.stress.device import is_out_of_memory
from pytest_gpuready.agent.stress.flow import PATIENCE_S, Beat
from pytest_gpuready.agent.stress.gemm import planted
from pytest_gpuready.agent.stress.kernels_memory import PIECE
from pytest_gpuready.agent.stress.report import REPORT, Report, lowest_bit
from pytest_gpuready.model.stress_doc import AllocResult, MemoryFault, PatternResult, Phase

LEFT_FREE = 256 * 2**20
"""Bytes that the driver may need for itself while a test runs."""
SHRINK = 0.98
ONES = 0xFFFFFFFF
WORD = 4
"""Bytes of a word of a pattern."""
PAUSE_S = 1.0
QUEUED = 4
WRITE, CHECK, TURN = "write", "check", "turn"
MOVED = {WRITE: 1, CHECK: 1, TURN: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One time over all memory. `inverse` is XORed onto every word of the pattern."""

    kernel: str
    mode: str
    argument: int = 0
    inverse: int = 0
    down: bool = False
    pause_s: float = 0.0
    """Before it begins."""


def sweeps(pattern: str, base: int, seed: int, pause_s: float) -> list[Sweep]:
    """What a pattern does.

    Raises: CudaError for one that does not exist.
    """
    found: list[Sweep] = []
    if pattern == "walking":
        for place, inverse in itertools.product(range(32), (0, ONES)):
            found += [
                Sweep(kernel="walking", mode=WRITE, argument=place, inverse=inverse),
                Sweep(kernel="walking", mode=CHECK, argument=place, inverse=inverse),
            ]
    elif pattern == "inversions":
        for word in (0, 0x55555555, seed * 2654435761 & ONES):
            found += [
                Sweep(kernel="same", mode=WRITE, argument=word),
                Sweep(kernel="same", mode=TURN, argument=word),
                Sweep(kernel="same", mode=TURN, argument=word, inverse=ONES, down=True),
                Sweep(kernel="same", mode=CHECK, argument=word, down=True),
            ]
    elif pattern in ("address", "random"):
        argument = base if pattern == "address" else seed
        found += [
            Sweep(kernel=pattern, mode=WRITE, argument=argument),
            Sweep(kernel=pattern, mode=TURN, argument=argument),
            Sweep(kernel=pattern, mode=CHECK, argument=argument, inverse=ONES, down=True),
        ]
    elif pattern == "modulo20":
        for place, inverse in itertools.product(range(20), (0, ONES)):
            found += [
                Sweep(kernel="modulo", mode=WRITE, argument=place, inverse=inverse),
                Sweep(kernel="modulo", mode=CHECK, argument=place, inverse=inverse),
            ]
    elif pattern == "fade":
        for word in (ONES, 0):
            found += [
                Sweep(kernel="same", mode=WRITE, argument=word),
                Sweep(kernel="same", mode=CHECK, argument=word, pause_s=pause_s),
            ]
    else:
        known = "walking, inversions, address, random, modulo20, fade"
        raise CudaError(f"expected a pattern among {known}, found {pattern[:40]!r}")
    return found


@contextlib.contextmanager
def most_memory(gpu: Any, share: float, notes: list[str], size_bytes: int = 0) -> Iterator[tuple[int, int]]:
    """Memory of that share of the GPU's, or of that size, or as near to it as there is: address and bytes."""
    asked = size_bytes or int(gpu.memory_bytes * share)
    size = min(asked, max(gpu.free_bytes() - LEFT_FREE, 0)) // PIECE * PIECE
    if size <= 0:
        raise CudaError(f"expected {asked} bytes of free memory, found {gpu.free_bytes()}")
    while True:
        try:
            address = gpu.allocate(size)
            break
        except CudaError as error:
            size = int(size * SHRINK) // PIECE * PIECE
            if not is_out_of_memory(error) or size < asked // 4:
                raise
    if size < asked // PIECE * PIECE:
        notes.append(f"asked for {asked} bytes, took {size}: that is all that was free")
    try:
        yield address, size
    finally:
        with contextlib.suppress(CudaError):  # a broken context has said so already
            gpu.release(address)


def alloc(gpu: Any, phase: Phase, share: float, beat: Beat) -> AllocResult:
    """One phase of kind "alloc": take the memory and write it once."""
    notes: list[str] = []
    late_s = beat.start()
    begun = time.monotonic()
    with most_memory(gpu, phase.share or share, notes, phase.size_bytes) as (address, size):
        gpu.set_bytes(address, 0, size)
        gpu.drain()
        seconds = time.monotonic() - begun
        part = size / gpu.memory_bytes
        return AllocResult(seconds=seconds, late_s=late_s, notes=notes, bytes=size, share=part)


@dataclass(slots=True)
class _Done:
    seconds: float = 0.0
    """Of the GPU, at work."""
    moved: int = 0
    checked: int = 0
    cut: bool = False
    pending: list[tuple[Any, Any, int, int]] = field(default_factory=list)


def pattern(gpu: Any, phase: Phase, share: float, seed: int, beat: Beat) -> PatternResult:
    """One phase of kind "pattern"."""
    notes: list[str] = []
    plant = planted(phase)
    name = phase.pattern or "inversions"
    with contextlib.ExitStack() as held:
        (report,) = held.enter_context(gpu.buffers(REPORT))
        address, size = held.enter_context(most_memory(gpu, phase.share or share, notes, phase.size_bytes))
        todo = sweeps(name, address, seed, phase.pause_s or PAUSE_S)
        gpu.zero(report, REPORT)
        source, done = kernels_memory.patterns(), _Done()
        flip = gpu.kernel(source, "flip_bit", (1,), 1, address, 0, 0)
        launches = [_launch(gpu, source, sweep, (address, size), report) for sweep in todo]
        late_s = beat.start()
        begun = time.monotonic()
        rounds = 0
        while not beat.stopped and (rounds == 0 or time.monotonic() - begun < phase.seconds):
            for place, (sweep, launch) in enumerate(zip(todo, launches, strict=True)):
                _pause(gpu, sweep.pause_s, beat, done)
                if beat.stopped:
                    done.cut = True
                    break
                first = gpu.mark()
                launch.launch()
                if plant and plant.what == "memory" and (rounds, place) == (0, 0):
                    flip.arguments[1].value = plant.element * 4 + plant.bit // 8
                    flip.arguments[2].value = plant.bit % 8
                    flip.launch()
                moved, checked = size * MOVED[sweep.mode], 0 if sweep.mode == WRITE else size
                done.pending.append((first, gpu.mark(), moved, checked))
                _settle(gpu, done, QUEUED)
                beat.say(checked_bytes=done.checked)
            rounds += 1
        _settle(gpu, done, 0)
        seen, seconds, cut = Report(gpu.read(report, REPORT)), time.monotonic() - begun, done.cut or not rounds
        one = chosen(seed, size // PIECE + len(name), size // WORD, 8 * WORD, WORD)
        return PatternResult(
            seconds=seconds,
            late_s=late_s,
            cut=cut,
            notes=notes,
            pattern=name,
            checked_bytes=done.checked,
            gb_per_s=done.moved / done.seconds / 1e9 if done.seconds else 0.0,
            error_count=seen.count,
            errors=[memory_fault(entry) for entry in seen.entries],
            control=""
            if cut  # the memory may hold another pattern than the last check expects
            else control(gpu, one, data=address, flip=flip, compare=launches[-1].launch, report=report),
        )


def memory_fault(entry: tuple[int, int, int, int]) -> MemoryFault:
    position, expected, found, _ = entry
    return MemoryFault(
        address=position,
        expected=f"0x{expected:08x}",
        found=f"0x{found:08x}",
        bit=lowest_bit(expected, found),
    )


def _launch(gpu: Any, source: str, sweep: Sweep, memory: tuple[int, int], report: int) -> Any:
    address, pieces = memory[0], memory[1] // PIECE
    inverse, down = ctypes.c_uint32(sweep.inverse), ctypes.c_uint32(sweep.down)
    name, grid = f"{sweep.kernel}_{sweep.mode}", (min(pieces, 2**31 - 1),)
    return gpu.kernel(source, name, grid, 256, address, pieces, sweep.argument, inverse, down, report)


def _pause(gpu: Any, seconds: float, beat: Beat, done: _Done) -> None:
    """Leave the memory alone for a while, once all that was queued is done."""
    if not seconds:
        return
    _settle(gpu, done, 0)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not beat.stopped:
        time.sleep(0.01)


def _settle(gpu: Any, done: _Done, left: int) -> None:
    """Wait until no more than `left` sweeps are queued, and count those that are done."""
    give_up = time.monotonic() + PATIENCE_S
    while len(done.pending) > left or (done.pending and gpu.passed(done.pending[0][1])):
        first, last, moved, checked = done.pending[0]
        if not gpu.passed(last):
            if time.monotonic() > give_up:
                raise CudaError(f"expected one sweep over memory within {PATIENCE_S:g} s, found none that ended")
            time.sleep(0.001)
            continue
        done.seconds += gpu.seconds_between(first, last)
        done.moved, done.checked = done.moved + moved, done.checked + checked
        gpu.forget(first)
        gpu.forget(last)
        del done.pending[0]
        give_up = time.monotonic() + PATIENCE_S
