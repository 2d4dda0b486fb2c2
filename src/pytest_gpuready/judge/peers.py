"""A part against its peers: is it far from what the others of its kind do, and which part does that point at.

A part is compared with the median of the *others*, never with a group it belongs to. The distance is counted in robust
sigmas (1.4826 x MAD of the others, times m/(m - 0.8) for m others) and in percent of that median; only what exceeds
both is far. The spread counts as at least a share of the median and the resolution of the metric, so that parts which
are nearly equal condemn none over a difference that means nothing; and as at most what leaves `surely` far, so that
parts which are slow to different degrees make no room for one that is much slower. Without that bound, of 1,500 groups
in which up to all but a few parts were slower by up to 15 %, parts 30 to 50 % low passed; with it none, and no verdict
on healthy parts changed whose noise is up to 0.15 of `surely`.

What peers cannot know is said, not passed:
- TOO_FEW. Four parts tell who differs, but not how much such parts usually differ: below `alone` parts the spread
  comes from elsewhere (`usual`, in a survey the other groups) or is taken to be wide;
- NO_MAJORITY: two camps of which the lesser is not known to be the bad one (as large as the other, better than it, or
  so large that it hides in its own spread), or parts that differ so much that hardly anything would stand out;
- AHEAD: far on the better side. It was measured wrong, or it alone is healthy.

Measured on healthy parts with normal noise of 0.5 and 2 %, parts falsely far: groups of 4 none in 80,000; of 8 none in
160,000 at 0.5 %, but 1 in 200 at 2 % (eight alone cannot know better: with `usual` or `floor` at 2 %, none in 160,000);
of 64 none and 1 in 128,000; of 1,000 none in 150,000. Surveys of 8,000 GPUs: none in 150 and 250 runs, by the tails of
the normal distribution 1 in about 1,000. A GPU 5 % low among eight is found in 89 % of runs at 0.5 % noise.

Sources: Hampel 1974 (MAD); Croux and Rousseeuw 1992 (small samples); Barnett and Lewis, Outliers in Statistical Data.
"""

from __future__ import annotations

import enum
import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_gpuready.model.units import show

K = TypeVar("K", bound=Hashable)
G = TypeVar("G", bound=Hashable)
LARGEST = 1e300  # nothing that anybody measures is larger, and differences below it do not overflow
NOBODY = "nobody is known to be right"


class Sense(enum.Enum):
    """Which side of its peers is the bad one."""

    MORE = "more is better"
    LESS = "less is better"
    BOTH = "neither side is better"


class Place(enum.Enum):
    """Where a part stands among its peers; `judged` where they could tell."""

    INSIDE = "inside"
    FAR = "far"
    AHEAD = "ahead"
    TOO_FEW = "too few to judge"
    NO_MAJORITY = "no majority"

    @property
    def judged(self) -> bool:
        return self in (Place.INSIDE, Place.FAR, Place.AHEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far is far, and who may judge. Percents are of the median of the peers; `resolution` has the metric's unit.

    A metric with an arbitrary zero (degrees Celsius) wants `percent` 0, `widest` infinite and a `resolution` such that
    `sigmas` of it matter; a count that is usually 0 wants `resolution` 1 or more.
    """

    sigmas: float = 6.0
    percent: float = 3.0
    floor: float = 0.5  # the spread counts as at least so many percent
    resolution: float = 0.0  # the spread counts as at least this
    smallest: int = 4  # fewer parts, the judged one included, judge nobody
    alone: int = 8  # fewer parts do not know their own spread
    assumed: float = 2.0  # percent that the spread of so few parts is taken to be where nothing tells it
    widest: float = 50.0  # a group in which nothing nearer than so many percent would stand out judges nobody
    surely: float = math.inf  # farther away than so many percent is far, however much the others differ

    def __post_init__(self) -> None:
        for name in ("sigmas", "percent", "floor", "resolution", "assumed", "widest", "surely"):
            value = getattr(self, name)
            open_ended = name in ("widest", "surely")
            if not value >= 0 or (value == math.inf and not open_ended) or (value == 0 and name == "sigmas"):
                raise ValueError(f"policy.{name}: expected finite, 0 or more (sigmas: above 0), found {value!r}")
        if self.surely < self.percent:
            raise ValueError(f"policy: expected surely >= percent, found {self.surely} and {self.percent}")
        if self.smallest < 3 or self.alone < self.smallest:
            found = f"smallest {self.smallest} and alone {self.alone}"
            raise ValueError(f"policy: expected 3 <= smallest <= alone, found {found}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One part among its peers. `sigmas` and `percent` are signed, and infinite where there is nothing to divide by.

    `peers` counts the others. All numbers but `value` are None where there are too few; `why` says what peers could
    not tell.
    """

    place: Place
    value: float
    peers: int
    median: float | None = None
    spread: float | None = None
    sigmas: float | None = None
    percent: float | None = None
    why: str = ""

    def says(self, unit: str = "") -> str:
        """One line of ASCII: "41.20 GB/s, 22 % below the median 52.90 of 7 peers (9.4 robust sigmas)"."""
        found = _text(self.value, unit)
        if self.median is None or self.sigmas is None or self.percent is None or not self.place.judged:
            return f"{found}; {self.why}"
        median = f"the median {_text(self.median)} of {self.peers} peers"
        if self.value == self.median:
            return f"{found}, {median}"
        share = f"{_short(self.percent)} % " if math.isfinite(self.percent) else ""
        side = "below" if self.value < self.median else "above"
        sigmas = f"{_short(self.sigmas)} robust sigmas" if math.isfinite(self.sigmas) else "they do not differ at all"
        end = ": measured wrong, or it alone is healthy" if self.place is Place.AHEAD else ""
        return f"{found}, {share}{side} {median} ({sigmas}){end}"


def compare(
    values: Mapping[K, float], sense: Sense, policy: Policy | None = None, *, usual: float | None = None
) -> dict[K, Standing]:
    """Every part of one kind against all the others, in the order of `values`.

    `usual` is one sigma of such parts elsewhere, in the unit of the metric: the spread counts as at least that.

    Raises:
        ValueError: a value is not a finite number.
    """
    policy = policy or Policy()
    numbers = {part: _number(f"value of {part!a}", value) for part, value in values.items()}
    if usual is not None and _number("usual spread", usual) < 0:
        raise ValueError(f"usual spread: expected 0 or more, found {usual!r}")
    count = len(numbers)
    if count < policy.smallest:
        why = f"too few to judge: {count}, at least {policy.smallest} are needed"
        return {p: Standing(place=Place.TOO_FEW, value=v, peers=count - 1, why=why) for p, v in numbers.items()}

    def counted(median: float, seen: float) -> float:
        """The spread that counts where this one is seen: what is seen may not claim too much, nor too little."""
        assumed = policy.assumed if usual is None and count < policy.alone else 0.0
        least = max(policy.resolution, max(policy.floor, assumed) / 100 * abs(median))
        most = policy.surely / 100 * abs(median) / policy.sigmas if policy.surely < math.inf else math.inf
        return max(least, min(max(seen, usual or 0.0), most))

    ordered = sorted(numbers.values())
    others = _others(ordered)
    standings = {}
    for part, value in numbers.items():
        median, own = others(value)
        spread = counted(median, own)
        sigmas, percent = _over(value - median, spread), 100 * _over(value - median, abs(median))
        place = Place.INSIDE
        if abs(sigmas) > policy.sigmas and abs(percent) > policy.percent:
            better = (sense is Sense.MORE and sigmas > 0) or (sense is Sense.LESS and sigmas < 0)
            place = Place.AHEAD if better else Place.FAR
        standings[part] = Standing(
            place=place, value=value, peers=count - 1, median=median, spread=spread, sigmas=sigmas, percent=percent
        )
    why, unsure = _no_majority(ordered, list(standings.values()), policy, counted)
    return {p: replace(s, place=Place.NO_MAJORITY, why=why) if unsure(s) else s for p, s in standings.items()}


def compare_groups(
    values: Mapping[K, float], group_of: Mapping[K, G], sense: Sense, policy: Policy | None = None
) -> dict[K, Standing]:
    """Every part against the others of its node, rail or rack; how much they usually differ, the other groups tell.

    Raises:
        ValueError: a value is not a finite number, or a part has no group.
    """
    policy = policy or Policy()
    groups = grouped(values, group_of)
    able = [group.values() for group in groups.values() if len(group) >= policy.smallest]
    spreads, parts = sorted(map(spread_of, able)), sum(map(len, able))
    found: dict[K, Standing] = {}
    for group in groups.values():
        usual = None
        if len(group) >= policy.smallest and parts - len(group) >= policy.alone:
            usual = _median_without(spreads, bisect_left(spreads, spread_of(group.values())))
        found |= compare(group, sense, policy, usual=usual)
    return {part: found[part] for part in values}


def _no_majority(
    ordered: Sequence[float], standings: Sequence[Standing], policy: Policy, counted: Callable[[float, float], float]
) -> tuple[str, Callable[[Standing], bool]]:
    """Why some in this group are not known to be right or wrong, and who they are."""
    count, median = len(ordered), statistics.median(ordered)
    cut = _cut(ordered)
    low, high = statistics.median(ordered[:cut]), statistics.median(ordered[cut:])
    within = max(spread_of(ordered[:cut]), spread_of(ordered[cut:]), counted(median, 0.0))
    apart = high - low > policy.sigmas * within and 100 * _over(high - low, abs(median)) > policy.percent
    split = f"two camps, {cut} around {_text(low)} and {count - cut} around {_text(high)}: {NOBODY}"
    lesser = [s for s in standings if (s.value < ordered[cut]) is (cut * 2 < count)]
    if apart and (cut * 2 == count or sum(s.place is Place.FAR for s in lesser) * 2 < len(lesser)):
        return split, lambda _: True
    inside = sum(s.place is Place.INSIDE for s in standings)
    if inside * 2 <= count:
        return f"only {inside} of {count} are near the others: {NOBODY}", lambda _: True
    spread = max(spread_of(ordered), counted(median, 0.0))
    if spread > policy.resolution and policy.sigmas * spread > policy.widest / 100 * abs(median):
        sigma = f"one robust sigma is {_text(spread)} around the median {_text(median)}"
        return f"the {count} differ too much to judge one of them, {sigma}: {NOBODY}", lambda _: True
    hidden = {s.value for s in lesser if s.place is Place.INSIDE} if apart else set()
    return split, lambda s: s.value in hidden


def _cut(ordered: Sequence[float]) -> int:
    """Where the widest gap is that leaves a quarter of the parts, and two at least, on either side."""
    count = len(ordered)
    edge = min(count // 2, max(2, -(-count // 4)))
    return max(range(edge, count - edge + 1), key=lambda i: (ordered[i] - ordered[i - 1], -abs(2 * i - count)))


def _others(ordered: Sequence[float]) -> Callable[[float], tuple[float, float]]:
    """A function from one of the values to median and spread of all the others, in little time.

    Leaving one out, the median takes three values at most; the distances from each are sorted once.
    """
    distances: dict[float, list[float]] = {}

    def without(value: float) -> tuple[float, float]:
        median = _median_without(ordered, bisect_left(ordered, value))
        if median not in distances:
            distances[median] = sorted(abs(other - median) for other in ordered)
        mad = _median_without(distances[median], bisect_left(distances[median], abs(value - median)))
        return median, _sigma(mad, len(ordered) - 1)

    return without


def spread_of(values: Iterable[float]) -> float:
    """One robust sigma of these values: MAD about their median, made comparable with a standard deviation."""
    values = list(values)
    median = statistics.median(values)
    return _sigma(statistics.median(abs(value - median) for value in values), len(values))


def _sigma(mad: float, count: int) -> float:
    return 1.4826 * count / (count - 0.8) * mad


def _median_without(ordered: Sequence[float], index: int) -> float:
    """The median of a sorted sequence of two or more without the element at `index`."""
    left = len(ordered) - 1
    low, high = (ordered[i + (i >= index)] for i in ((left - 1) // 2, left // 2))
    return (low + high) / 2


def grouped(values: Mapping[K, float], group_of: Mapping[K, G]) -> dict[G, dict[K, float]]:
    """The values group by group. Raises: ValueError where one is not finite or has no group."""
    groups: dict[G, dict[K, float]] = {}
    for part, value in values.items():
        if part not in group_of:
            raise ValueError(f"group of {part!a}: expected one, found none")
        groups.setdefault(group_of[part], {})[part] = _number(f"value of {part!a}", value)
    return groups


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise ValueError(f"{what}: expected a finite number, found {value!a:.40}; what was not measured has no peers")
    return float(value)


def _over(distance: float, by: float) -> float:
    return distance / by if by > 0 else math.copysign(math.inf, distance) if distance else 0.0


def _text(value: float, unit: str = "") -> str:
    """As the field writes it; what is very small or very large keeps its digits in exponents."""
    if value == 0 or 0.01 <= abs(value) < 1e9:
        return show(value, unit)
    return f"{value:.4g} {unit}".rstrip()


def _short(value: float) -> str:
    return f"{abs(value):.1f}" if abs(value) < 10 else f"{abs(value):.0f}" if abs(value) < 1e6 else f"{abs(value):.3g}"
