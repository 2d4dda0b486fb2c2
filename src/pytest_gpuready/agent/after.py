"""What a load has left behind: NVML, the kernel log and the PCI bus of the node, read once more."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuready.agent.kernel_log import kernel_log
from pytest_gpuready.agent.nvml import nvml
from pytest_gpuready.agent.pci import gpus
from pytest_gpuready.model.agent_doc import AfterDoc, KernelLog


def after(root: Path = Path("/"), log: KernelLog | None = None) -> AfterDoc:
    """The document of this machine, or of the tree under `root` that stands for one.

    The log comes after NVML: what the driver says while a broken GPU is asked stands in it too.
    """
    asked = nvml(root / "proc", root / "sys")
    return AfterDoc(nvml=asked, log=log if log is not None else kernel_log(), bus=gpus(root / "sys"))
