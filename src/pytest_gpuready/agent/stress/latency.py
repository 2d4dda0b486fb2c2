"""How long a read takes that no cache of the GPU answers: from pinned host memory, and from the GPU's own memory.

One thread on one multiprocessor follows a cycle of pointers: each step needs the answer of the one before, so a step
lasts as long as one read. Past L1 by the kind of load. Host memory: 2 MiB, taken beside a CPU near the GPU; the GPU
does not keep it in its caches. The GPU's memory: several times the L2 cache, which is filled with something else before
the first step, and no node is met twice. Misses of the TLBs are part of both.

The walk must end at the node that its number of steps leads to: every pointer was read right.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from typing import Any

from pytest_gpuready.agent import host_memory
from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import figures, kernels_latency
from pytest_gpuready.agent.stress.flow import Beat
from pytest_gpuready.agent.stress.kernels_latency import NODE, place
from pytest_gpuready.model.stress_doc import LatencyResult, Phase

HOST_BYTES = 2**21
LEAST_DEVICE_BYTES = 2**26
OVER_L2 = 4
WORD = 8
REPEATS = 5
REPEAT_S = 0.02
TRIED = 1024
"""Steps by which the length of a repeat is settled."""
LEAST_STEPS, MOST_STEPS = 256, 65536


class Walk:
    """A cycle of pointers in a piece of memory of 2**n bytes, and where the thread that follows it stands."""

    def __init__(self, gpu: Any, base: int, size_bytes: int, at: int, seed: int) -> None:
        self._gpu, self._base, self._at, self._seed = gpu, base, at, seed
        self._bits = (size_bytes // NODE).bit_length() - 1
        self._walked = 0
        source = kernels_latency.chains()
        gpu.kernel(source, "latency_link", (max(1, min(1024, 2**self._bits // 256)),), 256, *self._link()).launch()
        self._steps = ctypes.c_uint64(0)
        self._walk = gpu.kernel(source, "latency_walk", (1,), 1, at, self._steps)

    def _link(self) -> tuple[int, ...]:
        return self._base, self._bits, self._seed, self._at

    def step_ns(self, steps: int) -> float:
        """Nanoseconds of one step, over so many."""
        self._steps.value = steps
        self._walked += steps
        return float(self._gpu.seconds_of(self._walk.launch) / steps * 1e9)

    def check(self, where: str) -> None:
        """Raises: CudaError where it did not come to the node that it must be at."""
        found = int.from_bytes(self._gpu.read(self._at, WORD), "little")
        wanted = self._base + NODE * place(self._walked % 2**self._bits, self._bits, self._seed)
        if found != wanted:
            raise CudaError(
                f"expected a walk through {where} to end at 0x{wanted:x} after {self._walked} steps, found it at "
                f"0x{found:x}: a pointer was read wrong"
            )


def latency(gpu: Any, phase: Phase, seed: int, beat: Beat) -> LatencyResult:
    """One phase of kind "latency"."""
    own_bytes = device_bytes(gpu.l2_bytes)
    with _near_host_memory(gpu) as (host, cpus), gpu.buffers(own_bytes, own_bytes, WORD, WORD) as held:
        own, other, *at = held
        walks = (Walk(gpu, host, HOST_BYTES, at[0], seed), Walk(gpu, own, own_bytes, at[1], seed))
        gpu.zero(other, own_bytes)  # what was linked last lies in the L2 cache no longer
        slower = max(walk.step_ns(TRIED) for walk in walks)
        steps = max(LEAST_STEPS, min(MOST_STEPS, int(REPEAT_S * 1e9 / max(slower, 1.0))))
        late_s = beat.start()
        begun = time.monotonic()
        series: tuple[list[float], list[float]] = ([], [])
        wanted = phase.repeats or REPEATS
        while len(series[1]) < wanted and not beat.stopped:
            for walk, found in zip(walks, series, strict=True):
                found.append(walk.step_ns(steps))
            beat.say(host_ns=series[0][-1], device_ns=series[1][-1])
        seconds = time.monotonic() - begun
        for walk, where in zip(walks, ("host memory", "the GPU's memory"), strict=True):
            walk.check(where)
    return LatencyResult(
        seconds=seconds,
        late_s=late_s,
        cut=len(series[1]) < wanted,
        host_ns=series[0],
        device_ns=series[1],
        cv=max(figures.cv(found) or 0.0 for found in series),
        steps=steps,
        host_bytes=HOST_BYTES,
        device_bytes=own_bytes,
        cpus=cpus,
    )


def device_bytes(l2_bytes: int) -> int:
    """Memory for the walk that an L2 cache of this size holds little of; a power of two."""
    wanted = max(LEAST_DEVICE_BYTES, OVER_L2 * l2_bytes)
    return 1 << (wanted - 1).bit_length()


@contextlib.contextmanager
def _near_host_memory(gpu: Any) -> Iterator[tuple[int, str]]:
    """Host memory taken by a CPU near the GPU, and which CPUs those are; then this thread may run anywhere again."""
    before = os.sched_getaffinity(0)
    cpus = host_memory.bind_to(gpu.bdf)
    try:
        with gpu.host_buffer(HOST_BYTES) as address:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)
            yield address, cpus
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)
