"""Figures of the certificate as inline SVG: bullet, part boxes, strip, watch.

Every figure has role="img" and a sentence; what it shows by colour it shows by shape too. Numbers are formatted here,
text is escaped where it is put in.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup, escape

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import ClauseEntry, PartEntry, WatchEntry
from pytest_gpuready.certificate.words import WORDS

BOXES_AT_MOST = 144
"""More parts than this are counted in words; a box would be smaller than its glyph."""
DOTS_AT_MOST = 400
SAMPLES_AT_MOST = 120
NO_EXTRA = Markup("")
STRETCHED = Markup(' preserveAspectRatio="none"')
LEFT = Markup(' preserveAspectRatio="xMinYMid meet"')
STRIP_SIZE = Markup(' width="210" height="40"')


def shape(template: str, *numbers: object) -> Markup:
    """A constant piece of SVG with numbers and words put in, every one of them escaped; numbers with one decimal."""
    put_in = (f"{n:.1f}" if isinstance(n, float) else escape(n) for n in numbers)
    return Markup(template.format(*put_in))  # noqa: S704 - the template is constant, what is put in is escaped


def drawn(width: float, height: float, sentence: str, body: Markup, extra: Markup = NO_EXTRA) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}"').format(
        f"{width:g}", f"{height:g}", words.clean(sentence, 300)
    )
    return head + extra + Markup(">") + body + Markup("</svg>")


def has_bullet(clause: ClauseEntry) -> bool:
    """A bullet needs numbers, a bound and room between the bound and the ceiling."""
    bound = words.bound_of(clause)
    if clause.ceiling is None or clause.ceiling <= 0 or bound is None or bound >= clause.ceiling:
        return False
    found = words.numbers(clause)
    return bool(found) and all(value >= 0 for _, value in found)


def bullet(clause: ClauseEntry, many: bool) -> Markup:
    """Zero to the physical ceiling, never cut: thick bar worst part, fine ticks each part, red line the limit."""
    worst = words.worst_number(clause)
    bound, ceiling = words.bound_of(clause), clause.ceiling
    if worst is None or bound is None or not ceiling:
        return Markup("")
    part, value = worst

    def x(number: float) -> float:
        return 260 * min(max(number / ceiling, 0.0), 1.0)

    wrong = (0.0, x(bound)) if clause.at_least is not None else (x(bound), 260.0)
    failing = part.outcome == "FAIL"
    marks = shape('<rect x="0" y="3" width="260" height="16" class="band" opacity=".55"/>')
    marks += shape('<rect x="{}" y="3" width="{}" height="16" class="band"/>', wrong[0], wrong[1] - wrong[0])
    marks += shape('<rect x="0" y="8" width="{}" height="6" class="{}"/>', x(value), "dotbad" if failing else "bar")
    if len(clause.parts) > 1:
        ticks = sorted({round(x(v), 1) for _, v in words.numbers(clause)})
        path = "".join(f"M{tick:.1f} 5.5v11" for tick in ticks)
        marks += shape('<path d="{}" class="tick" vector-effect="non-scaling-stroke"/>', path)
    marks += shape('<path d="M{} 0v22" class="lim" vector-effect="non-scaling-stroke"/>', x(bound))
    marks += shape('<path d="M259.5 0v22" class="ceil1" vector-effect="non-scaling-stroke"/>')
    sentence = (
        f"{clause.headline or clause.id}: worst {words.value_text(clause, part)} {words.unit_text(clause.unit)} on "
        f"{words.part_text(part.part, many)}, limit {words.limit_text(clause)}, "
        f"ceiling {words.grouped(ceiling, 1)}"
    )
    return drawn(260, 22, sentence, marks, STRETCHED)


def boxes(parts: Sequence[PartEntry], many: bool) -> Markup:
    """One square per part with its glyph, up to 18 in a row; the sentence has the words, tooltips where they differ."""
    if len(parts) > BOXES_AT_MOST or not parts:
        return Markup("")
    columns = 8 if len(parts) <= 8 else 12 if len(parts) <= 24 else 18
    pitch = 200 / columns
    side, tall = pitch - 4.2 if columns == 8 else pitch - 2.2, 15.0 if columns == 8 else pitch - 2.2
    glyph = min(11.0, side - 1.5)
    rows = (len(parts) + columns - 1) // columns
    frames: dict[str, str] = {}
    glyphs = Markup("")
    alike = len({words.said(part) for part in parts}) == 1
    for place, part in enumerate(parts):
        word = WORDS[words.said(part)]
        left, top = (place % columns) * pitch + 0.6, (place // columns) * (tall + 2.4) + (3.6 if rows == 1 else 0.8)
        frame = {"FAIL": "box-fail"}.get(word.outcome, "box-open" if word.outcome in words.OPEN else "box")
        frames[frame] = frames.get(frame, "") + f"M{left:.1f} {top:.1f}h{side:.1f}v{tall:.1f}h-{side:.1f}z"
        x, y = left + (side - glyph) / 2, top + (tall - glyph) / 2
        use = '<use href="#{}" x="{}" y="{}" width="{}" height="{}" class="{}i">'
        glyphs += shape(use, word.glyph, x, y, glyph, glyph, word.css)
        if not alike:
            glyphs += shape("<title>{}: {}</title>", words.part_text(part.part, many), word.outcome)
        glyphs += Markup("</use>")
    marks = Markup("").join(shape('<path d="{}" class="{}"/>', path, css) for css, path in frames.items()) + glyphs
    height = 22.0 if rows == 1 else rows * (tall + 2.4) + 0.6
    return drawn(200, height, counts_sentence(parts, many), marks, LEFT)


def counts_sentence(parts: Sequence[PartEntry], many: bool) -> str:
    """How many parts have which word, the parts of the bad ones named: 7 PASS, 1 FAIL (GPU 5)."""
    said = []
    by_word: dict[str, list[str]] = {}
    for part in parts:
        by_word.setdefault(words.said(part), []).append(part.part)
    for outcome in words.WORST_FIRST:
        named = by_word.get(outcome)
        if named:
            who = "" if outcome == "PASS" or len(named) == len(parts) else f" ({words.parts_text(named, many)})"
            said.append(f"{len(named)} {outcome}{who}")
    return ", ".join(said) + f" of {len(parts)}"


def has_strip(clause: ClauseEntry) -> bool:
    """A strip compares peers: it needs at least two numbers, and a difference that is seen, or a measured quantity that
    has a limit.
    """
    found = [value for _, value in words.numbers(clause)]
    if clause.per != "gpu" or len(found) < 2 or len(found) > DOTS_AT_MOST:
        return False
    if words.bound_of(clause) is None:
        return len({part.shown for part, _ in words.numbers(clause)}) > 1
    return len(set(found)) > 1 or any(not value.is_integer() for value in found)


def strip(clause: ClauseEntry, many: bool) -> Markup:
    """Dots on a cut axis: hatching on the wrong side of the limit, dotted median, worst dot black and named, a failing
    part a red cross. Without a limit nobody is the worst: then the ends are labelled."""
    found = sorted(words.numbers(clause), key=lambda pair: pair[1])
    worst = words.worst_number(clause)
    if worst is None:
        return Markup("")
    bound = words.bound_of(clause)
    values = [value for _, value in found]
    low, high = min(values), max(values)
    if bound is not None:
        low, high = min(low, bound), max(high, bound)
    span = (high - low) or abs(high) or 1.0
    low, high = low - 0.16 * span, high + 0.16 * span

    def x(value: float) -> float:
        return 4 + 202 * (value - low) / (high - low)

    marks = Markup("")
    if bound is not None:
        left, right = (4.0, x(bound)) if clause.at_least is not None else (x(bound), 206.0)
        marks += shape('<rect x="{}" y="6" width="{}" height="18" class="hatch"/>', left, right - left)
    median = statistics.median(values)
    marks += shape('<path d="M4 24H206" class="ax"/><path d="M{} 3V24" class="med"/>', x(median))
    level: dict[int, int] = {}
    places = words.decimals(clause)
    for part, value in found:
        column = round(x(value) / 5.6)
        height = min(level.get(column, 0), 2)
        level[column] = level.get(column, 0) + 1
        title = f"{words.part_text(part.part, many)}: {words.value_text(clause, part, places=places)}"
        marks += _dot(title, part.outcome, x(value), 19.5 - 5.6 * height, worst=bound is not None and part is worst[0])
    if bound is None:
        labels = [(x(end), words.grouped(end, places), "") for end in sorted({min(values), max(values)})]
    else:
        name = words.part_text(worst[0].part, many)
        css, name = ("bad", f"\u2715 {name}") if worst[0].outcome == "FAIL" else ("tb", name)
        labels = [(x(worst[1]), name, css)]
    if bound is not None:
        marks += shape('<path d="M{} 2V24" class="lim"/>', x(bound))
        labels.append((x(bound), words.grouped(bound, places), ""))
    for at, said, look in _apart(labels):
        marks += shape('<text x="{}" y="36" class="t9 mid {}">{}</text>', at, look, said)
    ends = f"{words.grouped(min(values), places)} to {words.grouped(max(values), places)}"
    unit = f" {words.unit_text(clause.unit)}" if clause.unit else ""
    where = "no limit"
    if clause.limit:
        where = f"worst on {words.part_text(worst[0].part, many)}, limit {words.limit_text(clause)}"
    sentence = f"{clause.id}: {len(values)} parts at {ends}{unit}, median {words.grouped(median, places)}, {where}"
    return drawn(210, 40, sentence, marks, STRIP_SIZE)


def _dot(title: str, outcome: str, x: float, y: float, *, worst: bool) -> Markup:
    if outcome == "FAIL":
        cross = '<g><title>{}</title><path d="M{} {}l6 6m0 -6l-6 6" class="cross"/></g>'
        return shape(cross, title, x - 3, y - 3)
    css, radius = ("dotw", 3.4) if worst else ("dot", 2.8)
    return shape('<circle cx="{}" cy="{}" r="{}" class="{}"><title>{}</title></circle>', x, y, radius, css, title)


def _apart(labels: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Labels under the axis of a strip, moved so that none leaves the figure and two do not overlap."""

    def half(text: str) -> float:
        return 2.7 * len(text) + 2

    placed = [(min(max(x, half(t)), 210 - half(t)), t, css) for x, t, css in sorted(labels)]
    if len(placed) < 2:
        return placed
    (left, left_text, left_css), (right, right_text, right_css) = placed
    overlap = left + half(left_text) + 3 - (right - half(right_text))
    if overlap > 0:
        moved = max(left - overlap, half(left_text))
        right = min(right + overlap - (left - moved), 210 - half(right_text))
        left = moved
    return [(left, left_text, left_css), (right, right_text, right_css)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """How a watched column is named and drawn. `steps`: it jumps between whole numbers (a link)."""

    column: str
    name: str
    short: str = ""
    unit: str = ""
    steps: bool = False


SERIES = (
    Series(column="power_w", name="Power", short="W", unit="W"),
    Series(column="sm_mhz", name="SM clock", short="MHz", unit="MHz"),
    Series(column="temperature_c", name="Temperature", short="\u00b0C", unit="C"),
    Series(column="memory_temperature_c", name="Memory temperature", short="mem", unit="C"),
    Series(column="generation", name="PCIe generation", short="Gen", steps=True),
    Series(column="width", name="PCIe width", short="lanes", steps=True),
)


def known_series(watches: Sequence[WatchEntry]) -> tuple[Series, ...]:
    """The columns that at least one of the watches has, in the order of drawing; names we do not know come last."""
    seen = dict.fromkeys(name for watch in watches for name, values in watch.series.items() if values)
    known = [series for series in SERIES if series.column in seen]
    names = {series.column for series in SERIES}
    other = [Series(column=name, name=words.clean(name, 40)) for name in seen if name not in names]
    return (*known, *other[:2])


def span_text(series: Series, watch: WatchEntry, *, unit: bool = True) -> str:
    """Lowest and highest value of a column: 77 to 412 W; a dash where it is absent."""
    found = [v for v in watch.series.get(series.column, []) if words.number(v) is not None]
    if not found:
        return words.DASH
    low, high = (words.grouped(round(v)) for v in (min(found), max(found)))
    said = low if low == high else f"{low} to {high}"
    return words.with_unit(said, series.unit) if unit else said


def limits(watch: WatchEntry) -> dict[str, float]:
    """Column -> what it must not pass, of those that can be drawn."""
    known = {} if watch.limits is msgspec.UNSET else watch.limits
    return {column: value for column, value in known.items() if words.number(value) is not None and value > 0}


def scales(series: Sequence[Series], watches: Sequence[WatchEntry]) -> dict[str, float]:
    """The top of each column's axis, shared by all small multiples; every axis starts at zero."""
    tops = {}
    for one in series:
        different = {v for w in watches for v in w.series.get(one.column, [])}
        different |= {limits(w)[one.column] for w in watches if one.column in limits(w)}
        tops[one.column] = max((v for v in different if words.number(v) is not None), default=1.0) or 1.0
    return tops


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """The columns that the page draws and the top of each column's axis, shared by all small multiples."""

    series: tuple[Series, ...]
    tops: dict[str, float]


def panels(watches: Sequence[WatchEntry]) -> Panels:
    series = known_series(watches)
    return Panels(series=series, tops=scales(series, watches))


def watch(title: str, note: str, entry: WatchEntry, shared: Panels, *, failing: bool) -> Markup:
    """Small multiple of one part: one panel per column over the same time axis, every axis from zero."""
    own = [series for series in shared.series if entry.series.get(series.column)]
    tall = 34
    height = 20 + tall * len(own) + 14
    end = max((t for t in entry.times_s if words.number(t) is not None), default=0.0) or 1.0
    head = ("\u2715 " if failing else "") + title
    own_limits = limits(entry)
    marks = shape('<text x="0" y="11"><tspan class="{}">{}</tspan> {}</text>', "bad" if failing else "tb", head, note)
    for place, one in enumerate(own):
        base = 20 + tall * (place + 1) - 5
        marks += shape('<text x="26" y="{}" class="end t10">{}</text>', base - 9, one.short or one.name[:6])
        marks += shape('<path d="M30 {}H168" class="grid"/>', base)
        scale = (138 / end, (tall - 10) / shared.tops[one.column])
        points = [(30 + scale[0] * max(t, 0), base - scale[1] * max(v, 0)) for t, v in samples(entry, one)]
        if one.column in own_limits:
            marks += shape('<path d="M30 {}H168" class="lim1"/>', base - scale[1] * own_limits[one.column])
            said = f"limit {words.grouped(own_limits[one.column])}"
            marks += shape('<text x="236" y="{}" class="end t9 bad">{}</text>', base - 19, said)
        if points:
            marks += shape('<path d="{}" class="ln1"/>', path(points, one.steps))
        marks += shape('<text x="236" y="{}" class="end t10">{}</text>', base - 9, span_text(one, entry, unit=False))
    marks += shape('<text x="30" y="{}" class="t9">0</text>', height - 5)
    marks += shape('<text x="168" y="{}" class="t9 end">{}</text>', height - 5, f"{end:.1f}{words.NBSP}s")
    said = ", ".join(
        f"{one.name.lower()} {span_text(one, entry)}"
        + (
            f", limit {words.with_unit(words.grouped(own_limits[one.column]), one.unit)}"
            if one.column in own_limits
            else ""
        )
        for one in own
    )
    return drawn(236, height, f"{title} while it was measured: {said}", marks)


def samples(entry: WatchEntry, series: Series, at_most: int = SAMPLES_AT_MOST) -> list[tuple[float, float]]:
    """At most so many samples; of each stretch the extreme ones are kept, so that a dip stays seen."""
    pairs = [
        (t, v)
        for t, v in zip(entry.times_s, entry.series.get(series.column, []), strict=False)
        if words.number(t) is not None and words.number(v) is not None
    ]
    if len(pairs) <= at_most:
        return pairs
    step = -(-len(pairs) // (at_most // 2))
    kept: list[tuple[float, float]] = []
    for first in range(0, len(pairs), step):
        stretch = pairs[first : first + step]
        kept += sorted({min(stretch, key=lambda pair: pair[1]), max(stretch, key=lambda pair: pair[1])})
    return kept


def path(points: list[tuple[float, float]], steps: bool) -> str:
    said = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for x, y in points[1:]:
        said += f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}"
    return said
