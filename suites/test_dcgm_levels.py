"""DCGM levels 1 to 4: each test of `dcgmi diag`, run by itself and read with all that stands around its result."""

import pytest


@pytest.mark.level(1)
@pytest.mark.clause("DCGM-1")
def test_ready(measured, require):
    """DCGM gives results of this node."""
    require(measured)


@pytest.mark.level(1)
@pytest.mark.clause("DCGM-2")
def test_software(measured, require):
    """DCGM's software and deployment checks pass on every GPU."""
    require(measured)


@pytest.mark.level(1)
@pytest.mark.clause("DCGM-3")
def test_software_node(measured, require):
    """No software check of DCGM fails for the node as a whole."""
    require(measured)


@pytest.mark.level(1)
@pytest.mark.clause("DCGM-4")
def test_plugins(measured, require):
    """Diagnostic tests whose plug-in is installed are recorded."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("DCGM-5")
def test_memory(measured, require):
    """DCGM can use the memory of every GPU and finds no error in it."""
    require(measured)


@pytest.mark.level(2)
@pytest.mark.clause("DCGM-6")
def test_pcie(measured, require):
    """DCGM's PCIe and NVLink test passes at the agreed generation, width, links and bandwidth."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-7")
def test_diagnostic(measured, require):
    """DCGM's matrix products are right and equally fast on all GPUs."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-8")
def test_memory_bandwidth(measured, require):
    """DCGM measures the agreed memory bandwidth."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-9")
def test_targeted_stress(measured, require):
    """Every GPU reaches DCGM's target of arithmetic work."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-10")
def test_targeted_power(measured, require):
    """Every GPU reaches and holds DCGM's power target."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-11")
def test_nvbandwidth(measured, require):
    """DCGM's nvbandwidth runs to its end without an error."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-12")
def test_eud(measured, require):
    """DCGM's extended utility diagnostics find no fault."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("DCGM-13")
def test_memtest(measured, require):
    """DCGM's memory test finds no wrong byte."""
    require(measured)


@pytest.mark.level(4)
@pytest.mark.clause("DCGM-14")
def test_pulse_test(measured, require):
    """Every GPU stands DCGM's power pulses."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-15")
def test_nccl_tests(measured, require):
    """DCGM's NCCL test passes."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-16")
def test_rist(measured, require):
    """DCGM's RIST test passes."""
    require(measured)


@pytest.mark.level(3)
@pytest.mark.clause("DCGM-17")
def test_cpu_eud(measured, require):
    """DCGM's diagnostics of the CPU find no fault."""
    require(measured)
