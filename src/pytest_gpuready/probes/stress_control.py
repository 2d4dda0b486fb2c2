"""Whether a count of no errors is worth something: the engine's own check was seen to find a planted bit flip.

An engine of before `ENGINE` 2 made no such control and counted no turns of memory; its documents say so by the number
that they lack. Their counts stand, with a word that nobody controlled them. A newer one that leaves it out has measured
nothing.
"""

from __future__ import annotations

from pytest_gpuready.model.stress_doc import (
    CACHE_PATTERNS,
    SEEN,
    BurnResult,
    CacheResult,
    GemmResult,
    PatternResult,
    PulseResult,
)
from pytest_gpuready.parse.agent import quote
from pytest_gpuready.probes.stress_run import Run

SINCE = 2
"""The first engine that made controls."""
Counted = BurnResult | CacheResult | GemmResult | PatternResult | PulseResult
OLDER = "by an older engine"


def is_older(run: Run) -> bool:
    """True for a document of an engine that made no control yet."""
    return run.doc.engine < SINCE


def unproven(run: Run, found: Counted) -> str:
    """Why no errors in this result prove nothing; "" where its control was passed, or an older engine made none."""
    if found.control == SEEN:
        return ""
    if found.control:
        return f"the engine's own check did not see a planted bit flip: {quote(found.control)}"
    return "" if is_older(run) else "expected the engine to check itself with a planted bit flip, found that it did not"


def noted(run: Run, *found: Counted) -> str:
    """What a condition says about the control of these results."""
    if all(one.control == SEEN for one in found):
        return "a planted bit flip was seen"
    return f"no control by a planted bit flip ({OLDER})" if is_older(run) else "no control by a planted bit flip"


def unread(run: Run, found: CacheResult) -> str:
    """Which patterns this cache was not read under; "" where it was under all, or an older engine had others."""
    left = [name for name in CACHE_PATTERNS if name not in found.patterns]
    return "" if is_older(run) or not left else f"expected the cache read under {', '.join(left)} too, found it was not"


def no_traffic(run: Run, found: BurnResult) -> str:
    """Why nobody knows that memory was under load in a burn-in; "" where it was, or an older engine did not count."""
    if is_older(run) or (found.memory_turns > 0 and found.memory_bytes > 0):
        return ""
    return f"expected turns of memory that were compared between the products, found {found.memory_turns}"
