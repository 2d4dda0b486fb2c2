"""Rules of a baseline of a collective: its conditions are whole, it is said once, and physics has the last word.

Physics is asked on the wire and not on busbw: what the NVLinks that the profile promises and the stated rails carry.
"""

from __future__ import annotations

from typing import Any

from pytest_gpuready.judge.maximum import Hardware, ceiling
from pytest_gpuready.judge.wire import Shape, across, inside
from pytest_gpuready.model.baseline import size_of
from pytest_gpuready.parse.yaml_file import says_something, shown
from pytest_gpuready.profiles.lint_limit import Wrong, source_rules
from pytest_gpuready.profiles.merge import Merged

CONDITIONS = ("collective", "ranks", "nodes", "algorithm", "nvls", "rails", "rail_gbit_per_s")
NO_ALGORITHM = ("alltoall", "sendrecv")


def baseline_rules(merged: Merged) -> None:
    """Add a finding to `merged` for every rule that a baseline breaks."""
    seen: dict[tuple[Any, ...], str] = {}
    for name, (entry, file) in merged.collectives.items():

        def wrong(at: tuple[str, ...], says: str, name: str = name, file: Any = file) -> None:
            merged.findings.append(file.finding(("collectives", name, *at), says))

        source_rules(entry, wrong)
        if _conditions(entry, wrong):
            _limit(merged, entry, wrong)
        same = (*(entry.get(key, 1 if key == "nodes" else None) for key in CONDITIONS), size_of(entry["size"]))
        if same in seen:
            wrong((), f"expected each set of conditions once, found those of {seen[same]} again; keep one")
        seen.setdefault(same, name)


def hardware_of(clauses: dict[str, dict[str, Any]], entry: dict[str, Any]) -> Hardware:
    """What a node must have to keep the profile: NVLinks and their rate by its clauses, rails by the baseline."""
    return Hardware(
        nvlinks=int(_promised(clauses, "nvlink.links.active")),
        nvlink_mb_per_s=_promised(clauses, "nvlink.speed"),
        rails=(float(entry.get("rail_gbit_per_s", 0.0)),) * entry.get("rails", 0),
    )


def ceiling_of(merged: Merged, entry: dict[str, Any]) -> float | None:
    """The busbw that the wire allows under these conditions; None where the profile does not say what the wire is."""
    found = ceiling(_shape(entry), hardware_of(merged.clauses, entry))
    return found.busbw_gb_per_s if found else None


def _shape(entry: dict[str, Any]) -> Shape:
    return Shape(
        collective=entry["collective"],
        ranks=entry["ranks"],
        nodes=entry.get("nodes", 1),
        algorithm=entry.get("algorithm", ""),
    )


def _promised(clauses: dict[str, dict[str, Any]], metric: str) -> float:
    """The largest number that a limit on a metric asks for; 0 where there is none."""
    limits = [clause["limit"] for clause in clauses.values() if clause.get("metric") == metric and "limit" in clause]
    asked = [limit.get(bound, 0) for limit in limits for bound in ("equals", "at_least")]
    return float(max((number for number in asked if isinstance(number, (int, float))), default=0))


def _conditions(entry: dict[str, Any], wrong: Wrong) -> bool:
    """False where the conditions are none, so that nothing follows from them."""
    nodes, ranks, free = entry.get("nodes", 1), entry["ranks"], entry["collective"] in NO_ALGORITHM
    if ranks % nodes:
        wrong(("ranks",), f"expected equally many on each of {nodes} nodes, found {ranks}; correct one")
        return False
    if free and "algorithm" in entry:
        wrong(("algorithm",), f"expected none ({entry['collective']} has no algorithms), found one; drop it")
    if not free and "algorithm" not in entry:
        wrong((), "expected the algorithm that ran, found none: others put another amount on the wire; say it")
        return False
    rails = [key for key in ("rails", "rail_gbit_per_s") if key in entry]
    if nodes == 1 and rails:
        wrong((rails[0],), f"expected no {rails[0]} inside a node, found it; drop it, or say nodes")
    if nodes > 1 and len(rails) < 2:
        wrong((), "expected rails and rail_gbit_per_s across nodes, found not both; say what each node has")
        return False
    if nodes > 1 and not 1 <= entry["rail_gbit_per_s"] <= 10_000:
        found = shown(entry["rail_gbit_per_s"])
        wrong(("rail_gbit_per_s",), f"expected 1 to 10000 Gbit/s, found {found}; correct it")
        return False
    shape = _shape(entry)
    if not (across(shape).known and inside(shape).known):
        says = f"expected an algorithm that {entry['collective']} has on such nodes, found {entry['algorithm']}"
        wrong(("algorithm",), f"{says}; correct it")
        return False
    return True


def _limit(merged: Merged, entry: dict[str, Any], wrong: Wrong) -> None:
    low, inner, reason = entry["at_least"], entry.get("marginal"), says_something(entry.get("ceiling_reason", ""))
    if low <= 0:
        wrong(("at_least",), f"expected more than 0, found {low:g}: it cannot fail; correct it")
        return
    if inner is not None and inner <= low:
        wrong(("marginal",), f"expected more than at_least {low:g}, found {inner:g}; correct one")
    most = ceiling_of(merged, entry)
    if most is None:
        wrong((), "expected NVLinks and their rate in the clauses, or rails here, found none: physics cannot be asked")
        return
    for key, bound in (("at_least", low), ("marginal", inner)):
        if bound is not None and not reason and not 0.1 * most <= bound <= most:
            says = f"expected 10 to 100 % of what the wire allows, {most:.4g} GB/s of busbw, found {bound:g}"
            wrong((key,), f"{says}; correct it or say ceiling_reason")
