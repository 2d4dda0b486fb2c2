"""What follows from a series of readings or rates: pure functions, for whoever judges, plots or decides to stop.

Series are in the order of time. A series that is too short for an answer gives None, never 0.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PLOTTED = 240
"""Samples that a plot shows."""

STEADY_C_PER_MIN = 0.5
STEADY_WINDOW_S = 60.0

# Student's t, two-sided 95 %, by degrees of freedom; between two of them the smaller one counts.
_T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
_T95 |= {12: 2.18, 15: 2.13, 20: 2.09, 25: 2.06, 30: 2.04, 40: 2.02, 60: 2.00, 120: 1.98, 1000: 1.96}


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """From when on a series no longer rises or falls: seconds as in its times, and its slope from there, per minute."""

    from_s: float
    slope_per_min: float


def cv(values: Sequence[float]) -> float | None:
    """Coefficient of variation: the sample's standard deviation over its mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if mean > 0 else None


def second_half(values: Sequence[float]) -> Sequence[float]:
    """What came after the middle; of an odd number the middle one too."""
    return values[len(values) // 2 :]


def sustained(values: Sequence[float]) -> float | None:
    """Median of the second half: power or a rate when the beginning no longer shows."""
    return statistics.median(second_half(values)) if values else None


def spread(values: Sequence[float]) -> float | None:
    """How far apart the values lie, as a part of their median: 95th percentile less 5th; None with fewer than 20."""
    if len(values) < 20:
        return None
    ordered = sorted(values)
    middle = statistics.median(ordered)
    at = round(0.05 * (len(ordered) - 1))
    return (ordered[-1 - at] - ordered[at]) / middle if middle > 0 else None


def slope(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Least-squares slope per second; None without two different times."""
    if len(times) < 2:
        return None
    mean_t, mean_v = statistics.fmean(times), statistics.fmean(values)
    across = sum((t - mean_t) ** 2 for t in times)
    if across <= 0:
        return None
    return sum((t - mean_t) * (v - mean_v) for t, v in zip(times, values, strict=True)) / across


def steady(
    times: Sequence[float],
    values: Sequence[float],
    *,
    per_min: float = STEADY_C_PER_MIN,
    window_s: float = STEADY_WINDOW_S,
) -> Steady | None:
    """The steady state that lasts to the end of the series; None where its last window still rises or falls.

    Windows overlap by half and are looked at from the end backwards, while the slope in each stays within `per_min`.
    One window must fit in: a temperature in whole degrees says less over a shorter time.
    """
    if len(times) < 3 or times[-1] - times[0] < window_s:
        return None
    begin, end = times[-1] - window_s, times[-1]
    found: float | None = None
    high = len(times)
    while begin >= times[0] - 1e-9:
        while high and times[high - 1] > end:
            high -= 1
        low = high
        while low and times[low - 1] >= begin - 1e-9:
            low -= 1
        of_window = slope(times[low:high], values[low:high])
        if of_window is None or abs(of_window) * 60 > per_min:
            break
        found = times[low]
        begin, end = begin - window_s / 2, end - window_s / 2
    if found is None:
        return None
    first = next(at for at, t in enumerate(times) if t >= found)
    return Steady(from_s=found, slope_per_min=60 * (slope(times[first:], values[first:]) or 0.0))


def half_width(rates: Sequence[float]) -> float | None:
    """Half the 95 % confidence interval of the mean, as a part of the mean; None with fewer than five rates.

    Rates of neighbouring windows resemble each other: as many count as the correlation of neighbours leaves, so a rate
    that drifts is not called certain because it was read often.
    """
    count = len(rates)
    if count < 5:
        return None
    mean = statistics.fmean(rates)
    if mean <= 0:
        return None
    off = [rate - mean for rate in rates]
    square = sum(x * x for x in off)
    if square <= 0:
        return 0.0
    alike = max(0.0, sum(a * b for a, b in itertools.pairwise(off)) / square)
    independent = max(2.0, count * (1 - alike) / (1 + alike))
    quantile = _T95[max(freedom for freedom in _T95 if freedom <= max(1, int(independent) - 1))]
    return quantile * math.sqrt(square / (count - 1) / independent) / mean


def enough(rates: Sequence[float], *, within: float, fewest: int = 8) -> bool:
    """True where the mean of these rates is known to within so much of itself: more of them would say nothing new."""
    width = half_width(rates) if len(rates) >= fewest else None
    return width is not None and width <= within


def thin(
    columns: Mapping[str, Sequence[float | None]], lead: str, most: int = PLOTTED, *, highest: Sequence[str] = ()
) -> dict[str, list[float | None]]:
    """At most so many rows of these columns of equal length, in their order, first and last among them.

    From each stretch the rows with the lowest and the highest `lead` stay, so that a plot shows every spike in it, and
    those with the highest of each column of `highest`.
    """
    count = len(next(iter(columns.values()), ()))
    if count <= most:
        return {name: list(values) for name, values in columns.items()}
    wanted: list[tuple[str, Callable[[list[tuple[float, int]]], tuple[float, int]]]] = [(lead, min), (lead, max)]
    wanted += [(name, max) for name in highest]
    stretches = max(1, (most - 2) // len(wanted))
    chosen = {0, count - 1}
    for piece in range(stretches):
        rows = range(piece * count // stretches, (piece + 1) * count // stretches)
        found = set()
        for name, end in wanted:
            by = columns.get(name, ())
            known = [(value, at) for at in rows if by and (value := by[at]) is not None]
            found |= {end(known)[1]} if known else set()
        chosen |= found or {rows[0]}
    return {name: [values[at] for at in sorted(chosen)] for name, values in columns.items()}
