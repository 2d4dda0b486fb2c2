"""Findings on the tests of a `dcgmi diag` run: one a test and part, the worst over all passes, with its reasons."""

from __future__ import annotations

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome, worst
from pytest_gpuready.parse.dcgm_errors import CATEGORIES, SEVERITIES
from pytest_gpuready.parse.dcgm_messages import Number, links_down, numbers
from pytest_gpuready.parse.dcgm_parts import PartResult, Says, meaning_of, named, part_results
from pytest_gpuready.parse.dcgm_run import DiagError, DiagRun, Status

OWN = "DCGM's own verdict"
TEXT_SHOWN = 400
_OUTCOME: dict[Says, Outcome] = {Says.PASSED: "pass", Says.FAILED: "fail", Says.UNMEASURED: "not-measured"}
_WORST_FIRST = (Says.FAILED, Says.UNMEASURED, Says.PASSED)
Rows = dict[tuple[str, str], list[tuple[int, PartResult]]]
"""Test and part -> pass number and result."""


def findings_of_tests(run: DiagRun, expect: Expectations) -> list[Finding]:
    """Findings of all tests. Where the results are another machine's, they are only observed."""
    fitted = expect.count("expected_nvlinks_per_gpu") != 0
    rows: Rows = {}
    for number, one in enumerate(run.passes, start=1):
        for result in part_results(one, nvlink_fitted=fitted):
            rows.setdefault((result.test.name, result.part), []).append((number, result))
    found: list[Finding] = []
    hardware = 0
    for same in rows.values():
        number, result = min(same, key=lambda row: _WORST_FIRST.index(row[1].says))
        found += _findings(result, number, elsewhere=bool(run.unreachable_host), passes=len(run.passes))
        hardware += result.blames_hardware
    if any(finding.outcome == "fail" for finding in found):
        found.append(Finding(metric="dcgm.hardware_failures", outcome="observed", value=hardware))
    skipped = {r.test.name for same in rows.values() for _, r in same if r.printed == Status.SKIP.value}
    if skipped:
        found.append(Finding(metric="dcgm.skipped_tests", outcome="observed", value=len(skipped)))
    return [*found, *_deployment(rows, elsewhere=bool(run.unreachable_host))]


def _findings(row: PartResult, number: int, *, elsewhere: bool, passes: int) -> list[Finding]:
    metric = f"dcgm.{row.test.name}"
    outcome: Outcome = "observed" if elsewhere else _OUTCOME[row.says]
    found = [
        Finding(
            metric=metric,
            outcome=outcome,
            part=row.part,
            value=row.printed,
            expected="Pass",
            source=OWN,
            suspect=row.suspect,
            advice=row.remedy,
        )
    ]
    if passes > 1 and row.says is not Says.PASSED:
        found.append(Finding(metric=f"{metric}.iteration", outcome="observed", part=row.part, value=number))
    for error in row.errors:
        found += _details(metric, error, named(error, row.part), outcome)
    for text in row.info:
        found += [_number(metric, one, row.part, "observed") for one in numbers(text)]
    return found


def _details(metric: str, error: DiagError, part: str, outcome: Outcome) -> list[Finding]:
    def observed(name: str, value: int | str | None) -> list[Finding]:
        if value is None:
            return []
        return [Finding(metric=f"{metric}.{name}", outcome="observed", part=part, value=value)]

    known = meaning_of(error)
    severity, category = _name(error.severity, SEVERITIES), _name(error.category, CATEGORIES)
    found = [
        *observed("error_id", known.id if known.id >= 0 else None),
        *observed("error_name", known.name if known.id >= 0 else None),
        *observed("error_severity", error.severity),
        *observed("error_severity_name", severity),
        *observed("error_category", error.category),
        *observed("error_category_name", category),
        *observed("error_text", error.text[:TEXT_SHOWN] or None),
    ]
    for gpu, links in links_down(error.text).items():
        say = Finding(
            metric=f"{metric}.nvlinks_down", outcome="observed", part=f"GPU {gpu}", value=len(links), unit="links"
        )
        found.append(say)
    return [*found, *(_number(metric, one, part, outcome) for one in numbers(error.text))]


def _number(metric: str, number: Number, part: str, outcome: Outcome) -> Finding:
    side = ">=" if number.floor else "<="
    return Finding(
        metric=f"{metric}.{number.name}",
        outcome="observed" if number.limit is None else outcome,
        part=part,
        value=int(number.value) if number.value.is_integer() and not number.unit else number.value,
        unit=number.unit,
        expected="" if number.limit is None else f"{side} {number.limit:g}",
        source="" if number.limit is None else "DCGM's own limit",
    )


def _name(number: int | None, names: tuple[str, ...]) -> str | None:
    return names[number] if number is not None and 0 <= number < len(names) else None


def _deployment(rows: Rows, *, elsewhere: bool) -> list[Finding]:
    """Up to 3.x the software checks are separate tests; one finding says how all of them went."""
    checks = [row for same in rows.values() for _, row in same if row.test.software_check]
    names = {row.test.name for row in checks}
    if not names:
        return []
    outcome = worst(_OUTCOME[row.says] for row in checks)
    bad = {row.test.name for row in checks if row.says is not Says.PASSED}
    suspects = dict.fromkeys(row.suspect for row in checks if _OUTCOME[row.says] == outcome and row.suspect)
    return [
        Finding(
            metric="dcgm.Deployment",
            outcome="observed" if elsewhere else outcome,
            value=f"{len(names) - len(bad)} of {len(names)} checks pass",
            expected="all pass",
            source=OWN,
            suspect="; ".join(suspects),
        )
    ]
