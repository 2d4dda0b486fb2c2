"""Which parts are far from their peers although they are inside the limit: what the fleet page draws and names."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.judge.peers import Policy, Sense
from pytest_gpuready.judge.survey import survey
from pytest_gpuready.model import Part

SMALLEST = 8
"""Fewer GPUs do not know how much such GPUs usually differ."""
NAMED_AT_MOST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One clause on the GPUs of several nodes. `far` are those far from their peers and not failing, `failing` those
    that FAIL, each worst first; `says` is why each of `far` is named."""

    clause: ClauseEntry
    values: tuple[float, ...]
    """Ascending."""
    far: tuple[tuple[PartEntry, float], ...]
    failing: tuple[tuple[PartEntry, float], ...]
    says: tuple[str, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def share(self, percent: float) -> float:
        """The value that so many percent of the parts do not exceed."""
        return self.values[round((len(self.values) - 1) * percent / 100)]


def spreads(certificate: Certificate) -> list[Spread]:
    """The clauses of page one that measure a quantity on GPUs of several nodes, in the order of the profile."""
    found = (_spread(c) for suite in certificate.suites for c in suite.clauses if c.per == "gpu" and c.headline)
    return [spread for spread in found if spread is not None]


def _spread(clause: ClauseEntry) -> Spread | None:
    # Degrees have an arbitrary zero: so many percent of them mean nothing.
    if words.bound_of(clause) is None or clause.unit in ("", "C"):
        return None
    numbers = words.numbers(clause)
    if len(numbers) < SMALLEST or all(value.is_integer() for _, value in numbers):
        return None
    by_part = {Part(node=part.node, index=words.split_part(part.part)[1]): (part, value) for part, value in numbers}
    if len({part.node for part in by_part}) < 2 or any(part.index < 0 for part in by_part):
        return None
    more = clause.at_least is not None
    told = survey({part: value for part, (_, value) in by_part.items()}, Sense.MORE if more else Sense.LESS, Policy())
    far: list[tuple[PartEntry, float]] = []
    says = []
    for outlier in told.outliers:
        gpus = [by_part[gpu] for gpu in outlier.gpus if by_part[gpu][0].outcome != "FAIL"]
        if gpus:
            far.append((min if more else max)(gpus, key=lambda pair: pair[1]))
            says.append(outlier.says(clause.unit))
    failing = [(part, value) for part, value in numbers if part.outcome == "FAIL"]
    return Spread(
        clause=clause,
        values=tuple(sorted(value for _, value in numbers)),
        far=tuple(far),
        failing=tuple(sorted(failing, key=lambda pair: pair[1] if more else -pair[1])),
        says=tuple(says),
    )
