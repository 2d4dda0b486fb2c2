"""Rules of one limit against peers: it fits what is measured, names its bad side, and can be broken.

What it cannot do is pass a clause, so that it needs no limit beside it: without one the clause is OBSERVED.
"""

from __future__ import annotations

import math
from typing import Any

from pytest_gpuready.model.peer_limit import LEAST
from pytest_gpuready.parse.yaml_file import shown
from pytest_gpuready.profiles.lint_limit import Wrong, source_rules
from pytest_gpuready.profiles.metrics import MORE_IS_BETTER, Metric

NO_ZERO = "C"
"""The unit whose zero is arbitrary: percent of it mean nothing."""
BOUNDS = {"percent": (0.0, 50.0), "sigmas": (3.0, 100.0), "least": (LEAST, 1000)}
"""What a rule that something can break stays within. Under three robust sigmas healthy parts are far every day."""


def peer_rules(peers: dict[str, Any], clause: dict[str, Any], metric: Metric | None, wrong: Wrong) -> None:
    """Call `wrong` for every rule that it breaks; `clause` is what it stands in, `metric` None where unknown."""
    source_rules(peers, wrong)
    for key, (low, high) in BOUNDS.items():
        value = peers.get(key)
        if value is not None and not low <= value <= high:
            wrong((key,), f"expected {low:g} to {high:g}, found {shown(value)}; correct it")
    resolution = peers.get("resolution", 0.0)
    if not 0 <= resolution < math.inf:
        wrong(("resolution",), f"expected 0 or more, found {shown(resolution)}; correct it")
    among = [peers["among"]] if isinstance(peers["among"], str) else peers["among"]
    for index, name in enumerate(among):
        if name in among[:index]:
            wrong(("among",), f"expected each of whose peers once, found {name} twice; keep one")
    if not clause.get("retest"):
        wrong((), "expected retest: true beside peers (they condemn nothing without one), found none; say it")
    if metric:
        _metric(peers, clause["metric"], metric, among, wrong)


def _metric(peers: dict[str, Any], name: str, metric: Metric, among: list[str], wrong: Wrong) -> None:
    if metric.word or not metric.unit:
        wrong((), f"expected a measured quantity beside peers, found {name}, a {_called(metric)}; drop peers")
        return
    narrow = [level for level in among if level in ("node", "rail")]
    if metric.per == "node" and narrow:
        says = f"expected rack or all ({name} is measured per node), found {' and '.join(narrow)}"
        wrong(("among",), f"{says}; a node has its peers elsewhere")
    bad = "lower" if name in MORE_IS_BETTER else "higher"
    if peers["worse"] not in (bad, "both"):
        more = "more" if bad == "lower" else "less"
        wrong(
            ("worse",), f"expected {bad} or both ({name} is the better the {more}), found {peers['worse']}; correct it"
        )
    if metric.unit == NO_ZERO:
        if peers.get("percent", 0.0) or not peers.get("resolution", 0.0):
            wrong((), "expected resolution and no percent on degrees, which have no zero; say how many degrees matter")
    elif not peers.get("percent", 0.0):
        wrong((), "expected percent above 0, found none: a difference that means nothing would be far; say it")


def _called(metric: Metric) -> str:
    return "word" if metric.word else "count"
