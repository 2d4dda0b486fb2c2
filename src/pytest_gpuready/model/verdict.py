"""What follows from a measurement and a limit, for one clause on one part."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pytest_gpuready.model.clause import Limit
from pytest_gpuready.model.measurement import Value


class Outcome(enum.Enum):
    """The words that a clause can have on a part. An empty cell does not exist."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    MARGINAL = "MARGINAL"
    FAIL = "FAIL"
    NOT_MEASURED = "NOT MEASURED"
    NOT_TESTED = "NOT TESTED"
    NOT_APPLICABLE = "NOT APPLICABLE"
    WAIVED = "WAIVED"
    UNSTABLE = "UNSTABLE"
    OBSERVED = "OBSERVED"

    @property
    def reusable(self) -> bool:
        """True where a continued run may keep the measurement behind it."""
        return self in (Outcome.PASS, Outcome.MARGINAL, Outcome.OBSERVED)

    @property
    def open(self) -> bool:
        """True where the clause has no verdict: the run is INCOMPLETE while one of these stands."""
        return self in (Outcome.NOT_MEASURED, Outcome.NOT_TESTED, Outcome.UNSTABLE)


class Status(enum.Enum):
    """The verdict on the whole run and its exit code."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    INCOMPLETE = "INCOMPLETE"

    @property
    def exit_code(self) -> int:
        """0, 1 or 20; pytest's own 2 to 6 keep their meaning."""
        return {Status.ACCEPTED: 0, Status.REJECTED: 1, Status.INCOMPLETE: 20}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of one clause on one part.

    `value` and `limit` are None where nothing was measured or promised. `reason` is one clause of a sentence
    ("above the physical ceiling 63.0"). `margin` is the distance to the limit in percent of it, positive inside.
    `against` is the limit as it was applied to this part where that is not the clause's own: the one against its peers,
    with their median; it is what failed.
    """

    clause: str
    part: str
    outcome: Outcome
    value: Value | None = None
    limit: Limit | None = None
    reason: str = ""
    margin: float | None = None
    against: str = ""
