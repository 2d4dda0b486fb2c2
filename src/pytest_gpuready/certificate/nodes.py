"""Who was tested: nodes and GPUs as the certificate lists them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.certificate.document import GpuEntry, NodeEntry
from pytest_gpuready.certificate.folded import natural
from pytest_gpuready.certificate.lines import one_line
from pytest_gpuready.inventory import NodeFound
from pytest_gpuready.model import Measurement, Part, Slot
from pytest_gpuready.model.units import show


def node_entries(findings: Findings, docs: Mapping[str, NodeFound]) -> list[NodeEntry]:
    """Every expected node with every expected GPU, present or not, in the order of their names.

    `docs` are what the nodes answered.
    """
    entries = [
        NodeEntry(
            name=node.name,
            host=one_line(_host(docs.get(node.name))),
            system=one_line(node.system),
            system_serial=one_line(node.system_serial),
            rack=one_line(node.rack) or msgspec.UNSET,
            kernel=one_line(node.kernel),
            boot_id=one_line(node.boot_id),
            driver=one_line(node.driver),
            cuda=one_line(node.cuda),
            virtual=one_line(node.virtual),
            answered=_answered(docs.get(node.name)),
            problem=_problem(findings, node.name, docs.get(node.name)),
            gpus=[_gpu(findings, slot, _nvlinks(docs.get(node.name), slot)) for slot in node.slots],
        )
        for node in findings.inventory.nodes
    ]
    return sorted(entries, key=lambda entry: natural(entry.name))


def _gpu(findings: Findings, slot: Slot, nvlinks: str) -> GpuEntry:
    gpu = slot.gpu
    if gpu is None:
        return GpuEntry(part=slot.part.name, index=slot.part.index, present=False, bdf=slot.expected_bdf)
    return GpuEntry(
        part=slot.part.name,
        index=slot.part.index,
        present=True,
        bdf=gpu.bdf,
        pci_id=gpu.pci_id,
        name=one_line(gpu.name),
        uuid=one_line(gpu.uuid),
        serial=one_line(gpu.serial),
        module=str(gpu.module) if gpu.module >= 0 else "",
        part_number=one_line(gpu.part_number),
        vbios=one_line(gpu.vbios),
        inforom=one_line(gpu.inforom),
        memory_mib=gpu.memory_mib,
        pcie=_pcie(findings, slot.part),
        nvlinks=nvlinks,
    )


def _pcie(findings: Findings, part: Part) -> str:
    """The link as it was under load; "" where nobody looked at it under load."""
    generation = findings.found("pcie.link.generation", part)
    width = findings.found("pcie.link.width", part)
    if isinstance(generation, Measurement) and isinstance(width, Measurement):
        return f"Gen{show(generation.value)} x{show(width.value)}"
    return ""


def _answered(found: NodeFound | None) -> bool:
    """False where no document came from a node: it could not be reached, or nothing there could answer."""
    return bool(found and (found.node_doc or found.nvml_doc))


def _problem(findings: Findings, name: str, found: NodeFound | None) -> str:
    """Why what a node says of itself is not complete; said once where both documents lack for one reason."""
    texts = (found.node, found.nvml) if found else (findings.inventory.problems.get(name, ""),)
    return one_line("; ".join(dict.fromkeys(text for text in texts if isinstance(text, str) and text)))


def _host(found: NodeFound | None) -> str:
    """What the machine calls itself."""
    return found.node_doc.hostname if found and found.node_doc else ""


def _nvlinks(found: NodeFound | None, slot: Slot) -> str:
    """ "18 up"; "" where NVML shows no NVLinks."""
    gpus = found.nvml_doc.gpus if found and found.nvml_doc else []
    gpu = next((g for g in gpus if g.bdf == slot.bdf), None)
    return f"{sum(link.active is True for link in gpu.nvlinks)} up" if gpu and gpu.nvlinks else ""
