"""The burn-in over time: power, SM clock and temperatures of each GPU with the limits that hold for them.

Drawn from the samples that the certificate holds and from nothing else; a limit that nobody stated is not drawn. Every
axis starts at zero and is the same on all GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from pytest_gpuready.certificate import plots, words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry, WatchEntry
from pytest_gpuready.certificate.plots import Series, drawn, shape
from pytest_gpuready.certificate.watched import DRAWN_AT_MOST, LISTED_AT_MOST
from pytest_gpuready.probes.stress_long import BURN_POWER, CLOCKS, MARGIN

METRICS = (BURN_POWER, MARGIN)
"""Clauses whose watch is that of the burn-in."""
LARGE_AT_MOST = 4
"""So many GPUs have a figure of half the page; more have small ones."""
WIDTH, LEFT, RIGHT = 480.0, 8.0, 412.0
PANEL, HEAD, FOOT = 62.0, 22.0, 20.0
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
TICKS_AT_MOST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One GPU in the table beside the figures: lowest and highest of each column, and what the clauses say."""

    part: PartEntry
    spans: tuple[str, ...]
    power: str
    power_limit: str
    margin: str
    slowdown: str
    clocks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timelines:
    """The burn-in of all GPUs. `large`: one figure is half a page wide."""

    ids: tuple[str, ...]
    series: tuple[Series, ...]
    figures: tuple[tuple[PartEntry, Markup], ...]
    large: bool
    left_out: int
    rows: tuple[Row, ...]
    more: int
    limits: bool


def timelines(certificate: Certificate, many: bool) -> Timelines | None:
    """The burn-in of every GPU of which samples are left; None where there is none. Where not all
    have room, those of failing GPUs and of the hottest are drawn."""
    clauses = [clause for suite in certificate.suites for clause in suite.clauses]
    by_metric = {clause.metric: clause for clause in clauses}
    found: dict[str, PartEntry] = {}
    failing: set[str] = set()
    for metric in METRICS:
        for part in by_metric[metric].parts if metric in by_metric else ():
            if part.watch is not None and part.watch.series and part.watch.times_s:
                found.setdefault(part.part, part)
            if part.outcome == "FAIL":
                failing.add(part.part)
    if not found:
        return None
    power_limits = _power_limits(by_metric)
    watches = {name: _limited(part.watch, power_limits.get(name)) for name, part in found.items() if part.watch}
    shared = plots.panels(list(watches.values()))
    first = sorted(found.values(), key=lambda part: (part.part not in failing, -_hottest(watches[part.part])))
    names = {part.part for part in first[:DRAWN_AT_MOST]}
    large = len(found) <= LARGE_AT_MOST
    listed = first[:LISTED_AT_MOST] if len(found) > LISTED_AT_MOST else list(found.values())
    figures = [
        (part, _figure(part, watches[part.part], shared, many, large=large, failing=part.part in failing))
        for part in found.values()
        if part.part in names
    ]
    return Timelines(
        ids=tuple(by_metric[metric].id for metric in METRICS if metric in by_metric),
        series=shared.series,
        figures=tuple(figures),
        large=large,
        left_out=len(found) - len(figures),
        rows=_rows(listed, watches, shared.series, by_metric),
        more=max(len(found) - LISTED_AT_MOST, 0),
        limits=any(plots.limits(watch) for watch in watches.values()),
    )


def _hottest(watch: WatchEntry) -> float:
    return max((v for v in watch.series.get("temperature_c", []) if words.number(v) is not None), default=0.0)


def _power_limits(by_metric: Mapping[str, ClauseEntry]) -> dict[str, float]:
    """The enforced power limit of each GPU, from what NVML said of it: the default less what is taken off it."""
    default, below = by_metric.get("power.limit.default"), by_metric.get("power.limit.below_default")
    if default is None or below is None:
        return {}
    off = {part.part: words.number(part.value) for part in below.parts}
    known = {}
    for part in default.parts:
        value, less = words.number(part.value), off.get(part.part)
        if value is not None and less is not None:
            known[part.part] = value - less
    return known


def _limited(watch: WatchEntry, power_limit: float | None) -> WatchEntry:
    limits = plots.limits(watch)
    if power_limit is not None and "power_w" in watch.series:
        limits = {**limits, "power_w": power_limit}
    return msgspec.structs.replace(watch, limits=limits or msgspec.UNSET)


def _figure(
    part: PartEntry, watch: WatchEntry, shared: plots.Panels, many: bool, *, large: bool, failing: bool
) -> Markup:
    title = words.part_text(part.part, many)
    if not large:
        return plots.watch(title, "", watch, shared, failing=failing)
    own = [series for series in shared.series if watch.series.get(series.column)]
    end = max((t for t in watch.times_s if words.number(t) is not None), default=0.0) or 1.0
    height = HEAD + PANEL * len(own) + FOOT
    bottom = HEAD + PANEL * len(own)
    head = ("\u2715 " if failing else "") + title
    marks = shape('<text x="0" y="13" class="{}">{}</text>', "bad t13" if failing else "tb t13", head)
    step, unit_s, unit = _step(end)
    for number in range(int(1.005 * end // step) + 1):
        x = LEFT + (RIGHT - LEFT) * min(number * step / end, 1.0)
        marks += shape('<path d="M{} {}V{}" class="grid"/>', x, HEAD + 14, bottom)
        said = f"{number * step / unit_s:g}" + (f"{words.NBSP}{unit}" if not number else "")
        marks += shape('<text x="{}" y="{}" class="{}">{}</text>', x, bottom + 14, "mid" if number else "", said)
    for place, one in enumerate(own):
        marks += _panel(one, watch, HEAD + PANEL * place, end, shared.tops[one.column])
    said = ", ".join(_said(one, watch) for one in own)
    return drawn(WIDTH, height, f"{title} in the burn-in, {words.seconds_text(end)}: {said}", marks)


def _panel(series: Series, watch: WatchEntry, top: float, end: float, highest: float) -> Markup:
    """One column: its name above, the line from zero, the limit with its name, and lowest and highest at the right."""
    base = top + PANEL - 3
    scale_x, scale_y = (RIGHT - LEFT) / end, (PANEL - 22) / highest
    name = series.name + (f", {words.unit_text(series.unit)}" if series.unit else "")
    marks = shape('<text x="{}" y="{}" class="t10">{}</text>', LEFT, top + 11, name)
    marks += shape('<path d="M{} {}H{}" class="ax"/>', LEFT, base, RIGHT)
    limit = plots.limits(watch).get(series.column)
    if limit is not None:
        y = base - scale_y * limit
        marks += shape('<path d="M{} {}H{}" class="lim1"/>', LEFT, y, RIGHT)
        said = f"limit {words.grouped(limit)}"
        marks += shape('<text x="{}" y="{}" class="t10 bad">{}</text>', RIGHT + 6, max(y + 3.5, top + 12), said)
    points = [(LEFT + scale_x * max(t, 0), base - scale_y * max(v, 0)) for t, v in plots.samples(watch, series, 400)]
    if points:
        marks += shape('<path d="{}" class="ln1"/>', plots.path(points, series.steps))
    span = plots.span_text(series, watch, unit=False)
    # Where the limit is low in the panel, its name would cover the numbers: they then stand above it.
    low = limit is not None and base - scale_y * limit > base - 18
    marks += shape('<text x="{}" y="{}" class="t10">{}</text>', RIGHT + 6, top + 12 if low else base - 2, span)
    return marks


def _said(series: Series, watch: WatchEntry) -> str:
    limit = plots.limits(watch).get(series.column)
    tail = f", limit {words.with_unit(words.grouped(limit), series.unit)}" if limit is not None else ""
    return f"{series.name} {plots.span_text(series, watch)}{tail}"


def _step(end: float) -> tuple[float, float, str]:
    """How far the ticks of a time axis are apart, and the unit that they are told in: its seconds and its name."""
    step = next((s for s in STEPS_S if end / s <= TICKS_AT_MOST), None) or end / TICKS_AT_MOST
    return (step, 3600.0, "h") if step >= 3600 else (step, 60.0, "min") if step >= 60 else (step, 1.0, "s")


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of one clause on the parts of the table, as the page shows them."""

    shown: Mapping[str, str]

    def of(self, part: PartEntry) -> str:
        return self.shown.get(part.part, words.DASH)


def _values(clause: ClauseEntry | None, names: Collection[str]) -> _Values:
    if clause is None:
        return _Values({})
    places = words.decimals(clause)
    told = ((p, words.value_text(clause, p, 40, places=places)) for p in clause.parts if p.part in names and p.shown)
    return _Values({part.part: words.with_unit(text, clause.unit) for part, text in told})


def _rows(
    parts: Sequence[PartEntry],
    watches: Mapping[str, WatchEntry],
    series: tuple[Series, ...],
    by_metric: Mapping[str, ClauseEntry],
) -> tuple[Row, ...]:
    names = {part.part for part in parts}
    power, margin, clocks = (_values(by_metric.get(metric), names) for metric in (BURN_POWER, MARGIN, CLOCKS))

    def limit(part: PartEntry, column: str, unit: str) -> str:
        found = plots.limits(watches[part.part]).get(column)
        return words.DASH if found is None else words.with_unit(words.grouped(found), unit)

    return tuple(
        Row(
            part=part,
            spans=tuple(plots.span_text(one, watches[part.part]) for one in series),
            power=power.of(part),
            power_limit=limit(part, "power_w", "W"),
            margin=margin.of(part),
            slowdown=limit(part, "temperature_c", "C"),
            clocks=clocks.of(part),
        )
        for part in parts
    )
