"""The figure of a clause on the GPUs of several nodes: a strip on which who is far from all others is named."""

from __future__ import annotations

from markupsafe import Markup

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import PartEntry
from pytest_gpuready.certificate.outliers import NAMED_AT_MOST, Spread
from pytest_gpuready.certificate.plots import drawn, shape

DOTS_AT_MOST = 800
LEFT, RIGHT = 190.0, 984.0
ROWS = 3
"""Heights at which names may stand, so that near ones do not cover each other."""


def peers_strip(spread: Spread) -> Markup:
    """Grey dots are the GPUs, the band holds the middle 98 % of them, the dotted line is their median; black and named
    who is far from its peers, red and crossed who fails. The axis is cut: it compares peers."""
    clause = spread.clause
    bound = words.bound_of(clause)
    values = spread.values
    ends = [values[0], values[-1], *([bound] if bound is not None else [])]
    # A part that lies far off stands at the edge, and its number says how far: else its peers would be one dot.
    inner = (spread.share(1), spread.share(99))
    width = max(inner[1] - inner[0], abs(spread.median) * 0.002) or 1.0
    low, high = max(min(ends), inner[0] - 12 * width), min(max(ends), inner[1] + 12 * width)
    if bound is not None:
        low, high = min(low, bound), max(high, bound)
    low, high = low - 0.04 * ((high - low) or 1.0), high + 0.04 * ((high - low) or 1.0)
    places = words.decimals(clause)

    def x(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * min(max((value - low) / (high - low), 0.0), 1.0)

    name = words.clean(clause.headline, 34)
    unit = words.unit_text(clause.unit)
    marks = shape('<text x="0" y="20" class="tb">{}</text>', name)
    marks += shape(
        '<text x="0" y="34">{}</text>', f"{clause.id} \u00b7 median {words.grouped(spread.median, places)} {unit}"
    )
    band = (x(inner[0]), x(inner[1]))
    marks += shape('<rect x="{}" y="8" width="{}" height="32" class="band"/>', band[0], max(band[1] - band[0], 1.0))
    if bound is not None:
        wrong = (LEFT, x(bound)) if clause.at_least is not None else (x(bound), RIGHT)
        marks += shape('<rect x="{}" y="8" width="{}" height="32" class="hatch"/>', wrong[0], wrong[1] - wrong[0])
    marks += shape('<path d="M{} 40H{}" class="ax"/>', LEFT, RIGHT)
    step = max(len(values) // DOTS_AT_MOST, 1)
    dots = "".join(f"M{x(v):.1f} {12 + place * 7 % 25}h.1" for place, v in enumerate(values[::step]))
    marks += shape('<path d="{}" class="many"/>', dots)
    marks += shape('<path d="M{} 6V40" class="med"/>', x(spread.median))
    if bound is not None:
        marks += shape('<path d="M{} 4V40" class="lim"/>', x(bound))
        said = words.limit_text(clause, unit=False)
        marks += shape('<text x="{}" y="53" class="t10 {}">{}</text>', *_at(x(bound), said), said)
    height = 0
    for kind, pairs in (("bad", spread.failing), ("far", spread.far)):
        for part, value in pairs[: NAMED_AT_MOST // 2]:
            marks += _named(kind, part, x(value), 15.0 + 11 * (height % ROWS), words.grouped(value, places))
            height += 1
    sentence = (
        f"{name}: {len(values)} GPUs at {words.grouped(values[0], places)} to {words.grouped(values[-1], places)} "
    )
    sentence += f"{unit}, median {words.grouped(spread.median, places)}; {far_text(spread)}"
    return drawn(1000, 62, sentence, marks)


def far_text(spread: Spread) -> str:
    """Who fails and who is far from its peers, in words."""
    places = words.decimals(spread.clause)
    said = []
    for word, pairs in (("FAIL ", spread.failing), ("", spread.far)):
        told = [f"{word}{words.part_text(p.part, True)} {words.grouped(v, places)}" for p, v in pairs[:NAMED_AT_MOST]]
        more = len(pairs) - len(told)
        said += [*told, *([f"{word}{more} more"] if more > 0 else [])]
    return "; ".join(said) or "nobody is far from the others"


def _named(kind: str, part: PartEntry, x: float, y: float, value: str) -> Markup:
    text = f"{words.part_text(part.part, True)} {value}"
    css, mark = ("bad", "\u2715 ") if kind == "bad" else ("tb", "")
    dot = shape('<circle cx="{}" cy="{}" r="4" class="{}"/>', x, y - 3.5, "dotbad" if kind == "bad" else "dotw")
    end = x > (LEFT + RIGHT) / 2
    label = '<text x="{}" y="{}" class="{} t10 halo{}">{}</text>'
    return dot + shape(label, x - 8 if end else x + 8, y, css, " end" if end else "", mark + text)


def _at(x: float, text: str) -> tuple[float, str]:
    """Where a label under the axis stands, and how it is aligned: inside the figure."""
    half = 3.0 * len(text)
    return (LEFT, "") if x - half < LEFT else (RIGHT, "end") if x + half > RIGHT else (x, "mid")
