"""Documents of the built-in engine that cannot be: another plan, other GPUs, results that contradict themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytest_gpuready.model.stress_doc import (
    COOL,
    RESULTS,
    AllocResult,
    BurnResult,
    GemmResult,
    LatencyResult,
    Phase,
    Plan,
    PulseResult,
    Result,
    StressDoc,
    StressGpu,
)

SAME = ("format", "level", "kernel", "pattern")
"""What a result says as well as its phase: it must be the same."""
LATE_S = 0.05
"""So far may the clock of the GPU be from that of the host over a phase."""
FAR = 0.5
"""Operations over seconds must come this near to the rate that is said."""


def stress_contradiction(document: StressDoc, command: Sequence[str], *, late: bool) -> str:
    """What a document of "stress" cannot be, given the command that it answers and whether it came too late."""
    if document.problem and not document.gpus:
        return ""
    at = command.index("stress") + 1 if "stress" in command else len(command)
    return next(_wrong(document, "".join(command[at : at + 1]), list(command[at + 1 :]), late), "")


def _wrong(document: StressDoc, plan: str, bdfs: list[str], late: bool) -> Iterator[str]:
    if document.plan is None or document.plan != _plan(plan):
        yield "expected the results of the plan that was asked for, found those of another"
        return
    if late and not document.ended_early:
        yield "expected a run that was ended early, as the deadline has passed, found one that ended by itself"
    found = [gpu.bdf for gpu in document.gpus]
    if found != bdfs:
        yield f"expected GPUs {', '.join(bdfs)[:120]}, found {', '.join(found)[:120] or 'none'}"
    phases = document.plan.phases
    for gpu in document.gpus:
        if [(one.phase, one.kind) for one in gpu.phases] != [(at, phase.kind) for at, phase in enumerate(phases)]:
            yield f"expected {len(phases)} phases of {gpu.bdf} as planned, found {len(gpu.phases)} of another kind"
            continue
        for at, phase in enumerate(phases):
            yield from _phase(gpu, at, phase)
    yield from _windows(document)


def _plan(text: str) -> Plan | None:
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, RecursionError):
        return None


def _windows(document: StressDoc) -> Iterator[str]:
    """Windows follow each other; results without one were not measured with the others."""
    end = 0.0
    for window in document.windows:
        if not (math.isfinite(window.begin) and end <= window.begin + 1e-3 and window.begin <= window.end):
            yield f"expected windows one after the other, found phase {window.phase} from {window.begin:g} s"
        end = window.end
    seen = {window.phase for window in document.windows}
    for gpu in document.gpus:
        odd = next((one.phase for one in gpu.phases if one.result and one.phase not in seen), None)
        if odd is not None:
            yield f"expected a window of phase {odd}, found a result without one"


def _phase(gpu: StressGpu, at: int, phase: Phase) -> Iterator[str]:
    """What is wrong about one phase of one GPU."""
    one = gpu.phases[at]
    where = f"phase {at} ({phase.kind}) of {gpu.bdf}"
    kinds = [name for name in (*RESULTS, COOL) if getattr(one, name) is not None]
    if kinds not in ([], [phase.kind]):
        yield f"expected a result of kind {phase.kind} in {where}, found {', '.join(kinds)}"
    result = one.result
    if result is None:
        if not (one.problem or gpu.refused or gpu.problem or gpu.stopped):
            yield f"expected a result of {where} or the reason for none, found neither"
        return
    for odd in _odd(msgspec.to_builtins(result), ""):
        yield f"expected numbers from 0 on in {where}, found {odd}"
    for name in SAME:
        wanted = getattr(phase, name)
        if wanted and getattr(result, name, wanted) != wanted:
            yield f"expected {name} {wanted} in {where}, found {str(getattr(result, name))[:40]!r}"
    for why in _result(result):
        yield f"{where}: {why}"


def _result(result: Result) -> Iterator[str]:
    errors, count = getattr(result, "errors", []), getattr(result, "error_count", 0)
    if len(errors) > count:
        yield f"expected at least {len(errors)} errors, found a count of {count}"
    if count and not errors:
        yield f"expected the first of {count} errors with its place, found none"
    if isinstance(result, AllocResult) and not 0 < result.share <= 1:
        yield f"expected a share of the memory between 0 and 1, found {result.share:g}"
    if isinstance(result, LatencyResult):
        walked_s = result.steps * (sum(result.host_ns) + sum(result.device_ns)) / 1e9
        if walked_s > result.seconds + LATE_S:
            yield f"expected steps that fit into {result.seconds:.3f} s, found {walked_s:.3f} s of them"
    if isinstance(result, GemmResult):
        yield from _products(result)
    if isinstance(result, BurnResult):
        if result.passes != sum(one.passes for one in result.each):
            yield f"expected as many products in all as of each format, found {result.passes}"
        for one in result.each:
            yield from _products(one)
    if isinstance(result, PulseResult) and result.late_max_s > result.period_s > 0 and not result.cut:
        yield f"expected pulses in step, found one {result.late_max_s:.2f} s late"


def _products(result: GemmResult) -> Iterator[str]:
    """Operations, products and rates of a format must fit each other."""
    flop = 2.0 * result.m * result.n * result.k * result.passes
    if abs(result.flop - flop) > 1e-6 * max(flop, 1.0):
        yield f"expected {flop:.4g} operations of {result.passes} products, found {result.flop:.4g}"
    if result.passes and result.checked != result.passes * result.m * result.n:
        yield f"expected every element of {result.passes} products compared, found {result.checked}"
    if result.cut or not result.sustained_tflops or result.seconds <= 0:
        return
    if not result.tflops or not min(result.tflops) <= result.sustained_tflops <= max(result.tflops):
        yield f"expected a sustained rate among those of its windows, found {result.sustained_tflops:g}"
    mean = result.flop / result.seconds / 1e12
    if not (1 - FAR) * mean <= result.sustained_tflops <= (1 + FAR) * mean:
        yield f"expected a rate near {mean:.1f} (operations over time), found {result.sustained_tflops:.1f}"


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
