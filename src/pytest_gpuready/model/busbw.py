"""What nccl-tests calls algbw and busbw, and how they follow from size and time. GB/s are 10^9 bytes per second.

algbw is the size of the collective (the larger side of one rank) over its time. busbw is algbw times a factor of the
collective and the number of ranks, so that a ring's busbw is what its links carry. It is a definition, not a
measurement: where a switch adds, or data does not go round in a ring, busbw is no link's speed (`judge.wire`).
Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
import re

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
"""Collectives that are run and judged, as nccl-tests names them."""
ALGORITHMS = ("Ring", "Tree", "NVLS", "NVLSTree", "CollnetDirect", "CollnetChain", "PAT")
"""Algorithms of NCCL, as NCCL_ALGO names them."""

_HALF = ("allgather", "reducescatter", "alltoall", "alltoallv", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "sendrecv")


def plain(name: str) -> str:
    """Letters and digits of a name in lower case: AllReduce and all_reduce are one, so are NVLS_TREE and NVLSTree."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def collective_of(name: str) -> str:
    """The name in `COLLECTIVES` that is meant, "" where none is."""
    return next((known for known in COLLECTIVES if plain(known) == plain(name)), "")


def algorithm_of(name: str) -> str:
    """The name in `ALGORITHMS` that is meant, "" where none is; a log says RING and NVLS_TREE."""
    return next((known for known in ALGORITHMS if plain(known) == plain(name)), "")


def factor(collective: str, ranks: int) -> float | None:
    """busbw / algbw of a collective, or None where it is not known. One rank alone has 0 where there is a formula."""
    name = plain(collective)
    if ranks < 1:
        return None
    if name == "allreduce":
        return 2 * (ranks - 1) / ranks
    if name in _HALF:
        return (ranks - 1) / ranks
    return 1.0 if name in _WHOLE and ranks > 1 else None


def algbw(size_bytes: float, time_us: float) -> float | None:
    """GB/s of so many bytes in so many microseconds; None where that is no time."""
    return size_bytes / time_us / 1e3 if 0 < time_us < math.inf else None


def time_us(size_bytes: float, algbw_gb_per_s: float) -> float | None:
    """The time that a size takes at an algbw; None where that is no speed."""
    return size_bytes / algbw_gb_per_s / 1e3 if 0 < algbw_gb_per_s < math.inf else None


def busbw_of(collective: str, ranks: int, algbw_gb_per_s: float) -> float | None:
    """busbw of an algbw; None where the factor is not known."""
    times = factor(collective, ranks)
    return None if times is None else algbw_gb_per_s * times


def algbw_of(collective: str, ranks: int, busbw_gb_per_s: float) -> float | None:
    """algbw of a busbw; None where the factor is not known or 0: then busbw says nothing."""
    times = factor(collective, ranks)
    return busbw_gb_per_s / times if times else None
