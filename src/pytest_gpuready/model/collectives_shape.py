"""How many bytes a collective really moves when so many are asked for, in the way of nccl-tests.

A size is that of the larger side of one rank. Where each rank has a part of it (all_gather, reduce_scatter, alltoall)
a part is a whole number of elements and a multiple of 16 bytes, so less may be run than was asked for, or nothing: then
it is not run. `count` is what the call of NCCL gets: the elements of one part where there are parts, else of the whole.
Source: NVIDIA/nccl-tests, src/*.cu (`GetCollByteCount`).
"""

from __future__ import annotations

from dataclasses import dataclass

WIDTHS = {"float32": 4, "bfloat16": 2}
"""Datatype -> bytes of an element."""

PARTED = ("all_gather", "reduce_scatter", "alltoall")
REDUCING = ("all_reduce", "reduce_scatter")
"""Collectives that add."""

IN_PLACE = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives whose result may come to lie where their data was."""

ALIGNED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One size of a collective for one rank: elements of the call, and bytes. `size_bytes` 0: nothing can be run."""

    count: int
    size_bytes: int
    send_bytes: int
    receive_bytes: int


def shape(op: str, asked_bytes: int, nranks: int, datatype: str) -> Shape:
    """What is run of so many bytes."""
    width = WIDTHS[datatype]
    elements = asked_bytes // width
    if op not in PARTED:
        size = elements * width
        return Shape(count=elements, size_bytes=size, send_bytes=size, receive_bytes=size)
    count = elements // nranks // (ALIGNED // width) * (ALIGNED // width)
    part, whole = count * width, count * width * nranks
    return Shape(
        count=count,
        size_bytes=whole,
        send_bytes=part if op == "all_gather" else whole,
        receive_bytes=part if op == "reduce_scatter" else whole,
    )


def redop(op: str) -> str:
    """What nccl-tests prints as the reduction."""
    return "sum" if op in REDUCING else "none"
