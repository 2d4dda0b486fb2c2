"""Bandwidth of HBM and of the caches.

HBM: read, write, copy and triad over arrays far larger than the L2 cache. Which way to write such a kernel is best
differs from chip to chip, so a few are tried first, for copy the driver's own device copy too; the fastest is kept and
named in the notes. A repeat is as many launches as take `REPEAT_S`. Copy counts what is read and what is written, triad
two reads and one write.

Caches: a buffer that fits is written with one pattern after the other, and under each, for an equal part of the time,
read again and again, every word compared with what it should be. L2: a quarter of it, read by all multiprocessors past
their L1. L1: 64 KiB for each multiprocessor, read by one block there. A bit that is stuck is found under a pattern that
holds the other value there, a line that answers for another one under "address" and "seeded", whose words all differ,
and a line that flips while nobody writes under any; `error_count` counts every time it was read.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import figures, kernels_memory
from pytest_gpuready.agent.stress.control import chosen, control
from pytest_gpuready.agent.stress.device import is_out_of_memory
from pytest_gpuready.agent.stress.flow import Beat, knows_enough
from pytest_gpuready.agent.stress.kernels_memory import PIECE
from pytest_gpuready.agent.stress.memory import WORD, memory_fault
from pytest_gpuready.agent.stress.report import REPORT, Report
from pytest_gpuready.model.stress_doc import CACHE_PATTERNS, CacheResult, HbmResult, Phase

ARRAYS = {"read": 1, "write": 1, "copy": 2, "triad": 3}
"""Kernel -> arrays that it moves, and needs."""
ARRAY_BYTES = 4 * 2**30
BLOCK = 2 * PIECE
TRIED = 4
"""Launches by which the ways are compared."""
DRIVER = "the driver's copy"
REPEAT_S = 0.05
REPEATS = 10
L1_SLICE, L2_PIECE = 65536, 32768
CACHE_S = 1.0
BATCH_S = 0.02
VECTOR = 16
LEAST_ROUNDS = 64
"""So many read all of the buffer on any chip: blocks of the L2 check begin seven pieces from each other."""
ONES = 0xFFFFFFFF


def patterns(seed: int) -> dict[str, tuple[int, int, int, int]]:
    """`CACHE_PATTERNS` -> what the four words of a vector are made of: factor, word, second, third.

    The first is the address of the vector (32 bits) times the factor, XORed with the word; the second and the third
    are that XORed with theirs, the fourth with both. "address": every word is its own address.
    """
    every = {f"0x{word:08x}": (0, word, 0, 0) for word in (0, ONES, 0x55555555, 0xAAAAAAAA)}
    own = {"address": (1, 0, WORD, 2 * WORD), "seeded": (0x9E3779B1, seed * 2654435761 & ONES, ONES, 0x55555555)}
    return {name: (every | own)[name] for name in CACHE_PATTERNS}


def hbm(gpu: Any, phase: Phase, beat: Beat) -> HbmResult:
    """One phase of kind "hbm"."""
    kernel = phase.kernel or "copy"
    if kernel not in ARRAYS:
        raise CudaError(f"expected a kernel among {', '.join(ARRAYS)}, found {kernel[:40]!r}")
    notes: list[str] = []
    arrays = ARRAYS[kernel]
    size = min(phase.size_bytes or ARRAY_BYTES, gpu.free_bytes() // (arrays + 1)) // BLOCK * BLOCK
    while True:
        try:
            with gpu.buffers(*[size] * arrays) as held:
                return _hbm(gpu, phase, beat, kernel=kernel, held=held, size=size, notes=notes)
        except CudaError as error:
            if not is_out_of_memory(error) or size < 2**24:
                raise
            notes.append(f"memory for {arrays} arrays of {size} bytes was not to be had, took half")
            size = size // 2 // BLOCK * BLOCK


def _hbm(gpu: Any, phase: Phase, beat: Beat, *, kernel: str, held: list[int], size: int, notes: list[str]) -> HbmResult:
    for address in held:
        gpu.set_bytes(address, 0x3F, size)
    pieces = size // PIECE
    three = [*held, *[held[0]] * 3][:3]
    source = kernels_memory.bandwidth()
    ways: dict[str, Callable[[], None]] = {}
    for variant, deep in kernels_memory.VARIANTS.items():
        grid = (pieces * 4 // deep,)
        ways[variant] = gpu.kernel(source, f"hbm_{kernel}_{variant}", grid, 256, *three, pieces).launch
    if kernel == "copy":
        ways[DRIVER] = lambda: gpu.copy(three[1], three[0], size)
    times = {}
    for name, way in ways.items():
        gpu.seconds_of(way)
        times[name] = gpu.seconds_of(way, TRIED)
    best = min(times, key=lambda name: times[name])
    notes.append(best)
    way, count = ways[best], max(1, round(REPEAT_S / times[best]))
    late_s = beat.start()
    begun = time.monotonic()
    rates: list[float] = []
    wanted = 1 if phase.within else phase.repeats or REPEATS
    done = dismissed = False
    while not (done or dismissed or beat.stopped):
        rates.append(size * ARRAYS[kernel] / gpu.seconds_of(way, count) / 1e9)
        beat.say(gb_per_s=rates[-1])
        seconds = time.monotonic() - begun
        done, dismissed = len(rates) >= wanted and seconds >= phase.seconds, beat.dismissed
        if knows_enough(phase, seconds, rates):
            beat.knows_enough()
    return HbmResult(
        seconds=time.monotonic() - begun,
        late_s=late_s,
        cut=not done and not dismissed,
        enough=dismissed and not done,
        notes=notes,
        kernel=kernel,
        gb_per_s=rates,
        cv=figures.cv(rates) or 0.0,
        half_width=figures.half_width(figures.second_half(rates)),
        size_bytes=size,
    )


def cache(gpu: Any, phase: Phase, seed: int, beat: Beat) -> CacheResult:
    """One phase of kind "cache"."""
    level = phase.level or "l2"
    if level not in ("l1", "l2"):
        raise CudaError(f"expected level l1 or l2, found {level[:40]!r}")
    size = gpu.sms * L1_SLICE if level == "l1" else max(gpu.l2_bytes // 4 // L2_PIECE, 1) * L2_PIECE
    source, vectors = kernels_memory.caches(), ctypes.c_uint32(size // VECTOR)
    made, rounds = [ctypes.c_uint32(0) for _ in range(4)], ctypes.c_uint32(LEAST_ROUNDS)
    grid, block = (gpu.sms, 1024) if level == "l1" else (gpu.sms * 4, 512)
    per_round = size if level == "l1" else grid * L2_PIECE
    with gpu.buffers(size, REPORT) as (address, report):
        gpu.zero(report, REPORT)
        write = gpu.kernel(source, "cache_write", (gpu.sms * 4,), 256, address, vectors, *made)
        look = gpu.kernel(source, f"{level}_check", (grid,), block, address, vectors, *made, rounds, report)
        flip = gpu.kernel(source, "flip_bit", (1,), 1, address, 0, 0)
        write.launch()
        gpu.seconds_of(look.launch)
        took = gpu.seconds_of(look.launch)
        rounds.value = max(LEAST_ROUNDS, min(2**24, int(rounds.value * BATCH_S / max(took, 1e-6))))
        late_s = beat.start()
        begun, seconds, done = time.monotonic(), 0.0, 0
        read: list[str] = []
        for name, words in patterns(seed).items():
            if beat.stopped:
                break
            for argument, value in zip(made, words, strict=True):
                argument.value = value
            write.launch()
            read.append(name)
            until = begun + (phase.seconds or CACHE_S) * len(read) / len(CACHE_PATTERNS)
            first = True
            while not beat.stopped and (first or time.monotonic() < until):
                seconds += gpu.seconds_of(look.launch)
                done += rounds.value * per_round
                first = False
                beat.say(checked_bytes=done)
        seen, lasted, cut = Report(gpu.read(report, REPORT)), time.monotonic() - begun, beat.stopped
        rounds.value = LEAST_ROUNDS
        one = chosen(seed, size, size // WORD, 8 * WORD, WORD)
        return CacheResult(
            seconds=lasted,
            late_s=late_s,
            cut=cut,
            level=level,
            gb_per_s=done / seconds / 1e9 if seconds else 0.0,
            checked_bytes=done,
            error_count=seen.count,
            errors=[memory_fault(entry) for entry in seen.entries],
            patterns=read,
            control=control(gpu, one, data=address, flip=flip, compare=look.launch, report=report, repeats=True)
            if read
            else "",
        )
