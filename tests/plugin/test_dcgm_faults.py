"""Every fault of DCGM's clauses on a node whose DCGM ran: what it declares happens, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.faults import Fault, break_node
from pytest_gpuready.faults.catalogue import DCGM
from pytest_gpuready.profiles import load
from pytest_gpuready.transport.recording import append, read_results
from tests.dcgm_scenarios import by_name
from tests.judged import cells, judged, parts
from tests.plugin.test_dcgm_scenarios import recorded


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a healthy 8-GPU node up to level 4."""
    return recorded(by_name("healthy-4.6.0"), tmp_path_factory.mktemp("healthy"))


@pytest.mark.parametrize("fault", DCGM, ids=lambda f: f.name)
def test_a_fault_reddens_what_it_declares(tmp_path: Path, healthy: Path, fault: Fault) -> None:
    """FAIL, NOT MEASURED and NOT TESTED stand exactly where the fault says, and the finding names the error."""
    append(tmp_path / "node", break_node(read_results(healthy), fault), composed=f"a test; fault {fault.name}")
    (tmp_path / "node/site.yaml").write_text((healthy / "site.yaml").read_text())
    certificate = judged(tmp_path, tmp_path / "node", level=4)
    assert cells(certificate, "FAIL") == fault.reddens
    opened = cells(certificate, "NOT MEASURED", "UNSTABLE")
    assert opened == {"DCGM-4": (-1,), **fault.opens}
    blocked = {c.id for s in certificate.suites for c in s.clauses if c.level in fault.blocks}
    out = {c.id for s in certificate.suites for c in s.clauses if all(p.outcome == "NOT APPLICABLE" for p in c.parts)}
    assert set(cells(certificate, "NOT TESTED")) == blocked - out
    assert certificate.judged == "REJECTED"
    failed = [p for clause in fault.reddens for p in parts(certificate, clause) if p.outcome == "FAIL"]
    assert all(fault.suspect in p.line and " on node01" in p.line for p in failed)


def test_every_clause_of_dcgm_can_be_heard() -> None:
    """Each required clause about DCGM, and each look after its loads, has a fault that turns it red.

    But for three: DCGM that gives no result is not measured, and tests that a node has to be set up for.
    """
    promised = {
        clause.id
        for clause in load("h200-sxm").clauses
        if clause.required and clause.limit and clause.level and "dcgm" in clause.needs
    }
    heard = {clause for fault in DCGM for clause in fault.reddens}
    assert promised - heard == {"DCGM-1", "DCGM-15", "DCGM-16", "DCGM-17"}
