"""What an audit says: findings by input, the worst of them, and what a reader could wrongly believe was proven."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

SCHEMA = "gpuready-audit/1"

Outcome = Literal["pass", "marginal", "fail", "not-measured", "not-applicable", "observed"]

_WORST_FIRST: tuple[Outcome, ...] = ("fail", "not-measured", "marginal", "pass", "observed", "not-applicable")


class Finding(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
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


class InputReport(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One input: the tool that printed it, what it says, and what it does not cover."""

    path: str
    tool: str
    tool_version: str = ""
    outcome: Outcome
    findings: list[Finding]
    not_covered: list[str] = []


class Report(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
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
