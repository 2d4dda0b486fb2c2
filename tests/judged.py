"""A recording judged without pytest around it: what the tests of a run would say, said directly. Fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_gpuready import acceptance
from pytest_gpuready.acceptance import Acceptance, Settings
from pytest_gpuready.certificate.build import Record
from pytest_gpuready.certificate.document import Certificate, PartEntry


class _AtItsEnd(Acceptance):
    """A run of which nobody looks at the page before it has ended: that one is not drawn."""

    def conclude(
        self, records: Mapping[tuple[str, str], Sequence[Record]], *, finished: bool, blockers: Sequence[str] = ()
    ) -> Certificate | None:
        return super().conclude(records, finished=True, blockers=blockers) if finished else None


def judged(directory: Path, recording: Path, *, level: int = 2, files: bool = True) -> Certificate:
    """The certificate of a replay in which every clause test agreed with the store, gates included.

    Its files are not made where many runs have the same to show: they take half of the time.
    """
    run = _AtItsEnd(Settings(out=directory / "out", replay=str(recording), level=level))
    records: dict[tuple[str, str], list[Record]] = {}
    for clause in run.profile.up_to(level):
        for part in run.inventory.parts(clause.per):
            blocker = run.taking.blocked_by(clause.level, run.inventory.node(part.node))
            waits = None if blocker else run.taking.waits_for(clause, run.inventory.node(part.node))
            if waits:
                said = Record(outcome="NOT TESTED", reason=f"waits for {waits[0].id} on {waits[1].label}")
            elif blocker:
                said = Record(outcome="NOT TESTED", reason=f"blocked by {blocker[0].id} on {blocker[1].label}")
            else:
                run.taking.take(clause, part)
                said = Record(outcome=run.findings.verdict(clause, part).outcome.value)
            records[clause.id, part.name] = [said]
    try:
        with pytest.MonkeyPatch.context() as patch:
            if not files:
                patch.setattr(acceptance, "render", lambda _certificate: "")
                patch.setattr(acceptance, "write_together", lambda _files: None)
            return run.conclude(records, finished=True)
    finally:
        run.close()


def cells(certificate: Certificate, *outcomes: str) -> dict[str, tuple[int, ...]]:
    """Clause -> GPU indices (-1: the node) that have one of these outcomes."""
    found: dict[str, tuple[int, ...]] = {}
    for suite in certificate.suites:
        for clause in suite.clauses:
            hit = tuple(index_of(part) for part in clause.parts if part.outcome in outcomes)
            if hit:
                found[clause.id] = hit
    return found


def parts(certificate: Certificate, clause_id: str) -> list[PartEntry]:
    """All parts of one clause."""
    return [p for s in certificate.suites for c in s.clauses if c.id == clause_id for p in c.parts]


def index_of(part: PartEntry) -> int:
    """The GPU's index; -1 for the node."""
    return int(part.part.split("/gpu")[1]) if "/gpu" in part.part else -1
