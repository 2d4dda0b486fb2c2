"""Every fault of the catalogue on a replayed 8-GPU node: what it declares happens, and nothing else."""

from __future__ import annotations

import pytest

from pytest_gpuready.faults import Fault
from pytest_gpuready.faults.catalogue import FAULTS
from tests.nodes import COMPOSED, broken_recording, eight_gpus, write_recording
from tests.plugin.conftest import Accept


def test_the_composed_node_would_be_accepted(accept: Accept) -> None:
    """The yardstick: without a fault all eight GPUs pass, and the certificate says that the node is composed."""
    write_recording(accept.path / "node", eight_gpus(), composed=COMPOSED)
    run = accept("--gpuready-replay", "node", "-m", "level2")
    assert (run.code, run.status) == (0, "ACCEPTED"), run.certificate["why"]
    assert "composed" in run.certificate["basis_note"]
    assert len(run.parts("PCIE-5")) == 8


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_reddens_what_it_declares(accept: Accept, fault: Fault) -> None:
    """FAIL, NOT MEASURED and NOT TESTED stand exactly where the fault says, and the finding names the suspect."""
    broken_recording(accept.path / "node", fault)
    run = accept("--gpuready-replay", "node", "-m", "level2")
    assert run.cells("FAIL") == fault.reddens
    assert run.cells("NOT MEASURED", "UNSTABLE") == fault.opens
    blocked = run.cells("NOT TESTED")
    if fault.blocks:
        assert set(blocked) == set(_clauses(run.certificate, level=2))
        assert all("blocked by" in part["reason"] for part in run.parts("PCIE-1"))
    else:
        assert blocked == {}
    assert run.status == ("REJECTED" if fault.reddens else "ACCEPTED")
    assert run.code == (1 if fault.reddens else 0)
    for clause in fault.reddens:
        lines = [part["line"] for part in run.parts(clause) if part["outcome"] == "FAIL"]
        assert all(" expected " in line and " found " in line and " on node01" in line for line in lines)
    if fault.suspect:
        assert any(
            fault.suspect.lower() in part["line"].lower()
            for clause in fault.reddens
            for part in run.parts(clause)
            if part["outcome"] == "FAIL"
        )


def _clauses(certificate: dict, *, level: int) -> list[str]:
    return [c["id"] for s in certificate["suites"] for c in s["clauses"] if c["level"] == level]
