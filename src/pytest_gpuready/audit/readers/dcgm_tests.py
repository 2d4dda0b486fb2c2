"""Findings on the tests of a `dcgmi diag` run: one a test and part, the worst over all passes, with its reasons.

A test failed if its summary or any result says so; a GPU is blamed only where an error stands beside it. A Skip, a
null, an absent result and a status that cannot be read are not measured. An error beside a Pass counts like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding, Outcome, worst
from pytest_gpuready.parse.dcgm_errors import CATEGORIES, HARDWARE, SEVERITIES, UNMEASURED, Meaning, meaning
from pytest_gpuready.parse.dcgm_messages import Number, error_id, gpu_of, links_down, numbers
from pytest_gpuready.parse.dcgm_run import SUPPRESSED, DiagError, DiagPass, DiagRun, EntityResult, Status, TestRun

OWN = "DCGM's own verdict"
NVLINK_DOWN = 14
TEXT_SHOWN = 400
_OF_THE_NODE = ("nccl_tests",)
"""Tests that may have one result for the node; a Pass of any other needs the results of its GPUs."""
_BAD = (Status.FAIL, Status.WARN)
_AGAIN = "run the test again on all GPUs"
_ALLOW = "allow the test, or use a configuration that knows this GPU"
_CLEAR = "clear the error that is named, then run it again"
_NO_NVLINK = "diagnostic configuration: NVLink is not fitted (0 links expected), so no NVLink or GPU fault is shown"
_NVLINK_OFF = "run pcie again with its NVLink check off (-p pcie.test_nvlink_status=false), or with a newer DCGM"
_CONFIGURATION = "diagnostic configuration (GPU not in DCGM's SKU file, or is_allowed false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one test says of one part in one pass, before it becomes findings."""

    test: TestRun
    part: str
    outcome: Outcome
    value: str | None
    suspect: str = ""
    advice: str = ""
    errors: tuple[DiagError, ...] = ()
    info: tuple[str, ...] = ()
    iteration: int = 1


def test_findings(run: DiagRun, expect: Expectations) -> list[Finding]:
    """Findings of all tests. Where the results are another machine's, they are only observed."""
    rows: dict[tuple[str, str], list[Row]] = {}
    for number, one in enumerate(run.passes, start=1):
        for test in one.tests:
            for row in _rows(test, one, expect):
                rows.setdefault((test.name, row.part), []).append(replace(row, iteration=number))
    found: list[Finding] = []
    hardware = 0
    for same in rows.values():
        outcome = worst(row.outcome for row in same)
        row = next(row for row in same if row.outcome == outcome)
        found += _findings(row, elsewhere=bool(run.unreachable_host), passes=len(run.passes))
        blamed = [_meaning(e) for e in row.errors if not _not_fitted(_meaning(e), expect)]
        hardware += row.outcome == "fail" and any(one.weight == HARDWARE for one in blamed)
    failed = any(finding.outcome == "fail" for finding in found)
    if failed:
        found.append(Finding(metric="dcgm.hardware_failures", outcome="observed", value=hardware))
    skipped = {row.test.name for same in rows.values() for row in same if row.value == Status.SKIP.value}
    if skipped:
        found.append(Finding(metric="dcgm.skipped_tests", outcome="observed", value=len(skipped)))
    return [*found, *_deployment(rows, elsewhere=bool(run.unreachable_host))]


def _rows(test: TestRun, one: DiagPass, expect: Expectations) -> list[Row]:
    """Every part of one test in one pass."""
    rows: list[Row] = []
    unblamed: list[EntityResult] = []
    own_errors = any(result.errors for result in test.results) or bool(test.errors)
    left = test.errors
    for result in test.results:
        errors = result.errors
        if result.number is None and result.status in _BAD and not errors:
            errors, left = left, ()  # "Fail - All": the errors below it are this row's
        if result.status in _BAD and not errors and own_errors and result.number is not None:
            unblamed.append(result)
            continue
        suppressed = tuple(DiagError(text=text[len(SUPPRESSED) :].strip()) for text in result.suppressed)
        outcome, suspect, advice = _judge(test, result, (*errors, *suppressed), bool(suppressed), expect)
        row = Row(
            test=test,
            part=result.part,
            outcome=outcome,
            value=result.status.value if result.status is not Status.UNREADABLE else None,
            suspect=suspect,
            advice=advice,
            errors=(*errors, *suppressed),
            info=result.info,
        )
        rows.append(row)
    for error in left:
        part = _gpu(error, "")
        outcome, suspect, advice = _by_errors((error,), part, expect)
        rows.append(
            Row(test=test, part=part, outcome=outcome, value="Fail", suspect=suspect, advice=advice, errors=(error,))
        )
    if unblamed:
        parts = ", ".join(result.part for result in unblamed)
        says = "no error names this part: DCGM fails all of them together"
        rows.append(Row(test=test, part=parts, outcome="not-measured", value="Fail", suspect=says, advice=_CLEAR))
    if test.summary in _BAD and not any(row.outcome == "fail" or row.errors for row in rows):
        says = f"{test.name}: its summary says Fail and gives no reason"
        rows.append(Row(test=test, part="", outcome="fail", value="Fail", suspect=says))
    if test.summary is Status.UNREADABLE:
        says = "the test's summary cannot be read"
        rows.append(Row(test=test, part="", outcome="not-measured", value=None, suspect=says))
    if not test.results and not rows:
        rows.append(_without_results(test))
    return [*rows, *_absent(test, one)]


def _without_results(test: TestRun) -> Row:
    """A test whose summary is all that there is."""
    if test.summary is Status.PASS and not test.nulls and test.key in _OF_THE_NODE:
        return Row(test=test, part="", outcome="pass", value="Pass", info=test.info)
    if test.summary is Status.SKIP:
        return Row(test=test, part="", outcome="not-measured", value="Skip", suspect=_skipped(test), advice=_ALLOW)
    return Row(test=test, part="", outcome="not-measured", value=None, suspect=f"no GPU has a result of {test.name}")


def _absent(test: TestRun, one: DiagPass) -> list[Row]:
    """Parts that have no result, or two."""
    says = {part: "two results for one part" for part in test.twice() if part}
    tested = {result.number for result in test.results if result.entity == "GPU"}
    missing: list[int] = []
    if tested and None not in tested and not test.software_check:  # those name a GPU only where it failed
        missing = [number for number in one.gpu_numbers() if number not in tested]
        for number in missing:
            says[f"GPU {number}"] = f"GPU {number}: no result of {test.name} (null or left out: it did not run there)"
    if test.nulls > len(missing):
        says[""] = f"{test.nulls} results are null: those did not run"
    return [
        Row(test=test, part=part, outcome="not-measured", value=None, suspect=why, advice=_AGAIN)
        for part, why in says.items()
    ]


def _judge(  # noqa: PLR0911 - one return per status
    test: TestRun, result: EntityResult, errors: tuple[DiagError, ...], suppressed: bool, expect: Expectations
) -> tuple[Outcome, str, str]:
    """Outcome, suspect and advice of one result."""
    part = result.part
    if result.status in _BAD:
        if errors:
            return _by_errors(errors, part, expect)
        return "fail", f"{part or test.name} (DCGM gives no reason)", "run the test again with -v and read nvvs.log"
    if result.status is Status.PASS:
        if not errors:
            return "pass", "", ""
        outcome, suspect, advice = _by_errors(errors, part, expect)
        beside = "suppressed by --ignoreErrorCodes" if suppressed else "beside a Pass"
        return outcome, f"{suspect} (error {beside})", advice
    if result.status is Status.SKIP:
        if errors:
            outcome, suspect, advice = _by_errors(errors, part, expect)
            return (outcome if test.summary in _BAD else "not-measured"), suspect, advice
        return "not-measured", _skipped(test), _ALLOW
    if result.status is Status.NOT_RUN:
        return "not-measured", f"{test.name} did not run", "run the test again"
    return "not-measured", "the status cannot be read", "keep the whole output"


def _skipped(test: TestRun) -> str:
    held = ", or memory held by another process" if test.key == "memory" else ""
    return f"{_CONFIGURATION}{held}"


def _by_errors(errors: tuple[DiagError, ...], part: str, expect: Expectations) -> tuple[Outcome, str, str]:
    """By our weights: not measured if every error says that the test could not do its work, else failed."""
    known = [_meaning(error) for error in errors]
    outcome: Outcome = "not-measured" if all(one.weight == UNMEASURED for one in known) else "fail"
    suspects: list[str] = []
    for error, one in zip(errors, known, strict=True):
        if _not_fitted(one, expect):
            suspects.append(_NO_NVLINK)
        else:
            suspects.append(one.suspect_of(_gpu(error, part)))
    advice = _NVLINK_OFF if suspects[0] == _NO_NVLINK else known[0].remedy
    return outcome, "; ".join(dict.fromkeys(suspects)), advice


def _not_fitted(one: Meaning, expect: Expectations) -> bool:
    """NVLinks called down on a machine that is expected to have none."""
    return one.id == NVLINK_DOWN and expect.count("expected_nvlinks_per_gpu") == 0


def _gpu(error: DiagError, part: str) -> str:
    if part and not part.startswith("all "):
        return part
    number = gpu_of(error.text)
    return f"GPU {number}" if number is not None else part


def _meaning(error: DiagError) -> Meaning:
    return meaning(error.id if error.id is not None else error_id(error.text))


def _findings(row: Row, *, elsewhere: bool, passes: int) -> list[Finding]:
    metric = f"dcgm.{row.test.name}"
    outcome: Outcome = "observed" if elsewhere else row.outcome
    found = [
        Finding(
            metric=metric,
            outcome=outcome,
            part=row.part,
            value=row.value,
            expected="Pass",
            source=OWN,
            suspect=row.suspect,
            advice=row.advice,
        )
    ]
    if passes > 1 and row.outcome != "pass":
        found.append(Finding(metric=f"{metric}.iteration", outcome="observed", part=row.part, value=row.iteration))
    for error in row.errors:
        found += _details(metric, error, _gpu(error, row.part), outcome)
    for text in row.info:
        found += [_number(metric, number, row.part, "observed") for number in numbers(text)]
    return found


def _details(metric: str, error: DiagError, part: str, outcome: Outcome) -> list[Finding]:
    def observed(name: str, value: int | str | None) -> list[Finding]:
        if value is None:
            return []
        return [Finding(metric=f"{metric}.{name}", outcome="observed", part=part, value=value)]

    number = error.id if error.id is not None else error_id(error.text)
    severity, category = _name(error.severity, SEVERITIES), _name(error.category, CATEGORIES)
    found = [
        *observed("error_id", number),
        *observed("error_name", meaning(number).name if number is not None else None),
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


def _deployment(rows: dict[tuple[str, str], list[Row]], *, elsewhere: bool) -> list[Finding]:
    """Up to 3.x the software checks are separate tests; one finding says how all of them went."""
    checks = [row for same in rows.values() for row in same if row.test.software_check]
    names = {row.test.name for row in checks}
    if not names:
        return []
    outcome = worst(row.outcome for row in checks)
    bad = {row.test.name for row in checks if row.outcome != "pass"}
    suspects = dict.fromkeys(row.suspect for row in checks if row.outcome == outcome and row.suspect)
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
