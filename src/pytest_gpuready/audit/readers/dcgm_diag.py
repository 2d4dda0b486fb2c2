"""Reader of `dcgmi diag`, JSON and table."""

from __future__ import annotations

import re

from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.dcgm_asked import DURATION_S, Asked, asked
from pytest_gpuready.audit.readers.dcgm_expected import exit_status, expected_findings
from pytest_gpuready.audit.readers.dcgm_not_covered import not_covered
from pytest_gpuready.audit.readers.dcgm_tests import findings_of_tests
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_diag import diag_run, exit_meaning
from pytest_gpuready.parse.dcgm_reasons import reason
from pytest_gpuready.parse.dcgm_run import DiagRun, Status, canonical

_FORMATS = {"h": "FP16", "s": "FP32", "d": "FP64"}
_RAN = re.compile(r"Running with precisions:([^\n]*)")
_BY_EXIT = {1: "the command line of dcgmi", 254: "the command line of dcgmi"}


def read_diag(given: Given) -> Reading:
    """Every finding on the run, then what it does not cover."""
    text, whole = given.text()
    wish = asked(given.command)
    try:
        run = diag_run(text, "", given.exit_code)
    except ParseError as error:
        return Reading(findings=(*_nothing(given, str(error)), *expected_findings(_EMPTY, given, wish)))
    tests = findings_of_tests(run, given.expect)
    doubts = [*run.doubts, *([] if whole else ["the input is larger than what is read"])]
    failed = any(finding.outcome == "fail" for finding in tests)
    findings = [
        *_whole(run, doubts, wish, failed),
        *tests,
        *expected_findings(run, given, wish),
        *_precision(run, wish),
        *_short(run, wish, given),
        *exit_status(run, explained=failed or bool(run.runtime_errors)),
    ]
    if run.driver:
        findings.append(Finding(metric="dcgm.driver", outcome="observed", value=run.driver))
    return Reading(
        findings=tuple(findings),
        tool_version=run.version,
        not_covered=not_covered(run, wish, given.expect),
    )


_EMPTY = DiagRun(form="text")


def _nothing(given: Given, says: str) -> list[Finding]:
    """No result and no reason: the exit code is all that may tell."""
    code = given.exit_code
    meaning = f"exit code {code}: {exit_meaning(code)}" if code else "no result in the output"
    suspect = _BY_EXIT.get(code or 0, f"dcgmi did not print a result ({meaning})")
    return [
        Finding(
            metric="dcgm",
            outcome="not-measured",
            value=meaning,
            expected="results",
            suspect=suspect,
            advice=says.rsplit("; ", 1)[-1],
        )
    ]


def _whole(run: DiagRun, doubts: list[str], wish: Asked, failed: bool) -> list[Finding]:
    """What casts doubt on the run as a whole."""
    found: list[Finding] = []
    for error in run.runtime_errors:
        suspect, advice = reason(error)
        if wish.gpus is not None and "Bad parameter" in error:
            suspect = f"number of GPUs: DCGM does not see the {wish.gpus} that -n asks for"
        found.append(
            Finding(
                metric="dcgm",
                outcome="not-measured",
                value=error[:400],
                expected="results",
                suspect=suspect,
                advice=advice,
            )
        )
    for doubt in doubts:
        found.append(
            Finding(
                metric="dcgm.complete",
                outcome="not-measured",
                value=doubt,
                expected="the whole output",
                suspect="output cut or damaged",
                advice="keep all of its output",
            )
        )
    if not found and not run.passes and not run.unreachable_host:
        says = "no results in the output"
        found.append(Finding(metric="dcgm", outcome="not-measured", expected="results", suspect=says))
    if run.overall == "Fail" and not failed and not found:
        says = "the overall result is Fail and no test says why"
        found.append(
            Finding(metric="dcgm.overall", outcome="not-measured", value="Fail", expected="Pass", suspect=says)
        )
    return found


def _short(run: DiagRun, wish: Asked, given: Given) -> list[Finding]:
    """A test that was told to last less than DCGM lets it last is not the test that was required."""
    required = {canonical(str(name)) for name in given.expect.list("required_tests") or ()}
    ran = {test.key for one in run.passes for test in one.tests}
    return [
        Finding(
            metric=f"dcgm.{test}.duration",
            outcome="not-measured" if test in required else "observed",
            value=value[:40],
            unit="s",
            expected=f">= {default:g}",
            source="DCGM's own default",
            suspect=f"{test} was cut to {value[:40]} s by the command: what shows later was not looked for",
            advice="run it for its full time",
        )
        for test, (value, default) in wish.short(DURATION_S).items()
        if test in ran
    ]


def _precision(run: DiagRun, wish: Asked) -> list[Finding]:
    """A number format that DCGM does not have is accepted in silence: its default ran instead. Others must have run."""
    asked_for = wish.parameters.get("diagnostic.precision", "").lower()
    if not asked_for:
        return []
    rows = [
        [found[1].strip() for text in result.info for found in _RAN.finditer(text)]
        for one in run.passes
        for test in one.tests
        for result in test.results
        if test.key == "diagnostic" and result.status in (Status.PASS, Status.UNREADABLE)
    ]
    ran = [text for row in rows for text in row]
    if set(asked_for) <= set(_FORMATS):
        names = [_FORMATS[letter] for letter in dict.fromkeys(asked_for)]
        lacking = [n for n in names if not all(any(re.search(rf"\b{n}[ :=]*1\b", t) for t in row) for row in rows)]
        if not lacking:
            return []
        return [
            Finding(
                metric="dcgm.diagnostic.precision",
                outcome="not-measured",
                value=next(
                    (text for text in ran if any(not re.search(rf"\b{n}[ :=]*1\b", text) for n in lacking)), None
                ),
                expected=asked_for,
                source="the command",
                suspect=f"{', '.join(lacking)} was asked for and the output does not say that it ran on every GPU",
                advice="run the test again, and look for 'Running with precisions' beside every GPU",
            )
        ]
    return [
        Finding(
            metric="dcgm.diagnostic.precision",
            outcome="not-measured",
            value=ran[0] if ran else None,
            expected=asked_for,
            source="the command",
            suspect=f"DCGM has no {asked_for}: it takes the word and runs its default formats",
            advice="measure that format with a GEMM of its own",
        )
    ]
