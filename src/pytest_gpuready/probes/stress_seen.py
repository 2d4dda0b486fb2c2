"""What the watch saw of one GPU under one phase: whether it looked all the time, whether that can be, what slowed it.

A value that was read now and then says nothing about the rest: at least half of the samples that the plan promises, in
both halves of the load, without a long gap. A GPU that was idle throughout was under no load, whatever it did not meet.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from pytest_gpuready.model.stress_doc import StressPhase, WindowSeen
from pytest_gpuready.probes.stress_run import Run
from pytest_gpuready.probes.watched import REASONS

GOOD_REASONS = "none but benign"
BENIGN = {0x1: "idle", 0x4: "SW power cap", 0x100: "display clock"}
IDLE = 0x1
SLOWED = {
    "throttle_hw_thermal_ns": "HW thermal slowdown",
    "throttle_power_brake_ns": "HW power brake",
    "throttle_sw_thermal_ns": "SW thermal slowdown",
    "throttle_thermal_ns": "thermal slowdown",
    "throttle_board_ns": "board limit",
}
"""Counters of nanoseconds that a healthy GPU under load does not spend: NVML counts what falls between two samples too.
The power cap has a counter of its own, which grows all the time under full load."""

LABELS = {"reasons": "clock-event reasons", "temperature_c": "temperature"}
"""Column -> what people call it."""

LEAST_SAMPLES = 8
"""Fewer samples of a phase say nothing about it."""
LEAST_READ, EACH_HALF = 0.5, 0.25
"""Of the samples that the plan promises this part must have been read; in each half of the load this part of those."""
MOST_GAP_S = 5.0
THINNED = 8
"""In documents that do not say the longest gap it is read from thinned samples: so many times their mean distance."""
WINDOW = 0.5
"""Of the load that a result tells of, this part must lie in the window of its phase."""
ALWAYS = 0.9
"""A GPU that was idle in this part of the samples was idle throughout."""
IDLE_POWER = 0.35
"""A GPU that never drew more than this part of what its peers draw was idle."""

POSSIBLE = {
    "temperature_c": (1.0, 150.0),
    "memory_temperature_c": (1.0, 150.0),
    "power_w": (1.0, 3000.0),
    "sm_mhz": (50.0, 5000.0),
}
"""Column -> the values that a loaded GPU can have."""
SLOWDOWN_C = (60.0, 130.0)


def samples(run: Run, number: int, column: str) -> tuple[list[float], list[float]]:
    """Times, in seconds since the beginning of the run, and values of a column in a phase."""
    rows = run.rows(number, column)
    return [t for t, _ in rows], [value for _, value in rows]


def second_half(run: Run, number: int, column: str) -> float | str:
    """Median of a column over the second half of a phase; else why there is none."""
    window = run.window(number)
    middle = (window[0] + window[1]) / 2 if window else 0.0
    values = [value for t, value in run.rows(number, column) if t >= middle]
    if len(values) < LEAST_SAMPLES:
        found = f"found {len(values)}{_error(run, column)}"
        return f"expected at least {LEAST_SAMPLES} samples of {column} under load, {found}"
    return impossible(column, values) or no_load(run, number) or statistics.median(values)


def impossible(column: str, values: Sequence[float]) -> str:
    """Why these values of a column cannot be those of a loaded GPU; "" where they can."""
    low, high = POSSIBLE[column]
    odd = next((value for value in values if not low <= value <= high), None)
    return "" if odd is None else f"expected {column} from {low:g} to {high:g} under load, found {odd:g}"


def unwatched(run: Run, number: int, column: str) -> str:
    """Why nobody knows this column over the whole of a phase; "" where it was read throughout."""
    phase, window = run.phase(number), run.window(number)
    kind, what = phase.kind if phase else "this phase", LABELS.get(column, column)
    seen = phase.seen if phase else None
    if phase is None or seen is None or window is None:
        return f"expected samples of {what} under {kind}, found none{_error(run, column)}"
    lasted, loaded = window[1] - window[0], phase.result.seconds if phase.result else 0.0
    if lasted < WINDOW * loaded:
        return f"expected samples over {loaded:.1f} s of {kind}, found a window of {lasted:.2f} s"
    rows = run.rows(number, column)
    promised = lasted / run.doc.plan.sample_s if run.doc.plan and run.doc.plan.sample_s > 0 else 0.0
    read = _read(seen, column)
    found = f"found {read} of {promised:.0f}{_error(run, column)}"
    if read < max(LEAST_SAMPLES, LEAST_READ * promised):
        return f"expected {what} under {kind} throughout, {found}"
    early = sum(t < (window[0] + window[1]) / 2 for t, _ in rows)
    if not EACH_HALF <= early / max(len(rows), 1) <= 1 - EACH_HALF:
        halves = f"{early} samples in the first, {len(rows) - early} in the second"
        return f"expected {what} under {kind} in both halves of it, found {halves}"
    gap, most = _gap(seen, window, rows, column)
    if gap > most:
        return f"expected {what} under {kind} every {most:.0f} s, found {gap:.1f} s without"
    return ""


def _read(seen: WindowSeen, column: str) -> int:
    """Samples that have a reading of it, over all that were taken."""
    if seen.read:
        return seen.read.get(column, 0)
    values = seen.samples.get(column, [])
    known = sum(value is not None for value in values)
    return round(seen.taken * known / len(values)) if values else 0


def _gap(
    seen: WindowSeen, window: tuple[float, float], rows: Sequence[tuple[float, float]], column: str
) -> tuple[float, float]:
    """The longest time without a reading, and the longest that there may be."""
    if column in seen.gap_s:
        return seen.gap_s[column], MOST_GAP_S
    times = [window[0], *(t for t, _ in rows), window[1]]
    most = max(MOST_GAP_S, THINNED * (window[1] - window[0]) / max(len(rows), 1))
    return max(later - sooner for sooner, later in itertools.pairwise(times)), most


def _error(run: Run, column: str) -> str:
    why = (run.gpu.errors.get(column) if run.gpu else "") or run.doc.watch_problem
    return f" ({why})" if why else ""


def no_load(run: Run, number: int) -> str:
    """Why this GPU was under no load in a phase that should have been one; "" where it was."""
    phase = run.phase(number)
    seen = phase.seen if phase else None
    if phase is None or seen is None:
        return ""
    reasons = max(_read(seen, "reasons"), 1)
    if seen.reasons.get(f"{IDLE:#x}", 0) >= ALWAYS * reasons:
        return f"expected the GPU under load in {phase.kind}, found it idle (clock-event reasons)"
    busy = [value for _, value in run.rows(number, "utilisation")]
    if len(busy) >= LEAST_SAMPLES and max(busy) <= 0:
        return f"expected the GPU under load in {phase.kind}, found a utilisation of 0 % throughout"
    most = {gpu.bdf: gpu.phases[number] for gpu in run.doc.gpus if number < len(gpu.phases)}
    highs = {bdf: high for bdf, one in most.items() if (high := _highest_power(one)) is not None}
    own = highs.pop(run.gpu.bdf, None) if run.gpu else None
    if own is not None and highs and own < IDLE_POWER * statistics.median(highs.values()):
        told = f"{own:.0f} W at most, its peers {statistics.median(highs.values()):.0f} W"
        return f"expected the GPU under load in {phase.kind}, found the power of an idle one: {told}"
    return ""


def _highest_power(phase: StressPhase) -> float | None:
    span = phase.seen.spans.get("power_w") if phase.seen and phase.result else None
    return span.high if span else None


def highest(run: Run, number: int, column: str) -> float | None:
    """The highest value of a column in a phase, over all samples that were taken; None where there is none."""
    phase = run.phase(number)
    span = phase.seen.spans.get(column) if phase and phase.seen else None
    values = [value for _, value in run.rows(number, column)] + ([span.high] if span else [])
    return max(values, default=None)


def near_s(run: Run, number: int, limit: float) -> float:
    """Seconds of a phase at this temperature or above."""
    phase = run.phase(number)
    if phase and phase.seen and phase.seen.near_slowdown_s is not None:
        return phase.seen.near_slowdown_s
    rows = run.rows(number, "temperature_c")
    return sum(later - sooner for (sooner, value), (later, _) in itertools.pairwise(rows) if value >= limit)


def reasons(run: Run) -> tuple[str, str, str]:
    """Clock-event reasons beyond the benign ones over all phases, their detail, and why nobody knows.

    What was seen counts, whatever else is open; that there was nothing is only known where somebody looked throughout
    and there was a load. The first or the last is "".
    """
    if run.gpu is None:
        return "", "", run.why
    if run.gpu.refused:
        return "", "", f"not loaded: {run.gpu.refused}"
    seen: dict[int, int] = {}
    for phase in run.gpu.phases:
        for bit, count in _bits(phase.seen):
            seen[bit] = seen.get(bit, 0) + count
    told = {word: f"{word} in {seen[bit]} samples" for bit, word in REASONS.items() if bit in seen}
    for name, word in SLOWED.items():
        spent = _spent_s(run, name)
        if spent > 0:
            before = f"{told[word]}, " if word in told else f"{word} "
            told[word] = f"{before}{spent:.3g} s by NVML's counter"
    if told:
        return ", ".join(told), "; ".join(told.values()), ""
    strange = sorted(bit for bit in seen if bit not in REASONS and bit not in BENIGN)
    if strange:
        return "", "", f"expected clock-event reasons that are known, found {', '.join(f'{bit:#x}' for bit in strange)}"
    why = next(_unknown(run), "")
    return ("", "", why) if why else (GOOD_REASONS, "", "")


def _unknown(run: Run) -> Iterator[str]:
    assert run.gpu is not None
    for number in range(len(run.gpu.phases)):
        result = run.result(number)
        if isinstance(result, str):
            yield result
        elif why := unwatched(run, number, "reasons") or no_load(run, number):
            yield why


def _bits(seen: WindowSeen | None) -> Iterator[tuple[int, int]]:
    """Each reason that was seen, and in how many samples: what the crew counted, and what the kept samples show."""
    if seen is None:
        return
    counted: dict[int, int] = {}
    for value in seen.samples.get("reasons", []):
        mask = int(value or 0)
        for place in range(mask.bit_length()):
            if mask >> place & 1:
                counted[1 << place] = counted.get(1 << place, 0) + 1
    for name, count in seen.reasons.items():
        try:
            bit = int(name, 16)
        except ValueError:
            continue
        counted[bit] = max(count, counted.get(bit, 0))
    yield from ((bit, count) for bit, count in counted.items() if count > 0)


def _spent_s(run: Run, name: str) -> float:
    """By how much a counter of nanoseconds grew: over the whole run, or over its phases where that is more."""
    assert run.gpu is not None
    phases = sum(max(0, phase.seen.counted.get(name, 0)) for phase in run.gpu.phases if phase.seen)
    before, after = run.gpu.before.get(name), run.gpu.after.get(name)
    whole = after - before if before is not None and after is not None else 0
    return max(phases, whole) / 1e9
