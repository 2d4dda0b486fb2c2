"""Xids of a load under the built-in engine: whom they concern, and whether anybody listened for them to the end.

An Xid that names a GPU of this run concerns that GPU alone: its own cells fail, whether or not anything was measured
on it. One that names no GPU, or none of this run, may be any of them, and a fatal SXid is of the fabric: all fail.

There are two sources. NVML's events have the critical Xids and say whose they are; the kernel log has those too, the
rest, and SXids. One of them that was there for the whole of a load suffices, and it is said which: what only the log
has leaves traces that are read apart from it (ECC counters around the load, remapped rows, links and recovery action
after it, NVML's own answer that a GPU is lost while it lasts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_gpuready.model.stress_doc import StressDoc
from pytest_gpuready.parse.kernel_log import XIDS, sxids, xids
from pytest_gpuready.probes.kernel_events import name
from pytest_gpuready.probes.watched import same_function

HARDWARE = "hardware"
NO_EVENTS = re.compile(r"no (?:more )?Xid events from NVML(?: for (?P<bdf>[0-9A-Fa-f:.]+))?: [A-Za-z0-9_]+")
"""What the watch notes where NVML gives no events, of one GPU or at all; anything else means that it broke itself."""
NOBODY = "a GPU that the driver did not name"


@dataclass(frozen=True, slots=True)
class Heard:
    """Hardware Xids and fatal SXids in words: those that concern a GPU, and those that are another one's.

    `numbers` are the Xids of the first.
    """

    alarms: tuple[str, ...]
    numbers: tuple[int, ...]
    others: tuple[str, ...]


def heard(doc: StressDoc, bdf: str) -> Heard:
    """What was heard meanwhile, as it concerns the GPU at this address."""
    here = {same_function(gpu.bdf) for gpu in doc.gpus} - {""}
    mine: dict[str, int] = {}
    others: dict[str, None] = {}
    for number, owner, said in _xids(doc):
        if owner in here and owner != same_function(bdf):
            others[f"{said} (another GPU)"] = None
        else:
            mine[said] = number
    fatal = dict.fromkeys(f"fatal {name(event)}" for event in sxids(doc.log) if event.fatal)
    return Heard((*mine, *fatal), tuple(mine.values()), tuple(others))


def _xids(doc: StressDoc) -> Iterator[tuple[int, str, str]]:
    """Number, address and words of every hardware Xid; one that both sources have is told once, as the log has it."""
    logged = [xid for xid in xids(doc.log) if xid.hardware]
    known = {(xid.number, same_function(xid.bdf)) for xid in logged}
    yield from ((xid.number, same_function(xid.bdf), name(xid)) for xid in logged)
    for event in doc.xids:
        owner = same_function(event.bdf)
        if XIDS.get(event.xid, (HARDWARE,))[0] == HARDWARE and (event.xid, owner) not in known:
            yield event.xid, owner, f"Xid {event.xid} of {event.bdf or NOBODY}"


def sources(doc: StressDoc, bdf: str) -> tuple[str, str]:
    """Which source alone told of Xids, and why nobody did: at most one of both is not "".

    A watch that broke is no source of the one kind or the other: it did not only miss Xids.
    """
    events = _events(doc.watch_problem, bdf)
    if events is None:
        return "", f"nobody watched to the end: {doc.watch_problem}"
    if events and doc.log_problem:
        return "", f"neither source was there to the end: {events}; no kernel log: {doc.log_problem}"
    if events:
        return f"Xids by the kernel log alone ({events})", ""
    if doc.log_problem:
        return f"Xids by NVML's events alone (no kernel log: {doc.log_problem})", ""
    return "", ""


def _events(problem: str, bdf: str) -> str | None:
    """Why NVML gave no events of this GPU to the end, "" where it did; None where the watch itself did not go on."""
    if not problem:
        return ""
    notes = [NO_EVENTS.fullmatch(part) for part in problem.split("; ")]
    if None in notes:
        return None
    about = (note for note in notes if note and note["bdf"] in (None, bdf))
    return "; ".join(note[0] for note in about)
