"""Readers by family of tools: a module exports `READERS`, and this table is all that knows the modules.

A module is loaded when its tool is named, or when the head of an input holds one of its words. The words only say
which modules to ask first: where none of those is sure, all are asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from pytest_gpuready.audit.reader import Reader

SURE = 30
"""Below this a recogniser's answer is a guess, and a guess is not-measured."""
CERTAIN = 80
"""From this on the modules that were not asked are not needed."""

_MODULES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "collectives": (
        (
            "nccl-tests-text",
            "nccl-tests-json",
            "nccl-debug-log",
            "launcher",
            "iperf3",
            "nvbandwidth",
            "gpu-burn",
        ),
        ("busbw", "NCCL", "nccl", "srun", "mpirun", "iperf", "bits_per_second", "nvbandwidth", "Gflop/s"),
    ),
    "nvidia_smi": (
        ("nvidia-smi", "nvidia-smi-nvlink", "nvidia-smi-topo"),
        ("NVIDIA-SMI", "nvidia_smi", "NVSMI", "pci.bus_id", "CPU Affinity", "UUID: GPU-", "NVML"),
    ),
    "pci_bus": (("lspci",), ("LnkSta:", "LnkCap:", "NVIDIA Corporation")),
    "kernel": (("dmesg-xid", "dmesg-pci"), ("NVRM:", "SXid", "pcieport", "mlx5_core", "available PCIe bandwidth")),
    "dcgm": (
        (
            "dcgmi-diag-json",
            "dcgmi-diag-text",
            "dcgmi-nvlink",
            "dcgmi-health",
            "dcgmi-discovery",
            "dcgmi-version",
        ),
        ("DCGM", "dcgm", "Diagnostic", "NvLink Link Status", "Health Monitor", "host engine"),
    ),
    "fabric": (
        ("ibstat", "ibstatus", "perfquery", "ibqueryerrors", "mlxlink", "ethtool-S"),
        ("Port GUID", "Infiniband device", "PortXmit", "Errors for", "Link Speed", "NIC statistics"),
    ),
    "host": (("sysctl",), ("net.", "vm.", "kernel.", "fs.")),
    "containers": (("docker",), ("HostConfig", "services:", "security_opt")),
    "serving": (
        ("vllm-http", "triton-http", "ray-serve-http"),
        ("data: {", "vllm:", "nv_inference", "chat.completion", "text_completion", "serve_", "model_name"),
    ),
}


def tools() -> tuple[str, ...]:
    """Names of all tools that can be read."""
    return tuple(sorted(tool for names, _ in _MODULES.values() for tool in names))


def reader_of(tool: str) -> Reader | None:
    """The reader of this tool; None where there is none."""
    module = next((name for name, (names, _) in _MODULES.items() if tool in names), None)
    return next((reader for reader in _load((module,)) if reader.tool == tool), None) if module else None


def recognised(head: str) -> Reader | None:
    """The reader that is surest of this text; None where none is sure enough."""
    hinted = tuple(name for name, (_, words) in _MODULES.items() if any(word in head for word in words))
    best = _best(head, hinted)
    if best is None or best[0] < CERTAIN:
        best = _best(head, tuple(_MODULES))
    return best[1] if best and best[0] >= SURE else None


def readers() -> tuple[Reader, ...]:
    """Every reader there is."""
    return tuple(_load(_MODULES))


def _load(names: Iterable[str]) -> list[Reader]:
    found: list[Reader] = []
    for name in names:
        found += import_module(f"{__name__}.{name}").READERS
    return found


def _best(head: str, names: Iterable[str]) -> tuple[int, Reader] | None:
    scored = [(reader.recognise(head), reader) for reader in _load(names)]
    return max(scored, key=lambda pair: (pair[0], pair[1].tool), default=None)
