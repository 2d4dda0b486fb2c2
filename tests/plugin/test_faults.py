"""Every fault of the catalogue on a replayed 8-GPU node: what it declares happens, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.faults import Fault
from pytest_gpuready.faults.catalogue import FAULTS
from tests.judged import cells, judged, parts
from tests.nodes import COMPOSED, broken_recording, eight_gpus, write_recording
from tests.plugin.conftest import Accept
from tests.plugin.test_after_load import taken_last

BY_NAME = {fault.name: fault for fault in FAULTS}


def test_the_composed_node_would_be_accepted(accept: Accept) -> None:
    """The yardstick: without a fault all eight GPUs pass, each looked at last; the certificate says it is composed."""
    write_recording(accept.path / "node", eight_gpus(), composed=COMPOSED)
    run = accept("--gpuready-replay", "node", "-m", "level2")
    assert (run.code, run.status) == (0, "ACCEPTED"), run.certificate["why"]
    assert "composed" in run.certificate["basis_note"]
    assert len(run.parts("PCIE-5")) == 8
    assert taken_last(run.out, gpus=8)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_reddens_what_it_declares(tmp_path: Path, fault: Fault) -> None:
    """FAIL, NOT MEASURED and NOT TESTED stand exactly where the fault says, and the finding names the suspect."""
    certificate = judged(tmp_path, broken_recording(tmp_path / "node", fault))
    assert cells(certificate, "FAIL") == fault.reddens
    assert cells(certificate, "NOT MEASURED", "UNSTABLE") == fault.opens
    blocked = {c.id for s in certificate.suites for c in s.clauses if c.level in fault.blocks}
    out = {c.id for s in certificate.suites for c in s.clauses if all(p.outcome == "NOT APPLICABLE" for p in c.parts)}
    assert set(cells(certificate, "NOT TESTED")) == blocked - out
    if 2 in fault.blocks:
        assert all("blocked by" in part.reason for part in parts(certificate, "PCIE-1"))
    assert certificate.judged == ("REJECTED" if fault.reddens else "ACCEPTED")
    failed = [p for clause in fault.reddens for p in parts(certificate, clause) if p.outcome == "FAIL"]
    assert all(" expected " in p.line and " found " in p.line and " on node01" in p.line for p in failed)
    if fault.suspect:
        assert any(fault.suspect.lower() in part.line.lower() for part in failed)


@pytest.mark.parametrize(("name", "level"), [("pcie-gen3", 2), ("nvlink-down", 2), ("xid-31", 1)])
def test_pytest_says_the_same(accept: Accept, name: str, level: int) -> None:
    """The suites under pytest come to what the store says: verdicts, exit code, and the finding's line on the page."""
    fault = BY_NAME[name]
    broken_recording(accept.path / "node", fault)
    run = accept("--gpuready-replay", "node", "-m", f"level{level}")
    assert run.cells("FAIL") == fault.reddens
    assert run.code == (1 if fault.reddens else 0)
    assert bool(run.cells("NOT TESTED")) == (2 in fault.blocks)
    for clause in fault.reddens:
        run.result.stdout.fnmatch_lines([f"{clause} *expected*found*on node01 GPU 3*"])
