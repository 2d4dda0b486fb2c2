"""Every fault that the built-in engine shows, on a replayed 8-GPU node at level 3: what it declares, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.faults import Fault
from pytest_gpuready.faults.catalogue import STRESS
from tests.judged import cells, judged, parts
from tests.nodes import COMPOSED, broken_recording, eight_gpus, write_recording


def test_the_composed_node_would_be_accepted(tmp_path: Path) -> None:
    """The yardstick: without a fault, level 3 of the composed node is accepted with eight GPUs in every format."""
    recording = write_recording(tmp_path / "node", eight_gpus(), composed=COMPOSED)
    certificate = judged(tmp_path, recording, level=3, files=False)
    assert certificate.judged == "ACCEPTED", cells(certificate, "FAIL", "NOT MEASURED", "UNSTABLE", "OBSERVED")
    assert [part.outcome for part in parts(certificate, "STRESS-31")] == ["PASS"] * 8


@pytest.mark.parametrize("fault", STRESS, ids=lambda f: f.name)
def test_a_fault_reddens_what_it_declares(tmp_path: Path, fault: Fault) -> None:
    """FAIL and NOT MEASURED stand exactly where the fault says, and the finding names the suspect."""
    certificate = judged(tmp_path, broken_recording(tmp_path / "node", fault), level=3, files=False)
    assert cells(certificate, "FAIL") == fault.reddens
    assert cells(certificate, "NOT MEASURED", "UNSTABLE") == fault.opens
    assert certificate.judged == ("REJECTED" if fault.reddens else "INCOMPLETE")
    failed = [p for clause in fault.reddens for p in parts(certificate, clause) if p.outcome == "FAIL"]
    assert not fault.suspect or any(fault.suspect.lower() in part.line.lower() for part in failed)
