"""One value and the clause's own limit: on which side it lies, how far, and what its neighbours have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pytest_gpuready.model import Limit, Value


def side(limit: Limit, value: Value, peers: Mapping[str, Value], part: str) -> bool | None:
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


def uniform_reason(limit: Limit, peers: Mapping[str, Value]) -> str:
    """What the neighbours have, where all of them should have the same; "" for any other limit."""
    if not limit.uniform:
        return ""
    common = _common(peers)
    if common is None:
        return "the GPUs differ and no value has a majority: " + ", ".join(sorted({str(v) for v in peers.values()}))
    return f"its neighbours have {common}"


def margin_of(limit: Limit, value: Value) -> float | None:
    """The distance to the bound in percent of it, positive inside; None without a bound."""
    if isinstance(value, str) or limit.bound in (None, 0):
        return None
    bound = limit.bound or 1.0
    distance = (value - bound) if limit.at_least is not None else (bound - value)
    return 100.0 * distance / abs(bound)


def outside_inner(limit: Limit, value: Value) -> bool:
    """True between the bound and the stricter inner limit."""
    if isinstance(value, str) or limit.marginal is None:
        return False
    return value < limit.marginal if limit.at_least is not None else value > limit.marginal
