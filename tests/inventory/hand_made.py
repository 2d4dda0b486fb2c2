"""Nodes made by hand for the inventory: what bus and NVML would say about H200 cards."""

from __future__ import annotations

from pytest_gpuready.inventory import NodeFound
from pytest_gpuready.model.agent_doc import GpuDoc, KernelLog, NodeDoc, NvmlDoc, PciBridge, PciGpu, PciLink

H200 = "10de:2335"


def bdf(index: int) -> str:
    return f"0000:{0x19 + 16 * index:02x}:00.0"


def pci_gpu(index: int, pci_id: str = H200) -> PciGpu:
    bridge = PciBridge(bdf=f"0000:{0x18 + 16 * index:02x}:00.0", link=PciLink())
    return PciGpu(bdf=bdf(index), pci_id=pci_id, link=PciLink(), numa_node=index // 4, path=[bridge])


def gpu_doc(index: int, pci_id: str = H200, **more: object) -> GpuDoc:
    given: dict[str, object] = {
        "bdf": bdf(index),
        "pci_id": pci_id,
        "index": index,
        "name": "NVIDIA H200",
        "uuid": f"GPU-00000000-0000-4000-8000-{index:012d}",
        "serial": f"16500000000{index:02d}",
        "module_id": index + 1,
        "memory_total_mib": 143771,
        "nvlink_count": 18,
        **more,
    }
    return GpuDoc(**given)  # type: ignore[arg-type]


def node_found(
    bus: list[PciGpu], nvml: list[GpuDoc], *, lost: dict[str, str] | None = None, **node: object
) -> NodeFound:
    given: dict[str, object] = {
        "hostname": "gpu-07.example",
        "kernel": "6.8.0",
        "kernel_log": KernelLog(),
        "gpus": bus,
        "system_vendor": "Example",
        "system_product": "Server 8",
        **node,
    }
    return NodeFound(
        node=NodeDoc(**given),  # type: ignore[arg-type]
        nvml=NvmlDoc(driver="580.159.04", cuda="13.0", gpus=nvml, lost=lost or {}),
        boot_id="b1",
    )


def healthy(count: int, **node: object) -> NodeFound:
    """So many H200 cards, all on the bus and answered by NVML."""
    return node_found([pci_gpu(i) for i in range(count)], [gpu_doc(i) for i in range(count)], **node)
