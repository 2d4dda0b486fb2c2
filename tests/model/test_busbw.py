"""algbw, busbw and time: one formula each, total, and each the other way round of the other."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.model.busbw import (
    COLLECTIVES,
    algbw,
    algbw_of,
    algorithm_of,
    busbw_of,
    collective_of,
    factor,
    time_us,
)

RECORDED = Path(__file__).parents[1] / "data" / "nccl" / "h200x2"
speeds = st.floats(min_value=1e-6, max_value=1e6)


@pytest.mark.parametrize(
    ("collective", "ranks", "is_"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("AllReduce", 16, 1.875),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 2, 0.5),
        ("alltoall", 4, 0.75),
        ("sendrecv", 2, 1.0),
        ("all_reduce", 1, 0.0),
        ("sendrecv", 1, None),
        ("all_reduce", 0, None),
        ("hypercube", 4, None),
        ("", 8, None),
    ],
)
def test_the_factor_is_that_of_nccl_tests(collective: str, ranks: int, is_: float | None) -> None:
    """The factor of each collective is the one in nccl-tests' manual; what is not known has none."""
    assert factor(collective, ranks) == is_


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "alltoall"])
def test_recorded_rows_follow_from_size_and_time(name: str) -> None:
    """Of real runs on two H200 algbw and busbw of every row are those that size and time give."""
    rows = json.loads((RECORDED / f"{name}_perf.json").read_text())["results"]
    assert len(rows) > 3
    for row in rows:
        half = row["out_of_place"]
        speed = algbw(row["size"], half["time"])
        assert speed is not None
        assert speed == pytest.approx(half["alg_bw"], rel=1e-3, abs=1e-3)
        assert busbw_of(name, 2, speed) == pytest.approx(half["bus_bw"], rel=1e-3, abs=1e-3)


@given(st.sampled_from(COLLECTIVES), st.integers(2, 4096), speeds)
def test_busbw_and_algbw_are_inverse(collective: str, ranks: int, speed: float) -> None:
    """From algbw to busbw and back nothing changes, and an all_reduce alone has a busbw above its algbw."""
    bus = busbw_of(collective, ranks, speed)
    assert bus is not None
    assert algbw_of(collective, ranks, bus) == pytest.approx(speed)
    assert bus <= speed * (2 if collective == "all_reduce" else 1)


@given(st.integers(1, 1 << 40), speeds)
def test_time_and_algbw_are_inverse(size: int, speed: float) -> None:
    """The time of a size at a speed gives that speed again."""
    took = time_us(size, speed)
    assert took is not None
    assert algbw(size, took) == pytest.approx(speed)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_time_gives_no_speed(bad: float) -> None:
    """Zero, negative, infinite and missing times and speeds give nothing, not infinity."""
    assert algbw(8, bad) is None
    assert time_us(8, bad) is None


def test_one_rank_says_nothing_of_algbw() -> None:
    """busbw of one rank is 0 by definition, so no algbw follows from it."""
    assert busbw_of("all_reduce", 1, 100.0) == 0.0
    assert algbw_of("all_reduce", 1, 0.0) is None


def test_names_are_understood_as_logs_write_them() -> None:
    """NCCL's log says AllReduce and NVLS_TREE."""
    assert (collective_of("AllReduce"), collective_of("ReduceScatter")) == ("all_reduce", "reduce_scatter")
    assert (algorithm_of("RING"), algorithm_of("NVLS_TREE"), algorithm_of("COLLNET_DIRECT")) == (
        "Ring",
        "NVLSTree",
        "CollnetDirect",
    )
    assert (collective_of("broadcast"), algorithm_of("Butterfly")) == ("", "")
