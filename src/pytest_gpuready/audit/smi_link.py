"""A GPU's PCIe link as nvidia-smi shows it: the width counts always, the speed only when the GPU was awake.

A sleeping GPU trains its link down to save power, so a low generation in a deep performance state or with the idle
reason set says nothing. What the link can reach at most is the lesser of device and slot; a host that could do more is
no shortfall of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.smi_values import SmiGpu

BUSY = 50
"""Per cent of utilization from which a GPU is taken as loaded."""
_GEN = "pcie.link.gen."
_WIDTH = "pcie.link.width."


def asleep(gpu: SmiGpu, under_load: bool | None) -> bool | None:
    """True where the text shows the GPU idle, False where it is awake or known to be loaded; None where neither."""
    state = gpu.word("pstate")
    deep = state[1:].isdecimal() and int(state[1:]) >= 5 if state.startswith("P") else None
    mask, idle = gpu.number("clocks_event_reasons.active"), gpu.word("clocks_event_reasons.gpu_idle")
    bit = bool(int(mask) & 1) if mask is not None else idle == "Active" if idle else None
    busy = gpu.number("utilization.gpu")
    if deep or bit:
        return True
    if busy is not None and busy >= BUSY:
        return False
    if deep is False or bit is False or under_load:
        return False
    return True if under_load is False else None


def link(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    """Findings on width and speed, where the text has them."""
    yield from _width(gpu, expect)
    yield from _speed(gpu, expect)


def _width(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    current, own = gpu.cells.get(_WIDTH + "current"), gpu.number(_WIDTH + "max")
    expected = expect.count("expected_pcie_width")
    if current is None:
        return
    wanted = expected if expected is not None else own
    width = current.number
    if width is None or width <= 0:
        yield _unread("pcie.width", "expected_pcie_width", gpu, current.text, expect)
        return
    outcome: Outcome = "observed" if wanted is None else "pass" if width >= wanted else "fail"
    yield Finding(
        metric="pcie.width",
        outcome=outcome,
        part=gpu.part,
        value=int(width),
        unit="lanes",
        expected="" if wanted is None else f">= {int(wanted)}",
        source=_source(expect, "expected_pcie_width", expected, wanted),
        suspect=f"slot, riser or connector of {gpu.part}" if outcome == "fail" else "",
    )


def _speed(gpu: SmiGpu, expect: Expectations) -> Iterator[Finding]:
    current = gpu.cells.get(_GEN + "current") or gpu.cells.get(_GEN + "gpucurrent")
    if current is None:
        return
    tops = {n: gpu.number(_GEN + n) for n in ("max", "gpumax", "hostmax")}
    for name, value in tops.items():
        if value is not None:
            yield Finding(metric=f"pcie.gen_{name}", outcome="observed", part=gpu.part, value=int(value))
    both = [v for n in ("gpumax", "hostmax") if (v := tops[n]) is not None]
    reach = tops["max"] if tops["max"] is not None else min(both) if both else None
    expected = expect.count("expected_pcie_gen")
    wanted = expected if expected is not None else reach
    gen = current.number
    if gen is None or gen <= 0:
        yield _unread("pcie.speed", "expected_pcie_gen", gpu, current.text, expect)
        return
    sleeping = asleep(gpu, expect.flag("under_load"))
    if sleeping is not None:
        yield Finding(metric="gpu.idle", outcome="observed", part=gpu.part, value="true" if sleeping else "false")
    suspect, advice = "", ""
    outcome: Outcome
    if wanted is None:
        outcome = "observed"
    elif gen >= wanted:
        outcome = "pass"
    elif reach is not None and reach < wanted:
        outcome, suspect = (
            "fail",
            f"slot, board or BIOS setting of {gpu.part}: the link reaches generation {int(reach)}",
        )
    elif sleeping is False:
        outcome, suspect = "fail", f"slot, riser or connector of {gpu.part}"
    else:
        outcome = "not-measured" if expect.asked("expected_pcie_gen") else "observed"
        advice = "the link sleeps while the GPU is idle; read it again during a copy"
    yield Finding(
        metric="pcie.speed",
        outcome=outcome,
        part=gpu.part,
        value=int(gen),
        unit="PCIe generation",
        expected="" if wanted is None else f">= {int(wanted)}",
        source=_source(expect, "expected_pcie_gen", expected, wanted),
        suspect=suspect,
        advice=advice,
    )


def _source(expect: Expectations, key: str, expected: int | None, wanted: float | None) -> str:
    return expect.source_of(key) if expected is not None else "the link's own maximum" if wanted is not None else ""


def _unread(metric: str, key: str, gpu: SmiGpu, text: str, expect: Expectations) -> Finding:
    expected = expect.count(key)
    return Finding(
        metric=metric,
        outcome="not-measured" if expect.asked(key) else "observed",
        part=gpu.part,
        value=text,
        expected="" if expected is None else f">= {expected}",
        source="" if expected is None else expect.source_of(key),
        suspect="the text has no number there",
    )
