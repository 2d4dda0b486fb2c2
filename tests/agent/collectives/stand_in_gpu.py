"""STAND-IN for a GPU and for NCCL at their seams: host memory, the real kernels compiled for the CPU, ranks as threads.

`Gpu` has the methods of `agent.stress.device.Gpu` that the sweep uses, `Comm` those of `collectives.nccl.Communicator`.
Collectives are computed plainly from what all ranks brought; `spoil` may change a rank's result afterwards.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0

SHIM = r"""
#include <cstring>
#define __device__
#define __global__
#define __forceinline__ inline
struct Three { unsigned x, y, z; };
static Three gridDim, blockDim, blockIdx, threadIdx;
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static void atomicAdd(unsigned long long* p, unsigned long long x) { *p += x; }
static void atomicMin(unsigned long long* p, unsigned long long x) { if (x < *p) *p = x; }
#include "kernels.h"
#define EACH(call) \
  gridDim.x = gx; gridDim.y = gy; blockDim.x = b; \
  for (blockIdx.y = 0; blockIdx.y < gy; ++blockIdx.y) for (blockIdx.x = 0; blockIdx.x < gx; ++blockIdx.x) \
    for (threadIdx.x = 0; threadIdx.x < b; ++threadIdx.x) call;
extern "C" void run_fill(unsigned gx, unsigned gy, unsigned b, const u64* a) {
  EACH(fill((Element*)a[0], a[1], a[2], a[3], a[4], a[5], a[6]))
}
extern "C" void run_check(unsigned gx, unsigned gy, unsigned b, const u64* a) {
  EACH(check((const Element*)a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], (Report*)a[11]))
}
"""


@functools.cache
def compiled(source: str) -> ctypes.CDLL:
    """The kernels of this source for the CPU."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernels.h").write_text(source)
    (folder / "shim.cpp").write_text(SHIM)
    words = ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-o", "kernels.so", "shim.cpp"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=60)
    library = ctypes.CDLL(str(folder / "kernels.so"))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return library


_KERNELS = threading.Lock()


class Kernel:
    def __init__(self, library: ctypes.CDLL, name: str, grid: Any, block: int, arguments: Any) -> None:
        self._run = getattr(library, f"run_{name}")
        self._words = (*grid, block, (ctypes.c_uint64 * len(arguments))(*arguments))

    def launch(self) -> None:
        with _KERNELS:  # the shim's indices are one for all
            self._run(*self._words)


class Gpu:
    """Everything is done when the call returns; time is a clock that goes on by a microsecond with each event."""

    sms = 2

    def __init__(self) -> None:
        self._memory: list[Any] = []
        self._clock = 0

    def allocate(self, size_bytes: int) -> int:
        self._memory.append(ctypes.create_string_buffer(size_bytes + 16))
        return -(-ctypes.addressof(self._memory[-1]) // 16) * 16

    def zero(self, address: int, size_bytes: int) -> None:
        ctypes.memset(address, 0, size_bytes)

    def set_bytes(self, address: int, byte: int, size_bytes: int) -> None:
        ctypes.memset(address, byte, size_bytes)

    def read(self, address: int, size_bytes: int) -> bytes:
        return ctypes.string_at(address, size_bytes)

    def kernel(self, source: str, name: str, grid: Any, block: int, *arguments: int) -> Kernel:
        return Kernel(compiled(source), name, grid, block, arguments)

    def mark(self) -> int:
        self._clock += 1
        return self._clock

    def forget(self, event: int) -> None:
        pass

    def passed(self, event: int) -> bool:
        return True

    def seconds_between(self, first: int, second: int) -> float:
        return (second - first) * 1e-6


class Board:
    """What the ranks of one communicator show each other."""

    def __init__(self, nranks: int) -> None:
        self.nranks = nranks
        self.shown: list[bytes] = [b""] * nranks
        self.barrier = threading.Barrier(nranks)


class Comm:
    """One rank. `calls` counts what was run; `spoil(op, receive, width)` comes after each."""

    def __init__(
        self, board: Board, rank: int, datatype: str, spoil: Callable[[str, int, int], None] | None = None
    ) -> None:
        self.rank, self.nranks = rank, board.nranks
        self.calls: list[str] = []
        self._board, self._spoil = board, spoil
        self._width = 2 if datatype == "bfloat16" else 4

    def barrier(self, address: int) -> None:
        self.calls.append("barrier")
        self._board.barrier.wait(PATIENCE_S)

    def trouble(self) -> str:
        return ""

    def run(self, op: str, send: int, receive: int, count: int) -> None:
        self.calls.append(op)
        part, n = count * self._width, self.nranks
        whole = part * n if op in ("reduce_scatter", "alltoall") else part
        self._board.shown[self.rank] = ctypes.string_at(send, whole)
        self._board.barrier.wait(PATIENCE_S)
        shown = list(self._board.shown)
        self._board.barrier.wait(PATIENCE_S)
        mine = slice(self.rank * part, (self.rank + 1) * part)
        result = {
            "all_reduce": lambda: self._sum(shown),
            "reduce_scatter": lambda: self._sum([one[mine] for one in shown]),
            "all_gather": lambda: b"".join(shown),
            "alltoall": lambda: b"".join(one[mine] for one in shown),
            "sendrecv": lambda: shown[(self.rank - 1) % n],
        }[op]()
        ctypes.memmove(receive, result, len(result))
        if self._spoil:
            self._spoil(op, receive, self._width)

    def _sum(self, pieces: list[bytes]) -> bytes:
        """Added one after the other, each partial sum rounded to the datatype."""
        total = self._floats(pieces[0])
        for piece in pieces[1:]:
            total = self._floats(self._bytes([a + b for a, b in zip(total, self._floats(piece), strict=True)]))
        return self._bytes(total)

    def _floats(self, raw: bytes) -> list[float]:
        if self._width == 2:
            raw = b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))
        return list(array("f", raw))

    def _bytes(self, values: list[float]) -> bytes:
        raw = array("f", values).tobytes()
        # Upper halves only: what bfloat16 cannot hold exactly would be lost, and found.
        return raw if self._width == 4 else b"".join(raw[at + 2 : at + 4] for at in range(0, len(raw), 4))
