"""Rates from the ends of batches, and from the time that two directions share."""

from __future__ import annotations

import pytest

from pytest_gpuready.agent.copy_flow import rates, shared_rates


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
