"""What was watched while something was measured: one block per suite for the page, drawn as small multiples."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from pytest_gpuready.certificate import page, plots, words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.findings import cells

DRAWN_AT_MOST = 24
"""Small multiples drawn of one block; parts with a finding come first, the table under them has all."""
LISTED_AT_MOST = 288
"""Parts in the table under them, as many as the document has; it may have more from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The parts that were watched while one clause was measured, one cell each."""

    clause: ClauseEntry
    parts: tuple[PartEntry, ...]
    drawn: tuple[PartEntry, ...]
    failing: frozenset[str]
    left_out: int
    series: tuple[plots.Series, ...]


class Figures:
    """Draws the watch of a part; all figures of the page share their scales."""

    def __init__(self, certificate: Certificate, many: bool) -> None:
        self._certificate = certificate
        self._many = many
        self._panels = plots.panels([part.watch for _, part in cells(certificate) if part.watch is not None])

    def __call__(self, part: PartEntry, failing: bool) -> Markup:
        if part.watch is None:
            return Markup("")
        gpu = page.gpu_of(self._certificate, part.part)
        note = f"module {words.clean(gpu.module, 12)}" if gpu and gpu.module else ""
        title = words.part_text(part.part, self._many)
        return plots.watch(title, note, part.watch, self._panels, failing=failing)


def blocks(certificate: Certificate, told: frozenset[str]) -> list[Watched]:
    """Of each suite from level 2 on the clause that was watched longest; clauses `told` elsewhere are left out."""
    failing = frozenset(part.part for c, part in cells(certificate) if part.outcome == "FAIL" and c.level > 1)
    found = []
    for suite in certificate.suites:
        own = [c for c in suite.clauses if c.level > 1 and c.metric not in told]
        longest = max(own, key=lambda clause: max(map(_samples, clause.parts), default=0), default=None)
        parts = [part for part in longest.parts if _samples(part)] if longest else []
        if longest and parts:
            found.append(_block(longest, parts, failing))
    return found


def _samples(part: PartEntry) -> int:
    return len(part.watch.times_s) if part.watch is not None and part.watch.series else 0


def _block(clause: ClauseEntry, parts: list[PartEntry], failing: frozenset[str]) -> Watched:
    first = sorted(parts, key=lambda part: part.part not in failing)
    names = {part.part for part in first[:DRAWN_AT_MOST]}
    drawn = [part for part in parts if part.part in names]
    return Watched(
        clause=clause,
        parts=tuple(first[:LISTED_AT_MOST] if len(parts) > LISTED_AT_MOST else parts),
        drawn=tuple(drawn),
        failing=failing,
        left_out=len(parts) - len(drawn),
        series=plots.known_series([part.watch for part in parts if part.watch is not None]),
    )
