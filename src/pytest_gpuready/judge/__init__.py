"""(Measurement or problem, clause, peers) -> verdict. Pure and total: same input, same verdict, on any day.

Edge cases, in the order in which they are decided:
- a problem is NOT MEASURED, or OBSERVED where a virtual machine hides it;
- a value above the physical ceiling is a broken measurement: NOT MEASURED, whatever the limit says;
- an alarm in the watch (hardware Xid, uncorrected ECC) is FAIL, however good the number;
- without a limit of its own: OBSERVED, never PASS, however near its peers are; far from them is FAIL all the same;
- retests that disagree with the first run about the limit, its own or that against peers: UNSTABLE;
- peers that fall into two camps cannot tell who is right: NOT MEASURED. Too few of them leave it to the own limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_gpuready.judge.among import Seen
from pytest_gpuready.judge.limits import margin_of, outside_inner, side, uniform_reason
from pytest_gpuready.model import Clause, Measurement, Outcome, Problem, ProblemKind, Value, Verdict
from pytest_gpuready.model.units import show

Found = Measurement | Problem


def judge(  # noqa: PLR0911, PLR0912 - one return per rule, in the order in which they are decided
    clause: Clause,
    part: str,
    found: Found,
    *,
    peers: Mapping[str, Value],
    virtual: bool,
    seen: Sequence[Seen | None] = (),
) -> Verdict:
    """The verdict of one clause on one part.

    `peers` are the values of the same metric on all parts of the node, this one included; `virtual` says whether
    the node is a virtual machine, where clauses marked `hidden_in_vm` are not required. `seen` is the part among its
    peers in each of its runs, as `judge.among` looks at them; None, or nothing, where it was not compared.
    """

    def verdict(outcome: Outcome, reason: str = "", margin: float | None = None, against: str = "") -> Verdict:
        return Verdict(
            clause=clause.id,
            part=part,
            outcome=outcome,
            value=found.value if isinstance(found, Measurement) else None,
            limit=clause.limit,
            reason=reason,
            margin=margin,
            against=against,
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
    own = [side(limit, value, peers, part) if limit else True for value in values]
    if None in own:
        return verdict(Outcome.NOT_MEASURED, f"expected a number to compare with {limit}, found {found.value!r}")
    runs = [seen[number] if number < len(seen) else None for number in range(len(values))]
    far = [bool(run and run.far) for run in runs]
    good = [kept and not out for kept, out in zip(own, far, strict=True)]
    if len(set(good)) > 1:
        told = ", ".join(show(v, clause.unit) for v in values)
        return verdict(Outcome.UNSTABLE, f"runs disagree about the limit{_against(far)}: {told}")
    margin = margin_of(limit, found.value) if limit else None
    if any(far):
        return verdict(Outcome.FAIL, *_far(clause, runs, own))
    if limit and not good[0]:
        return verdict(
            Outcome.FAIL, uniform_reason(limit, peers) or ("outside its own limit" if runs[0] else ""), margin
        )
    now = next((run for run in reversed(runs) if run), None)
    if now and now.undecided:
        return verdict(Outcome.NOT_MEASURED, now.undecided)
    few = now.too_few if now else ""
    if limit is None:
        return verdict(Outcome.OBSERVED, "; ".join(filter(None, ("recorded, the profile gives no limit", few))))
    if limit.marginal is not None and outside_inner(limit, found.value):
        inner = f"outside the inner limit {show(limit.marginal, limit.unit)}"
        return verdict(Outcome.MARGINAL, "; ".join(filter(None, (inner, few))), margin)
    return verdict(Outcome.PASS, few, margin)


def _against(far: Sequence[bool]) -> str:
    return " against peers" if any(far) else ""


def _far(clause: Clause, runs: Sequence[Seen | None], own: Sequence[bool | None]) -> tuple[str, None, str]:
    """Reason, no margin, and the limit as applied, of a part that each run has found far from its peers or worse."""
    first = next(run for run in runs if run and run.far)
    said, where = [], first.where
    for run in runs:
        if run is None or not run.far:
            said.append("outside its own limit")
            continue
        said.append(run.says(clause.unit) + ("" if run.where == where else f" {run.where}"))
    kept = f"inside its own limit {clause.limit}, " if clause.limit and all(own) else ""
    whole = f"; {first.whole} stands out" if first.whole else ""
    reason = f"{kept}far from its peers {where}: {'; again '.join(said)}{whole}"
    return reason, None, first.applied(clause.peers) if clause.peers else ""
