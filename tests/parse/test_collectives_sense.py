"""A document of the sweep that contradicts its command or itself is no answer: one line says what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pytest_gpuready.agent.collectives import figures
from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import encode
from pytest_gpuready.model.collectives_doc import (
    CollectivesDoc,
    LeftOut,
    LinkCounted,
    Plan,
    RankSaid,
    Step,
    StepHalf,
    StepResult,
    Traffic,
    WrongSeen,
)
from pytest_gpuready.model.collectives_shape import IN_PLACE, shape
from pytest_gpuready.parse.agent import collectives_doc

BDFS = ("0000:19:00.0", "0000:3b:00.0")
PLAN = Plan(ops=["all_reduce", "alltoall"], sizes_bytes=[8, 1000, 2**30])
WORDS = ("python", "-m", "pytest_gpuready.agent", "collectives", msgspec.json.encode(PLAN).decode(), *BDFS)

Change = Callable[[dict[str, Any]], Any]


def measured(op: str, asked: int, number: int) -> Any:
    """A row of two ranks, by the same formulas as the crew's."""
    times = PLAN.small_iterations if asked <= PLAN.small_bytes else PLAN.iterations
    step = Step(number=number, op=op, asked_bytes=asked, iterations=times, warmup=5, patience_s=9.0)
    half = StepHalf(time_us=12.5, wrong=0)
    size = shape(op, asked, 2, PLAN.datatype).size_bytes
    result = StepResult(
        size_bytes=size,
        out_of_place=half,
        in_place=half if op in IN_PLACE else None,
        times_us=[11.0, 13.0] * (times // 2),
    )
    return figures.row(step, {0: result, 1: result}, 2, PLAN.datatype, ["RING LL"])


def document() -> dict[str, Any]:
    """A whole run, as plain data."""
    asked = [(op, size) for op in PLAN.ops for size in PLAN.sizes_bytes if (op, size) != ("alltoall", 8)]
    links = [LinkCounted(link=at, counters={"data_tx": (5, 900)}) for at in range(2)]
    traffic = [Traffic(op=op, size_bytes=2**30, links=links) for op in PLAN.ops]
    ranks = [
        RankSaid(rank=at, bdf=bdf, pid=100 + at, nccl_version="2.32.3", init_s=0.5, start_s=1.0, traffic=traffic)
        for at, bdf in enumerate(BDFS)
    ]
    whole = CollectivesDoc(
        plan=PLAN,
        nranks=2,
        ranks=ranks,
        rows=[measured(op, size, at) for at, (op, size) in enumerate(asked)],
        left_out=[LeftOut(op="alltoall", asked_bytes=8, why="less than 16 bytes for each of 2 ranks")],
        largest_bytes=2**30,
        seconds=7.0,
    )
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))
    return found


def result(data: dict[str, Any], *, timed_out: bool = False) -> CommandResult:
    raw = msgspec.json.encode(data)
    line = encode(probe="collectives", host="node01", boot_id="b", data=msgspec.json.decode(raw, type=CollectivesDoc))
    return CommandResult(
        command=Command(node="node01", argv=WORDS, timeout_s=400.0),
        exit_code=None if timed_out else 0,
        stdout=line.decode() + "\n",
        stderr="",
        started="2026-12-01T00:00:00Z",
        duration_s=7.1,
        timed_out=timed_out,
    )


def put(path: str, value: Any) -> Change:
    *steps, last = path.split(".")

    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at[step]
        at[int(last) if isinstance(at, list) else last] = value

    return change


def drop(path: str) -> Change:
    *steps, last = path.split(".")

    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at[step]
        del at[int(last) if isinstance(at, list) else last]

    return change


WRONG = {"op": "all_reduce", "size_bytes": 8, "in_place": False, "first_index": 0, "expected": "3", "found": "4"}


def test_a_whole_run_is_read() -> None:
    """What the crew's own formulas make contradicts nothing; one rank's wrong elements are among the row's."""
    assert len(collectives_doc(result(document())).rows) == 5
    data = document()
    put("rows.0.out_of_place.wrong", 2)(data)
    put("ranks.1.wrong", [{**WRONG, "count": 2}])(data)
    assert collectives_doc(result(data)).ranks[1].wrong == [WrongSeen(**WRONG, count=2)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (put("plan.seed", 9), "expected the results of the plan that was asked for"),
        (drop("plan"), "expected the results of the plan that was asked for"),
        (drop("ranks.1"), f"expected ranks on {BDFS[0]}, {BDFS[1]}, found {BDFS[0]}"),
        (put("ranks.1.bdf", BDFS[0]), "expected ranks on"),
        (put("ranks.1.rank", 0), "expected ranks from 0 on, each once, found [0, 0]"),
        (put("ranks.1.rank", 2), "expected ranks from 0 on, each once, found [0, 2]"),
        (put("nranks", 8), "expected 2 ranks in the communicator, found 8"),
        (put("ranks.1.pid", 100), "expected a process of its own for each rank"),
        (put("ranks.1.nccl_version", "2.28.9"), "expected one version of NCCL on all ranks, found 2.28.9, 2.32.3"),
        (drop("ranks.0.init_s"), "rank 0: expected it in the communicator before there are rows"),
        (put("ranks.0.init_s", -1.0), "rank 0: expected seconds from 0 on"),
        (drop("rows.4"), "expected a row of alltoall at 1073741824 bytes or a problem, found neither"),
        (drop("rows.1"), "expected the rows of the plan in its order"),
        (lambda data: data["rows"].append(data["rows"][0]), "expected the rows of the plan in its order"),
        (lambda data: data["rows"].reverse(), "expected the rows of the plan in its order"),
        (drop("left_out"), "expected the rows of the plan in its order"),
        (put("left_out.0.why", ""), "expected one reason for each size that was left out"),
        (put("left_out.0.asked_bytes", 16), "expected sizes of the plan among those left out"),
        (put("rows.0.size_bytes", 16), "all_reduce at 8 bytes: expected 2 elements in 8 bytes, found 2 in 16"),
        (put("rows.0.count", 4), "expected 2 elements in 8 bytes, found 4 in 8"),
        (put("rows.0.datatype", "bfloat16"), "expected sum of float32, found sum of bfloat16"),
        (put("rows.3.redop", "sum"), "expected none of float32, found sum of float32"),
        (put("rows.0.iterations", 101), "expected 2 to 100 iterations, found 101"),
        (put("rows.2.iterations", 1), "expected 2 to 20 iterations, found 1"),
        (drop("rows.0.in_place"), "expected a half in place too"),
        (put("rows.0.out_of_place.time_us", 0.0), "expected a time above 0 up to the slowest rank's"),
        (put("rows.0.out_of_place.time_us", 13.0), "expected a time above 0 up to the slowest rank's"),
        (put("rows.0.out_of_place.slowest_us", 1e300), "expected a time above 0 up to the slowest rank's"),
        (
            put("rows.2.out_of_place.algbw_gb_per_s", 9e9),
            "expected algbw 85899.3 GB/s of that size and time, found 9e+09",
        ),
        (put("rows.4.out_of_place.busbw_gb_per_s", 85899.3), "expected busbw 42949.7 GB/s of that size and time"),
        (put("rows.0.in_place.busbw_gb_per_s", 0.0), "expected busbw 0.00064 GB/s of that size and time, found 0"),
        (put("rows.0.out_of_place.wrong", None), "expected results compared, found wrong None"),
        (put("rows.0.out_of_place.wrong", -1), "expected 0 to 4 wrong elements, found -1"),
        (put("rows.0.out_of_place.wrong", 5), "expected 0 to 4 wrong elements, found 5"),
        (put("rows.0.min_us", 12.0), "expected single iterations with 0 < least <= p50 <= p99 <= longest"),
        (put("rows.0.p99_us", 14.0), "expected single iterations"),
        (put("rows.0.slowest_rank", 2), "expected the slowest among the ranks, found 2"),
        (put("ranks.0.wrong", [{**WRONG, "count": 1}]), "expected wrong elements among those of the row, found 1 of 0"),
        (put("ranks.0.traffic.0.size_bytes", 8), "rank 0: expected traffic of the largest size that was run"),
        (put("ranks.0.traffic.0.op", "alltoall"), "expected the traffic of each collective once"),
        (put("ranks.0.traffic.0.links", []), "expected counters of NVLinks or why there are none"),
        (put("ranks.0.traffic.0.links.1.link", 0), "expected each NVLink once"),
        (put("ranks.0.traffic.0.links.0.counters.data_tx", [-1, 5]), "expected counters of NVLink 0 from 0 on"),
        (put("seconds", 0.0001), "s at least, found one of 0.0001 s"),
    ],
)
def test_what_cannot_be_is_refused(change: Change, expected: str) -> None:
    """Another plan, ranks that are missing or twice, rows that nobody measured: nothing of it is read."""
    data = document()
    if expected.startswith("s at least"):
        put("rows.2.out_of_place.time_us", 1e6)(data)
        put("rows.2.out_of_place.slowest_us", 1e6)(data)
        rate = 2**30 / 1e6 / 1e3
        for name in ("algbw_gb_per_s", "busbw_gb_per_s"):
            put(f"rows.2.out_of_place.{name}", rate)(data)
    change(data)
    with pytest.raises(ParseError) as raised:
        collectives_doc(result(data))
    assert expected in str(raised.value)
    assert len(str(raised.value)) < 600


def test_a_run_that_ended_keeps_its_rows() -> None:
    """With a problem the rows may be the beginning of the plan; not others."""
    data = document()
    data["problem"], data["rows"] = "rank 1: gone", data["rows"][:2]
    for rank in data["ranks"]:
        rank["traffic"] = []
    assert len(collectives_doc(result(data)).rows) == 2
    assert collectives_doc(result({"problem": "expected GPUs, found none"})).rows == []


def test_a_late_document_counts_only_where_it_was_ended() -> None:
    """After the deadline only a run that says it was told to end is believed."""
    data = document()
    with pytest.raises(ParseError, match="ended early"):
        collectives_doc(result(data, timed_out=True))
    data["ended_early"] = True
    assert collectives_doc(result(data, timed_out=True)).ended_early


def test_no_document_is_an_error() -> None:
    """A field that no version of ours has, and a command that failed."""
    good = result(document())
    odd = good.stdout.replace('"nranks":2', '"nranks":2,"nodes":1')
    assert odd != good.stdout
    with pytest.raises(ParseError, match="expected a CollectivesDoc"):
        collectives_doc(CommandResult(**{**_fields(good), "stdout": odd}))
    with pytest.raises(ToolError, match="exit code 1"):
        collectives_doc(CommandResult(**{**_fields(good), "exit_code": 1}))


def _fields(result: CommandResult) -> dict[str, Any]:
    return {
        name: getattr(result, name) for name in ("command", "exit_code", "stdout", "stderr", "started", "duration_s")
    }
