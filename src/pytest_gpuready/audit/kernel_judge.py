"""Xids and SXids, judged: one finding per number and part, whatever the number of lines.

Hardware Xids fail, a program's own do not, history is no finding. A log can be cut without a trace, so nothing here
passes for an event that is absent: a log without any is observed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.kernel_events import KernelEvents, Tally
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.audit.xid_advice import advice
from pytest_gpuready.parse.kernel_log import APPLICATION, INFORMATION, Sxid, Xid

_INDEX = re.compile(r"\bGPU(\d{1,3})\b")
CLASS = "the Xid's class"


def xid_findings(events: KernelEvents, expect: Expectations, *, asked: bool) -> Iterator[Finding]:
    """Findings on Xids and SXids. `asked`: the reader was asked for them, so their absence is said."""
    warned: set[str] = set()
    counted = 0
    for (number, bdf), tally in sorted(events.xids.items()):
        if isinstance(tally.last, Xid):
            yield from _xid(number, bdf, tally, tally.last, events)
            counted += tally.inside
            if tally.last.kind == APPLICATION or tally.history:
                warned.add(bdf)
    for (number, bdf, _), tally in sorted(events.sxids.items()):
        if isinstance(tally.last, Sxid):
            yield _sxid(number, bdf, tally, tally.last)
            if not tally.last.fatal:
                warned.add(bdf)
    if events.sxids and not events.xids:
        yield Finding(
            metric="dmesg.xid", outcome="pass", value=0, source=CLASS, advice="the events are an NVSwitch's, no GPU's"
        )
    elif asked and not events.xids and not events.sxids:
        yield Finding(
            metric="dmesg.xid",
            outcome="observed",
            value=0,
            unit="Xids",
            advice=f"none in {events.records} lines, which may not be the whole log",
        )
    if events.xids and events.window is not None:
        yield Finding(metric="dmesg.events_in_window", outcome="observed", value=counted)
    if warned:
        yield Finding(metric="dmesg.warnings", outcome="observed", value=len(warned))
    lost = sorted({bdf for (number, bdf), t in events.xids.items() if number == 79 and t.inside + t.undated})
    expected = expect.count("expected_gpus")
    if lost and expected is not None:
        undated = all(not t.inside for (number, _), t in events.xids.items() if number == 79)
        named = ", ".join(f"GPU {bdf}" for bdf in lost)
        yield Finding(
            metric="inventory.gpu_count",
            outcome="not-measured" if undated else "fail",
            part=named,
            value=f"{len(lost)} lost",
            expected=str(expected),
            source=expect.source,
            suspect=f"{named} (seating, power, riser)",
        )
    for bdf, device in events.pci_ids.items():
        yield Finding(metric="gpu.pci_device_id", outcome="observed", part=f"GPU {bdf}", value=device)


def _xid(number: int, bdf: str, tally: Tally, last: Xid, events: KernelEvents) -> Iterator[Finding]:
    gpu = f"GPU {bdf}" if bdf else "a GPU without an address in the line"
    at_least = " at least" if events.limited else ""
    times = f"{tally.count} lines{at_least}" if tally.count > 1 or events.limited else "1 line"
    outcome: Outcome
    suspect, step = "", ""
    asks = number == 154 and "changed" in last.text and "(none)" not in last.text.lower().rpartition(" to ")[2]
    if tally.history == tally.count:
        outcome, step = "pass", f"{times}, all before the window: history"
        suspect = "application (user program), not hardware" if last.kind == APPLICATION else ""
    elif last.kind == APPLICATION:
        repeated = events.window is not None and tally.incidents > 1
        outcome = "fail" if repeated else "marginal" if events.window is not None else "pass"
        suspect = f"application (user program), not hardware; {gpu}"
        step = f"{times}; during our own tests it needs a closer look"
    elif asks:
        outcome, suspect = "fail", f"{gpu} asks for recovery: {last.text.rpartition(' to ')[2][:80]}"
        step = "do what it asks for; look for the Xid before it"
    elif last.kind == INFORMATION:
        outcome, step = "pass", f"{times}; a note, no error"
    else:
        outcome = "fail"
        suspect, step = advice(number, gpu, last.text)
        silent = number == 79 and "NVRM" in last.text and "Xid" not in last.text
        step = f"{times}{', without an Xid number: as Xid 79' if silent else ''}; {step}"
    if outcome in ("fail", "marginal") and not tally.inside:
        outcome, step = "not-measured", f"no date in the lines, so they may lie before the window; {step}"
    yield Finding(
        metric="dmesg.xid",
        outcome=outcome,
        part=gpu,
        value=number,
        unit=f"Xid, {last.meaning}",
        source=CLASS,
        suspect=suspect,
        advice=step,
    )
    named = _INDEX.search(last.text)
    if named:
        yield Finding(
            metric="gpu.index_in_text",
            outcome="observed",
            part=gpu,
            value=int(named[1]),
            advice="the driver's own number; go by the PCI address",
        )
    yield Finding(metric=f"dmesg.xid_{number}_count", outcome="observed", part=gpu, value=tally.count)


def _sxid(number: int, bdf: str, tally: Tally, last: Sxid) -> Finding:
    switch = f"NVSwitch {bdf}" if bdf else "an NVSwitch without an address in the line"
    port = f" port {last.link}" if last.link >= 0 else ""
    outcome: Outcome = "fail" if last.fatal else "pass"
    if tally.history == tally.count:
        outcome = "pass"
    elif outcome == "fail" and not tally.inside:
        outcome = "not-measured"
    return Finding(
        metric="dmesg.sxid",
        outcome=outcome,
        part=f"{switch}{port}",
        value=number,
        unit=f"SXid, {'fatal' if last.fatal else 'non-fatal'}, {tally.count} event{'s' if tally.count > 1 else ''}",
        source="the SXid's severity",
        suspect=f"{switch}{port}" if outcome != "pass" else f"none; watch {switch}{port}",
        advice="reset the fabric; replace the switch board if it comes back" if last.fatal else "",
    )
