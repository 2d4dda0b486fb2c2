"""Rates from the ends of batches, from the time that two directions share, and how long a phase goes on for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_gpuready.agent.copy_flow import Flow, Plan, rates, run, shared_rates


def test_a_rate_is_bytes_over_the_time_of_a_batch():
    """Batches of 10 GB that end after 1 and 3 seconds ran at 10 and 5 GB/s."""
    assert rates([0.0, 1.0, 3.0], 10 * 10**9) == pytest.approx([10.0, 5.0])


def test_only_shared_time_counts():
    """A direction that ends early and would be slower before and after is judged in the shared part only."""
    fast = ([1.0, 2.0, 3.0], 50 * 10**9)
    slow = ([0.0, 1.0, 2.0, 3.0, 4.0], 40 * 10**9)
    assert shared_rates([fast, slow], 4) == [pytest.approx((50.0, 40.0))] * 4


def test_bytes_inside_a_batch_are_spread_evenly():
    """An edge in the middle of a batch takes half of its bytes."""
    one = ([0.0, 4.0], 8 * 10**9)
    other = ([1.0, 2.0, 3.0], 10**9)
    assert shared_rates([one, other], 2) == [pytest.approx((2.0, 1.0)), pytest.approx((2.0, 1.0))]


class Link:
    """STAND-IN for a GPU of made-up time: each copy takes as long as its rate says, GB/s, again and again."""

    def __init__(self, each: Iterable[float]) -> None:
        self._each = itertools.cycle(each)

    def stream(self) -> dict[str, float]:
        return {"clock": 0.0}

    def copy(self, stream: dict[str, float]) -> None:
        stream["clock"] += Plan().size_bytes / (next(self._each) * 1e9)

    def mark(self, stream: dict[str, float]) -> float:
        return stream["clock"]

    def passed(self, _mark: float) -> bool:
        return True

    def wait_for(self, stream: dict[str, float], mark: float) -> None:
        stream["clock"] = max(stream["clock"], mark)

    def seconds_between(self, first: float, second: float) -> float:
        return second - first


def lasted(each: Iterable[float], *, flows: int = 1, loop: int = 16, **plan: Any) -> float:
    """Seconds of a phase over such a link."""
    link: Any = Link(each)
    ways = [Flow(link, link.copy, Plan().size_bytes) for _ in range(flows)]
    looked = []
    run(link, ways, Plan(**plan), loop=loop, under_load=lambda: looked.append(min(way.elapsed_s() for way in ways)))
    assert len(looked) == 1, "looked at once, under load"
    return min(way.elapsed_s() for way in ways)


@pytest.mark.parametrize(("flows", "loop"), [(1, 16), (2, 4)])
def test_a_phase_ends_when_its_rate_is_known(flows: int, loop: int) -> None:
    """A steady link is known after half of the time, in one direction and in both."""
    assert 0.9 <= lasted([55.0], flows=flows, loop=loop) < 1.8


SLOW_THEN_FAST = [20.0] * 64 + [55.0] * 1000
WOBBLES = [50.0] * 16 + [55.0] * 16


@pytest.mark.parametrize(("flows", "loop"), [(1, 16), (2, 4)])
@pytest.mark.parametrize("each", [SLOW_THEN_FAST, WOBBLES])
def test_a_rate_that_moves_takes_the_whole_time(each: list[float], flows: int, loop: int) -> None:
    """Batches that disagree say nothing until the phase has lasted as long as it may."""
    assert lasted(each, flows=flows, loop=loop, within=0.005) >= 1.8


def test_how_well_is_a_matter_of_the_plan() -> None:
    """The same link is known to a tenth of itself where that suffices; a rate of few batches never is."""
    assert lasted(WOBBLES, within=0.1) < 1.8
    assert lasted([4.0], within=0.1) >= 1.8
