"""Health after the load: what a load breaks shows when it has ended, so all of it is looked at once more."""

import pytest


@pytest.mark.level(2)
@pytest.mark.clause("AFTER-1")
def test_gpu_after_level_2(measured, require):
    """When all load of level 2 has ended, the GPU is the same one and keeps every promise about its health."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("AFTER-2")
def test_node_after_level_2(measured, require):
    """When all load of level 2 has ended, driver and fabric of the node keep their promises."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("AFTER-3")
def test_gpu_after_level_3(measured, require):
    """When all load of level 3 has ended, the GPU is the same one and keeps every promise about its health."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("AFTER-4")
def test_node_after_level_3(measured, require):
    """When all load of level 3 has ended, driver and fabric of the node keep their promises."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("AFTER-5")
def test_gpu_after_level_4(measured, require):
    """When all load of level 4 has ended, the GPU is the same one and keeps every promise about its health."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("AFTER-6")
def test_node_after_level_4(measured, require):
    """When all load of level 4 has ended, driver and fabric of the node keep their promises."""
    require(measured)
