"""Judges runs of nccl-tests: who took part, whether data was right, and only then how fast it was.

A run without its footer has no result, whatever its rows say.
"""

from __future__ import annotations

import math

from pytest_gpuready.audit.readers.nccl_measured import TOOL, Judged, Measured, metric_of
from pytest_gpuready.audit.readers.nccl_speed import speed
from pytest_gpuready.audit.report import Finding, Outcome


def judge(measured: Measured) -> tuple[list[Finding], list[str]]:
    """Findings on one run, and what it does not prove."""
    out, expect, run = Judged(), measured.expect, measured.run
    source = expect.source
    ranks_fit = _participation(measured, out)
    why_not = measured.why_not or ("" if ranks_fit else _ranks_say(measured))
    _correctness(measured, why_not, out)
    speed(measured, why_not, out)
    failed = [pair for pair in run.averages if pair[1] == "FAILED"]
    if (failed or len(set(run.averages)) == 1) and math.isfinite((failed or run.averages)[0][0]):
        average, verdict = (failed or run.averages)[0]
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


def _participation(measured: Measured, out: Judged) -> bool:
    """Findings on ranks, nodes and GPUs; False where another number took part than was expected."""
    run, expect = measured.run, measured.expect
    hosts = sorted({rank.host for rank in run.ranks})
    devices = {(rank.host, rank.address) for rank in run.ranks}
    per_host = [sum(1 for rank in run.ranks if rank.host == host) for host in hosts]
    listed = (
        measured.ranks is not None and bool(run.ranks) and measured.ranks % len(run.ranks) == 0 and not measured.doubt
    )
    scale = (measured.ranks or 0) // max(1, len(run.ranks))
    each = per_host[0] * scale if per_host and len(set(per_host)) == 1 and listed else None
    gpus = len(devices) if scale == 1 else measured.ranks
    answers: tuple[tuple[str, str, int | None], ...] = (
        ("nccl.ranks", "ranks", measured.ranks if not measured.doubt else None),
        ("nccl.nodes", "nodes", len(hosts) if run.ranks and not measured.doubt else None),
        ("nccl.ranks_per_node", "ranks_per_node", each),
        ("nccl.gpus_per_node", "gpus_per_node", each),
        ("nccl.gpus", "expected_gpus", gpus if listed else None),
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
    if model is None and run.ranks:
        names = sorted({rank.model for rank in run.ranks if rank.model})
        out.findings.append(Finding(metric="nccl.model", part=measured.part, value=[*names], outcome="observed"))
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


def _correctness(measured: Measured, why_not: str, out: Judged) -> None:
    run, expect = measured.run, measured.expect
    metric, required = metric_of(measured.collective) + ".correctness", expect.flag("require_correctness")
    halves = [(row, half) for row in run.rows for half in row.halves]
    wrong = [(row.size_bytes, half.wrong) for row, half in halves if half.wrong]
    counted = max((count for count, _ in run.out_of_bounds), default=None)
    failed = bool(wrong) or any(count or word != "OK" for count, word in run.out_of_bounds)
    unchecked = [row for row in run.rows if not any(half.checked for half in row.halves)]
    off = (run.config is not None and run.config.validation == 0) or (
        bool(run.rows) and len(unchecked) == len(run.rows)
    )
    worst = max((count for _, count in wrong), default=None)
    outcome: Outcome
    suspect = advice = ""
    if failed:
        outcome, suspect = "fail", _corrupt(measured)
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


def _corrupt(measured: Measured) -> str:
    hosts = sorted({rank.host for rank in measured.run.ranks})
    path = "NVLink/GPU memory path" + (" or the network between them" if len(hosts) > 1 else "")
    where = f" of {', '.join(hosts[:10])}" if hosts else ""
    return f"data corruption on the {path}{where}; the output does not say which GPU"
