"""Xids and SXids in words, and whether a kernel log without any proves that there was none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_gpuready.model.agent_doc import KernelLog
from pytest_gpuready.parse.kernel_log import NOT_STARTED, Sxid, Xid


def doubt(log: KernelLog) -> str:
    """Why this log proves no absence; "" where it holds all of this boot."""
    if log.problem:
        return f"expected the kernel log since boot, found: {log.problem}"
    if log.total_lines < 1:
        return f"expected the kernel log since boot, found {log.total_lines} lines from {log.source or 'nowhere'}"
    if not log.complete:
        return (
            f"expected the kernel log since boot, found {log.total_lines} lines from {log.source} with gaps, without "
            "their beginning or with more errors than are kept; make the ring larger (log_buf_len) or keep the "
            "journal, and reboot the node"
        )
    return ""


def tell(events: Sequence[Xid | Sxid]) -> str:
    """ "Xid 119 GSP time-out x4 at 18.2 s": one phrase a number, with the first time; at most eight phrases."""
    first: dict[str, float] = {}
    count: Counter[str] = Counter()
    for event in events:
        phrase = name(event)
        first.setdefault(phrase, event.t)
        count[phrase] += 1
    told = [f"{phrase}{f' x{count[phrase]}' if count[phrase] > 1 else ''} at {t:.1f} s" for phrase, t in first.items()]
    return ", ".join(told[:8]) + (f", and {len(told) - 8} more" if len(told) > 8 else "")


def name(event: Xid | Sxid) -> str:
    """Number, meaning and whose it is."""
    if isinstance(event, Xid):
        meaning = "" if event.number == NOT_STARTED else f" {event.meaning}"
        return f"{short(event)}{meaning} on {event.bdf or 'an unknown address'}"
    return (
        f"SXid {event.number} on NVSwitch {event.bdf or '(unknown)'}{f' link {event.link}' if event.link >= 0 else ''}"
    )


def short(xid: Xid) -> str:
    """ "Xid 79"; in words where the driver gave no number."""
    return xid.meaning if xid.number == NOT_STARTED else f"Xid {xid.number}"
