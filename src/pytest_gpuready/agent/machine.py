"""What kind of machine this is: bare metal or virtual, inside a container or not, who built it.

The `hypervisor` flag of the CPU decides on x86: a bare-metal cloud instance carries the cloud's name in DMI too, and a
microVM has no DMI at all. Without that flag (ARM has none) only names that belong to virtual machines alone count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_gpuready.agent.pci import SYS, word

PROC = Path("/proc")
ROOT = Path("/")

# (text in vendor or product, what it is called); the first that fits.
HYPERVISORS = (
    ("VMware", "VMware"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ("innotek", "VirtualBox"),
    ("Parallels", "Parallels"),
    ("Xen", "Xen"),
    ("HVM domU", "Xen"),
    ("Bochs", "kvm"),
    ("QEMU", "kvm (QEMU)"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm (OpenStack)"),
    ("Google Compute Engine", "kvm (Google Compute Engine)"),
    ("Amazon EC2", "kvm (Amazon EC2)"),
    ("Alibaba Cloud ECS", "kvm (Alibaba Cloud)"),
)
# Names that also stand on bare-metal instances: they name a hypervisor, they do not prove one.
NO_PROOF = ("Amazon EC2", "Google Compute Engine", "Alibaba Cloud ECS", "OpenStack")

NODE = "GPUREADY_NODE"
"""Environment variable of a pod: the node that it runs on. Its own host name is that of the pod."""


def hostname(environment: Mapping[str, str] = os.environ) -> str:
    """What the machine calls itself; in a pod the name of the node, as Kubernetes wrote it there."""
    return environment.get(NODE) or os.uname().nodename


def dmi(sys: Path = SYS) -> tuple[str, str, str]:
    """Vendor, product and serial of the system; "" each where the machine has no DMI or does not let us read it."""
    folder = sys / "class/dmi/id"
    vendor, product, serial = (word(folder / name)[:120] for name in ("sys_vendor", "product_name", "product_serial"))
    return vendor, product, serial


def virtual(proc: Path = PROC, sys: Path = SYS) -> str:
    """The hypervisor as the machine names it; "" on bare metal."""
    if "gvisor" in word(proc / "version").lower():
        return "gVisor"
    kind = word(sys / "hypervisor/type")
    if kind and "control_d" not in word(proc / "xen/capabilities"):
        return kind[:40]
    vendor, product, _ = dmi(sys)
    said = f"{vendor} {product}"
    named = next(((mark, name) for mark, name in HYPERVISORS if mark in said), None)
    if _hypervisor_flag(proc / "cpuinfo"):
        return named[1] if named else "a hypervisor (CPU flag)"
    return named[1] if named and named[0] not in NO_PROOF else ""


def container(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> str:
    """The kind of container around this process; "" where nothing hints at one."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    named = environment.get("container") or word(root / "run/systemd/container")
    if named:
        return named[:40]
    groups = word(root / "proc/1/cgroup")
    match = re.search(r"\b(kubepods|docker|containerd|lxc|slurm_container)\b", groups)
    return match[1] if match else ""


def memory_mib(proc: Path = PROC) -> int:
    """MemTotal in MiB; 0 where /proc does not say."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", word(proc / "meminfo"), re.MULTILINE)
    return int(match[1]) // 1024 if match else 0


def _hypervisor_flag(cpuinfo: Path) -> bool:
    """True where the first CPU has the flag; only its block is read, a big machine has hundreds."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return "hypervisor" in line.split()
    except OSError:
        return False
    return False
