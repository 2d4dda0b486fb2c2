"""What has failed is asked of what is stored: with many nodes everything else would be judged for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.campaign.failed import failed_nodes, optional_fails
from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.model import Part, Verdict
from tests.campaign.test_taking import NODE, PROBES, One, clause, run

PARTS = [f"node01/gpu{i}" for i in range(2)]


def test_only_what_is_stored_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After level 1 no clause of a higher level is judged to learn which nodes and optional clauses have failed."""
    first, beside = clause("health", 1, gate=False), clause("copies", 2, required=False, gate=False)
    taking, _ = run(tmp_path, first, beside, health=One("health", 3), copies=One("copies", 4))
    for slot in NODE.slots:
        taking.take(first, slot.part)
    judged: list[tuple[str, str]] = []
    plain = Findings.verdict

    def noted(self: Findings, one: object, part: Part) -> Verdict:
        verdict = plain(self, one, part)  # type: ignore[arg-type]
        judged.append((verdict.clause, part.name))
        return verdict

    monkeypatch.setattr(Findings, "verdict", noted)
    probes = [One("health", 3), One("copies", 4), PROBES["soak"]]
    assert failed_nodes(taking.findings, probes) == {"node01"}
    assert optional_fails(taking.findings, probes) == {}
    assert set(judged) <= {("HEALTH", part) for part in PARTS}
    assert judged
    for slot in NODE.slots:
        taking.take(beside, slot.part)
    cells = [cell for cells in optional_fails(taking.findings, probes).values() for cell in cells]
    assert cells == [f"COPIES on {part}" for part in PARTS]
