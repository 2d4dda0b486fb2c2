"""`certificate.rule.held_by_all`: several nodes are accepted together only where each of them is."""

from __future__ import annotations

from pytest_gpuready.certificate.rule import Ruling, held_by_all


def test_one_node_that_is_not_accepted_holds_all() -> None:
    """A node whose own rule left it open keeps the whole from ACCEPTED, and is named with its reason."""
    whole = Ruling(judged="ACCEPTED", why=[], level_reached=3)
    held = held_by_all(whole, {"n2": ["nothing of level 3 passed"], "n3": ["nothing of level 3 passed"]})
    assert (held.judged, held.why) == ("INCOMPLETE", ["n[2-3]: nothing of level 3 passed"])
    assert held_by_all(whole, {}) == whole
    rejected = Ruling(judged="REJECTED", why=["x"], level_reached=1)
    assert held_by_all(rejected, {"n2": []}) == rejected
