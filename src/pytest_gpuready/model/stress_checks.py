"""What the result of one phase of one GPU cannot be, and what it is not good for: pure questions to its own numbers.

`doubts` are lies: numbers that nothing can have, counts without places, operations, products and rates that deny each
other, a load that was shorter than it had to be. `unfit` is an honest result of something else than was asked for: it
began late, its pulses were not in step, there was too little of it. Either way nothing was measured; only the first
says that whoever told it is not to be believed any further.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

import msgspec

from pytest_gpuready.model.stress_work import (
    COOL,
    RESULTS,
    AllocResult,
    BurnResult,
    CacheResult,
    GemmResult,
    HbmResult,
    LatencyResult,
    PatternResult,
    Phase,
    PulseResult,
    Result,
)

SAME = ("format", "level", "kernel", "pattern", "period_s", "duty")
"""What a result says as well as its phase: it must be the same."""
LASTING = frozenset({"gemm", "burn", "pulse", "idle"})
"""Kinds that last as long as they were told to."""
EARLY, EARLY_S = 0.1, 0.5
"""By this part of what was asked for, and by no more than so much, may a phase be shorter that says it was not cut."""
CLOCKS_S = 0.05
"""So far may the clock of the GPU be from that of the host over a phase."""
FAR = 0.5
"""Two ways to the same number must come this near to each other, as a part of it."""
SURE = 2.0
"""A GPU that knew its rate goes on until all do: what it knew then may be so many times as wide at the end."""
LATE_S = 5.0
"""A load that began so much later than it was told was not under way with the others."""
LEAST_HBM_BYTES, SMALLEST_HBM_BYTES = 2**30, 2**28
"""A bandwidth over less may be that of a cache; with a note that memory was short, less than the second."""
LEAST_PRODUCT = 512 * 512
"""Elements of the smallest product."""
LOADED, LOADED_FROM_S = 0.5, 60.0
"""Of a burn-in of at least so many seconds this part must have been products."""
REFERENCES = frozenset({"freivalds", "recomputed", "freivalds+recomputed"})


def doubts(phase: Phase, result: Result) -> Iterator[str]:
    """Why this cannot be the result of that phase; nothing where it can."""
    wanted = RESULTS.get(phase.kind)
    if wanted is not None and type(result) is not wanted:
        yield f"expected a result of kind {phase.kind}, found {type(result).__name__}"
        return
    yield from impossible(result)
    for name in SAME:
        asked = getattr(phase, name)
        if asked and getattr(result, name, asked) != asked:
            yield f"expected {name} {asked}, found {str(getattr(result, name))[:40]!r}"
    if phase.kind != COOL:
        yield from _lasted(phase, result)
    if isinstance(result, AllocResult) and not 0 < result.share <= 1:
        yield f"expected a share of the memory between 0 and 1, found {result.share:g}"
    if isinstance(result, LatencyResult):
        walked_s = result.steps * (sum(result.host_ns) + sum(result.device_ns)) / 1e9
        if walked_s > result.seconds + CLOCKS_S:
            yield f"expected steps that fit into {result.seconds:.3f} s, found {walked_s:.3f} s of them"
    if isinstance(result, CacheResult | PatternResult):
        yield from _words(result)
    if isinstance(result, HbmResult) and not (result.cut or result.enough) and len(result.gb_per_s) < phase.repeats:
        yield f"expected {phase.repeats} repeats, found {len(result.gb_per_s)}"
    if isinstance(result, GemmResult):
        yield from _products(result)
    if isinstance(result, BurnResult):
        yield from _turns(phase, result)


def impossible(result: Result) -> Iterator[str]:
    """Numbers and errors that no result can have; one without these is believed where it says that a GPU is wrong."""
    for odd in _odd(msgspec.to_builtins(result), ""):
        yield f"expected numbers from 0 on, found {odd}"
    errors, count = getattr(result, "errors", []), getattr(result, "error_count", 0)
    if len(errors) > count:
        yield f"expected at least {len(errors)} errors, found a count of {count}"
    if count and not errors:
        yield f"expected the first of {count} errors with its place, found none"


def unfit(phase: Phase, result: Result, place: int = 0) -> Iterator[str]:
    """Why nothing was measured by it although it may be true. `place`: which GPU of the node, from 0."""
    if result.late_s > LATE_S:
        yield f"expected the load to begin with the others, found it {result.late_s:.1f} s late"
    if isinstance(result, HbmResult):
        short = any("not to be had" in note for note in result.notes)
        if result.size_bytes < (SMALLEST_HBM_BYTES if short else LEAST_HBM_BYTES):
            yield f"expected at least {LEAST_HBM_BYTES / 2**30:g} GiB for a bandwidth, found {result.size_bytes} bytes"
    if isinstance(result, PulseResult) and not result.cut:
        yield from _pulses(phase, result, place)
    if isinstance(result, BurnResult) and not result.cut and result.seconds >= LOADED_FROM_S:
        worked_s = sum(one.seconds for one in result.each)
        if worked_s < LOADED * result.seconds:
            yield f"expected {result.seconds:.0f} s full of products, found {worked_s:.1f} s of them"


def _pulses(phase: Phase, result: PulseResult, place: int) -> Iterator[str]:
    if result.late_max_s > result.period_s > 0:
        yield f"expected pulses in step, found one {result.late_max_s:.3g} s late: pulses not in step"
    period = phase.period_s or result.period_s
    fit = int((phase.seconds - place * phase.stagger_s) / period + 1e-6) if period > 0 else 0
    if result.cycles < 0.9 * fit - 1e-6 and result.cycles < fit - 1:
        yield f"expected {fit} pulses of {period:g} s in {phase.seconds:g} s, found {result.cycles}"
    elif result.cycles > 0 and result.checked < result.cycles * LEAST_PRODUCT:
        yield f"expected a product of each of {result.cycles} pulses compared, found {result.checked} elements"


def _lasted(phase: Phase, result: Result) -> Iterator[str]:
    """A load that was not cut lasted as long as it was asked to, or was known well enough."""
    if result.enough and not phase.within:
        yield f"expected {phase.seconds:g} s of load, found its end as if it had been told to"
    if result.cut or not (phase.kind in LASTING or phase.within > 0):
        return
    asked_s = phase.least_s if result.enough else phase.seconds
    # A last period of a pulse that would not fit is not begun.
    least = asked_s - phase.period_s - min(EARLY_S, EARLY * asked_s)
    if result.seconds < least:
        yield f"expected {asked_s:g} s of load, found its end after {result.seconds:.1f} s"
    if phase.seconds and result.seconds > phase.seconds + phase.grace_s:
        yield f"expected at most {phase.seconds + phase.grace_s:g} s of load, found {result.seconds:.1f} s"
    if result.enough and phase.within and isinstance(result, GemmResult | HbmResult):
        width = result.half_width
        if width is None or width > SURE * phase.within:
            told = "no interval" if width is None else f"{100 * width:.3g} %"
            yield f"expected its rate known to within {100 * phase.within:g} % at such an end, found {told}"


def _words(result: CacheResult | PatternResult) -> Iterator[str]:
    """What was compared fits the rate and the time."""
    most = result.gb_per_s * 1e9 * (result.seconds + CLOCKS_S) * (1 + FAR)
    if result.cut or not result.gb_per_s or result.checked_bytes <= 0:
        return
    if result.checked_bytes > most:
        yield f"expected at most {most:.3g} bytes compared in {result.seconds:.3f} s, found {result.checked_bytes}"
    if isinstance(result, CacheResult):
        least = result.gb_per_s * 1e9 * max(0.0, result.seconds - CLOCKS_S) * (1 - FAR)
        if result.checked_bytes < least:
            found = result.checked_bytes
            yield f"expected at least {least:.3g} bytes compared in {result.seconds:.3f} s, found {found}"


def _products(result: GemmResult) -> Iterator[str]:
    """Operations, products and rates of a format must fit each other, and the reference its count of errors."""
    where = f"{result.format}: " if result.format else ""
    flop = 2.0 * result.m * result.n * result.k * result.passes
    if abs(result.flop - flop) > 1e-6 * max(flop, 1.0):
        yield f"{where}expected {flop:.4g} operations of {result.passes} products, found {result.flop:.4g}"
    if result.passes and result.checked != result.passes * result.m * result.n:
        yield f"{where}expected every element of {result.passes} products compared, found {result.checked}"
    reference = result.reference
    if reference is not None:
        if reference.kind not in REFERENCES:
            yield f"{where}expected a reference that is known, found {reference.kind[:40]!r}"
        if reference.limit > 1:
            yield f"{where}expected a residual as a part of its limit, found a limit of {reference.limit:g}"
        if not result.error_count and reference.max_residual > reference.limit:
            yield (
                f"{where}expected wrong elements counted at a residual of {reference.max_residual:.3g} (limit "
                f"{reference.limit:g}), found none"
            )
    if result.cut or not result.sustained_tflops or result.seconds <= 0:
        return
    if not result.tflops or not min(result.tflops) <= result.sustained_tflops <= max(result.tflops):
        yield f"{where}expected a sustained rate among those of its windows, found {result.sustained_tflops:g}"
        return
    mean, over = statistics.fmean(result.tflops), result.flop / result.seconds / 1e12
    if not (1 - FAR) * over <= mean <= (1 + FAR) * over:
        yield f"{where}expected rates near {over:.1f} (operations over time), found {mean:.1f}"


def _turns(phase: Phase, result: BurnResult) -> Iterator[str]:
    """The whole of a burn-in is what its formats are together."""
    if result.passes != sum(one.passes for one in result.each):
        yield f"expected as many products in all as of each format, found {result.passes}"
    if result.checked != sum(one.checked for one in result.each):
        yield f"expected as many elements compared in all as of each format, found {result.checked}"
    counted = sum(one.error_count for one in result.each)
    if result.error_count < counted:
        yield f"expected at least the {counted} errors of its formats, found {result.error_count}"
    names = [one.format for one in result.each]
    if len(set(names)) != len(names) or (phase.formats and not set(names) <= set(phase.formats)):
        yield f"expected each of its formats once, found {', '.join(names)[:80]}"
    worked_s = sum(one.seconds for one in result.each)
    if worked_s > result.seconds + len(names) * CLOCKS_S + 0.01 * result.seconds:
        yield f"expected products that fit into {result.seconds:.1f} s, found {worked_s:.1f} s of them"
    for one in result.each:
        yield from _products(one)


def _odd(value: Any, name: str) -> Iterator[str]:
    """Numbers that nothing can have; the pass of an error may be -1, before the first."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _odd(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _odd(inner, name)
    elif isinstance(value, float | int) and not math.inf > value >= (-1 if name == "pass_number" else 0):
        yield f"{name} {value!r}"[:60]
