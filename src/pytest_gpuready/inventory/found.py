"""What a node was found to have: the answers of its two probes, and its GPUs as the bus and NVML show them together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpuready.model import Gpu
from pytest_gpuready.model.agent_doc import GpuDoc, NodeDoc, NvmlDoc, PciGpu
from pytest_gpuready.parse.yaml_file import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFound:
    """What a node answered: each document, or one line that says why there is none; its host name and boot."""

    node: NodeDoc | str
    nvml: NvmlDoc | str
    host: str = ""
    boot_id: str = ""

    @property
    def node_doc(self) -> NodeDoc | None:
        return self.node if isinstance(self.node, NodeDoc) else None

    @property
    def nvml_doc(self) -> NvmlDoc | None:
        return self.nvml if isinstance(self.nvml, NvmlDoc) else None

    @property
    def problem(self) -> str:
        """Why the inventory of this node is not complete; "" where both documents are there."""
        return "; ".join(text for text in (self.node, self.nvml) if isinstance(text, str) and text)


def bdf_of(text: str) -> str:
    """A PCI address as it is written here, "0000:19:00.0"; "" where the text is none.

    Takes the eight-digit domain of nvidia-smi, upper case, and an address without domain.
    """
    match = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", text.strip().lower())
    if not match:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"


def gpus_found(found: NodeFound) -> tuple[Gpu, ...]:
    """Every GPU that the bus or NVML shows, one of each address, in the order of addresses."""
    bus: dict[str, PciGpu] = {gpu.bdf: gpu for gpu in found.node_doc.gpus} if found.node_doc else {}
    nvml: dict[str, GpuDoc] = {gpu.bdf: gpu for gpu in found.nvml_doc.gpus} if found.nvml_doc else {}
    lost = {bdf_of(key) for key in found.nvml_doc.lost if bdf_of(key)} if found.nvml_doc else set()
    addresses = sorted({*bus, *nvml, *lost}, key=_order)
    return tuple(_gpu(bdf, bus.get(bdf), nvml.get(bdf)) for bdf in addresses)


def unplaced(found: NodeFound) -> tuple[str, ...]:
    """GPUs that NVML counts, could not open and gives no address for, beyond those that the bus accounts for.

    Each as people read it, "NVML index 2 (GpuIsLost)". Which of them the bus shows nobody can say: the last ones stay.
    """
    if not found.nvml_doc:
        return ()
    lost = found.nvml_doc.lost
    addresses = {bdf_of(key) for key in lost if bdf_of(key)}
    silent = sum(1 for gpu in gpus_found(found) if gpu.on_bus and not gpu.by_nvml and gpu.bdf not in addresses)
    nameless = [f"NVML index {one_line(key)[:16]} ({one_line(lost[key])[:40]})" for key in lost if not bdf_of(key)]
    return tuple(nameless[silent:])


def pci_ids(docs: Mapping[str, NodeFound]) -> tuple[str, ...]:
    """The PCI id of every GPU found, one entry per GPU."""
    return tuple(gpu.pci_id for found in docs.values() for gpu in gpus_found(found) if gpu.pci_id)


def models(docs: Mapping[str, NodeFound]) -> tuple[str, ...]:
    """The PCI id that most GPUs of a node have, one entry per node that has any: no node counts for more than one."""
    each = (pci_ids({name: found}) for name, found in docs.items())
    return tuple(Counter(ids).most_common(1)[0][0] for ids in each if ids)


def _order(bdf: str) -> tuple[int, ...]:
    """Domains of more than four digits sort as numbers, not as text."""
    return tuple(int(part, 16) for part in re.split("[:.]", bdf) if re.fullmatch("[0-9a-f]+", part))


def _gpu(bdf: str, bus: PciGpu | None, nvml: GpuDoc | None) -> Gpu:
    """One GPU; the bus has the first word on what it is, since NVML repeats what the driver read there."""
    return Gpu(
        bdf=bdf,
        pci_id=bus.pci_id if bus else nvml.pci_id if nvml else "",
        name=nvml.name if nvml else "",
        uuid=nvml.uuid if nvml else "",
        serial=nvml.serial if nvml else "",
        module=nvml.module_id if nvml and nvml.module_id is not None else -1,
        part_number=nvml.part_number if nvml else "",
        vbios=(nvml.vbios or "") if nvml else "",
        inforom=(nvml.inforom_image or "") if nvml else "",
        memory_mib=(nvml.memory_total_mib or 0) if nvml else 0,
        numa_node=bus.numa_node if bus else -1,
        upstream=bus.path[0].bdf if bus and bus.path else "",
        on_bus=bus is not None,
        by_nvml=nvml is not None,
    )
