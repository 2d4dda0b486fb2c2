"""Judges how fast a run of nccl-tests was, where its rows can be believed and somebody else took part.

The floor is held against the largest size, by the better half of its row; never against the average, which small
messages pull down. A row whose busbw / algbw is not that of the others was damaged and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_gpuready.audit.readers.nccl_measured import Judged, Measured, metric_of
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.model.busbw import factor
from pytest_gpuready.parse.nccl_tests import Row, Run

MIB = 2**20
TRUSTED_FROM = 256 * MIB
"""From this size on a low figure is the machine's; below, latency pulls healthy machines down too."""
DOUBTED_FROM = 64 * MIB
TOLERANCE = 0.03
_DROP = "the NIC or PCIe path or flow control rather than one cable"


def speed(measured: Measured, why_not: str, out: Judged) -> None:
    run, expect = measured.run, measured.expect
    metric, floor = metric_of(measured.collective) + ".busbw", expect.number("min_peak_busbw_gb_per_s")
    comm = _comm_ranks(measured)
    rows, doubtful, contradiction = _believed(run.rows, measured.collective, comm)
    by_size = _best_by_size(rows)
    largest = max(by_size, default=None)
    value = by_size[largest] if largest is not None else None
    outcome: Outcome = "not-measured"
    suspect = why_not
    if not why_not:
        suspect = _no_speed(measured, rows, comm, contradiction) or ""
        if not suspect and value is not None and largest is not None:
            outcome, suspect = _held(value, largest, floor, measured, by_size)
    expected = "" if floor is None else f"at least {floor:g} GB/s at the largest size"
    shown = value if outcome != "not-measured" else None
    out.findings.append(
        Finding(
            metric=metric,
            part=measured.part,
            value=shown,
            unit="GB/s" if shown is not None else "",
            outcome=outcome,
            expected=expected,
            source=expect.source if floor is not None else "",
            suspect=suspect or ("" if outcome in ("pass", "observed") else measured.suspect),
        )
    )
    out.findings.append(Finding(metric="nccl.rows", part=measured.part, value=len(run.rows), outcome="observed"))
    if by_size and not why_not and value is not None and largest is not None:
        peak = max(by_size.values())
        for name, figure, unit in (("peak_busbw", peak, "GB/s"), ("largest_size", largest, "bytes")):
            named = f"{metric_of(measured.collective)}.{name}"
            out.findings.append(Finding(metric=named, part=measured.part, value=figure, unit=unit, outcome="observed"))
        first = max((r for r in rows if r.size_bytes == largest), key=_best_half).halves[0].busbw_gb_per_s
        named = f"{metric_of(measured.collective)}.busbw_out_of_place"
        out.findings.append(Finding(metric=named, part=measured.part, value=first, unit="GB/s", outcome="observed"))
        drop = _drop(by_size)
        if drop is not None:
            named = metric_of(measured.collective) + ".drop_after"
            out.findings.append(
                Finding(
                    metric=named,
                    part=measured.part,
                    value=drop,
                    unit="bytes",
                    outcome="observed",
                    suspect=_DROP,
                )
            )
    out.not_covered.extend(_not_covered(measured, by_size, doubtful, floor))


def _no_speed(measured: Measured, rows: list[Row], comm: int | None, contradiction: str) -> str | None:
    """Why the rows of a whole run are no measurement of a link, or None."""
    if comm == 1:
        return "one rank alone: nothing crossed a link, 0 GB/s is its definition and no fault"
    if contradiction:
        return contradiction
    if not rows:
        return "no result row could be read"
    if not _largest_is_there(measured.run, rows):
        return "the row of the largest size asked for is missing or damaged"
    groups = {rank.group for rank in measured.run.ranks}
    asked = measured.expect.count("ranks")
    if len(groups) > 1 and asked is not None and asked != comm:
        return f"ranks ran in {len(groups)} groups at once; only the group of rank 0 is printed"
    return None


def _held(
    value: float, largest: int, floor: float | None, measured: Measured, by_size: dict[int, float]
) -> tuple[Outcome, str]:
    if floor is None:
        return "observed", ""
    if value >= floor:
        return "pass", ""
    if largest < DOUBTED_FROM or (largest < TRUSTED_FROM and value >= floor / 2):
        return (
            "not-measured",
            f"messages of at most {largest} bytes: healthy machines are slow there too; run up to 8 GiB",
        )
    hosts = {rank.host for rank in measured.run.ranks}
    where = (
        "inter-node network (rails, NICs, switches)"
        if len(hosts) > 1
        else "NVLink, NVSwitch or PCIe path, or NCCL settings"
    )
    if len(hosts) == 1:
        where += f", of {next(iter(hosts))}"
    rails, rate = measured.expect.count("rails_per_node"), measured.expect.number("rail_gbit_per_s")
    if rails and rate and len(hosts) > 1:
        where += f"; {rails} x {rate:g} Gbit/s expected, the figure is worth {value / (rate / 8):.1f} rails"
    if (drop := _drop(by_size)) is not None:
        where += f"; the sudden drop above {drop // MIB} MiB points at {_DROP}"
    return "fail", f"{measured.evidence}; {where}" if measured.evidence else where


def _comm_ranks(measured: Measured) -> int | None:
    """Ranks of the communicator whose figures are printed: the group of rank 0."""
    groups = {rank.group for rank in measured.run.ranks}
    if len(groups) <= 1 or measured.ranks is None:
        return measured.ranks
    first = min(measured.run.ranks, key=lambda rank: rank.rank).group
    scale = measured.ranks // max(1, len(measured.run.ranks))
    return scale * sum(1 for rank in measured.run.ranks if rank.group == first)


def _believed(rows: list[Row], collective: str, ranks: int | None) -> tuple[list[Row], int, str]:
    """Rows whose busbw / algbw is that of the others, how many are not, and whether all speak of other ranks."""
    ratios = sorted(h.busbw_gb_per_s / h.algbw_gb_per_s for r in rows for h in r.halves if h.algbw_gb_per_s >= 1)
    if not ratios:
        return rows, 0, ""
    typical = ratios[len(ratios) // 2]
    known = factor(collective, ranks) if ranks else None
    believed = [
        row
        for row in rows
        if all(
            abs(h.busbw_gb_per_s - typical * h.algbw_gb_per_s)
            <= 0.02 + TOLERANCE * max(typical, 0.1) * h.algbw_gb_per_s
            for h in row.halves
        )
    ]
    contradiction = ""
    if known is not None and ranks != 1 and abs(typical - known) > TOLERANCE * known + 0.005:
        contradiction = (
            f"busbw / algbw is {typical:.3f}, and {ranks} ranks give {known:.3f}: the output contradicts itself"
        )
    return believed, len(rows) - len(believed), contradiction


def _best_half(row: Row) -> float:
    return max(half.busbw_gb_per_s for half in row.halves)


def _best_by_size(rows: list[Row]) -> dict[int, float]:
    """busbw by size, ascending: the best of repeated rows, the worst of data types, reductions and roots."""
    best: dict[tuple[int, tuple[str, ...]], float] = {}
    for row in rows:
        key = (row.size_bytes, row.kind)
        best[key] = max(best.get(key, 0.0), _best_half(row))
    sizes: dict[int, float] = {}
    for (size, _), figure in sorted(best.items()):
        sizes[size] = min(sizes.get(size, math.inf), figure)
    return sizes


def _largest_is_there(run: Run, rows: list[Row]) -> bool:
    """True where the largest size asked for (or allowed by memory) has a row, up to rounding to whole elements."""
    seen = max(row.size_bytes for row in rows)
    config = run.config
    if config is None:
        figures = [half.busbw_gb_per_s for row in run.rows for half in row.halves]
        mean = sum(figures) / len(figures)
        return len(run.averages) == 1 and abs(mean - run.averages[0][0]) <= 0.05 + 0.01 * mean
    top = run.reduced_to_bytes if run.reduced_to_bytes is not None else config.max_bytes
    low = min(config.min_bytes, top)
    if config.step_is_factor and config.step > 1:
        last = max(low, 1)
        while last * config.step <= top:
            last *= config.step
        return seen > last // config.step
    last = low + (top - low) // config.step * config.step if config.step else low
    return seen > last - max(config.step, 1) or seen >= last


def _drop(by_size: dict[int, float]) -> int | None:
    """The size after which busbw falls below half and does not come back, or None."""
    sizes = list(by_size)
    for index, size in enumerate(sizes[:-1]):
        later = [by_size[other] for other in sizes[index + 1 :]]
        if size >= MIB and by_size[size] > 1 and max(later) < by_size[size] / 2:
            return size
    return None


def _not_covered(measured: Measured, by_size: dict[int, float], doubtful: int, floor: float | None) -> Iterator[str]:
    run = measured.run
    if run.damaged + doubtful:
        yield f"{run.damaged + doubtful} result rows could not be read or contradict themselves; they were left out."
    if not by_size:
        return
    largest = max(by_size)
    if len(by_size) == 1:
        yield f"One size only ({largest} bytes): latency and other sizes were not measured."
    if run.averages and floor is not None:
        yield "The average of all sizes is no measure of bandwidth and was not judged."
    if run.reduced_to_bytes is not None:
        yield f"The size asked for was not run: memory limited it to {run.reduced_to_bytes} bytes."
    if not measured.transport_seen:
        yield "The transport was not witnessed: no NCCL log shows which path and algorithm the data took."
    if len({rank.group for rank in run.ranks}) > 1:
        yield "Ranks ran in groups; bandwidth is printed for the group of rank 0 only."
    best = max((row for row in run.rows if row.size_bytes == largest), key=_best_half, default=None)
    if (
        floor is not None
        and best is not None
        and min(h.busbw_gb_per_s for h in best.halves) < floor <= by_size[largest]
    ):
        yield "The other half of the largest row is below the floor; the better half was judged."
    hosts = len({rank.host for rank in run.ranks})
    if hosts > 1 and not measured.rails_seen:
        yield "busbw does not prove every rail: NCCL uses what is left, and Tree on two nodes needs half of the wire."
    if run.averages and run.rows and not (run.damaged + doubtful):
        figures = [half.busbw_gb_per_s for row in run.rows for half in row.halves]
        mean = sum(figures) / len(figures)
        if len(run.averages) == 1 and not abs(mean - run.averages[0][0]) <= 0.05 + 0.01 * mean:
            yield "The rows do not give the printed average: rows are missing or were changed."
