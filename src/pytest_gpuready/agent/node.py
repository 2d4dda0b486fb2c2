"""What a node says about itself without any NVIDIA library: PCI bus, driver module, kernel log, environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_gpuready import __version__
from pytest_gpuready.agent.dcgm import installed
from pytest_gpuready.agent.driver_files import module_version
from pytest_gpuready.agent.environment import conf_files, settings
from pytest_gpuready.agent.kernel_log import kernel_log
from pytest_gpuready.agent.machine import container, dmi, hostname, memory_mib, virtual
from pytest_gpuready.agent.pci import gpus, visible, word
from pytest_gpuready.model.agent_doc import KernelLog, NodeDoc


def node(root: Path = Path("/"), environment: Mapping[str, str] = os.environ, log: KernelLog | None = None) -> NodeDoc:
    """The document of this machine, or of the tree under `root` that stands for one."""
    proc, sysfs = root / "proc", root / "sys"
    vendor, product, serial = dmi(sysfs)
    found = gpus(sysfs)
    return NodeDoc(
        hostname=hostname(environment),
        kernel=word(proc / "sys/kernel/osrelease") or os.uname().release,
        system_vendor=vendor,
        system_product=product,
        system_serial=serial,
        virtual=virtual(proc, sysfs),
        container=container(root, environment),
        cpu_count=os.cpu_count() or 0,
        memory_mib=memory_mib(proc),
        pci_visible=visible(sysfs),
        gpus=found,
        driver_module=module_version(proc, sysfs),
        nvidia_devices=_devices(root / "dev"),
        nouveau=any(line.startswith("nouveau ") for line in _modules(proc)),
        kernel_log=log if log is not None else kernel_log(),
        environment=settings(environment),
        nccl_conf=conf_files(environment, root),
        dcgm=installed(root, environment, sorted({gpu.pci_id.partition(":")[2] for gpu in found})),
        agent_version=__version__,
        python=".".join(str(part) for part in sys.version_info[:3]),
    )


def _devices(dev: Path) -> list[str]:
    """Device nodes /dev/nvidia*, directories left out, sorted."""
    try:
        return sorted(f"/dev/{entry.name}" for entry in dev.iterdir() if entry.name.startswith("nvidia"))
    except OSError:
        return []


def _modules(proc: Path) -> list[str]:
    try:
        return (proc / "modules").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
