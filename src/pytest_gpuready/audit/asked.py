"""What every reader owes: expectations that its tool cannot answer, an exit code, and a text that says nothing."""

from __future__ import annotations

from collections.abc import Collection

from pytest_gpuready.audit.reader import Given
from pytest_gpuready.audit.report import Finding, Outcome

FIRST_HTTP_STATUS = 100
ADVICE_CUT = "take the output again, whole"


def unanswered(given: Given, tool: str, answers: Collection[str], *, sysctls: bool = False) -> list[Finding]:
    """One not-measured finding for each expectation that this tool says nothing about."""
    return [
        Finding(
            metric=key,
            outcome="not-measured",
            expected=given.expect.told(key),
            source=given.expect.source,
            suspect=f"{tool} does not answer this",
            advice="audit the output of a tool that does",
        )
        for key in tuple(given.expect.keys())
        if key not in answers and not (sysctls and key in given.expect.sysctls())
    ]


def ended_badly(given: Given, metric: str, *, normal: Collection[int] = (0,)) -> list[Finding]:
    """Not-measured where the tool is known to have ended with a code that is not normal for it."""
    if given.exit_code is None or given.exit_code in normal:
        return []
    return [
        Finding(
            metric=metric,
            outcome="not-measured",
            value=given.exit_code,
            expected=f"exit code {' or '.join(map(str, sorted(normal)))}",
            source="the tool's own verdict",
            suspect="the tool did not end normally, what it printed may be a part",
            advice=ADVICE_CUT,
        )
    ]


def unreadable(metric: str, why: str) -> Finding:
    """The text is not what the tool prints, or says nothing."""
    return Finding(metric=metric, outcome="not-measured", suspect=" ".join(why.split())[:300], advice=ADVICE_CUT)


def http_status(given: Given) -> int | None:
    """The HTTP status that the input was answered with, where the exit code is one."""
    code = given.exit_code
    return code if code is not None and code >= FIRST_HTTP_STATUS else None


def within(
    value: float | None, limit: float | None, *, metric: str, part: str, unit: str, source: str, suspect: str
) -> list[Finding]:
    """A value against a greatest allowed one; not-measured where the text does not say the value; nothing unasked."""
    if limit is None:
        return []
    outcome: Outcome = "not-measured" if value is None else "pass" if value <= limit else "fail"
    says = {"not-measured": "the output does not say this", "fail": suspect}.get(outcome, "")
    shown = int(value) if value is not None and float(value).is_integer() else value
    return [
        Finding(
            metric=metric,
            outcome=outcome,
            part=part,
            value=shown,
            unit=unit,
            expected=f"<= {limit:g}",
            source=source,
            suspect=says,
        )
    ]
