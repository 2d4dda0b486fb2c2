"""Pulses and burn-in of one GPU under the built-in engine: what the load did to it, and what it did under the load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_gpuready.agent.stress import figures
from pytest_gpuready.model.stress_doc import NEAR_C, BurnResult, PulseResult
from pytest_gpuready.model.units import show
from pytest_gpuready.probes.stress_answers import Said, ended, reasons
from pytest_gpuready.probes.stress_control import OLDER, is_older, no_traffic, noted, unproven
from pytest_gpuready.probes.stress_gemm import checked, fault
from pytest_gpuready.probes.stress_pieces import BURN_S
from pytest_gpuready.probes.stress_run import Run
from pytest_gpuready.probes.stress_seen import (
    SLOWDOWN_C,
    highest,
    impossible,
    near_s,
    no_load,
    samples,
    second_half,
    unwatched,
)

PULSE_ENDED, PULSE_WRONG, PULSE_REASONS, SWING = (
    f"stress.pulse.{name}" for name in ("ended", "wrong", "reasons", "swing")
)
PULSE_METRICS = (PULSE_ENDED, PULSE_WRONG, PULSE_REASONS, SWING)

BURN_ENDED, BURN_WRONG, BURN_REASONS, BURN_POWER, MARGIN, HOT, CLOCKS, DRIFT = (
    f"stress.burn.{name}" for name in ("ended", "wrong", "reasons", "power", "margin", "hot", "clocks", "drift")
)
BURN_METRICS = (BURN_ENDED, BURN_WRONG, BURN_REASONS, BURN_POWER, MARGIN, HOT, CLOCKS, DRIFT)

HOT_C = NEAR_C
Burnt = tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]
"""GPU address -> formats in which its first products are not those of most peers; in which there is no "most"."""


def pulse(run: Run) -> Iterator[Said]:
    """All metrics of the piece "pulse"."""
    yield ended(PULSE_ENDED, run)
    yield reasons(PULSE_REASONS, run)
    total, looked, cycles, told, open_ = 0, 0, list[str](), list[str](), ""
    counted: list[PulseResult] = []
    for number, phase in enumerate(run.phases):
        found = run.looked(number)
        if not isinstance(found, PulseResult):
            open_ = open_ or str(found)
            continue
        if found.cycles <= 0 or found.checked <= 0:
            open_ = open_ or f"expected pulses of {phase.period_s:g} s that were compared, found {found.cycles}"
        open_ = open_ or (f"pulses of {phase.period_s:g} s: {why}" if (why := unproven(run, found)) else "")
        counted.append(found)
        total, looked = total + found.error_count, looked + found.checked
        cycles.append(f"{found.cycles} of {show(1e3 * phase.period_s, 'ms')} at {100 * phase.duty:.0f} %")
        told += [fault(error, run.at(number, found.errors)) for error in found.errors[:1]]
    if not total and (open_ or not looked):
        yield Said(PULSE_WRONG, problem=open_ or "expected pulses in the plan, found none")
    else:
        conditions = f"{', '.join(cycles)}; {looked:.3g} elements compared; {noted(run, *counted)}"
        yield Said(PULSE_WRONG, value=total, detail="; ".join(told), conditions=conditions, stands=total > 0)
    yield _swing(run)


def _swing(run: Run) -> Said:
    """How far the power moves between load and idle in the slowest pulses, whose halves the sensor resolves."""
    phases = run.phases
    number = max(range(len(phases)), key=lambda at: phases[at].period_s, default=-1)
    found = run.result(number) if number >= 0 else "expected pulses in the plan, found none"
    if isinstance(found, str):
        return Said(SWING, problem=found)
    _, power = samples(run, number, "power_w")
    ordered = sorted(power)
    if len(ordered) < 20:
        why = run.doc.watch_problem or (run.gpu.errors.get("power_w", "") if run.gpu else "")
        told = f" ({why})" if why else ""
        return Said(SWING, problem=f"expected at least 20 samples of the power in pulses, found {len(ordered)}{told}")
    why = impossible("power_w", power) or no_load(run, number)
    if why:
        return Said(SWING, problem=why)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    phase = run.planned(number)
    return Said(
        SWING,
        value=high - low,
        unit="W",
        detail=f"{low:.0f} to {high:.0f} W",
        conditions=f"period {phase.period_s:g} s, duty {100 * phase.duty:.0f} %, 10th to 90th percentile of samples",
        of=(number,),
    )


def burn(run: Run, hottest: str, apart: Burnt) -> Iterator[Said]:
    """All metrics of the piece "burn"; `hottest` is what `hottest_of` says of the node, `apart` what `burnt` does."""
    yield ended(BURN_ENDED, run)
    yield reasons(BURN_REASONS, run)
    looked, found = run.looked(0), run.result(0)
    if run.phases and run.planned(0).seconds < BURN_S:
        found = f"expected a burn-in of {BURN_S:g} s at least, found one of {run.planned(0).seconds:g} s"
        looked = run.proven(0) or found
    yield _wrong(run, looked, apart) if isinstance(looked, BurnResult) else Said(BURN_WRONG, problem=str(looked))
    if not isinstance(found, BurnResult):
        yield from (Said(metric, problem=str(found)) for metric in (BURN_POWER, MARGIN, HOT, CLOCKS, DRIFT))
        return
    lasted = f"{found.seconds:.0f} s of {', '.join(one.format for one in found.each)} and memory"
    power = second_half(run, 0, "power_w")
    yield (
        Said(BURN_POWER, problem=power)
        if isinstance(power, str)
        else Said(BURN_POWER, value=power, unit="W", conditions=f"median of the second half of {lasted}", of=(0,))
    )
    yield from _heat(run, hottest, lasted)
    times, clocks = samples(run, 0, "sm_mhz")
    half = figures.second_half(clocks)
    spread = figures.spread(half)
    why = f"expected samples of the SM clock in the burn-in, found {len(times)}" if spread is None else ""
    why = why or impossible("sm_mhz", half)
    yield (
        Said(CLOCKS, problem=why)
        if spread is None or why
        else Said(
            CLOCKS,
            value=100 * spread,
            unit="%",
            detail=f"{min(half):.0f} to {max(half):.0f} MHz",
            conditions="5th to 95th percentile over the median, second half",
        )
    )


def _wrong(run: Run, found: BurnResult, apart: Burnt) -> Said:
    """Wrong elements of all products and wrong words of memory; a format that most peers deny is wrong too."""
    bdf = run.gpu.bdf if run.gpu else ""
    odd, split = apart[0].get(bdf, ()), apart[1].get(bdf, ())
    each = [checked(run, BURN_WRONG, one.format, one) for one in found.each]
    open_ = next((one.problem for one in each if one.problem), "" if each else "expected products, found none")
    open_ = open_ or unproven(run, found) or no_traffic(run, found)
    if split:
        known = f"found {', '.join(split)}: nobody knows which is wrong"
        open_ = open_ or f"expected digests that most GPUs agree on, {known}"
    if open_ and not found.error_count and not odd:
        return Said(BURN_WRONG, problem=open_, proven=bool(split))
    told = [fault(found.errors[0], run.at(0, found.errors))] if found.errors else []
    told += [f"first product differs: {one}" for one in odd]
    return Said(
        BURN_WRONG,
        value=found.error_count + len(odd),
        detail="; ".join(told),
        conditions=f"{found.passes} products, {found.checked:.3g} elements compared, {_traffic(run, found)}; "
        f"{noted(run, found)}",
        stands=found.error_count > 0 or bool(odd),
    )


def _traffic(run: Run, found: BurnResult) -> str:
    """How much memory was compared between the products."""
    if is_older(run):
        return f"turns of memory between them not counted ({OLDER})"
    return f"{found.memory_turns} turns of memory between them, {show(found.memory_bytes / 1e9, 'GB')} compared"


def _heat(run: Run, hottest: str, lasted: str) -> Iterator[Said]:
    """Degrees left to the slowdown temperature, time spent near it, and when the heat stopped rising."""
    times, temperatures = samples(run, 0, "temperature_c")
    limit, most = run.gpu.slowdown_c if run.gpu else None, highest(run, 0, "temperature_c")
    why = unwatched(run, 0, "temperature_c") or no_load(run, 0)
    if limit is None or most is None:
        why = "expected the slowdown temperature and samples of the temperature, found "
        why += "no slowdown temperature" if limit is None else f"{len(temperatures)} samples"
    elif not SLOWDOWN_C[0] <= limit <= SLOWDOWN_C[1]:
        why = f"expected a slowdown temperature from {SLOWDOWN_C[0]:g} to {SLOWDOWN_C[1]:g} C, found {limit:g}"
    why = why or impossible("temperature_c", [*temperatures, most or 0.0])
    if why or limit is None or most is None:
        yield from (Said(metric, problem=why) for metric in (MARGIN, HOT, DRIFT))
        return
    yield Said(
        MARGIN,
        value=limit - most,
        unit="C",
        detail=f"{most:.0f} C, slowdown at {limit:.0f} C{hottest}",
        conditions=lasted,
        of=(0,),
    )
    yield Said(HOT, value=near_s(run, 0, limit - HOT_C), unit="s", conditions=f"within {HOT_C:g} C of {limit:.0f} C")
    yield _drift(times, temperatures, lasted)


def _drift(times: Sequence[float], temperatures: Sequence[float], lasted: str) -> Said:
    """How the temperature moves in the last minute, and since when it stands still."""
    since = times[-1] - figures.STEADY_WINDOW_S if times else 0.0
    last = [at for at, t in enumerate(times) if t >= since]
    slope = figures.slope([times[at] for at in last], [temperatures[at] for at in last])
    if slope is None or times[0] > since:
        return Said(DRIFT, problem=f"expected samples of the temperature over a minute, found {len(times)}")
    steady = figures.steady(times, temperatures)
    rest = f"stands still since {steady.from_s - times[0]:.0f} s" if steady else "has not come to rest"
    return Said(DRIFT, value=60 * slope, unit="C/min", detail=rest, conditions=f"last minute of {lasted}")


def hottest_of(runs: Sequence[Run]) -> str:
    """Which GPU of the node became the hottest, for those that sit beside it; "" where there is one alone."""
    most = {run.slot.part.label: highest(run, 0, "temperature_c") or 0.0 for run in runs if run.gpu}
    if len(most) < 2:
        return ""
    name = max(most, key=lambda label: most[label])
    return f"; hottest of the node: {name} at {most[name]:.0f} C"
