"""What the watch saw of one GPU in the window of one phase: samples cut to it, spans, and a few samples for a plot."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_gpuready.agent.stress.figures import thin
from pytest_gpuready.agent.stress.watch import READINGS
from pytest_gpuready.model.stress_doc import Span, WindowSeen

MOST = 20_000
"""Samples of a phase that are kept: of more, every second one goes."""

LEAD = "power_w"
REASONS = "reasons"


class Kept:
    """The samples of one GPU in one phase, as they come; `taken` counts those, too, that were let go."""

    def __init__(self, most: int = MOST) -> None:
        self.taken = 0
        self._most = most
        self._step = 1
        self._rows: list[tuple[float, Sequence[float | None]]] = []

    def add(self, t: float, values: Sequence[float | None]) -> None:
        """One sample: its time and its readings."""
        if self.taken % self._step == 0:
            self._rows.append((t, values))
            if len(self._rows) > self._most:
                del self._rows[1::2]
                self._step *= 2
        self.taken += 1

    def seen(self, begin: float, end: float, zero: float) -> WindowSeen:
        """What of them lies in the window; its times count from `zero`."""
        rows = [(t, values) for t, values in self._rows if begin <= t <= end]
        columns: dict[str, list[float | None]] = {"t": [round(t - zero, 3) for t, _ in rows]}
        for at, name in enumerate(READINGS):
            columns[name] = [values[at] for _, values in rows]
        reasons: Counter[str] = Counter()
        for value in columns[REASONS]:
            for bit in range(int(value or 0).bit_length()):
                if int(value or 0) >> bit & 1:
                    reasons[f"{1 << bit:#x}"] += 1
        spans = {}
        for name in READINGS:
            known = [value for value in columns[name] if value is not None]
            if known and name != REASONS:
                spans[name] = Span(low=min(known), median=statistics.median(known), high=max(known))
        read = {name: values for name, values in columns.items() if name == "t" or any(v is not None for v in values)}
        return WindowSeen(
            taken=len(rows) * self._step,
            spans=spans,
            reasons=dict(reasons),
            samples=thin(read, LEAD) if rows else {},
        )


def with_counters(seen: WindowSeen, before: Mapping[str, int], after: Mapping[str, int]) -> WindowSeen:
    """The same, and what the counters did from its beginning to its end."""
    return WindowSeen(
        taken=seen.taken,
        spans=seen.spans,
        reasons=seen.reasons,
        samples=seen.samples,
        counted=_grown(before, after),
    )


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """By how much each counter grew that was read both times and did grow."""
    return {name: after[name] - before[name] for name in after if name in before and after[name] != before[name]}
