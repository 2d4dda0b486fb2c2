"""PCIe link: the link holds its rated width and speed while data moves, and carries what it should."""

import pytest

pytestmark = pytest.mark.level(2)


@pytest.mark.clause("PCIE-1")
def test_generation_under_load(measured, require):
    """The link holds its rated generation while data moves."""
    require(measured)


@pytest.mark.clause("PCIE-2")
def test_width_under_load(measured, require):
    """The link holds all its lanes while data moves."""
    require(measured)


@pytest.mark.clause("PCIE-3")
def test_slot_generation(measured, require):
    """The slot and platform allow the generation of the card."""
    require(measured)


@pytest.mark.clause("PCIE-4")
def test_path_to_the_root_port(measured, require):
    """No bridge or switch port between GPU and root port is narrower than the card's link."""
    require(measured)


@pytest.mark.clause("PCIE-5")
def test_host_to_device(measured, require):
    """Copies from pinned, NUMA-local host memory to the GPU reach the agreed bandwidth."""
    require(measured)


@pytest.mark.clause("PCIE-6")
def test_device_to_host(measured, require):
    """Copies from the GPU to pinned, NUMA-local host memory reach the agreed bandwidth."""
    require(measured)


@pytest.mark.clause("PCIE-7")
def test_both_directions(measured, require):
    """The bandwidth of copies in both directions at once is recorded."""
    require(measured)


@pytest.mark.clause("PCIE-8")
def test_all_gpus_at_once(measured, require):
    """The bandwidth that is left when all GPUs copy to the device at once is recorded."""
    require(measured)


@pytest.mark.clause("PCIE-22")
def test_all_gpus_at_once_to_the_host(measured, require):
    """The bandwidth that is left when all GPUs copy to the host at once is recorded."""
    require(measured)


@pytest.mark.clause("PCIE-9")
def test_fatal_errors(measured, require):
    """No fatal or non-fatal PCIe error is counted while data moves."""
    require(measured)


@pytest.mark.clause("PCIE-10")
def test_replays(measured, require):
    """PCIe replays per terabyte moved are recorded."""
    require(measured)


@pytest.mark.clause("PCIE-11")
def test_naks(measured, require):
    """NAKs sent and received per terabyte moved are recorded."""
    require(measured)


@pytest.mark.clause("PCIE-12")
def test_bad_tlps(measured, require):
    """Bad TLPs per terabyte moved are recorded."""
    require(measured)


@pytest.mark.clause("PCIE-13")
def test_receiver_errors(measured, require):
    """Receiver errors per terabyte moved are recorded."""
    require(measured)


@pytest.mark.clause("PCIE-14")
def test_lane_errors(measured, require):
    """Lane errors per terabyte moved are recorded."""
    require(measured)


@pytest.mark.clause("PCIE-15")
def test_aer_correctable(measured, require):
    """Correctable AER errors from GPU to root port per terabyte moved are recorded."""
    require(measured)


@pytest.mark.clause("PCIE-16")
def test_aer_uncorrectable(measured, require):
    """No uncorrectable AER error is counted from GPU to root port while data moves."""
    require(measured)


@pytest.mark.clause("PCIE-17")
def test_bytes_arrive(measured, require):
    """Every byte that was copied arrives as it was sent."""
    require(measured)


@pytest.mark.clause("PCIE-18")
def test_xids_after_the_load(measured, require):
    """No hardware Xid of any GPU stands in the kernel log after the load."""
    require(measured)


@pytest.mark.clause("PCIE-19")
def test_sxids_after_the_load(measured, require):
    """No fatal SXid stands in the kernel log after the load."""
    require(measured)


@pytest.mark.clause("PCIE-20")
def test_clock_events_under_load(measured, require):
    """No heat, hardware slowdown or power brake holds the clocks while data moves."""
    require(measured)


@pytest.mark.clause("PCIE-21")
def test_copies_to_all_gpus_end_well(measured, require):
    """Copies to all GPUs at once end by themselves, and the kernel log stays quiet."""
    require(measured)
