"""Documents of the built-in engine that cannot be: another plan, other GPUs, windows that do not follow each other.

Only what spoils the whole document is told here. What cannot be of one GPU, or of one phase of it, costs that GPU:
see `model.stress_checks` and whoever reads the document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from pytest_gpuready.model.stress_doc import Plan, StressDoc

CLOCKS_S = 1.0
"""So far may what was measured end after the run, by the rounding of their times and the work around it."""


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
    yield from _windows(document)


def _plan(text: str) -> Plan | None:
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, RecursionError):
        return None


def _windows(document: StressDoc) -> Iterator[str]:
    """Windows follow each other within the run; results without one were not measured with the others."""
    end = 0.0
    for window in document.windows:
        if not (math.isfinite(window.begin) and end <= window.begin + 1e-3 and window.begin <= window.end):
            yield f"expected windows one after the other, found phase {window.phase} from {window.begin:g} s"
        end = window.end
    if not end <= document.seconds + CLOCKS_S:
        yield f"expected windows within the {document.seconds:g} s of the run, found one that ends at {end:g} s"
    seen = [window.phase for window in document.windows]
    if len(set(seen)) != len(seen):
        yield "expected one window of each phase, found several"
    for gpu in document.gpus:
        odd = next((one.phase for one in gpu.phases if one.result and one.phase not in seen), None)
        if odd is not None:
            yield f"expected a window of phase {odd}, found a result without one"
