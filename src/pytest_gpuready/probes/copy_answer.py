"""What one run of the copies says about one metric: a reading, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.model import ProblemKind, Value


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run says about one metric."""

    value: Value
    detail: str = ""
    conditions: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why one run says nothing about one metric."""

    says: str
    kind: ProblemKind = ProblemKind.NOT_MEASURED


OneAnswer = Reading | Missing
