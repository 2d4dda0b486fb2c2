"""What an audit says: findings by input, the worst of them, and what a reader could wrongly believe was proven.

Plain dataclasses and the standard library's JSON: an audit of one small file is over in less time than it takes to
load more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "gpuready-audit/1"

Outcome = Literal["pass", "marginal", "fail", "not-measured", "not-applicable", "observed"]

_WORST_FIRST: tuple[Outcome, ...] = ("fail", "not-measured", "marginal", "pass", "observed", "not-applicable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the input says about one part.

    `value` is as read, never a default: None where nothing was said. `expected` is the expectation it was held against
    and `source` where that comes from ("--expect", "case.yaml given", "the tool's own verdict", a profile). `suspect`
    names the part to look at when the outcome is not good, `advice` the next thing to do.
    """

    metric: str
    outcome: Outcome
    part: str = ""
    value: float | int | str | list[float | int | str] | None = None
    unit: str = ""
    expected: str = ""
    source: str = ""
    suspect: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReport:
    """One input: the tool that printed it, what it says, and what it does not cover."""

    path: str
    tool: str
    tool_version: str = ""
    outcome: Outcome
    findings: list[Finding]
    not_covered: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole audit; its outcome is the worst of its inputs."""

    schema: Literal["gpuready-audit/1"] = "gpuready-audit/1"
    inputs: list[InputReport]
    outcome: Outcome


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """fail, then not-measured, then marginal, then pass; observed and not-applicable only when nothing else is left.

    Of nothing it is not-measured: an input that says nothing proves nothing.
    """
    seen = set(outcomes)
    return next((outcome for outcome in _WORST_FIRST if outcome in seen), "not-measured")


def exit_code(outcome: Outcome) -> int:
    """0 for pass and marginal, 1 for fail, 20 for the rest."""
    return {"pass": 0, "marginal": 0, "fail": 1}.get(outcome, 20)


def to_json(report: Report) -> str:
    """The report as JSON, in ASCII; a number that JSON does not have (infinite, not a number) is null."""
    import json  # noqa: PLC0415 - a report for people does without

    return json.dumps(_plain(dataclasses.asdict(report)), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
