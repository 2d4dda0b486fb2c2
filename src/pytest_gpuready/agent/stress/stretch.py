"""Samples of one GPU that follow each other, as one: nothing of them is lost but the order of what lies between.

However many are put together, each is counted, with each of its reasons; the extremes of every column, the longest time
without a reading and the time near the slowdown temperature are those of all of them. Of the samples themselves the
first stays, and those that a plot must show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_gpuready.agent.stress.watch import READINGS
from pytest_gpuready.model.stress_doc import NEAR_C

Sample = tuple[float, Sequence[float | None]]
"""Its time, and what `READINGS` names."""

LEAD, WARMTH, REASONS = "power_w", "temperature_c", "reasons"
WATCHED = (WARMTH, REASONS)
"""What has to be read throughout: a time without it is a time in which nobody knows."""

_AT = {name: at for at, name in enumerate(READINGS)}


class Stretch:
    """Fed with samples, or other stretches, in the order of time. `slowdown_c`: of the GPU, where known."""

    def __init__(self, slowdown_c: float | None = None) -> None:
        self.count = 0
        self.first = self.last = 0.0
        """Times of the first and the last sample."""
        self.read = [0] * len(READINGS)
        self.low: list[float | None] = [None] * len(READINGS)
        self.high: list[float | None] = [None] * len(READINGS)
        self.bits: Counter[int] = Counter()
        """Clock event reason, one bit -> samples that showed it."""
        self.gaps: dict[str, tuple[float, float, float]] = {}
        """Of `WATCHED`: when it was read first and last, and the longest time in between."""
        self.near_s = 0.0
        self.rows: list[Sample] = []
        self._near_from = None if slowdown_c is None else slowdown_c - NEAR_C
        self._near = False
        """The last temperature was near; it counts until the next one."""

    def take(self, t: float, values: Sequence[float | None]) -> None:
        """One more sample."""
        self._until(t, t, 1)
        for at, value in enumerate(values):
            if value is not None:
                self._reading(at, value, value, 1)
        reasons = int(values[_AT[REASONS]] or 0)
        while reasons:
            bit = reasons & -reasons
            self.bits[bit] += 1
            reasons ^= bit
        for name in WATCHED:
            if (value := values[_AT[name]]) is not None:
                self._goes_on(name, (t, t, 0.0))
                if name == WARMTH:
                    self._near = self._near_from is not None and value >= self._near_from
        self.rows.append((t, values))

    def join(self, other: Stretch) -> None:
        """All samples of one that follows this one."""
        self._until(other.first, other.last, other.count)
        for at, (low, high, read) in enumerate(zip(other.low, other.high, other.read, strict=True)):
            if low is not None and high is not None:
                self._reading(at, low, high, read)
        self.bits += other.bits
        for name, gap in other.gaps.items():
            self._goes_on(name, gap)
        self.near_s += other.near_s
        if WARMTH in other.gaps:
            self._near = other._near
        self.rows += other.rows

    def thin(self) -> None:
        """Of its rows keep the first, those with the lowest and the highest power, and the warmest."""
        chosen = {0}
        for name, ends in ((LEAD, (min, max)), (WARMTH, (max,))):
            known = [(value, at) for at, (_, row) in enumerate(self.rows) if (value := row[_AT[name]]) is not None]
            chosen |= {end(known)[1] for end in ends} if known else set()
        self.rows = [self.rows[at] for at in sorted(chosen)]

    def longest_without(self, name: str, begin: float, end: float) -> float:
        """Seconds from `begin` to `end` in which this one of `WATCHED` was not read, the longest time at a stretch."""
        if name not in self.gaps:
            return end - begin
        first, last, inner = self.gaps[name]
        return max(first - begin, inner, end - last, 0.0)

    def near_until(self, end: float) -> float | None:
        """Seconds within `NEAR_C` of the slowdown temperature up to `end`; None where one of both is not known."""
        if self._near_from is None or WARMTH not in self.gaps:
            return None
        return self.near_s + (max(0.0, end - self.gaps[WARMTH][1]) if self._near else 0.0)

    def _until(self, first: float, last: float, count: int) -> None:
        self.first = self.first if self.count else first
        self.last = last
        self.count += count

    def _reading(self, at: int, low: float, high: float, read: int) -> None:
        lowest, highest = self.low[at], self.high[at]
        self.low[at] = low if lowest is None or low < lowest else lowest
        self.high[at] = high if highest is None or high > highest else highest
        self.read[at] += read

    def _goes_on(self, name: str, gap: tuple[float, float, float]) -> None:
        """A reading, or several, after those before."""
        first, last, inner = gap
        if name in self.gaps:
            begun, before, longest = self.gaps[name]
            if name == WARMTH and self._near:
                self.near_s += first - before
            first, inner = begun, max(longest, first - before, inner)
        self.gaps[name] = (first, last, inner)
