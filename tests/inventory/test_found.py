"""Bus and NVML together: one GPU per address, and nobody is counted twice or forgotten."""

from __future__ import annotations

import pytest

from pytest_gpuready.inventory import NodeFound, bdf_of
from pytest_gpuready.inventory.found import gpus_found, pci_ids, unplaced
from tests.inventory.hand_made import H200, bdf, gpu_doc, healthy, node_found, pci_gpu


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:19:00.0", "0000:19:00.0"),
        ("00000000:4B:00.0", "0000:4b:00.0"),
        ("4b:00.0", "0000:4b:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("0008:01:00.0", "0008:01:00.0"),
        ("19:00", ""),
        ("0000:19:20.0", ""),
        ("0000:19:00.8", ""),
        ("3", ""),
    ],
)
def test_addresses_have_one_form(text: str, address: str) -> None:
    """nvidia-smi's long form, upper case and a missing domain become one form; anything else is none."""
    assert bdf_of(text) == address


def test_one_gpu_of_two_witnesses() -> None:
    """What bus and NVML say about one address is one GPU, with the bridge above it."""
    (gpu,) = gpus_found(healthy(1))
    assert (gpu.on_bus, gpu.by_nvml) == (True, True)
    assert (gpu.pci_id, gpu.name, gpu.module, gpu.memory_mib) == (H200, "NVIDIA H200", 1, 143771)
    assert gpu.upstream == "0000:18:00.0"


def test_a_gpu_that_one_witness_alone_shows_is_found() -> None:
    """A card on the bus that NVML does not show, and one that only NVML shows, are both there."""
    found = gpus_found(node_found([pci_gpu(1)], [gpu_doc(0)]))
    assert [(g.bdf, g.on_bus, g.by_nvml) for g in found] == [(bdf(0), False, True), (bdf(1), True, False)]


def test_order_is_that_of_addresses_as_numbers() -> None:
    """A domain of five digits comes after those of four."""
    found = node_found([], [gpu_doc(0, bdf="10000:01:00.0"), gpu_doc(1, bdf="0008:01:00.0")])
    assert [g.bdf for g in gpus_found(found)] == ["0008:01:00.0", "10000:01:00.0"]


def test_a_lost_gpu_is_not_forgotten() -> None:
    """One that NVML counts and cannot open is found by its address, or counted where it has none."""
    by_address = node_found([], [gpu_doc(0)], lost={bdf(1): "GpuIsLost"})
    assert [(g.bdf, g.by_nvml) for g in gpus_found(by_address)] == [(bdf(0), True), (bdf(1), False)]
    assert unplaced(by_address) == ()
    by_index = node_found([], [gpu_doc(0)], lost={"1": "GpuIsLost"})
    assert unplaced(by_index) == ("NVML index 1 (GpuIsLost)",)
    on_the_bus_too = node_found([pci_gpu(0), pci_gpu(1)], [gpu_doc(0)], lost={"1": "GpuIsLost"})
    assert unplaced(on_the_bus_too) == ()


def test_a_lost_gpu_with_an_address_excuses_no_other() -> None:
    """One lost by address off the bus leaves the silent one on the bus to the one that is lost by index."""
    lost = {bdf(5): "GpuIsLost", "1": "GpuIsLost"}
    assert unplaced(node_found([pci_gpu(0), pci_gpu(1)], [gpu_doc(0)], lost=lost)) == ()
    assert unplaced(node_found([pci_gpu(0)], [gpu_doc(0)], lost=lost)) == ("NVML index 1 (GpuIsLost)",)


def test_pci_ids_have_one_entry_per_gpu() -> None:
    """Ids of all nodes, one per card, so that a majority can be counted."""
    assert pci_ids({"a": healthy(2), "b": NodeFound(node="no answer", nvml="no answer")}) == (H200, H200)
