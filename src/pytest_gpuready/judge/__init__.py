"""(Measurement or problem, clause, peers) -> verdict. Pure and total: same input, same verdict, on any day.

Edge cases, in the order in which they are decided:
- a problem is NOT MEASURED, or OBSERVED where a virtual machine hides it;
- a value above the physical ceiling is a broken measurement: NOT MEASURED, whatever the limit says;
- an alarm in the watch (hardware Xid, uncorrected ECC) is FAIL, however good the number;
- without a limit: OBSERVED, never PASS;
- retests that disagree with the first run about the limit: UNSTABLE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pytest_gpuready.model import Clause, Limit, Measurement, Outcome, Problem, ProblemKind, Value, Verdict
from pytest_gpuready.model.units import show

Found = Measurement | Problem


def judge(  # noqa: PLR0911 - one return per rule, in the order in which they are decided
    clause: Clause, part: str, found: Found, *, peers: Mapping[str, Value], virtual: bool
) -> Verdict:
    """The verdict of one clause on one part.

    `peers` are the values of the same metric on all parts of the node, this one included; `virtual` says whether
    the node is a virtual machine, where clauses marked `hidden_in_vm` are not required.
    """

    def verdict(outcome: Outcome, reason: str = "", margin: float | None = None) -> Verdict:
        value = found.value if isinstance(found, Measurement) else None
        return Verdict(
            clause=clause.id, part=part, outcome=outcome, value=value, limit=clause.limit, reason=reason, margin=margin
        )

    if isinstance(found, Problem):
        if found.kind is ProblemKind.HIDDEN and clause.hidden_in_vm and virtual:
            return verdict(Outcome.OBSERVED, f"hidden by the virtual machine: {found.says}")
        return verdict(Outcome.NOT_MEASURED, found.says)

    limit = clause.limit
    values = (found.value, *found.repeats)
    if limit is not None and limit.ceiling is not None:
        for value in values:
            if isinstance(value, str):
                return verdict(Outcome.NOT_MEASURED, f"expected a number, found {value!r}")
            if value > limit.ceiling:
                reason = f"{show(value, limit.unit)} is above the physical ceiling {show(limit.ceiling, limit.unit)}"
                return verdict(Outcome.NOT_MEASURED, reason)
    alarm = found.watch.alarm if found.watch else ""
    if alarm:
        return verdict(Outcome.FAIL, alarm)
    if limit is None:
        return verdict(Outcome.OBSERVED, "recorded, the profile gives no limit")
    sides = [_side(limit, value, peers, part) for value in values]
    if None in sides:
        return verdict(Outcome.NOT_MEASURED, f"expected a number to compare with {limit}, found {found.value!r}")
    if len(set(sides)) > 1:
        told = ", ".join(show(v, clause.unit) for v in values)
        return verdict(Outcome.UNSTABLE, f"runs disagree about the limit: {told}")
    margin = _margin(limit, found.value)
    if not sides[0]:
        return verdict(Outcome.FAIL, _uniform_reason(limit, peers, part), margin)
    if limit.marginal is not None and _outside_inner(limit, found.value):
        return verdict(Outcome.MARGINAL, f"outside the inner limit {show(limit.marginal, limit.unit)}", margin)
    return verdict(Outcome.PASS, "", margin)


def _side(limit: Limit, value: Value, peers: Mapping[str, Value], part: str) -> bool | None:
    """True inside the limit, False outside, None where value and limit cannot be compared."""
    if limit.uniform:
        return value == _common(peers) if len(set(peers.values())) > 1 else part in peers
    if limit.equals is not None:
        if isinstance(value, str) is not isinstance(limit.equals, str):
            return None
        return value == limit.equals
    if isinstance(value, str):
        return None
    return value >= limit.at_least if limit.at_least is not None else value <= (limit.at_most or 0.0)


def _common(peers: Mapping[str, Value]) -> Value | None:
    """The value that most peers share; None where no value has a majority: then nobody is known to be right."""
    (value, count), *_ = Counter(peers.values()).most_common(1)
    return value if count * 2 > len(peers) else None


def _uniform_reason(limit: Limit, peers: Mapping[str, Value], part: str) -> str:
    if not limit.uniform:
        return ""
    common = _common(peers)
    if common is None:
        return "the GPUs differ and no value has a majority: " + ", ".join(sorted({str(v) for v in peers.values()}))
    return f"its neighbours have {common}"


def _margin(limit: Limit, value: Value) -> float | None:
    if isinstance(value, str) or limit.bound in (None, 0):
        return None
    bound = limit.bound or 1.0
    distance = (value - bound) if limit.at_least is not None else (bound - value)
    return 100.0 * distance / abs(bound)


def _outside_inner(limit: Limit, value: Value) -> bool:
    if isinstance(value, str) or limit.marginal is None:
        return False
    return value < limit.marginal if limit.at_least is not None else value > limit.marginal
