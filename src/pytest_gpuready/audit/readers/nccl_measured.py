"""A run of nccl-tests with what its source knows beside it, and the names of what is judged on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.parse.nccl_tests import Run

TOOL = "the tool's own verdict"


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
class Judged:
    """Findings on a run and what it does not prove, as they are made."""

    findings: list[Finding] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)


def metric_of(collective: str) -> str:
    """`all_reduce` -> `nccl.allreduce`; a collective that nobody named is `nccl.collective`."""
    return f"nccl.{re.sub(r'[^a-z0-9]', '', collective.lower()) or 'collective'}"
