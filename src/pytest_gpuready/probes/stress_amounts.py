"""How much was really loaded: shapes of products, formats of a burn-in, memory and caches under test.

The plan leaves the amounts to the worker, which takes less where memory is short and says so. Less than this is not
what was agreed: nothing is known of what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_gpuready.agent.stress.burn import MIX
from pytest_gpuready.agent.stress.formats import FORMATS, supported
from pytest_gpuready.agent.stress.memory import CHECK, TURN, sweeps
from pytest_gpuready.model.stress_doc import (
    BurnResult,
    CacheResult,
    GemmResult,
    PatternResult,
    Phase,
    PulseResult,
    Ready,
    Result,
)

LEAST = 0.9
"""Of the memory that a pattern should cover, this part must have been compared."""
ROUNDS = 100
"""A cache must have been read so many times over."""
L1_BYTES = 128 * 2**10
"""Of one multiprocessor, at least."""
APART = 0.03
"""NVML counts memory that CUDA does not give: no more than this part of it."""
BEFORE_2 = {"tf32": (8192, 8192, 16384)}
"""Shapes that engines before 2 had otherwise."""


def smaller(phase: Phase, result: Result, ready: Ready, engine: int) -> Iterator[str]:
    """Why this result of this engine is of less than the phase asked for, on the GPU of this worker."""
    if isinstance(result, GemmResult):
        yield from _shape(phase, result, engine)
    elif isinstance(result, BurnResult):
        expected = set(phase.formats or _mix(ready))
        found = {one.format for one in result.each}
        if found != expected:
            yield f"expected products of {', '.join(sorted(expected))}, found {', '.join(sorted(found))[:80] or 'none'}"
        for one in result.each:
            yield from _shape(phase, one, engine)
    elif isinstance(result, PulseResult) and (told := memory_notes(result)):
        yield f"expected pulses of products that fill the chip, found smaller ones ({told})"
    elif isinstance(result, CacheResult):
        least = ROUNDS * (ready.sms * L1_BYTES if result.level == "l1" else ready.l2_bytes)
        if 0 < result.checked_bytes < least:
            told = f"found {result.checked_bytes} bytes"
            yield f"expected the {result.level.upper()} cache compared {ROUNDS} times, {told}"


def _mix(ready: Ready) -> Sequence[str]:
    major, _, minor = ready.compute.partition(".")
    chip = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (8, 0)
    return [name for name in MIX if name in supported(chip)[0]]


def _shape(phase: Phase, result: GemmResult, engine: int) -> Iterator[str]:
    form = FORMATS.get(result.format)
    if form is None:
        yield f"expected a format that is known, found {result.format[:20]!r}"
        return
    m, n, k = BEFORE_2.get(result.format, form.shape) if engine < 2 else form.shape
    asked = (phase.m or m, phase.n or n, phase.k or k)
    found = (result.m, result.n, result.k)
    if found != asked:
        told = memory_notes(result)
        of, than = " x ".join(map(str, asked)), " x ".join(map(str, found))
        size = "smaller than asked" if math.prod(found) < math.prod(asked) else "not those asked for"
        yield f"expected {result.format} products of {of}, found {than}: {size}" + (f" ({told})" if told else "")


def memory_notes(result: Result) -> str:
    """What the worker says about memory that it did not get."""
    return "; ".join(note for note in result.notes if "asked for" in note or "not to be had" in note)


def checks(pattern: str) -> int:
    """How many times a pattern compares all memory in one round of its sweeps."""
    return sum(sweep.mode in (CHECK, TURN) for sweep in sweeps(pattern, 0, 1, 0.0))


def memory_bytes(ready: Ready, memory_mib: int) -> int:
    """How much memory the GPU has: what CUDA says, or NVML where that is more than the part CUDA never gives."""
    named = memory_mib * 2**20
    return named if ready.memory_bytes < (1 - APART) * named else ready.memory_bytes


def uncovered(phase: Phase, result: PatternResult, of_bytes: int, share: float) -> str:
    """Why this pattern did not cover the memory that the plan promised; "" where it did."""
    promised = phase.size_bytes or (phase.share or share) * of_bytes
    covered = result.checked_bytes / checks(result.pattern)
    if covered >= LEAST * promised:
        return ""
    told = memory_notes(result)
    return f"expected pattern {result.pattern} over {promised / 1e9:.1f} GB, found it over {covered / 1e9:.1f} GB" + (
        f" ({told})" if told else ""
    )
