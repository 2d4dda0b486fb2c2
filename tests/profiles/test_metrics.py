"""The registry of metrics and the base profile say the same."""

from __future__ import annotations

from pytest_gpuready import profiles


def test_registry_and_base_profile_are_equal() -> None:
    """Every metric of base.yaml is registered with unit and part, and no other one is."""
    base = profiles.load("base")
    used = {clause.metric: (clause.unit, clause.per) for clause in base.clauses}
    context = {metric for clause in base.clauses for metric in clause.context}
    assert {*used, *context} == set(profiles.METRICS)
    assert used == {m: (profiles.METRICS[m].unit, profiles.METRICS[m].per) for m in used}


def test_every_metric_says_what_it_is() -> None:
    """Each metric has one line of meaning that ends as a sentence does."""
    assert all(m.says.endswith(".") and "\n" not in m.says for m in profiles.METRICS.values())
