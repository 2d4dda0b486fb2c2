"""Memory and caches of one GPU under the built-in engine: what could be taken, how fast it is, which words were wrong.

One wrong word is one too many and no repetition takes it back; speed is measured again before it condemns anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from pytest_gpuready.agent.stress import figures
from pytest_gpuready.model.stress_doc import (
    CACHE_PATTERNS,
    AllocResult,
    CacheResult,
    HbmResult,
    LatencyResult,
    MemoryFault,
    PatternResult,
)
from pytest_gpuready.model.units import show
from pytest_gpuready.probes.stress_amounts import memory_bytes, memory_notes, uncovered
from pytest_gpuready.probes.stress_answers import Said, ended
from pytest_gpuready.probes.stress_control import noted, unproven, unread
from pytest_gpuready.probes.stress_pieces import KERNELS, LEVELS_OF_CACHE
from pytest_gpuready.probes.stress_run import Run

ENDED, ALLOCATED, WRONG = "stress.memory.ended", "stress.memory.allocated", "stress.memory.wrong"
HBM = {kernel: f"stress.hbm.{kernel}" for kernel in KERNELS}
CACHE = {level: f"stress.cache.{level}.wrong" for level in LEVELS_OF_CACHE}
SHARE = "stress.hbm.share"
LATENCY = {where: f"stress.latency.{where}" for where in ("host", "device")}
METRICS = (ENDED, ALLOCATED, WRONG, *CACHE.values(), *HBM.values(), SHARE, *LATENCY.values())
SHARES_APART = 0.01
"""So far may bytes over memory be from the share that is said."""
LEAST_NS = {"host": 100.0, "device": 50.0}
"""No read is faster: a link and a memory controller, or the way through both levels of cache, take longer than that."""

PATTERNS_ENDED, PATTERNS_WRONG, PATTERNS_RATE = (f"stress.patterns.{name}" for name in ("ended", "wrong", "rate"))
PATTERN_METRICS = (PATTERNS_ENDED, PATTERNS_WRONG, PATTERNS_RATE)


def memory(run: Run) -> Iterator[Said]:
    """All metrics of the piece "memory"."""
    yield ended(ENDED, run)
    for number, phase in enumerate(run.phases):
        if phase.kind == "alloc":
            yield _allocated(run, number)
        elif phase.kind == "cache":
            yield _cache(run, number, CACHE[phase.level])
        elif phase.kind == "hbm":
            yield _hbm(run, number, HBM[phase.kernel])
    yield _share(run)
    for where in LATENCY:
        yield _latency(run, where)
    yield _patterns(run, WRONG)


def patterns(run: Run) -> Iterator[Said]:
    """All metrics of the piece "patterns"."""
    yield ended(PATTERNS_ENDED, run)
    yield _patterns(run, PATTERNS_WRONG)
    rates: dict[str, float] = {}
    for number in _numbers(run, "pattern"):
        found = run.result(number)
        if not isinstance(found, PatternResult):
            yield Said(PATTERNS_RATE, problem=str(found))
            return
        rates[found.pattern] = found.gb_per_s
    slowest = min(rates, key=lambda name: rates[name], default="")
    yield (
        Said(PATTERNS_RATE, value=rates[slowest], unit="GB/s", detail=_told_rates(rates))
        if slowest
        else Said(PATTERNS_RATE, problem="expected memory patterns in the plan, found none")
    )


def _numbers(run: Run, kind: str) -> list[int]:
    return [number for number, phase in enumerate(run.phases) if phase.kind == kind]


def _allocated(run: Run, number: int) -> Said:
    """Part of the memory that could be had; of what NVML names, where CUDA sees less of it."""
    found = run.result(number)
    if not isinstance(found, AllocResult):
        return Said(ALLOCATED, problem=str(found))
    seen, of = _memory(run)
    if not of or abs(found.bytes / seen - found.share) > SHARES_APART:
        told = f"{found.bytes} bytes of {seen} as a share of {found.share:.3f}"
        return Said(
            ALLOCATED, problem=f"expected the bytes that were taken to be their share of the memory, found {told}"
        )
    detail = f"{show(found.bytes / 2**30, 'GiB')} taken and written"
    if of > seen:
        detail += f"; CUDA sees {show(seen / 2**30, 'GiB')} of {show(of / 2**30, 'GiB')} that NVML names"
    return Said(
        ALLOCATED, value=100 * found.share * seen / of, unit="%", detail=detail, conditions="; ".join(found.notes)
    )


def _memory(run: Run) -> tuple[int, int]:
    """Bytes of memory that CUDA sees, and that there are."""
    ready = run.gpu.ready if run.gpu else None
    if ready is None:
        return 0, 0
    return ready.memory_bytes, memory_bytes(ready, run.slot.gpu.memory_mib if run.slot.gpu else 0)


def _cache(run: Run, number: int, metric: str) -> Said:
    found = run.looked(number)
    if not isinstance(found, CacheResult):
        return Said(metric, problem=str(found))
    if found.checked_bytes <= 0 and not found.error_count:
        return Said(metric, problem=f"expected words of the {found.level.upper()} cache that were compared, found none")
    if not found.error_count and (why := unproven(run, found) or unread(run, found)):
        return Said(metric, problem=f"{found.level.upper()} cache: {why}")
    first = fault(found.errors[0]) if found.errors else ""
    read = f"{show(found.checked_bytes / 1e9, 'GB')} read and compared, {show(found.gb_per_s, 'GB/s')}"
    names = [name for name in CACHE_PATTERNS if name in found.patterns]
    return Said(
        metric,
        value=found.error_count,
        detail=first,
        conditions="; ".join(filter(None, (read, ", ".join(names), noted(run, found)))),
        stands=found.error_count > 0,
    )


def _hbm(run: Run, number: int, metric: str) -> Said:
    found = run.result(number)
    if not isinstance(found, HbmResult):
        return Said(metric, problem=str(found))
    if not found.gb_per_s:
        return Said(metric, problem=f"expected rates of HBM {found.kernel}, found none")
    ready = run.gpu.ready if run.gpu else None
    theory = ready.memory_gb_per_s if ready else 0.0
    rate = statistics.median(found.gb_per_s)
    detail = f"{100 * rate / theory:.1f} % of {show(theory, 'GB/s')}, clock and width of the memory" if theory else ""
    conditions = f"{show(found.size_bytes / 2**30, 'GiB')}, median of {len(found.gb_per_s)}, CV {100 * found.cv:.2f} %"
    conditions += f", {memory_notes(found)}" if memory_notes(found) else ""
    if theory and rate > theory:
        says = f"expected at most {show(theory, 'GB/s')} (memory clock and width), found {show(rate, 'GB/s')}"
        return Said(metric, problem=f"{says}: not a measurement")
    return Said(metric, value=rate, unit="GB/s", detail=detail, conditions=conditions)


def _latency(run: Run, where: str) -> Said:
    """Median of the repeats; the shorter the better, so what no read can be is none."""
    metric = LATENCY[where]
    number = next(iter(_numbers(run, "latency")), None)
    if number is None:
        return Said(
            metric, problem=run.why or "expected a latency in the plan, found none: ask an agent of this version"
        )
    found = run.result(number)
    if not isinstance(found, LatencyResult):
        return Said(metric, problem=str(found))
    series, size = (found.host_ns, found.host_bytes) if where == "host" else (found.device_ns, found.device_bytes)
    if not series:
        return Said(metric, problem=f"expected nanoseconds of reads of {where} memory, found none")
    step = statistics.median(series)
    if step < LEAST_NS[where]:
        says = f"expected at least {show(LEAST_NS[where], 'ns')} for a read of {where} memory, found {show(step, 'ns')}"
        return Said(metric, problem=f"{says}: not a measurement")
    cv = figures.cv(series)
    beside = f"beside CPUs {found.cpus}" if found.cpus else "beside CPUs that are not known to be near"
    conditions = (
        f"one thread over {show(size / 2**20, 'MiB')}",
        f"median of {len(series)}",
        *([f"CV {100 * cv:.2f} %"] if cv is not None else []),
        *([beside] if where == "host" else []),
    )
    return Said(metric, value=step, unit="ns", conditions=", ".join(conditions))


def _share(run: Run) -> Said:
    """The slowest kernel, of what clock and width of the memory allow."""
    theory = run.gpu.ready.memory_gb_per_s if run.gpu and run.gpu.ready else 0.0
    rates: dict[str, float] = {}
    for number in _numbers(run, "hbm"):
        said = _hbm(run, number, SHARE)
        if said.problem:
            return said
        rates[run.planned(number).kernel] = float(said.value)
    if not theory or not rates:
        return Said(SHARE, problem=run.why or "expected clock and width of the memory from CUDA, found none")
    slowest = min(rates, key=lambda name: rates[name])
    return Said(
        SHARE,
        value=100 * rates[slowest] / theory,
        unit="%",
        detail=f"{slowest} {show(rates[slowest], 'GB/s')} of {show(theory, 'GB/s')}",
    )


def _patterns(run: Run, metric: str) -> Said:
    """Wrong words over all patterns of the piece."""
    total, read, told, counted = 0, 0, list[str](), list[PatternResult]()
    open_, notes, share = "", list[str](), run.doc.plan.share if run.doc.plan else 0.0
    for number in _numbers(run, "pattern"):
        found = run.looked(number)
        if not isinstance(found, PatternResult):
            open_ = open_ or str(found)
            continue
        if found.checked_bytes <= 0:
            open_ = open_ or f"expected words that were compared under pattern {found.pattern}, found none"
        else:
            open_ = open_ or uncovered(run.planned(number), found, _memory(run)[1], share)
        open_ = open_ or (f"pattern {found.pattern}: {why}" if (why := unproven(run, found)) else "")
        counted.append(found)
        if note := memory_notes(found):
            notes.append(f"{found.pattern}: {note}")
        total, read = total + found.error_count, read + found.checked_bytes
        if found.error_count:
            first = f", first {fault(found.errors[0])}" if found.errors else ""
            told.append(f"{found.error_count} under {found.pattern}{first}")
    if not total and (open_ or not read):
        return Said(metric, problem=open_ or "expected memory patterns in the plan, found none")
    names = [run.planned(number).pattern for number in _numbers(run, "pattern")]
    return Said(
        metric,
        value=total,
        detail="; ".join(told),
        conditions="; ".join(
            (", ".join(names), f"{show(read / 1e9, 'GB')} read and compared", *notes, noted(run, *counted))
        ),
        stands=total > 0,
    )


def fault(found: MemoryFault) -> str:
    """A wrong word for people."""
    return f"at 0x{found.address:x}: expected {found.expected}, found {found.found} (bit {found.bit})"


def _told_rates(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {show(rate)}" for name, rate in rates.items())
