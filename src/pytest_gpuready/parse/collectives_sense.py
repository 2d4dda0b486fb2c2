"""Documents of the built-in sweep that cannot be: another plan, ranks that are missing, rows that nobody could measure.

A row is believed only where it is the one that was asked for, at its place, and where busbw follows from size and time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from pytest_gpuready.model.busbw import algbw, busbw_of
from pytest_gpuready.model.collectives_doc import CollectivesDoc, Half, LinkCounted, Plan, RankSaid, Row
from pytest_gpuready.model.collectives_shape import IN_PLACE, WIDTHS, redop, shape

EQUAL = 1e-6
"""Numbers that follow from each other differ by no more than this part."""

CLOCKS_S = 1.0
HIGHEST = 2**63


def collectives_contradiction(document: CollectivesDoc, command: Sequence[str], *, late: bool) -> str:
    """What a document of "collectives" cannot be, given the command that it answers and whether it came too late."""
    if document.problem and not document.ranks and not document.rows:
        return ""
    at = command.index("collectives") + 1 if "collectives" in command else len(command)
    return next(_wrong(document, "".join(command[at : at + 1]), list(command[at + 1 :]), late), "")


def _wrong(document: CollectivesDoc, text: str, bdfs: list[str], late: bool) -> Iterator[str]:
    plan = document.plan
    if plan is None or plan != _plan(text):
        yield "expected the results of the plan that was asked for, found those of another"
        return
    if late and not document.ended_early:
        yield "expected a run that was ended early, as the deadline has passed, found one that ended by itself"
    yield from _ranks(document, plan, bdfs)
    yield from _places(document, plan)
    for row in document.rows:
        if wrong := next(_row(row, document, plan), ""):
            yield f"{row.op[:20]} at {row.asked_bytes} bytes: {wrong}"
    for rank in document.ranks:
        if wrong := next(_rank(rank, document), ""):
            yield f"rank {rank.rank}: {wrong}"
    measured_s = sum(
        row.iterations * half.time_us * 1e-6
        for row in document.rows
        for half in (row.out_of_place, row.in_place)
        if half
    )
    if not measured_s <= document.seconds + CLOCKS_S:
        yield f"expected a run of {measured_s:.1f} s at least, found one of {document.seconds:g} s"


def _plan(text: str) -> Plan | None:
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, RecursionError):
        return None


def _ranks(document: CollectivesDoc, plan: Plan, bdfs: list[str]) -> Iterator[str]:
    """Every GPU of the command is one rank, in its order, and each rank is there once."""
    found = [rank.bdf for rank in document.ranks]
    if bdfs and found != bdfs:
        yield f"expected ranks on {', '.join(bdfs)[:120]}, found {', '.join(found)[:120] or 'none'}"
    if len(set(found)) != len(found):
        yield "expected each GPU to be one rank, found one that is several"
    numbers = [rank.rank for rank in document.ranks]
    if numbers != list(range(plan.first_rank, plan.first_rank + len(found))):
        yield f"expected ranks from {plan.first_rank} on, each once, found {str(numbers)[:80]}"
    nranks = plan.nranks or len(found)
    if document.nranks != nranks and (document.rows or not document.problem):
        yield f"expected {nranks} ranks in the communicator, found {document.nranks}"
    if document.rows:
        pids = [rank.pid for rank in document.ranks]
        if 0 in pids or len(set(pids)) != len(pids):
            yield "expected a process of its own for each rank, found others"
        versions = {rank.nccl_version for rank in document.ranks}
        if len(versions) != 1 or "" in versions:
            yield f"expected one version of NCCL on all ranks, found {', '.join(sorted(versions))[:80] or 'none'}"


def _places(document: CollectivesDoc, plan: Plan) -> Iterator[str]:
    """The rows and what was left out are the plan in its order, as far as the run came; all of it without a problem."""
    left = {(one.op, one.asked_bytes) for one in document.left_out}
    if len(left) != len(document.left_out) or any(not one.why for one in document.left_out):
        yield "expected one reason for each size that was left out, found others"
    asked = [(op, size) for op in plan.ops for size in plan.sizes_bytes]
    ran = [(row.op, row.asked_bytes) for row in document.rows]
    if left - set(asked):
        yield "expected sizes of the plan among those left out, found others"
    expected = [one for one in asked if one not in left]
    if ran != expected[: len(ran)]:
        yield "expected the rows of the plan in its order, found others"
    elif len(ran) < len(expected) and not document.problem:
        op, size = expected[len(ran)]
        yield f"expected a row of {op} at {size} bytes or a problem, found neither"


def _row(row: Row, document: CollectivesDoc, plan: Plan) -> Iterator[str]:
    if plan.datatype not in WIDTHS or document.nranks < 1:
        yield f"expected a known datatype and ranks, found {plan.datatype[:20]!r} and {document.nranks}"
        return
    size = shape(row.op, row.asked_bytes, document.nranks, plan.datatype)
    if (row.size_bytes, row.count) != (size.size_bytes, size.count) or not row.size_bytes:
        yield f"expected {size.count} elements in {size.size_bytes} bytes, found {row.count} in {row.size_bytes}"
    if (row.datatype, row.redop) != (plan.datatype, redop(row.op)):
        yield f"expected {redop(row.op)} of {plan.datatype}, found {row.redop[:20]} of {row.datatype[:20]}"
    most = plan.small_iterations if row.asked_bytes <= plan.small_bytes else plan.iterations
    if not 2 <= row.iterations <= most or (plan.comm and row.iterations != most):
        yield f"expected 2 to {most} iterations, found {row.iterations}"
    if (row.in_place is None) == (row.op in IN_PLACE):
        yield f"expected a half in place {'too' if row.op in IN_PLACE else 'of no such collective'}"
    for half in filter(None, (row.out_of_place, row.in_place)):
        yield from _half(half, row, document.nranks, plan.check)
    if not 0 < row.min_us <= row.p50_us <= row.p99_us <= row.max_us < HIGHEST:
        yield "expected single iterations with 0 < least <= p50 <= p99 <= longest, found others"
    if row.slowest_rank not in [rank.rank for rank in document.ranks]:
        yield f"expected the slowest among the ranks, found {row.slowest_rank}"


def _half(half: Half, row: Row, nranks: int, check: bool) -> Iterator[str]:
    if not 0 < half.time_us <= half.slowest_us * (1 + EQUAL) < HIGHEST:
        yield f"expected a time above 0 up to the slowest rank's, found {half.time_us:g} and {half.slowest_us:g} us"
        return
    rate = algbw(row.size_bytes, half.time_us) or 0.0
    bus = busbw_of(row.op, nranks, rate) or 0.0
    for name, expected, found in (("algbw", rate, half.algbw_gb_per_s), ("busbw", bus, half.busbw_gb_per_s)):
        if not math.isclose(expected, found, rel_tol=EQUAL, abs_tol=1e-12):
            yield f"expected {name} {expected:.6g} GB/s of that size and time, found {found:.6g}"
    if (half.wrong is None) == check:
        yield f"expected results {'' if check else 'not '}compared, found wrong {half.wrong}"
    most = nranks * (row.size_bytes // WIDTHS.get(row.datatype, 1))
    if half.wrong is not None and not 0 <= half.wrong <= most:
        yield f"expected 0 to {most} wrong elements, found {half.wrong}"


def _rank(rank: RankSaid, document: CollectivesDoc) -> Iterator[str]:
    for seconds in (rank.init_s, rank.start_s):
        if seconds is not None and not 0 <= seconds < HIGHEST:
            yield f"expected seconds from 0 on, found {seconds:g}"
    if document.rows and rank.init_s is None:
        yield "expected it in the communicator before there are rows, found it was not"
    counts = {
        (row.op, row.size_bytes, in_place): half.wrong
        for row in document.rows
        for in_place, half in ((False, row.out_of_place), (True, row.in_place))
        if half
    }
    for one in rank.wrong:
        of_all = counts.get((one.op, one.size_bytes, one.in_place))
        if of_all is None or not 0 < one.count <= of_all or one.first_index < 0:
            yield f"expected wrong elements among those of the row, found {one.count} of {of_all}"
    largest = {row.op: row.size_bytes for row in document.rows}
    if len({one.op for one in rank.traffic}) != len(rank.traffic):
        yield "expected the traffic of each collective once, found one several times"
    for traffic in rank.traffic:
        if traffic.size_bytes != largest.get(traffic.op):
            where = f"{traffic.op[:20]} at {traffic.size_bytes} bytes"
            yield f"expected traffic of the largest size that was run, found that of {where}"
        if not traffic.links and not traffic.problem:
            yield f"expected counters of NVLinks or why there are none, found neither for {traffic.op[:20]}"
        if [link.link for link in traffic.links] != list(range(len(traffic.links))):
            yield "expected each NVLink once, found others"
        yield from (_link(link) for link in traffic.links if _link(link))


def _link(link: LinkCounted) -> str:
    odd = next((name for name, pair in link.counters.items() if not all(0 <= n < 2**64 for n in pair)), None)
    return f"expected counters of NVLink {link.link} from 0 on, found {odd[:20]}" if odd else ""
