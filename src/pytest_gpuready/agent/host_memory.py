"""Host side of a copy: on which CPUs the copying thread runs, what is written, and whether it arrived.

The thread is bound to the CPUs next to the GPU before memory is taken: pages land on the NUMA node of the thread that
touches them first, and memory on the far node costs bandwidth.
"""

from __future__ import annotations

import ctypes
import os
import random
from pathlib import Path

BLOCK = 2**20
PERIOD = BLOCK + 4099
"""Bytes after which the pattern repeats: no multiple of a page, so a copy that lands at a wrong page shows."""

_COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
    ("memcmp", ctypes.CDLL(None))
)
"""Compares memory where it lies: copies of it, made to be compared, take longer than the comparison."""


def bind_to(bdf: str, sysfs: Path = Path("/sys")) -> str:
    """CPUs to which the calling thread is now bound, as the kernel writes lists ("0-15"); "" where it is not bound.

    Taken are those CPUs near the GPU that the process may use at all.
    """
    try:
        near = cpu_list((sysfs / "bus/pci/devices" / bdf / "local_cpulist").read_text())
        chosen = near & os.sched_getaffinity(0)
        if not chosen:
            return ""
        os.sched_setaffinity(0, chosen)
    except (OSError, ValueError):  # no such file, an unreadable list, or a sandbox that does not allow it
        return ""
    return cpu_text(chosen)


def numa_node(bdf: str, sysfs: Path = Path("/sys")) -> int:
    """NUMA node of the GPU; -1 where the kernel does not know or there is one node only."""
    try:
        return int((sysfs / "bus/pci/devices" / bdf / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


def cpu_list(text: str) -> set[int]:
    """CPUs in the kernel's notation: "0-2,8" is 0, 1, 2, 8.

    Raises: ValueError where the text is no such list.
    """
    cpus: set[int] = set()
    for piece in filter(None, text.strip().split(",")):
        first, _, last = piece.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def cpu_text(cpus: set[int]) -> str:
    """The kernel's notation of a set of CPUs."""
    pieces: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for i, cpu in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != cpu + 1:
            first = ordered[start]
            pieces.append(str(cpu) if first == cpu else f"{first}-{cpu}")
            start = i + 1
    return ",".join(pieces)


def write_pattern(address: int, size_bytes: int, seed: int = 1) -> None:
    """Fill memory with random bytes that repeat every `PERIOD` bytes."""
    block = random.Random(seed).randbytes(PERIOD)  # noqa: S311 - test data, no secret
    for offset in range(0, size_bytes, PERIOD):
        ctypes.memmove(address + offset, block, min(PERIOD, size_bytes - offset))


def wipe(address: int, size_bytes: int) -> None:
    """Fill memory with one byte, so that what never arrived shows."""
    ctypes.memset(address, 0x5A, size_bytes)


def bytes_that_differ(one: int, other: int, size_bytes: int) -> int:
    """How many bytes of two stretches of memory are not the same; only what differs is looked at byte by byte."""
    count = 0
    for offset in range(0, size_bytes, BLOCK):
        length = min(BLOCK, size_bytes - offset)
        if _COMPARE(one + offset, other + offset, length):
            a, b = ctypes.string_at(one + offset, length), ctypes.string_at(other + offset, length)
            difference = int.from_bytes(a, "little") ^ int.from_bytes(b, "little")
            count += length - difference.to_bytes(length, "little").count(0)
    return count
