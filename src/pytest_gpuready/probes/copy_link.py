"""The link and the clocks while data moved, from the samples of the watch.

A few samples prove nothing: half of what the phases promise must be there, and some of every phase.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_gpuready.model import Node, ProblemKind
from pytest_gpuready.model.agent_doc import CopiesDoc, WatchDoc
from pytest_gpuready.probes.copy_answer import Missing, OneAnswer, Reading
from pytest_gpuready.probes.copy_doubts import KINDS
from pytest_gpuready.probes.pcie_link import SPEEDS, hops
from pytest_gpuready.probes.watched import REASONS, under_load

LEAST_SAMPLES = 8
LEAST_IN_A_PHASE = 3
HIGHEST = {"generation": max(SPEEDS), "width": 32, "reasons": 2**64 - 1}
"""Column -> the highest number that can be; the lowest of a link is 1."""

SLOWED = 0x8 | 0x20 | 0x40 | 0x80
"""Clock-event reasons that copies must not meet: slowdown by hardware, heat, power brake. Copies leave the SMs idle, so
low clocks and the power cap say nothing here."""


def link(column: str) -> Callable[[CopiesDoc, Node], OneAnswer]:
    """The lowest value of a link column under load."""

    def read(doc: CopiesDoc, _: Node) -> OneAnswer:
        found = loaded(doc.watch, column)
        if isinstance(found, Missing):
            return found
        low = min(found)
        other = sorted(set(found) - {low})
        detail = ""
        if other:
            detail = f"{low} in {found.count(low)} of {len(found)} samples, else {', '.join(map(str, other))}"
        return Reading(low, detail=detail, conditions=f"{len(found)} samples under load")

    return read


def loaded(seen: WatchDoc | None, column: str) -> list[int] | Missing:
    """Samples of a column under load as whole numbers, enough of them to say something."""
    if seen is None:
        return Missing("expected copies under a watch, found none in the document")
    each = {kind: under_load(seen, column, [kind]) for kind in KINDS}
    found = [value for values in each.values() for value in values]
    lowest, highest = (0 if column == "reasons" else 1), HIGHEST[column]
    odd = [value for value in found if not (value.is_integer() and lowest <= value <= highest)]
    if odd:
        return Missing(f"expected whole numbers from {lowest} to {highest} as {column} under load, found {odd[0]:g}")
    promised = sum(end - start for name, start, end in seen.phases if name in KINDS) / seen.period_s
    least = max(LEAST_SAMPLES, round(promised / 2))
    if len(found) >= least and all(len(values) >= LEAST_IN_A_PHASE for values in each.values()):
        return [int(value) for value in found]
    why = seen.errors.get(column) or seen.errors.get("sampler") or seen.errors.get("nvml")
    told = ", ".join(f"{kind} {len(values)}" for kind, values in each.items())
    return Missing(
        f"expected at least {least} samples of {column} under load, {LEAST_IN_A_PHASE} in each phase, "
        f"found {len(found)} ({told})" + (f"; NVML: {why}" if why else "")
    )


def slot(doc: CopiesDoc, _: Node) -> OneAnswer:
    """The generation that card and slot can both do."""
    found = doc.pcie_generation_max
    if found is None:
        why = doc.watch.errors.get("pcie_generation_max") if doc.watch else None
        kind = ProblemKind.NO_SUCH_THING if why == "NotSupported" else ProblemKind.NOT_MEASURED
        return Missing(f"expected the highest PCIe generation of card and slot from NVML, found {why or 'none'}", kind)
    if found not in SPEEDS:
        return Missing(f"expected PCIe generation 1 to {max(SPEEDS)} of card and slot, found {found}")
    device = doc.pcie_generation_max_device
    return Reading(found, detail=f"the card alone can do {device}" if device else "")


def path(doc: CopiesDoc, node: Node) -> OneAnswer:
    """Theory of the narrowest link from the GPU up to the root port."""
    if node.virtual:
        return Missing("a virtual machine shows no bridge of the machine it runs on", ProblemKind.HIDDEN)
    if not doc.path:
        return Missing("sysfs shows no bridge above the GPU", ProblemKind.HIDDEN)
    generations, widths = loaded(doc.watch, "generation"), loaded(doc.watch, "width")
    if isinstance(generations, Missing):
        return generations
    if isinstance(widths, Missing):
        return widths
    found = hops(min(generations), min(widths), doc.path)
    if isinstance(found, str):
        return Missing(found)
    narrow = min(found, key=lambda hop: hop.gb_per_s)
    return Reading(
        round(narrow.gb_per_s, 3),
        detail=f"narrowest of {len(found)}: {narrow}",
        conditions="theory per direction, read during a copy",
        unit="GB/s",
    )


GOOD_REASONS = "none but benign"
THROTTLED = {
    "throttle_sw_thermal_ns": "SW thermal slowdown",
    "throttle_hw_thermal_ns": "HW thermal slowdown",
    "throttle_power_brake_ns": "HW power brake",
}
"""Counter of nanoseconds for which clocks were held -> the reason; it also knows what fell between two samples."""


def reasons(doc: CopiesDoc, _: Node) -> OneAnswer:
    """Clock-event reasons that any sample of a load phase shows, also its first, or that their own counters know."""
    found = loaded(doc.watch, "reasons")
    if isinstance(found, Missing) or doc.watch is None:
        return found if isinstance(found, Missing) else Missing("expected a watch, found none")
    mask = 0
    for value in (*found, *under_load(doc.watch, "reasons", KINDS, from_the_start=True)):
        mask |= int(value)
    slowed = [word for bit, word in REASONS.items() if mask & bit & SLOWED]
    detail = f"mask 0x{mask:x}"
    for counter, word in THROTTLED.items():
        grown = doc.watch.after.get(counter, 0) - doc.watch.before.get(counter, 0)
        if grown > 0 and counter in doc.watch.before:
            slowed += [word] if word not in slowed else []
            detail += f"; {word} for {grown / 1e6:.3g} ms"
    return Reading(", ".join(slowed) or GOOD_REASONS, detail=detail, conditions=f"{len(found)} samples under load")
