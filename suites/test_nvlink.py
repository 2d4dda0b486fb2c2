"""NVLink: every link is up at its rated version and speed, quiet, and leads to every peer."""

import pytest

pytestmark = pytest.mark.level(1)


@pytest.mark.clause("NVL-1")
def test_links_active(measured, require):
    """All NVLinks of the GPU are active."""
    require(measured)


@pytest.mark.clause("NVL-2")
def test_link_version(measured, require):
    """The links run the NVLink version of the model."""
    require(measured)


@pytest.mark.clause("NVL-3")
def test_link_speed(measured, require):
    """The slowest link runs at the rated speed."""
    require(measured)


@pytest.mark.clause("NVL-4")
def test_errors_stand_still(measured, require):
    """Replay, recovery and CRC error counters stand still while they are watched."""
    require(measured)


@pytest.mark.clause("NVL-5")
def test_errors_total(measured, require):
    """The absolute error counters are recorded."""
    require(measured)


@pytest.mark.clause("NVL-6")
def test_topology(measured, require):
    """Every pair of GPUs is joined by all its NVLinks."""
    require(measured)
