"""What the watch saw of one GPU in the window of one phase: spans and counts of all samples, a few for a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pytest_gpuready.agent.stress.figures import thin
from pytest_gpuready.agent.stress.stretch import LEAD, REASONS, WARMTH, WATCHED, Sample, Stretch
from pytest_gpuready.agent.stress.watch import READINGS
from pytest_gpuready.model.stress_doc import Span, WindowSeen

MOST = 20_000
"""Samples of a phase that are kept as they are: of more, neighbours are put together, again and again."""

EDGE = 100
"""The first and the last so many stay as they are all the same: a window begins and ends among them."""


class Kept:
    """The samples of one GPU in one phase, as they come. `slowdown_c`: its slowdown temperature, where known."""

    def __init__(self, most: int = MOST, *, slowdown_c: float | None = None) -> None:
        self.taken = 0
        self._most = most
        self._slowdown_c = slowdown_c
        self._step = 1
        self._pieces: list[Sample | Stretch] = []

    def add(self, t: float, values: Sequence[float | None]) -> None:
        """One sample: its time and its readings."""
        self._pieces.append((t, values))
        self.taken += 1
        if len(self._pieces) > self._most:
            self._put_together()

    def seen(self, begin: float, end: float, zero: float) -> WindowSeen:
        """What of them lies in the window; its times count from `zero`. A stretch on its edge counts in whole."""
        all_of_it, middles = Stretch(self._slowdown_c), []
        for piece in self._pieces:
            if isinstance(piece, Stretch):
                if piece.first <= end and piece.last >= begin:
                    all_of_it.join(piece)
                    middles.append(piece.rows[0][1])
            elif begin <= piece[0] <= end:
                all_of_it.take(*piece)
                middles.append(piece[1])
        if not all_of_it.count:
            return WindowSeen()
        near = all_of_it.near_until(end)
        return WindowSeen(
            taken=all_of_it.count,
            spans=_spans(all_of_it, middles),
            reasons={f"{bit:#x}": count for bit, count in sorted(all_of_it.bits.items())},
            samples=_plotted([row for row in all_of_it.rows if begin <= row[0] <= end], zero),
            read={name: read for name, read in zip(READINGS, all_of_it.read, strict=True) if read},
            gap_s={name: round(all_of_it.longest_without(name, begin, end), 3) for name in WATCHED},
            near_slowdown_s=None if near is None else round(near, 3),
        )

    def _put_together(self) -> None:
        edge = min(EDGE, self._most // 8)
        while self.taken > self._step * self._most // 4:
            self._step *= 2
        joined: list[Sample | Stretch] = []
        now = Stretch(self._slowdown_c)
        for piece in self._pieces[edge:-edge]:
            more = piece.count if isinstance(piece, Stretch) else 1
            if now.count and now.count + more > self._step:
                now.thin()
                joined.append(now)
                now = Stretch(self._slowdown_c)
            if isinstance(piece, Stretch):
                now.join(piece)
            else:
                now.take(*piece)
        now.thin()
        self._pieces[edge:-edge] = [*joined, now]


def with_counters(seen: WindowSeen, before: Mapping[str, int], after: Mapping[str, int]) -> WindowSeen:
    """The same, and what the counters did from its beginning to its end."""
    return WindowSeen(
        taken=seen.taken,
        spans=seen.spans,
        reasons=seen.reasons,
        samples=seen.samples,
        read=seen.read,
        gap_s=seen.gap_s,
        near_slowdown_s=seen.near_slowdown_s,
        counted=_grown(before, after),
    )


def _spans(stretch: Stretch, middles: Sequence[Sequence[float | None]]) -> dict[str, Span]:
    """Lowest and highest of all samples; the median of those that stand for the others, where they are very many."""
    spans = {}
    for at, name in enumerate(READINGS):
        low, high = stretch.low[at], stretch.high[at]
        if low is not None and high is not None and name != REASONS:
            known = [value for values in middles if (value := values[at]) is not None]
            spans[name] = Span(low=low, median=statistics.median(known) if known else low, high=high)
    return spans


def _plotted(rows: Sequence[Sample], zero: float) -> dict[str, list[float | None]]:
    """A few of these rows as columns; one without a reading is absent."""
    columns: dict[str, list[float | None]] = {"t": [round(t - zero, 3) for t, _ in rows]}
    for at, name in enumerate(READINGS):
        column = [values[at] for _, values in rows]
        if any(value is not None for value in column):
            columns[name] = column
    return thin(columns, LEAD, highest=(WARMTH,)) if rows else {}


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much each counter grew that was read both times and did grow."""
    return {name: after[name] - before[name] for name in after if name in before and after[name] != before[name]}
