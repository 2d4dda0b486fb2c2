"""Which NCCL and CUDA settings bend a measurement: everything but labels and paths, unless the site file allows it."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gpuready.model.agent_doc import NodeDoc

# Name, or prefix with a star -> why it changes no measurement.
BENIGN: dict[str, str] = {
    "CUDA_HOME": "where a toolkit lies",
    "CUDA_PATH": "where a toolkit lies",
    "CUDA_ROOT": "where a toolkit lies",
    "CUDA_INC_PATH": "where headers lie",
    "CUDA_VERSION": "a label that container images carry",
    "CUDA_DRIVER_VERSION": "a label that container images carry",
    "CUDA_ARCH_LIST": "for which GPUs an image's programs are built",
    "CUDA_COMPONENT_LIST": "package names that container images carry",
    "CUDA_PKG_*": "package names that container images carry",
    "CUDA_CACHE_PATH": "where compiled kernels are kept",
    "CUDA_CACHE_MAXSIZE": "how many compiled kernels are kept",
    "NCCL_HOME": "where NCCL lies for builds; NCCL does not read it",
    "NCCL_VERSION": "a label that container images carry; NCCL does not read it",
}
READ_BY_NCCL_OR_CUDA = ("NCCL_", "CUDA_")
LONGEST = 200


def foreign(document: NodeDoc, allowed: Mapping[str, str]) -> list[str]:
    """NAME=VALUE of every setting that is neither benign nor allowed by name and exact value; files are named.

    An nccl.conf may set variables of other libraries too: those steer neither NCCL nor CUDA and are left out.
    """
    found = [
        f"{name}={value}"
        for name, value in sorted(document.environment.items())
        if not _benign(name) and not _allowed(name, value, allowed)
        if not (name == "CUDA_VISIBLE_DEVICES" and _hides_nothing(value, len(document.gpus)))
    ]
    for file in document.nccl_conf:
        for setting in file.settings:
            name, _, value = setting.partition("=")
            steers = name.startswith(READ_BY_NCCL_OR_CUDA)
            if steers and not _benign(name) and not _allowed(name, value, allowed):
                found.append(f"{setting} in {file.path}")
    return found


def _hides_nothing(devices: str, gpus: int) -> bool:
    """True for all GPUs of the node by number, in order, as a scheduler says it who has given all of them."""
    listed = devices.split(",")
    return gpus > 0 and len(listed) >= gpus and listed == [str(number) for number in range(len(listed))]


def _benign(name: str) -> bool:
    return any(name.startswith(known[:-1]) if known.endswith("*") else name == known for known in BENIGN)


def _allowed(name: str, value: str, allowed: Mapping[str, str]) -> bool:
    return name in allowed and allowed[name][:LONGEST] == value
