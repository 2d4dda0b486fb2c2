"""Matrix products of one GPU under the built-in engine, format by format: how fast, at which clock, how right.

A rate alone does not tell a slow chip from a power cap. What was reached over the clock it ran at does: it depends on
neither power nor heat, so that a healthy chip is near all others of its model.

Digests: with the first algorithm of the library's own list, the same seed, shape and library, equal chips give equal
bits. One of them that does not is wrong the same way every time, which no comparison with itself can see. Products
under load may have another algorithm on every GPU; where it is the same, so are their bits.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pytest_gpuready.agent.stress import figures
from pytest_gpuready.model.stress_doc import BurnResult, GemmResult, ResultFault
from pytest_gpuready.model.units import show
from pytest_gpuready.parse.agent import quote
from pytest_gpuready.probes.stress_amounts import memory_notes
from pytest_gpuready.probes.stress_answers import Said, ended, reasons
from pytest_gpuready.probes.stress_control import noted, unproven
from pytest_gpuready.probes.stress_pieces import FORMATS
from pytest_gpuready.probes.stress_run import Run
from pytest_gpuready.probes.stress_seen import second_half

ENDED, REASONS, POWER, ALIKE = (f"stress.gemm.{name}" for name in ("ended", "reasons", "power", "digests"))
SAME = "equal to its peers"
STALLS = 0.97
"""A mean under this part of the median is that of a load with gaps."""


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
    open_ = ""
    for number, phase in enumerate(run.phases):
        yield from _format(run, number)
        found, power = run.result(number), second_half(run, number, "power_w")
        # The format that draws most may be the very one that did not run.
        open_ = open_ or next((one for one in (found, power) if isinstance(one, str)), "")
        if not isinstance(power, str):
            reached.append((float(power), phase.format))
    if open_ or not reached:
        yield Said(POWER, problem=open_ or "expected the power under load, found none")
    else:
        most, name = max(reached)
        told = ", ".join(f"{form} {watt:.0f}" for watt, form in reached)
        yield Said(POWER, value=most, unit="W", detail=f"under {name}", conditions=f"medians under load: {told}")
    yield (
        Said(ALIKE, problem=digests["problem"], proven="proven" in digests)
        if "problem" in digests
        else Said(ALIKE, value=digests.get("value", ""), conditions=digests.get("conditions", ""), stands=True)
    )


def _format(run: Run, number: int) -> Iterator[Said]:
    name = run.planned(number).format
    wrong, sustained, per_clock, per_watt = of_format(name)
    found = run.result(number)
    looked = run.looked(number)
    if isinstance(looked, GemmResult):
        yield checked(run, wrong, name, looked, run.at(number, looked.errors))
    else:
        yield Said(wrong, problem=str(looked))
    if not isinstance(found, GemmResult):
        yield from (Said(metric, problem=str(found)) for metric in (sustained, per_clock, per_watt))
        return
    if not found.sustained_tflops or not found.tflops:
        for metric in (sustained, per_clock, per_watt):
            yield Said(metric, problem=f"expected windows of {name} with a rate, found none")
        return
    rate, unit = held(found), tops(name)
    clock, power = second_half(run, number, "sm_mhz"), second_half(run, number, "power_w")
    seen = [f"{found.m} x {found.n} x {found.k}, {found.seconds:.1f} s, CV {100 * found.cv:.2f} %"]
    seen += [show(round(value), label) for value, label in ((clock, "MHz"), (power, "W")) if not isinstance(value, str)]
    seen += [told for told in (_stalls(found, unit), memory_notes(found)) if told]
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


def held(found: GemmResult) -> float:
    """The rate of the second half: the median of its windows, or their mean where that is smaller.

    The median does not see a GPU that stalls in two windows of five; operations over time do.
    """
    half = figures.second_half(found.tflops)
    return min(found.sustained_tflops, statistics.median(half), statistics.fmean(half))


def _stalls(found: GemmResult, unit: str) -> str:
    half = figures.second_half(found.tflops)
    median = statistics.median(half)
    return f"mean of the windows, for it stalls; median {show(median, unit)}" if held(found) < STALLS * median else ""


def checked(run: Run, metric: str, name: str, found: GemmResult, at: str = "") -> Said:
    """Wrong elements of all products of a format. What nobody compared, or nobody knows the truth of, is not right."""
    if not found.error_count and (found.passes <= 0 or found.checked <= 0):
        return Said(metric, problem=f"expected products of {name} that were compared, found {found.passes}")
    if found.reference is None and not found.error_count:
        return Said(metric, problem=f"expected the first product of {name} checked by a reference, found none")
    if not found.error_count and (why := unproven(run, found)):
        return Said(metric, problem=f"{name}: {why}")
    how = (
        f"{found.reference.kind}, largest error {found.reference.max_residual:.2f} of its limit"
        if (found.reference)
        else "no reference"
    )
    return Said(
        metric,
        value=found.error_count,
        detail=fault(found.errors[0], at) if found.errors else "",
        conditions=f"{found.passes} products, {found.checked:.3g} elements compared; first one against {how}; "
        f"{noted(run, found)}",
        stands=found.error_count > 0,
    )


def fault(found: ResultFault, at: str = "") -> str:
    """A wrong element for people; `at` is what `Run.at` says of that moment."""
    when = "in the first product" if found.pass_number < 0 else f"in product {found.pass_number}"
    form = f"{found.format} " if found.format else ""
    if found.matrix:
        when = "before the first product" if found.pass_number < 0 else f"after product {found.pass_number}"
        return (
            f"{form}input {quote(found.matrix)} row {found.row}, column {found.col} {when}: filled with "
            f"{found.expected}, found {found.found} (bit {found.bit}){at}"
        )
    return (
        f"{form}row {found.row}, column {found.col} (tile {found.tile}) {when}: expected {found.expected}, "
        f"found {found.found} (bit {found.bit}){at}"
    )


Group = tuple[str, ...]
"""What makes digests comparable: format, name of the GPU, library, shape, algorithm."""


def compared(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """GPU address -> "value" and "conditions", or "problem": whether its digests are those of its peers; with "proven"
    where one of them must be wrong.

    Peers are GPUs of one name with one library, shape and algorithm. Golden products have the same algorithm on all;
    those under load are compared where theirs is the same too. A few against most are wrong; of camps that are as large
    as each other nobody knows which.
    """
    golden: dict[Group, dict[str, str]] = defaultdict(dict)
    loaded: dict[Group, dict[str, str]] = defaultdict(dict)
    open_: dict[str, str] = {}
    expected: dict[str, list[str]] = {}
    for run in runs:
        if run.gpu is None:
            continue
        bdf = run.gpu.bdf
        expected[bdf] = []
        for number, phase in enumerate(run.phases):
            found = run.result(number)
            if not isinstance(found, GemmResult) or not found.golden:
                why = found if isinstance(found, str) else f"expected a digest of {phase.format}, found none"
                open_.setdefault(bdf, why)
                continue
            golden[_group(run, found, found.golden_algorithm)][bdf] = found.golden
            if found.digest:
                loaded[_group(run, found, found.algorithm)][bdf] = found.digest
            expected[bdf].append(phase.format)
    odd, split = apart(golden)
    for told, more in zip((odd, split), apart(loaded), strict=True):
        for bdf, forms in more.items():
            known = {said.partition(" ")[0] for said in told.get(bdf, ())}
            told[bdf] = [*told.get(bdf, ()), *(form for form in forms if form.partition(" ")[0] not in known)]
    alone: dict[str, list[str]] = defaultdict(list)
    for (form, *_), members in golden.items():
        for bdf in members if len(members) < 2 else ():
            alone[bdf].append(form)
    return {
        bdf: _told(forms, odd.get(bdf, ()), split.get(bdf, ()), alone[bdf], open_.get(bdf, ""))
        for bdf, forms in expected.items()
    }


def _group(run: Run, found: GemmResult, algorithm: str) -> Group:
    name = run.gpu.ready.name if run.gpu and run.gpu.ready else ""
    return found.format, name, found.cublas, f"{found.m} {found.n} {found.k}", algorithm


def apart(groups: Mapping[Group, Mapping[str, str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """GPU address -> formats in which it differs from most of its peers; and those in which there is no "most"."""
    odd: dict[str, list[str]] = defaultdict(list)
    split: dict[str, list[str]] = defaultdict(list)
    for (form, *_), members in groups.items():
        counted = Counter(members.values()).most_common()
        if len(counted) < 2:
            continue
        common, count = counted[0]
        if 2 * count > len(members):
            for bdf, digest in members.items():
                if digest != common:
                    odd[bdf].append(f"{form} ({count} of {len(members)} agree on another)")
        else:
            camps = ":".join(str(size) for _, size in counted)
            for bdf in members:
                split[bdf].append(f"{form} ({camps})")
    return dict(odd), dict(split)


def burnt(runs: Sequence[Run]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The same of the products of a burn-in."""
    groups: dict[Group, dict[str, str]] = defaultdict(dict)
    for run in runs:
        found = run.result(0) if run.gpu else None
        for one in found.each if isinstance(found, BurnResult) else ():
            if run.gpu and one.digest:
                groups[_group(run, one, one.algorithm)][run.gpu.bdf] = one.digest
    return apart(groups)


def _told(
    forms: Sequence[str], odd: Sequence[str], split: Sequence[str], alone: Sequence[str], why: str
) -> dict[str, str]:
    if odd:
        return {"value": f"differs: {', '.join(odd)}"}
    if split:
        found = f"found {', '.join(split)}: nobody knows which is wrong"
        return {"problem": f"expected a digest that most GPUs agree on, {found}", "proven": "one of them"}
    if why:
        return {"problem": why}
    if alone:
        return {"problem": f"expected a peer with the same library, shape and algorithm, found none for {alone[0]}"}
    return {"value": SAME, "conditions": f"{len(forms)} formats: {', '.join(forms)}"}
