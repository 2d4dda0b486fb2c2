"""Reader of `dcgmi nvlink`: states (-s) and error counters (-e)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.dcgm_expected import exit_findings, unanswered
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_diag import exit_meaning
from pytest_gpuready.parse.dcgmi_nvlink import (
    DISABLED,
    DOWN,
    UP,
    Counter,
    LinkCounters,
    Links,
    LinkStates,
    link_counters,
    link_states,
)

_STATES = re.compile(r"^\s*\|\s+NvLink Link Status\s+\|", re.MULTILINE)
_COUNTERS = re.compile(r"^\s*(?:\|\s+|\")NVLINK Error Counts\b", re.MULTILINE)
_HANDLED = (
    "expected_gpus",
    "gpus_per_node",
    "expected_nvlinks_per_gpu",
    "max_replay_errors",
    "max_recovery_errors",
)
_WHERE = "baseboard, NVSwitch port or bridge"
_CUT = "output cut or damaged"


def read(given: Given) -> Reading:
    """States or counters; a failing exit code proves nothing by itself."""
    try:
        if _COUNTERS.search(given.head()) and not _STATES.search(given.head()):
            findings, left_out = _counters(given)
        else:
            findings, left_out = _states(given)
    except ParseError as error:
        findings, left_out = [_unread("nvlink.status", str(error), given.exit_code)], ()
    failed = any(finding.outcome == "fail" for finding in findings)
    findings += exit_findings(given.exit_code, failed, "nvlink.exit_status", exit_meaning)
    findings += unanswered(given.expect, _HANDLED, "dcgmi nvlink")
    return Reading(findings=tuple(findings), not_covered=left_out)


def _unread(metric: str, says: str, exit_code: int | None) -> Finding:
    meaning = f" (exit code {exit_code}: {exit_meaning(exit_code)})" if exit_code else ""
    return Finding(metric=metric, outcome="not-measured", suspect=f"{says}{meaning}")


def _states(given: Given) -> tuple[list[Finding], tuple[str, ...]]:
    seen = link_states(given.lines())
    expect = given.expect
    wanted = expect.count("expected_nvlinks_per_gpu")
    findings = [Finding(metric="nvlink.complete", outcome="not-measured", value=e, suspect=_CUT) for e in seen.errors]
    if not seen.complete and not seen.errors:
        findings.append(Finding(metric="nvlink.complete", outcome="not-measured", suspect=f"{_CUT}: no key line"))
    any_up = any(row.numbers(UP) for row in seen.gpus)
    for row in seen.gpus:
        findings += _gpu(row, wanted, any_up, expect)
    for row in seen.rows:
        if row.kind != "GPU":
            up = Finding(metric="nvlink.links_up", outcome="observed", part=f"NVSwitch {row.number}")
            findings.append(_with_value(up, len(row.numbers(UP))))
    nothing = wanted == 0 and not any_up
    findings += _count(seen, expect, nothing=nothing)
    if not seen.gpus:
        findings.append(Finding(metric="nvlink.status", outcome="not-measured", suspect="no GPU in the list"))
    left_out = ["link speed, errors and bandwidth: this list tells states only"]
    if wanted is None:
        left_out.insert(0, "how many links each GPU must have: expected_nvlinks_per_gpu was not given")
    return findings, tuple(left_out)


def _with_value(finding: Finding, value: int) -> Finding:
    return Finding(metric=finding.metric, outcome=finding.outcome, part=finding.part, value=value, unit="links")


def _gpu(row: Links, wanted: int | None, any_up: bool, expect: Expectations) -> list[Finding]:
    part, up = f"GPU {row.number}", row.numbers(UP)
    down, disabled = row.numbers(DOWN), row.numbers(DISABLED)
    bad = tuple(sorted((*down, *disabled)))
    where = f"{part} link{'s' if len(bad) != 1 else ''} {','.join(map(str, bad))}" if bad else part
    outcome: Outcome
    suspect = advice = ""
    if wanted is None:
        # Without a count, a link that is down beside links that are up is a fault; no link at all may be no NVLink.
        outcome = "fail" if bad and any_up else "observed"
    elif wanted == 0 and not up:
        outcome = "not-applicable"
    else:
        outcome = "pass" if len(up) == wanted and not (bad and wanted > 0) else "fail"
    if outcome == "fail":
        suspect = f"{where} ({_WHERE})" if bad else f"{part}: {len(up)} links are up ({_WHERE})"
        advice = "read nvidia-smi nvlink -s and -e, the fabric manager's log and dmesg (SXid); reseat the baseboard"
    elif not up and outcome == "observed":
        suspect = "no link is up on any GPU: NVLink not fitted, hidden by a virtual machine, or fabric manager not up"
    findings = [
        Finding(
            metric="nvlink.status",
            outcome=outcome,
            part=part,
            value=len(up),
            unit="links up",
            expected="" if wanted is None else str(wanted),
            source="" if wanted is None else expect.source_of("expected_nvlinks_per_gpu"),
            suspect=suspect,
            advice=advice,
        )
    ]
    detail: Outcome = "fail" if outcome == "fail" else "observed"
    for metric, links in (("nvlink.down", down), ("nvlink.disabled", disabled)):
        if links and outcome != "not-applicable":
            findings.append(Finding(metric=metric, outcome=detail, part=part, value=list(links), suspect=suspect))
    return findings


def _count(seen: LinkStates, expect: Expectations, *, nothing: bool) -> list[Finding]:
    wanted = expect.count("expected_gpus")
    wanted = expect.count("gpus_per_node") if wanted is None else wanted
    found = len({row.number for row in seen.gpus})
    if wanted is None:
        return []
    outcome: Outcome = "pass" if found == wanted else "fail"
    if nothing and outcome == "pass":
        outcome = "not-applicable"
    if outcome == "fail" and not seen.complete:
        outcome = "not-measured"
    return [
        Finding(
            metric="nvlink.gpus",
            outcome=outcome,
            value=found,
            unit="GPUs",
            expected=str(wanted),
            source=expect.source,
            suspect="" if found == wanted else "GPUs absent from DCGM's list" if found < wanted else "more GPUs",
        )
    ]


def _counters(given: Given) -> tuple[list[Finding], tuple[str, ...]]:
    text, whole = given.text()
    if not whole:
        raise ParseError("dcgmi nvlink -e: expected at most 32 MiB, found more; give the counters of one machine")
    seen = link_counters(text)
    findings = [Finding(metric="nvlink.complete", outcome="not-measured", value=e, suspect=_CUT) for e in seen.errors]
    if not seen.complete and not seen.errors:
        findings.append(Finding(metric="nvlink.complete", outcome="not-measured", suspect=f"{_CUT}: no end"))
    for key, kind in (("max_replay_errors", "replay"), ("max_recovery_errors", "recovery")):
        findings += _limited(seen, given.expect, key, kind)
    taken = {counter for counter in seen.counters if _kind(counter) in _kinds(given.expect)}
    findings += [_counter(counter) for counter in seen.counters if counter not in taken]
    gpus = sorted({counter.gpu for counter in seen.counters})
    wanted = given.expect.count("expected_gpus")
    if wanted is not None:
        findings.append(
            Finding(
                metric="nvlink.gpus",
                outcome="pass" if len(gpus) == wanted else "not-measured",
                value=len(gpus),
                expected=str(wanted),
                source=given.expect.source,
                suspect="" if len(gpus) == wanted else "counters of the other GPUs: -e prints one GPU at a time",
            )
        )
    if given.expect.asked("expected_nvlinks_per_gpu") and given.expect.count("expected_nvlinks_per_gpu"):
        says = "counters do not tell which links are up"
        findings.append(
            Finding(metric="nvlink.status", outcome="not-measured", source=given.expect.source, suspect=says)
        )
    return findings, ("when the errors happened: counters add up since the driver was loaded",)


def _kind(counter: Counter) -> str:
    return counter.name.split()[0].lower()


def _kinds(expect: Expectations) -> set[str]:
    return {k for k in ("replay", "recovery") if expect.count(f"max_{k}_errors") is not None}


def _limited(seen: LinkCounters, expect: Expectations, key: str, kind: str) -> list[Finding]:
    limit = expect.count(key)
    if limit is None:
        return []
    rows: Sequence[Counter] = [counter for counter in seen.counters if _kind(counter) == kind]
    if not rows:
        says = f"the output has no {kind} counter"
        return [
            Finding(
                metric=f"nvlink.{kind}_errors",
                outcome="not-measured",
                expected=f"<= {limit}",
                source=expect.source,
                suspect=says,
            )
        ]
    return [
        Finding(
            metric=f"nvlink.{kind}_errors",
            outcome="pass" if row.value <= limit else "fail",
            part=_part(row),
            value=int(row.value) if row.value.is_integer() else row.value,
            expected=f"<= {limit}",
            source=expect.source,
            suspect="" if row.value <= limit else f"{_part(row)} ({_WHERE})",
        )
        for row in rows
    ]


def _counter(row: Counter) -> Finding:
    value = int(row.value) if row.value.is_integer() else row.value
    name = "_".join(row.name.lower().split())
    return Finding(metric=f"nvlink.{name}", outcome="observed", part=_part(row), value=value)


def _part(row: Counter) -> str:
    return f"GPU {row.gpu}" if row.link is None else f"GPU {row.gpu} NVLink {row.link}"
