"""Figures that follow from series of readings and rates."""

from __future__ import annotations

import math

import pytest

from pytest_gpuready.agent.stress import figures


def test_too_short_a_series_has_no_figure() -> None:
    """None, never 0: nobody takes it for a measurement."""
    assert figures.cv([5.0]) is None
    assert figures.sustained([]) is None
    assert figures.spread([1.0] * 19) is None
    assert figures.slope([1.0, 1.0], [2.0, 3.0]) is None
    assert figures.half_width([1.0] * 4) is None
    assert figures.steady([0.0, 1.0, 2.0], [50.0, 50.0, 50.0]) is None


def test_sustained_is_the_median_of_the_second_half() -> None:
    """A burst at the beginning does not show in it."""
    assert figures.sustained([900.0, 900.0, 900.0, 690.0, 700.0, 695.0]) == 695.0
    assert figures.sustained([1.0, 2.0, 3.0]) == 2.5


def test_cv_and_spread_are_parts_of_the_middle() -> None:
    """Both have no unit; the spread leaves out the outermost twentieth on each side."""
    assert figures.cv([99.0, 101.0]) == pytest.approx(math.sqrt(2) / 100)
    assert figures.cv([0.0, 0.0]) is None
    clocks = [1400.0] * 95 + [1980.0, 300.0, 1414.0, 1386.0, 1400.0]
    assert figures.spread(clocks) == 0.0
    assert figures.spread([1300.0] * 50 + [1500.0] * 50) == pytest.approx(200 / 1400)


def test_a_steady_state_begins_where_the_temperature_no_longer_rises() -> None:
    """A card that warms up with a time constant of 40 s, read in whole degrees, is steady after some minutes."""
    times = [0.5 * at for at in range(1200)]
    warm = [round(32 + 26 * (1 - math.exp(-t / 40))) for t in times]
    found = figures.steady(times, [float(value) for value in warm])
    assert found is not None
    assert 90 <= found.from_s <= 240
    assert abs(found.slope_per_min) < 0.5
    assert warm[times.index(found.from_s)] >= 56


def test_a_temperature_that_rises_at_the_end_is_not_steady() -> None:
    """However long it was level before."""
    times = [float(at) for at in range(300)]
    assert figures.steady(times, [50.0 + max(0.0, (t - 240) / 30) for t in times]) is None


def test_thinning_keeps_the_ends_and_every_spike() -> None:
    """240 of 10,000 rows, in order, with the highest and the lowest power; short series stay as they are."""
    power: list[float | None] = [700.0] * 10_000
    power[4321], power[8765], power[5000] = 1200.0, 90.0, None
    columns = {"t": [float(at) for at in range(10_000)], "power_w": power}
    thin = figures.thin(columns, "power_w")
    assert len(thin["t"]) == len(thin["power_w"]) <= figures.PLOTTED
    assert (thin["t"][0], thin["t"][-1]) == (0.0, 9999.0)
    assert {4321.0, 8765.0} <= set(thin["t"])
    assert thin["t"] == sorted(value for value in thin["t"] if value is not None)
    assert figures.thin({"t": [1.0], "power_w": [None]}, "power_w") == {"t": [1.0], "power_w": [None]}
    assert len(figures.thin({"t": columns["t"]}, "power_w")["t"]) <= figures.PLOTTED


def test_thinning_keeps_the_highest_of_other_columns_too() -> None:
    """One warm sample in a place where the power shows nothing; no more rows than a plot shows."""
    columns = {"t": [float(at) for at in range(2400)], "power_w": [700.0 + at * 7919 % 13 for at in range(2400)]}
    columns["temperature_c"] = [85.0 if at == 1001 else 60.0 for at in range(2400)]
    assert 85.0 not in figures.thin(columns, "power_w")["temperature_c"]
    thin = figures.thin(columns, "power_w", highest=("temperature_c", "memory_temperature_c"))
    assert 85.0 in thin["temperature_c"]
    assert len(thin["t"]) <= figures.PLOTTED


def test_a_rate_is_known_when_its_interval_is_narrow() -> None:
    """Rates that scatter evenly are soon enough; a rate that drifts is not, however often it was read."""
    even = [700.0 + (1.0 if at % 2 else -1.0) for at in range(40)]
    drifting = [760.0 - at for at in range(80)]
    assert figures.enough(even, within=0.005)
    assert not figures.enough(even[:7], within=0.005)
    assert not figures.enough(drifting, within=0.005)
    wide, narrow = figures.half_width(even[:10]), figures.half_width(even)
    assert wide is not None
    assert narrow is not None
    assert narrow < wide
    assert figures.half_width([5.0] * 10) == 0.0
