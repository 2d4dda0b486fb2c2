"""What all ranks measured of one size -> one row, in the definitions of nccl-tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_gpuready.model.busbw import algbw, busbw_of
from pytest_gpuready.model.collectives_doc import Half, Row, Step, StepHalf, StepResult
from pytest_gpuready.model.collectives_shape import redop, shape

FUNCTIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "alltoall": "alltoall",
    "sendrecv": "sendrecv",
}
"""Collective -> what NCCL's log calls it, in small letters."""

BARRIER_BYTES = 4
RATIO = 8.0
"""A first estimate of the time of a size is at most so many times that of the one before."""


def row(step: Step, results: Mapping[int, StepResult], nranks: int, datatype: str, algorithms: Sequence[str]) -> Row:
    """Rank -> result. Times are means over the ranks here; a single iteration is as long as its slowest rank."""
    size = shape(step.op, step.asked_bytes, nranks, datatype)
    outs = {rank: result.out_of_place for rank, result in results.items()}
    ins = {rank: result.in_place for rank, result in results.items() if result.in_place is not None}
    single = sorted(map(max, zip(*(result.times_us for result in results.values()), strict=True)))
    return Row(
        op=step.op,
        asked_bytes=step.asked_bytes,
        size_bytes=size.size_bytes,
        count=size.count,
        datatype=datatype,
        redop=redop(step.op),
        iterations=step.iterations,
        out_of_place=_half(step.op, size.size_bytes, nranks, outs),
        in_place=_half(step.op, size.size_bytes, nranks, ins) if ins else None,
        min_us=single[0],
        p50_us=percentile(single, 50),
        p99_us=percentile(single, 99),
        max_us=single[-1],
        slowest_rank=max(outs, key=lambda rank: outs[rank].time_us),
        algorithms=list(algorithms),
    )


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed (nearest rank)."""
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


def algorithms(op: str, calls: Sequence[tuple[str, int, str]]) -> list[str]:
    """Which of the calls that NCCL's log names were those of this collective, each once; barriers left out."""
    mine = [
        how
        for function, moved, how in calls
        if function.lower() == FUNCTIONS[op] and not (op == "all_reduce" and moved == BARRIER_BYTES)
    ]
    return sorted(set(mine))


def iterations(planned: int, size_s: float, size_bytes: int, before: Row | None) -> int:
    """How many iterations of this size last about so long, from the time of the size before; at least two."""
    if before is None:
        return planned
    grown = min(RATIO, max(1.0, size_bytes / before.asked_bytes))
    estimate_s = before.out_of_place.slowest_us * 1e-6 * grown
    # Out of place, in place, single ones, and a warm-up of a quarter.
    return max(2, min(planned, int(size_s / (3.25 * estimate_s))))


def _half(op: str, size_bytes: int, nranks: int, halves: Mapping[int, StepHalf]) -> Half:
    times = [half.time_us for half in halves.values()]
    time_us = sum(times) / len(times)
    counts = [half.wrong for half in halves.values()]
    rate = algbw(size_bytes, time_us) or 0.0
    return Half(
        time_us=time_us,
        slowest_us=max(times),
        algbw_gb_per_s=rate,
        busbw_gb_per_s=busbw_of(op, nranks, rate) or 0.0,
        wrong=None if None in counts else sum(count for count in counts if count is not None),
    )
