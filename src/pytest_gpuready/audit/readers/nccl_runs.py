"""Judges runs of nccl-tests: who took part, whether data was right, and only then how fast it was.

The floor is held against the largest size, by the better half of its row; never against the average, which small
messages pull down. A run without its footer has no result, whatever its rows say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.parse.nccl_tests import Row, Run

TOOL = "the tool's own verdict"
MIB = 2**20
TRUSTED_FROM = 256 * MIB
"""From this size on a low figure is the machine's; below, latency pulls healthy machines down too."""
DOUBTED_FROM = 64 * MIB
TOLERANCE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run with what its source knows beside it. `why_not`: why there is no result, "" where there is one.

    `ranks` is None where the text does not say; `doubt` says why a rank table cannot be believed. `evidence` is what
    the log around the table blames for a low figure.
    """

    run: Run
    collective: str
    expect: Expectations
    part: str = ""
    ranks: int | None = None
    doubt: str = ""
    why_not: str = ""
    suspect: str = ""
    evidence: str = ""
    transport_seen: bool = False
    rails_seen: bool = False


@dataclass(slots=True)
class _Judged:
    findings: list[Finding] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)


def metric_of(collective: str) -> str:
    """`all_reduce` -> `nccl.allreduce`; a collective that nobody named is `nccl.collective`."""
    return f"nccl.{re.sub(r'[^a-z0-9]', '', collective.lower()) or 'collective'}"


def factor(collective: str, ranks: int) -> float | None:
    """busbw / algbw of a collective, or None where it is not known."""
    name = metric_of(collective).removeprefix("nccl.")
    if name == "allreduce":
        return 2 * (ranks - 1) / ranks
    if name in ("allgather", "reducescatter", "alltoall", "alltoallv", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if name in ("broadcast", "reduce", "sendrecv") and ranks > 1 else None


def judge(measured: Measured) -> tuple[list[Finding], list[str]]:
    """Findings on one run, and what it does not prove."""
    out, expect, run = _Judged(), measured.expect, measured.run
    source = expect.source
    ranks_fit = _participation(measured, out)
    why_not = measured.why_not or ("" if ranks_fit else _ranks_say(measured))
    _correctness(measured, why_not, out)
    _speed(measured, why_not, out)
    if len(run.averages) == 1 and math.isfinite(run.averages[0][0]):
        average, verdict = run.averages[0]
        named = metric_of(measured.collective) + ".avg_busbw"
        out.findings.append(
            Finding(
                metric=named,
                part=measured.part,
                value=average,
                unit="GB/s",
                outcome="fail" if verdict == "FAILED" else "observed",
                expected="at least 0.9 x NCCL_TESTS_MIN_BW" if verdict else "",
                source=TOOL if verdict else "",
            )
        )
    iterations = expect.count("iterations")
    if iterations is not None:
        done = run.config.iterations if run.config else None
        fits = done is not None and done >= iterations
        out.findings.append(
            Finding(
                metric="nccl.iterations",
                part=measured.part,
                value=done,
                outcome="pass" if fits else "not-measured",
                expected=f"at least {iterations}",
                source=source,
                suspect="" if fits else "test options",
            )
        )
    return out.findings, out.not_covered


def _participation(measured: Measured, out: _Judged) -> bool:
    """Findings on ranks, nodes and GPUs; False where another number took part than was expected."""
    run, expect = measured.run, measured.expect
    hosts = sorted({rank.host for rank in run.ranks})
    devices = {(rank.host, rank.address) for rank in run.ranks}
    per_host = [sum(1 for rank in run.ranks if rank.host == host) for host in hosts]
    each = per_host[0] if per_host and len(set(per_host)) == 1 else None
    listed_all = measured.ranks is not None and len(run.ranks) == measured.ranks and not measured.doubt
    answers: tuple[tuple[str, str, int | None], ...] = (
        ("nccl.ranks", "ranks", measured.ranks if not measured.doubt else None),
        ("nccl.nodes", "nodes", len(hosts) if run.ranks and not measured.doubt else None),
        ("nccl.ranks_per_node", "ranks_per_node", each if listed_all else None),
        ("nccl.gpus_per_node", "gpus_per_node", each if listed_all else None),
        ("nccl.gpus", "expected_gpus", len(devices) if listed_all else measured.ranks if not measured.doubt else None),
    )
    fits = True
    for metric, key, value in answers:
        expected = expect.count(key)
        if expected is None and metric != "nccl.ranks":
            continue
        good = expected is not None and value == expected
        fits = fits and (expected is None or good)
        seen = measured.ranks if metric == "nccl.ranks" else value
        out.findings.append(
            Finding(
                metric=metric,
                part=measured.part,
                value=seen,
                outcome="observed" if expected is None else "pass" if good else "not-measured",
                expected="" if expected is None else str(expected),
                source="" if expected is None else expect.source,
                suspect="" if good or expected is None else _ranks_say(measured),
            )
        )
    if hosts:
        out.findings.append(
            Finding(metric="nccl.hosts", part=measured.part, value=list(hosts[:1000]), outcome="observed")
        )
    model = expect.text("expected_model")
    if model is not None:
        others = sorted({rank.model for rank in run.ranks if model.casefold() not in rank.model.casefold()})
        outcome: Outcome = "not-measured" if not run.ranks else "fail" if others else "pass"
        out.findings.append(
            Finding(
                metric="nccl.model",
                part=measured.part,
                value=list(others) or sorted({rank.model for rank in run.ranks}),
                outcome=outcome,
                expected=model,
                source=expect.source,
            )
        )
    return fits


def _ranks_say(measured: Measured) -> str:
    if measured.doubt:
        return measured.doubt
    if measured.ranks is None:
        return "the rank table is missing, so nobody knows who took part"
    return f"{measured.ranks} ranks took part: test setup (number of processes, -t, -g)"


def _correctness(measured: Measured, why_not: str, out: _Judged) -> None:
    run, expect = measured.run, measured.expect
    metric, required = metric_of(measured.collective) + ".correctness", expect.flag("require_correctness")
    halves = [(row, half) for row in run.rows for half in row.halves]
    wrong = [(row.size_bytes, half.wrong) for row, half in halves if half.wrong]
    counted = max((count for count, _ in run.out_of_bounds), default=None)
    failed = bool(wrong) or any(count or word != "OK" for count, word in run.out_of_bounds)
    unchecked = [row for row in run.rows if not any(half.checked for half in row.halves)]
    off = (run.config is not None and run.config.validation == 0) or len(unchecked) == len(run.rows)
    worst = max((count for _, count in wrong), default=None)
    outcome: Outcome
    suspect = advice = ""
    if failed:
        outcome, suspect = (
            "fail",
            "data corruption on the GPU memory, NVLink or network path; the output does not say which GPU",
        )
        advice = "run it pair by pair, and dcgmi diag with the memory and memtest tests"
    elif why_not:
        outcome, suspect = "not-measured", why_not
    elif off:
        outcome = "not-measured" if required else "observed"
        suspect, advice = "none: the test ran with data checking off (test options)", "run it again with -c 1"
    elif unchecked:
        outcome, suspect = "not-measured", f"{len(unchecked)} sizes were not checked"
    else:
        outcome = "pass"
    value = worst if worst is not None else 0 if outcome == "pass" else None
    out.findings.append(
        Finding(
            metric=metric,
            part=measured.part,
            value=int(value) if value is not None and float(value).is_integer() else value,
            unit="wrong elements" if value is not None else "",
            outcome=outcome,
            expected="checked, 0 wrong" if required else "0 wrong",
            source=expect.source if required else TOOL,
            suspect=suspect,
            advice=advice,
        )
    )
    if counted is not None:
        out.findings.append(
            Finding(
                metric="nccl.out_of_bounds", part=measured.part, value=counted, outcome="fail" if failed else "observed"
            )
        )
    if wrong:
        sizes = sorted({size for size, _ in wrong})[:1000]
        out.findings.append(
            Finding(metric="nccl.bad_sizes", part=measured.part, value=list(sizes), unit="bytes", outcome="fail")
        )
    if run.config is not None and run.config.validation is not None:
        out.findings.append(
            Finding(metric="nccl.validation", part=measured.part, value=run.config.validation, outcome="observed")
        )
    if off and not failed:
        out.not_covered.append("Correctness: data was not checked, so the footer's 0 out of bounds proves nothing.")
    elif outcome == "pass" and any(not half.checked for _, half in halves):
        out.not_covered.append("Correctness of the half marked N/A: only the other half was checked.")


def _speed(measured: Measured, why_not: str, out: _Judged) -> None:
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
                    suspect="the NIC or PCIe path or flow control rather than one cable",
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
        where += f"; the sudden drop above {drop // MIB} MiB points at the NIC or PCIe path or flow control rather than one cable"
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
    for size, following in zip(sizes, sizes[1:], strict=False):
        later = [by_size[other] for other in sizes if other >= following]
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
