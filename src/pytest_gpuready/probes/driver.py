"""Whether the parts of the driver are of one version: kernel module, NVML, libnvidia-ml, libcuda, GSP firmware."""

from __future__ import annotations

from collections import Counter

from pytest_gpuready.model.agent_doc import NvmlDoc
from pytest_gpuready.probes.gpu_readings import ABSENT, Reading, Unread

ADVICE = {
    "kernel module": "no version in /proc/driver/nvidia/version nor /sys/module/nvidia/version",
    "NVML": "nvmlSystemGetDriverVersion says nothing",
    "libnvidia-ml": "no version in the file's name nor from nvmlSystemGetNVMLVersion",
    "libcuda": "libcuda.so.1 not found or its file carries no version; install the driver's CUDA library",
}


def agreement(document: NvmlDoc) -> Reading:
    """ "agree", or which part differs from the others. Raises: Unread where a part tells no version.

    Two versions are a finding even where a third part is silent. GSP firmware counts where the GPU runs it.
    """
    parts = {
        "kernel module": document.driver_module,
        "NVML": document.driver,
        "libnvidia-ml": document.libraries.get("libnvidia-ml") or _of_nvml(document.nvml),
        "libcuda": document.libraries.get("libcuda", ""),
    }
    silent = [name for name, version in parts.items() if not version]
    without = []
    for gpu in document.gpus:
        if gpu.gsp_version:
            parts[f"GSP of GPU {gpu.index}"] = gpu.gsp_version
        elif gpu.errors.get("gsp_version", "no answer") in ABSENT:
            without.append(str(gpu.index))
        elif gpu.bdf not in document.lost:
            silent.append(f"GSP of GPU {gpu.index}")
    versions = Counter(version for version in parts.values() if version)
    detail = "; ".join(filter(None, (_told(parts), f"no GSP on GPU {', '.join(without)}" if without else "")))
    if len(versions) > 1:
        (usual, _), *_ = versions.most_common(1)
        odd = [f"{name} {version}" for name, version in parts.items() if version and version != usual]
        return f"{', '.join(odd)} beside {usual}", detail
    if silent:
        raise Unread(silent[0], ADVICE.get(silent[0], "no answer"))
    return "agree", detail


def _told(parts: dict[str, str]) -> str:
    """Each part with its version, equal GSP versions said once."""
    gsp = {version for name, version in parts.items() if name.startswith("GSP") and version}
    told = [f"{name} {version}" for name, version in parts.items() if version and not name.startswith("GSP")]
    return ", ".join([*told, *(f"GSP {version}" for version in sorted(gsp))])


def _of_nvml(version: str) -> str:
    """The driver's version in NVML's own: "13.580.159.04" -> "580.159.04"."""
    return version.partition(".")[2]
