"""Uncorrected PCIe errors of the kernel log on the GPU that they concern."""

from __future__ import annotations

import dataclasses

from pytest_gpuready.model import Gpu, Measurement, Node, Part, Problem, Slot
from pytest_gpuready.model.agent_doc import KernelLog, LogLine, PciBridge, PciGpu, PciLink
from pytest_gpuready.probes.pcie_log import pcie_answers

BDFS = ("0000:19:00.0", "0000:1a:00.0")
OWN_PORTS = ("0000:17:01.0", "0000:17:02.0")
ROOT = "0000:15:01.0"
NODE = Node(
    name="node01",
    slots=tuple(Slot(part=Part(node="node01", index=i), gpu=Gpu(bdf=bdf, on_bus=True)) for i, bdf in enumerate(BDFS)),
)
BUS = [
    PciGpu(
        bdf=bdf,
        pci_id="10de:2335",
        link=PciLink(),
        path=[PciBridge(bdf=port, link=PciLink()), PciBridge(bdf=ROOT, link=PciLink())],
    )
    for bdf, port in zip(BDFS, OWN_PORTS, strict=True)
]
FATAL = "PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"


def log(*texts: str, complete: bool = True) -> KernelLog:
    kept = [LogLine(t=10.0 + i, text=text) for i, text in enumerate(texts)]
    return KernelLog(source="/dev/kmsg", complete=complete, total_lines=900, lines=kept)


def answers(kernel_log: KernelLog, of: Node = NODE, bus: list[PciGpu] = BUS) -> list[Measurement | Problem]:
    return pcie_answers(of, kernel_log, bus, ("0" * 64,))


def values(found: list[Measurement | Problem]) -> list[object]:
    return [answer.value if isinstance(answer, Measurement) else "not measured" for answer in found]


def test_an_error_counts_where_it_lies_on_the_path() -> None:
    """One of the GPU or its own port is that GPU's; one of the root port above both is both GPUs'."""
    assert values(answers(log(f"nvidia {BDFS[0]}: {FATAL}"))) == [1, 0]
    assert values(answers(log(f"snd_hda_intel 0000:1a:00.1: {FATAL}"))) == [0, 1]
    assert values(answers(log(f"pcieport {OWN_PORTS[1]}: {FATAL}"))) == [0, 1]
    assert values(answers(log(f"pcieport {ROOT}: {FATAL}"))) == [1, 1]
    assert values(answers(log(f"nvme 0000:c3:00.0: {FATAL}"))) == [0, 0]


def test_what_is_counted_is_named() -> None:
    """The detail names kind, device and time of each; corrected errors stand beside it and do not count."""
    fatal, corrected = (
        f"pcieport {ROOT}: {FATAL}",
        f"nvidia {BDFS[0]}: PCIe Bus Error: severity=Corrected, type=Physical Layer",
    )
    found = answers(log(fatal, fatal, corrected))[0]
    assert isinstance(found, Measurement)
    assert found.value == 2
    assert found.detail == (
        f"Fatal Transaction Layer on {ROOT} x2 at 10.0 s; also noted, corrected: Physical Layer on {BDFS[0]} at 12.0 s"
    )
    assert values(answers(log(corrected))) == [0, 0]


def test_silence_proves_nothing_where_the_path_is_unknown() -> None:
    """A GPU that the bus does not show, and one on bare metal without a bridge above it, are not measured."""
    assert values(answers(log(), bus=BUS[:1])) == [0, "not measured"]
    bare = [without_bridges(gpu) for gpu in BUS]
    assert values(answers(log(), bus=bare)) == ["not measured", "not measured"]
    virtual = dataclasses.replace(NODE, virtual="kvm")
    assert values(answers(log(), of=virtual, bus=bare)) == [0, 0]
    assert values(answers(log(f"nvidia {BDFS[1]}: {FATAL}"), bus=[])) == ["not measured", 1]


def without_bridges(gpu: PciGpu) -> PciGpu:
    """The GPU as a machine shows it that hides the bridges."""
    return PciGpu(bdf=gpu.bdf, pci_id=gpu.pci_id, link=gpu.link)


def test_a_log_with_gaps_proves_no_absence() -> None:
    """Without the beginning of the log no error is not measured; an error that is left counts as at least one."""
    found = answers(log(f"nvidia {BDFS[0]}: {FATAL}", complete=False))
    assert values(found) == [1, "not measured"]
    assert isinstance(found[0], Measurement)
    assert "at least" in found[0].conditions
