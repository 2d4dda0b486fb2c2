"""Whether a document of the copies measures anything at all, and how many bytes it found to be wrong.

A document that contradicts itself, lost its watch or stopped half way has no good half: a problem counts for all of
its metrics. Wrong bytes are the one thing that is known whatever else is missing.
"""

from __future__ import annotations

import math
import statistics

from pytest_gpuready.model.agent_doc import CopiesDoc, CopyDoc, WatchDoc
from pytest_gpuready.probes.watched import log_alarms

KINDS = ("h2d", "d2h", "bidirectional")
LEAST_REPEATS = 3
LEAST_BUFFER = 16 * 2**20
LEAST_MOVED = 10**9
"""Bytes: less of either loads no link, and no error rate can be read off it."""
DIFFER = "bytes differ"
ECC = "ecc_uncorrected_volatile"


def wrong_bytes(doc: CopiesDoc) -> int:
    """Bytes that did not arrive as they were sent, of the comparison that found most; 1 where nobody counted them."""
    differ = doc.problem.startswith(DIFFER) or any(not copy.verified for copy in doc.copies)
    return max([int(differ), *(copy.wrong_bytes or 0 for copy in doc.copies)])


def doubt(doc: CopiesDoc) -> str:
    """Why nothing in this document is a measurement; "" where it is sound."""
    wrong = wrong_bytes(doc)
    if wrong and not doc.problem.startswith(DIFFER):
        return f"{DIFFER}: expected every byte to arrive as it was sent, found {wrong} or more wrong"
    if doc.problem:
        return doc.problem
    kinds = sorted(copy.kind for copy in doc.copies)
    if kinds != sorted(KINDS):
        return f"expected the copies {', '.join(KINDS)}, found {', '.join(kinds)[:80] or 'none in the document'}"
    unsound = next(filter(None, map(_unsound, doc.copies)), "") or _too_little(doc)
    if unsound:
        return unsound
    if doc.watch is None:
        return "expected a watch around the copies, found none in the document"
    return _unwatched(doc.watch, doc.bdf, readable=doc.log_after is None or not doc.log_after.problem)


def _unsound(copy: CopyDoc) -> str:
    """What about one copy cannot be."""
    what = f"the copy {copy.kind}"
    if copy.size_bytes <= 0 or copy.moved_bytes <= 0:
        return f"expected bytes moved by {what}, found {copy.moved_bytes} in pieces of {copy.size_bytes}"
    if (copy.wrong_bytes or 0) < 0:
        return f"expected 0 or more wrong bytes of {what}, found {copy.wrong_bytes}"
    if len(copy.repeats) < LEAST_REPEATS:
        return f"expected at least {LEAST_REPEATS} repeats of {what}, found {len(copy.repeats)}"
    bad = [rate for rate in copy.repeats if not (math.isfinite(rate) and rate > 0)]
    if bad:
        return f"expected rates above 0 GB/s of {what}, found {bad[0]:g}"
    middle = statistics.median(copy.repeats)
    if not math.isclose(copy.gb_per_s, middle, rel_tol=1e-6):
        return f"expected the median of the repeats of {what}, {middle:.6g} GB/s, found {copy.gb_per_s:.6g}"
    return ""


def _too_little(doc: CopiesDoc) -> str:
    """Why these copies loaded nothing."""
    small = next((copy for copy in doc.copies if copy.size_bytes < LEAST_BUFFER), None)
    if small:
        least = LEAST_BUFFER // 2**20
        return f"expected buffers of at least {least} MiB for the copy {small.kind}, found {small.size_bytes} bytes"
    moved = sum(copy.moved_bytes for copy in doc.copies)
    if moved < LEAST_MOVED:
        return f"expected copies of at least {LEAST_MOVED / 1e9:g} GB in all, found {moved / 1e9:.3g} GB"
    return ""


def _unwatched(seen: WatchDoc, bdf: str, *, readable: bool) -> str:
    """What the watch missed. An alarm in what it did read fails the measurements: then nothing is excused.

    Where the kernel log can never be read (`readable` is False) its own clauses say so, and the copies keep their
    numbers.
    """
    if log_alarms(seen.log, bdf):
        return ""
    if ECC not in seen.before or ECC not in seen.after:
        why = seen.errors.get(ECC) or seen.errors.get("sampler") or seen.errors.get("nvml") or "no reading"
        return f"expected the counter of uncorrected ECC errors before and after the copies, found {why}"
    before, after = seen.before[ECC], seen.after[ECC]
    if not 0 <= before <= after:
        return (
            f"expected the counter of uncorrected ECC errors to stand or grow, found {before} then {after}: "
            "something reset it"
        )
    if seen.log_problem and readable:
        return f"the kernel log could not be read meanwhile: {seen.log_problem}"
    return ""
