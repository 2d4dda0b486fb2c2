"""The walk through a cycle of pointers, played on ordinary memory: a GPU of plain Python in the place of a real one."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_gpuready.agent import host_memory
from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import latency as module
from pytest_gpuready.agent.stress.kernels_latency import FIRST, NODE, SECOND, chains, place
from pytest_gpuready.agent.stress.latency import device_bytes, latency
from pytest_gpuready.model.stress_doc import Phase

HOST, MASK = 2**40, 2**64 - 1
STEP_NS = {"host": 1000.0, "own": 400.0}


class Kernel:
    """What a launch does."""

    def __init__(self, work: Callable[[], float]) -> None:
        self.launch = work


class MadeUpGpu:
    """Memory of words by address, and kernels as their sources say; a step of a walk takes `STEP_NS`."""

    bdf, l2_bytes = "0000:19:00.0", 2**16

    def __init__(self) -> None:
        self.words: dict[int, int] = {}
        self.spoilt: int | None = None
        self.held: list[int] = []
        self.where: list[frozenset[int]] = []
        """The CPUs that the thread was bound to when host memory was taken."""

    @contextlib.contextmanager
    def host_buffer(self, size_bytes: int) -> Iterator[int]:
        assert size_bytes == module.HOST_BYTES
        self.where.append(frozenset(os.sched_getaffinity(0)))
        self.held.append(HOST)
        yield HOST
        self.held.remove(HOST)

    @contextlib.contextmanager
    def buffers(self, *sizes: int) -> Iterator[list[int]]:
        at = [2**32 * (i + 1) for i in range(len(sizes))]
        self.held += at
        yield at
        for address in at:
            self.held.remove(address)

    def zero(self, address: int, size_bytes: int) -> None:
        assert not any(address <= word < address + size_bytes for word in self.words)

    def read(self, address: int, size_bytes: int) -> bytes:
        return self.words[address].to_bytes(size_bytes, "little")

    def kernel(self, source: str, name: str, _grid: Any, _block: int, *arguments: Any) -> Kernel:
        assert source == chains()
        return Kernel(lambda: getattr(self, name)(*arguments))

    def latency_link(self, base: int, bits: int, seed: int, at: int) -> float:
        order = [base + NODE * place(i, bits, seed) for i in range(2**bits)]
        self.words |= dict(zip(order, [*order[1:], order[0]], strict=True))
        self.words[at] = order[0]
        return 0.0

    def latency_walk(self, at: int, steps: Any) -> float:
        here = self.words[at]
        for number in range(steps.value):
            here = self.words[here]
            if number == self.spoilt:
                here = self.words[self.words[here]]
        self.words[at] = here
        return float(steps.value * STEP_NS["host" if here >= HOST else "own"] / 1e9)

    def seconds_of(self, work: Callable[[], float]) -> float:
        return work()


class Beat:
    """A worker that is told to stop when it has spoken so often."""

    stops_after = 99

    def __init__(self) -> None:
        self.said = 0

    dismissed = False
    process_s = 0.0

    @property
    def stopped(self) -> bool:
        return self.said >= self.stops_after

    def knows_enough(self) -> None:
        """Never told: a latency has no such end."""

    def start(self) -> float:
        return 0.125

    def say(self, **numbers: float | int | str) -> None:
        assert numbers == pytest.approx({"host_ns": STEP_NS["host"], "device_ns": STEP_NS["own"]})
        self.said += 1


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_DEVICE_BYTES", 2**18)
    monkeypatch.setattr(module, "HOST_BYTES", 2**16)
    monkeypatch.setattr(module, "REPEAT_S", 0.0005)


@pytest.mark.parametrize(("bits", "seed"), [(3, 0), (9, 1), (10, 2**31 + 7), (14, 1)])
def test_every_node_comes_once(bits: int, seed: int) -> None:
    """The order of the nodes is a permutation, and hardly ever leads from a node to its neighbour."""
    order = [place(i, bits, seed & MASK) for i in range(2**bits)]
    assert sorted(order) == list(range(2**bits))
    if bits > 8:
        near = sum(abs(a - b) <= 1 for a, b in itertools.pairwise(order))
        assert near < len(order) / 50


def test_the_order_is_that_of_the_kernel() -> None:
    """The kernel's source has the constants and the distance of nodes that stand here in Python."""
    source = chains()
    assert f"seed) * {FIRST:#x}ull" in source
    assert f"(i * {SECOND:#x}ull)" in source
    assert source.count(f"bits, seed) * {NODE}") == 2


def test_both_kinds_of_memory_have_their_own_time() -> None:
    """A repeat is as many steps as fit into its time at the slower one; host memory and own memory each have a list."""
    gpu = MadeUpGpu()
    found = latency(gpu, Phase(kind="latency"), 7, Beat())
    assert found.host_ns == pytest.approx([1000.0] * 5)
    assert found.device_ns == pytest.approx([400.0] * 5)
    assert (found.steps, found.cut, found.late_s) == (500, False, 0.125)
    assert found.cv < 1e-12
    assert (found.host_bytes, found.device_bytes) == (2**16, 2**18)
    assert gpu.held == []
    assert len(latency(MadeUpGpu(), Phase(kind="latency", repeats=2), 7, Beat()).host_ns) == 2


def test_a_stop_ends_it_with_what_is_known() -> None:
    """Told to stop, it says that it was cut and keeps the repeats that were made."""
    beat = Beat()
    beat.stops_after = 2
    found = latency(MadeUpGpu(), Phase(kind="latency"), 1, beat)
    assert (found.cut, len(found.host_ns), len(found.device_ns)) == (True, 2, 2)


def test_a_pointer_that_is_read_wrong_is_found() -> None:
    """One step that leads elsewhere, inside the memory, makes the walk end at another node: no result, and a reason."""
    gpu = MadeUpGpu()
    gpu.spoilt = 100
    with pytest.raises(CudaError, match="expected a walk through host memory to end at 0x") as error:
        latency(gpu, Phase(kind="latency"), 1, Beat())
    assert "a pointer was read wrong" in str(error.value)


def test_host_memory_is_taken_near_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is bound while the memory is taken, the result says to which CPUs, and then it may run anywhere."""
    before = os.sched_getaffinity(0)
    one = {min(before)}

    def bind_to(bdf: str) -> str:
        assert bdf == MadeUpGpu.bdf
        os.sched_setaffinity(0, one)
        return host_memory.cpu_text(one)

    monkeypatch.setattr(host_memory, "bind_to", bind_to)
    gpu = MadeUpGpu()
    assert latency(gpu, Phase(kind="latency", repeats=1), 1, Beat()).cpus == str(min(before))
    assert gpu.where == [frozenset(one)]
    assert os.sched_getaffinity(0) == before


def test_the_memory_is_larger_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the L2 cache at least, and a power of two: an H200's 60 MiB make 256 MiB."""
    monkeypatch.setattr(module, "LEAST_DEVICE_BYTES", 2**26)
    assert [device_bytes(mib * 2**20) for mib in (0, 40, 60, 126)] == [2**26, 2**28, 2**28, 2**29]
