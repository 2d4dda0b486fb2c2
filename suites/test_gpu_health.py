"""GPU health: every expected GPU is there, whole, undisturbed and set as delivered."""

import pytest

pytestmark = pytest.mark.level(1)


@pytest.mark.clause("GPU-1")
def test_present(measured, require):
    """Every expected GPU is on the PCI bus and answers to NVML."""
    require(measured)


@pytest.mark.clause("GPU-2")
def test_pci_id(measured, require):
    """Every GPU is the model that was agreed, by its PCI id."""
    require(measured)


@pytest.mark.clause("GPU-3")
def test_memory_size(measured, require):
    """Every GPU shows its full memory."""
    require(measured)


@pytest.mark.clause("GPU-4")
def test_vbios(measured, require):
    """All GPUs of the node run the same VBIOS."""
    require(measured)


@pytest.mark.clause("GPU-5")
def test_inforom_image(measured, require):
    """All GPUs of the node carry the same InfoROM image."""
    require(measured)


@pytest.mark.clause("GPU-6")
def test_inforom_valid(measured, require):
    """The InfoROM checksum is valid."""
    require(measured)


@pytest.mark.clause("GPU-7")
def test_driver_agreement(measured, require):
    """Kernel module, NVML, CUDA library and GSP firmware are of one driver version."""
    require(measured)


@pytest.mark.clause("GPU-8")
def test_ecc_mode(measured, require):
    """ECC is on and no change of it is pending."""
    require(measured)


@pytest.mark.clause("GPU-9")
def test_uncorrected_errors_since_load(measured, require):
    """No uncorrected memory error is counted since the driver was loaded."""
    require(measured)


@pytest.mark.clause("GPU-10")
def test_uncorrected_errors_of_the_board(measured, require):
    """No uncorrected memory error is counted in the life of the board."""
    require(measured)


@pytest.mark.clause("GPU-11")
def test_corrected_errors(measured, require):
    """Corrected memory errors since the driver was loaded are recorded."""
    require(measured)


@pytest.mark.clause("GPU-12")
def test_remap_pending(measured, require):
    """No memory row waits to be remapped."""
    require(measured)


@pytest.mark.clause("GPU-13")
def test_remap_failure(measured, require):
    """No row remap has failed."""
    require(measured)


@pytest.mark.clause("GPU-14")
def test_remapped_rows(measured, require):
    """The number of rows remapped for uncorrectable errors is within the agreed policy."""
    require(measured)


@pytest.mark.clause("GPU-15")
def test_retired_pages(measured, require):
    """No memory page waits to be retired."""
    require(measured)


@pytest.mark.clause("GPU-16")
def test_recovery_action(measured, require):
    """The driver asks for no recovery action."""
    require(measured)


@pytest.mark.clause("GPU-17")
def test_mig(measured, require):
    """MIG is off and no change of it is pending."""
    require(measured)


@pytest.mark.clause("GPU-18")
def test_compute_mode(measured, require):
    """The compute mode is the default: any process may use the GPU."""
    require(measured)


@pytest.mark.clause("GPU-19")
def test_persistence(measured, require):
    """The driver stays loaded while nobody uses the GPU."""
    require(measured)


@pytest.mark.clause("GPU-20")
def test_power_limit_at_default(measured, require):
    """The enforced power limit is the board's default."""
    require(measured)


@pytest.mark.clause("GPU-21")
def test_power_limit_of_the_model(measured, require):
    """The board's default power limit is that of its model."""
    require(measured)


@pytest.mark.clause("GPU-22")
def test_clocks_unlocked(measured, require):
    """No clock is locked below its default."""
    require(measured)


@pytest.mark.clause("GPU-23")
def test_clock_event_reasons(measured, require):
    """Only benign reasons hold the clocks."""
    require(measured)


@pytest.mark.clause("GPU-24")
def test_gpu_temperature_margin(measured, require):
    """The GPU is far from its slowdown temperature while idle."""
    require(measured)


@pytest.mark.clause("GPU-25")
def test_memory_temperature_margin(measured, require):
    """The memory is far from its highest temperature while idle."""
    require(measured)


@pytest.mark.clause("GPU-26")
def test_foreign_processes(measured, require):
    """No foreign process uses the GPU."""
    require(measured)


@pytest.mark.clause("GPU-27")
def test_fabric_state(measured, require):
    """The GPU is registered with its NVLink fabric and the fabric is healthy."""
    require(measured)


@pytest.mark.clause("GPU-28")
def test_hardware_xid(measured, require):
    """The kernel log holds no Xid of the hardware class for this GPU since boot."""
    require(measured)


@pytest.mark.clause("GPU-29")
def test_application_xid(measured, require):
    """Xids that applications cause are recorded."""
    require(measured)


@pytest.mark.clause("GPU-30")
def test_fatal_sxid(measured, require):
    """The kernel log holds no fatal NVSwitch error (SXid) since boot."""
    require(measured)


@pytest.mark.clause("GPU-31")
def test_nonfatal_sxid(measured, require):
    """Non-fatal NVSwitch errors (SXid) are recorded."""
    require(measured)


@pytest.mark.clause("GPU-32")
def test_environment(measured, require):
    """No NCCL or CUDA setting of the environment bends later measurements."""
    require(measured)


@pytest.mark.clause("GPU-33")
def test_nouveau(measured, require):
    """The nouveau driver is not loaded."""
    require(measured)


@pytest.mark.clause("GPU-34")
def test_unexpected_gpus(measured, require):
    """No GPU is there that nobody expects."""
    require(measured)


@pytest.mark.clause("GPU-35")
def test_unplaced_xid(measured, require):
    """No Xid of the hardware class names an address that no expected GPU has."""
    require(measured)


@pytest.mark.clause("GPU-36")
def test_uncorrected_pcie_errors(measured, require):
    """The kernel log holds no uncorrected PCIe error of the GPU or of the path to it since boot."""
    require(measured)
