"""Matrix products of one GPU under the built-in engine, format by format: how fast, at which clock, how right.

A rate alone does not tell a slow chip from a power cap. What was reached over the clock it ran at does: it depends on
neither power nor heat, so that a healthy chip is near all others of its model.

Digests: with the first algorithm of the library's own list, the same seed, shape and library, equal chips give equal
bits. One of them that does not is wrong the same way every time, which no comparison with itself can see.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pytest_gpuready.model.stress_doc import GemmResult, ResultFault
from pytest_gpuready.model.units import show
from pytest_gpuready.probes.stress_answers import Said, ended, reasons
from pytest_gpuready.probes.stress_pieces import FORMATS
from pytest_gpuready.probes.stress_run import Run

ENDED, REASONS, POWER, ALIKE = (f"stress.gemm.{name}" for name in ("ended", "reasons", "power", "digests"))
SAME = "equal to its peers"


def tops(name: str) -> str:
    """The unit of a format's rate."""
    return "TOPS" if name == "int8" else "TFLOPS"


def of_format(name: str) -> tuple[str, str, str, str]:
    """The metrics of a format: wrong elements, sustained rate, that over the clock, that over the power."""
    return f"stress.{name}.wrong", f"stress.{name}.sustained", f"stress.{name}.per_clock", f"stress.{name}.per_watt"


METRICS = (ENDED, *(metric for name in FORMATS for metric in of_format(name)), ALIKE, POWER, REASONS)


def gemm(run: Run, digests: Mapping[str, str]) -> Iterator[Said]:
    """All metrics of the piece "gemm"; `digests` is what `compared` says of this GPU."""
    yield ended(ENDED, run)
    yield reasons(REASONS, run)
    reached: list[tuple[float, str]] = []
    for number, phase in enumerate(run.doc.plan.phases if run.doc.plan else ()):
        yield from _format(run, number)
        power = run.second_half(number, "power_w")
        if isinstance(power, float | int) and not isinstance(run.result(number), str):
            reached.append((float(power), phase.format))
    if reached:
        most, name = max(reached)
        told = ", ".join(f"{form} {watt:.0f}" for watt, form in reached)
        yield Said(POWER, value=most, unit="W", detail=f"under {name}", conditions=f"medians under load: {told}")
    else:
        first = run.result(0)
        yield Said(POWER, problem=first if isinstance(first, str) else "expected the power under load, found no sample")
    yield (
        Said(ALIKE, problem=digests["problem"])
        if "problem" in digests
        else Said(ALIKE, value=digests.get("value", ""), conditions=digests.get("conditions", ""), stands=True)
    )


def _format(run: Run, number: int) -> Iterator[Said]:
    name = run.planned(number).format
    wrong, sustained, per_clock, per_watt = of_format(name)
    found = run.result(number)
    if not isinstance(found, GemmResult):
        yield from (Said(metric, problem=str(found)) for metric in (wrong, sustained, per_clock, per_watt))
        return
    yield checked(wrong, name, found, run.at(number, found.errors))
    if not found.sustained_tflops or not found.tflops:
        for metric in (sustained, per_clock, per_watt):
            yield Said(metric, problem=f"expected windows of {name} with a rate, found none")
        return
    rate, unit = found.sustained_tflops, tops(name)
    clock, power = run.second_half(number, "sm_mhz"), run.second_half(number, "power_w")
    seen = [f"{found.m} x {found.n} x {found.k}, {found.seconds:.1f} s, CV {100 * found.cv:.2f} %"]
    seen += [show(round(value), label) for value, label in ((clock, "MHz"), (power, "W")) if not isinstance(value, str)]
    conditions = ", ".join(seen)
    burst = f"burst {show(found.burst_tflops, unit)}" if found.burst_tflops else ""
    yield Said(sustained, value=rate, unit=unit, detail=burst, conditions=conditions, of=(number,))
    for metric, value, per, label in ((per_clock, clock, 1e3, "GHz"), (per_watt, power, 1.0, "W")):
        if isinstance(value, str):
            yield Said(metric, problem=value)
        elif value <= 0:
            yield Said(metric, problem=f"expected a reading above 0 under load, found {show(value, label)}")
        else:
            yield Said(metric, value=rate / value * per, unit=f"{unit}/{label}", conditions=conditions)


def checked(metric: str, name: str, found: GemmResult, at: str = "") -> Said:
    """Wrong elements of all products of a format. What nobody compared, or nobody knows the truth of, is not right."""
    if found.passes <= 0 or found.checked <= 0:
        return Said(metric, problem=f"expected products of {name} that were compared, found {found.passes}")
    if found.reference is None and not found.error_count:
        return Said(metric, problem=f"expected the first product of {name} checked by a reference, found none")
    how = (
        f"{found.reference.kind}, largest error {found.reference.max_residual:.2f} of its limit"
        if (found.reference)
        else "no reference"
    )
    return Said(
        metric,
        value=found.error_count,
        detail=fault(found.errors[0], at) if found.errors else "",
        conditions=f"{found.passes} products, {found.checked:.3g} elements compared; first one against {how}",
        stands=found.error_count > 0,
    )


def fault(found: ResultFault, at: str = "") -> str:
    """A wrong element for people; `at` is what `Run.at` says of that moment."""
    when = "in the first product" if found.pass_number < 0 else f"in product {found.pass_number}"
    form = f"{found.format} " if found.format else ""
    return (
        f"{form}row {found.row}, column {found.col} (tile {found.tile}) {when}: expected {found.expected}, "
        f"found {found.found} (bit {found.bit}){at}"
    )


def compared(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """GPU address -> "value" and "conditions", or "problem": whether its digests are those of its peers.

    Peers are GPUs of one name with one library, shape and algorithm. Of two that differ nobody knows which is wrong.
    """
    groups: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    open_: dict[str, str] = {}
    expected: dict[str, list[str]] = {}
    for run in runs:
        if run.gpu is None:
            continue
        bdf = run.gpu.bdf
        expected[bdf] = []
        for number, phase in enumerate(run.doc.plan.phases if run.doc.plan else ()):
            found = run.result(number)
            if not isinstance(found, GemmResult) or not found.golden:
                why = found if isinstance(found, str) else f"expected a digest of {phase.format}, found none"
                open_.setdefault(bdf, why)
                continue
            name = run.gpu.ready.name if run.gpu.ready else ""
            shape = f"{found.m} {found.n} {found.k}"
            groups[phase.format, name, found.cublas, shape, found.golden_algorithm][bdf] = found.golden
            expected[bdf].append(phase.format)
    odd: dict[str, list[str]] = defaultdict(list)
    alone: dict[str, list[str]] = defaultdict(list)
    for (form, *_), members in groups.items():
        if len(members) < 2:
            for bdf in members:
                alone[bdf].append(form)
            continue
        (common, count), *others = Counter(members.values()).most_common()
        agreed = 2 * count > len(members)
        for bdf, digest in members.items():
            if not agreed or digest != common:
                said = f"{count} of {len(members)} agree on another" if agreed else f"{1 + len(others)} digests"
                odd[bdf].append(f"{form} ({said})")
    return {bdf: _told(forms, odd[bdf], alone[bdf], open_.get(bdf, "")) for bdf, forms in expected.items()}


def _told(forms: Sequence[str], odd: Sequence[str], alone: Sequence[str], why: str) -> dict[str, str]:
    if odd:
        return {"value": f"differs: {', '.join(odd)}"}
    if why:
        return {"problem": why}
    if alone:
        return {"problem": f"expected a peer with the same library, shape and algorithm, found none for {alone[0]}"}
    return {"value": SAME, "conditions": f"{len(forms)} formats: {', '.join(forms)}"}
