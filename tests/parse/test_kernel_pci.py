"""Kernel messages about PCI devices: typed events, both generations of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.kernel_pci import pci_event


def test_limited_and_full_bandwidth() -> None:
    """Width and speed of the link, and what the device could do where it is limited."""
    limited = pci_event(
        "mlx5_core 0000:5e:00.0: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8 link at "
        "0000:58:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)"
    )
    full = pci_event("mlx5_core 0000:9a:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)")
    old = pci_event(
        "mlx5_core 0000:5e:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8 GT/s x8 link at 0000:58:01.0 "
        "(capable of 126.016 Gb/s with 8 GT/s x16 link)"
    )
    assert limited
    assert full
    assert old
    assert (limited.number, limited.width, limited.could_width, limited.at) == (252.056, 8, 16, "0000:58:01.0")
    assert (full.width, full.could_width) == (16, None)
    assert (old.speed, old.width) == (8, 8)


@pytest.mark.parametrize(
    ("text", "what", "bdf"),
    [
        ("nvidia 0000:38:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "aer corrected",
         "0000:38:00.0"),
        ("nvidia 0000:38:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer", "aer corrected",
         "0000:38:00.0"),
        ("nvidia 0000:38:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
         "aer uncorrected", "0000:38:00.0"),
        ("pcieport 0000:37:01.0: AER: Multiple Corrected error received: 0000:38:00.0", "aer corrected received",
         "0000:38:00.0"),
        ("pcieport 0000:37:01.0: AER: Correctable error message received from 0000:38:00.0", "aer corrected received",
         "0000:38:00.0"),
        ("pcieport 0000:37:01.0: AER: Corrected error received: id=00e4", "aer corrected received", "0000:37:01.0"),
        ("mlx5_core 0000:9a:00.0: mlx5_pcie_event:299:(pid 1): Detected insufficient power on the PCIe slot (27W).",
         "slot power", "0000:9a:00.0"),
        ("mlx5_core 0000:c3:00.0: port_module:252:(pid 0): Port module event[error]: module 0, Cable error, Bus stuck",
         "module error", "0000:c3:00.0"),
        ("mlx5_core 0000:c3:00.0: Port module event: module 0, Cable unplugged", "module unplugged", "0000:c3:00.0"),
        ("mlx5_core 0000:c3:00.0 ens1np0: Link down", "link down", "0000:c3:00.0"),
        ("mlx5_core 0000:c3:00.0: temp_warn:147: High temperature on sensors", "nic temperature", "0000:c3:00.0"),
        ("NVRM: GPU 0000:38:00.0: RmInitAdapter failed! (0x26:0x65:1427)", "gpu init failed", "0000:38:00.0"),
        ("NVRM: GPU 0000:38:00.0: rm_init_adapter failed, device minor number 0", "gpu init failed", "0000:38:00.0"),
    ],
)  # fmt: skip
def test_kinds_of_events(text: str, what: str, bdf: str) -> None:
    """Each message is of its kind and about its device."""
    event = pci_event(text)
    assert event
    assert (event.what, event.bdf) == (what, bdf)


@pytest.mark.parametrize(
    "text", ["", "usb 1-1: new device", "pcieport 0000:37:01.0: AER: enabled with IRQ 26", "EXT4-fs (vda): mounted"]
)
def test_other_messages_are_none(text: str) -> None:
    """What is no trouble is no event."""
    assert pci_event(text) is None


@given(st.text(max_size=120))
def test_any_text(text: str) -> None:
    """No text makes the parser raise."""
    for prefix in (
        "",
        "mlx5_core 0000:c3:00.0: PCIe ",
        "NVRM: ",
        "pcieport 0000:37:01.0: AER: Corrected error received: ",
    ):
        pci_event(prefix + text)
