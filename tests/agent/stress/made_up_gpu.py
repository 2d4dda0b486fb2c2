"""STAND-IN for a GPU: memory of bytes, and the engine's kernels as their sources say, played in Python.

`blind` kernels compare nothing. A product (`Product`) writes what its number of elements and nothing else decides, but
for the elements in `skips`, which it leaves as they are.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from pytest_gpuready.agent.stress.check import CHUNK
from pytest_gpuready.agent.stress.report import ENTRY, HEAD, REPORT

ONES = 0xFFFFFFFF


class Argument:
    """What `ctypes` objects are for a kernel."""

    def __init__(self, value: int) -> None:
        self.value = value


class Kernel:
    """What a launch does, with the arguments that it has then."""

    def __init__(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._work = work
        self.arguments = [Argument(one) if isinstance(one, int) else one for one in arguments]

    def launch(self) -> None:
        self._work(*(int(one.value) for one in self.arguments))


def word(kernel: str, i: int, argument: int) -> int:
    """A memory pattern as the kernels have it; "random" is any function of the place."""
    if kernel == "walking":
        return 1 << ((i + argument) & 31)
    if kernel == "same":
        return argument & ONES
    if kernel == "address":
        return ((argument + i // 2 * 8) >> (32 * (i & 1))) & ONES
    if kernel == "modulo":
        return 0x5A5AA5A5 if i % 20 == argument else 0xA5A55A5A
    return (i * 2654435761 ^ argument * 40503) & ONES


class MadeUpGpu:
    """Memory at made-up addresses; every kernel runs when it is launched."""

    compute, sms, arch = (9, 0), 1, "sm_90"
    l2_bytes = 4 * 32768
    memory_bytes = 2**30

    def __init__(self, width: int = 2) -> None:
        self.width = width
        """Bytes of an element, of inputs and of results."""
        self.memory: dict[int, bytearray] = {}
        self.blind: set[str] = set()
        self.launched: list[str] = []
        self.stuck: dict[int, tuple[int, int]] = {}
        """Address of a byte -> what is ORed onto it and what it is ANDed with, whenever it is written."""

    # --- memory

    def _at(self, address: int) -> tuple[bytearray, int]:
        base = max(one for one in self.memory if one <= address)
        return self.memory[base], address - base

    def read(self, address: int, size: int) -> bytes:
        memory, at = self._at(address)
        assert at + size <= len(memory)
        return bytes(memory[at : at + size])

    def write(self, address: int, data: bytes) -> None:
        memory, at = self._at(address)
        assert at + len(data) <= len(memory)
        memory[at : at + len(data)] = data
        for where, (high, low) in self.stuck.items():
            if address <= where < address + len(data):
                memory[at + where - address] = (memory[at + where - address] | high) & low

    def allocate(self, size: int) -> int:
        address = 2**36 * (len(self.memory) + 1)
        self.memory[address] = bytearray(size)
        return address

    def release(self, address: int) -> None:
        self.memory[address] = bytearray()

    def free_bytes(self) -> int:
        return self.memory_bytes

    @contextlib.contextmanager
    def buffers(self, *sizes: int) -> Iterator[list[int]]:
        yield [self.allocate(size) for size in sizes]

    def set_bytes(self, address: int, byte: int, size: int) -> None:
        self.write(address, bytes([byte]) * size)

    def zero(self, address: int, size: int) -> None:
        self.set_bytes(address, 0, size)

    def copy(self, to: int, source: int, size: int) -> None:
        self.write(to, self.read(source, size))

    # --- time

    def mark(self) -> int:
        return 0

    def passed(self, _: int) -> bool:
        return True

    def forget(self, _: int) -> None:
        pass

    def drain(self) -> None:
        pass

    def seconds_between(self, *_: int) -> float:
        return 0.001

    def seconds_of(self, work: Callable[[], None], times: int = 1) -> float:
        for _ in range(times):
            work()
        return 0.001

    # --- kernels

    def kernel(self, source: str, name: str, _grid: Any, _block: int, *arguments: Any) -> Kernel:
        assert re.search(rf"\b{name}\(|ALL\({name.rpartition('_')[0]},", source), name

        def work(*values: int) -> None:
            self.launched.append(name)
            kind, _, mode = name.rpartition("_")
            if mode in ("write", "check", "turn") and kind not in ("cache", "l1", "l2"):
                self._sweep(kind, mode, *values)
            else:
                getattr(self, name)(*values)

        return Kernel(work, arguments)

    def note(self, report: int, *entry: int) -> None:
        count, kept, worst, spare = HEAD.unpack(self.read(report, HEAD.size))
        if kept < (REPORT - HEAD.size) // ENTRY.size:
            self.write(report + HEAD.size + kept * ENTRY.size, ENTRY.pack(*entry))
        self.write(report, HEAD.pack(count + 1, kept + 1, worst, spare))

    def element(self, address: int, i: int) -> int:
        return int.from_bytes(self.read(address + i * self.width, self.width), "little")

    def _made(self, count: int, seed: int) -> bytes:
        return random.Random(seed).randbytes(count * self.width)

    def fill_a(self, p: int, count: int, seed: int) -> None:
        self.write(p, self._made(count, seed))

    fill_b = fill_a

    def inspect_a(self, p: int, count: int, seed: int, first: int, report: int) -> None:
        right, size = self._made(count, seed), count * self.width
        if "inspect" in self.blind or self.read(p, size) == right:
            return
        for i in range(count):
            expected = int.from_bytes(right[i * self.width : (i + 1) * self.width], "little")
            if (found := self.element(p, i)) != expected:
                self.note(report, first + i, expected, found, 0)

    inspect_b = inspect_a

    def digest(self, d: int, golden: int) -> None:
        memory, at = self._at(d)
        for chunk in range(len(memory) // CHUNK):
            self.write(golden + chunk * 8, self._sum(memory[at + chunk * CHUNK : at + (chunk + 1) * CHUNK]))

    @staticmethod
    def _sum(data: bytes) -> bytes:
        return (hash(bytes(data)) & 2**64 - 1).to_bytes(8, "little")

    def compare(self, d: int, first: int, golden: int, number: int, report: int) -> None:
        memory, _ = self._at(d)
        for chunk in range(len(memory) // CHUNK):
            at = chunk * CHUNK
            differs = self._sum(self.read(d + at, CHUNK)) != self.read(golden + chunk * 8, 8)
            if differs and "compare" not in self.blind:
                for i in range(at // self.width, (at + CHUNK) // self.width):
                    expected, found = self.element(first, i), self.element(d, i)
                    if expected != found:
                        self.note(report, i, expected, found, number)
            spoilt = d + at + (number * 977 + chunk * 131) % (CHUNK // 4) * 4
            self.write(spoilt, bytes(255 - byte for byte in self.read(spoilt, 4)))

    def flip_bit(self, p: int, byte: int, bit: int) -> None:
        self.write(p + byte, bytes([self.read(p + byte, 1)[0] ^ 1 << bit]))

    def unwrite(self, d: int, m: int, *where: int) -> None:
        row0, col0, begin, end = where
        for i in ((col0 + col) * m + row0 + row for col in range(128) for row in range(128)):
            if begin <= i < end:
                self.write(d + i * self.width, b"\xa5" * self.width)

    def _sweep(self, kind: str, mode: str, *values: int) -> None:
        p, pieces, argument, inverse, _down, report = values
        for i in range(pieces * 4096):
            expected = word({"modulo20": "modulo"}.get(kind, kind), i, argument) ^ inverse
            found = int.from_bytes(self.read(p + i * 4, 4), "little")
            if mode != "write" and found != expected and "check" not in self.blind:
                self.note(report, i * 4, expected, found, 0)
            if mode != "check":
                self.write(p + i * 4, (expected ^ (ONES if mode == "turn" else 0)).to_bytes(4, "little"))

    @staticmethod
    def cached(p: int, i: int, by: tuple[int, ...]) -> list[int]:
        h = (p + i * 16) * by[0] & ONES ^ by[1]
        return [h, h ^ by[2], h ^ by[3], h ^ by[2] ^ by[3]]

    def cache_write(self, p: int, vectors: int, *by: int) -> None:
        for i in range(vectors):
            self.write(p + i * 16, b"".join(one.to_bytes(4, "little") for one in self.cached(p, i, by)))

    def l2_check(self, p: int, vectors: int, *rest: int) -> None:
        *by, _rounds, report = rest
        for i in range(vectors):
            for j, expected in enumerate(self.cached(p, i, tuple(by))):
                found = int.from_bytes(self.read(p + i * 16 + j * 4, 4), "little")
                for _ in range(2 if found != expected and "check" not in self.blind else 0):
                    self.note(report, i * 16 + j * 4, expected, found, 0)

    l1_check = l2_check


class Product:
    """STAND-IN for cuBLASLt's product."""

    pass_s, algorithm, took_first = 0.001, "one", True

    def __init__(self, lt: Any, gpu: MadeUpGpu, _form: Any, shape: tuple[int, int, int], *, d: int, **_: Any) -> None:
        self._gpu, self._d = gpu, d
        self._right = random.Random(7).randbytes(shape[0] * shape[1] * gpu.width)
        self.skips: dict[int, Any] = {}
        """Product, from 0 on -> elements that it does not write."""
        self.every: Any = ()
        """Elements that no product writes once `since` is over."""
        self.since = 10**9
        self.done = 0

    def choose(self, _: Any) -> None:
        pass

    def close(self) -> None:
        pass

    @contextlib.contextmanager
    def first_offer(self) -> Iterator[None]:
        yield

    def run(self) -> None:
        left = self.every if self.done > self.since else self.skips.get(self.done, ())
        kept = [(i, self._gpu.read(self._d + i * self._gpu.width, self._gpu.width)) for i in left]
        self._gpu.write(self._d, self._right)
        for i, data in kept:
            self._gpu.write(self._d + i * self._gpu.width, data)
        self.done += 1


class Beat:
    """Begins at once and is never told to stop."""

    stopped = dismissed = False
    process_s = 0.0

    def start(self) -> float:
        return 0.0

    def say(self, **_: Any) -> None:
        pass

    def knows_enough(self) -> None:
        pass
