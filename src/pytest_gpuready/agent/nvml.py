"""All GPUs of the node as NVML shows them, in one document.

A GPU that NVML counts and that does not answer stands under `lost`; where its address is known its half-read document
is kept too, for the identity on it. NVML itself missing or refusing is one line under `problem`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pytest_gpuready.agent import nvlink
from pytest_gpuready.agent.driver_files import loaded_versions, module_version
from pytest_gpuready.agent.gpu_facts import facts
from pytest_gpuready.agent.nvml_reader import Reader, error_name, text
from pytest_gpuready.model.agent_doc import GpuDoc, NvmlDoc


def nvml(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> NvmlDoc:
    """What NVML says about every GPU of this node."""
    module = module_version(proc, sys)
    try:
        pynvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return NvmlDoc(
            problem="the nvidia-ml-py package is missing: install it for this interpreter", driver_module=module
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlDoc(problem=_why(error), driver_module=module, libraries=loaded_versions(proc))
    system = Reader(pynvml, None)
    try:
        gpus, lost, window = _gpus(pynvml, proc)
    except pynvml.NVMLError as error:
        return NvmlDoc(problem=_why(error), driver_module=module, libraries=loaded_versions(proc))
    document = NvmlDoc(
        driver_module=module,
        driver=_system(system, "nvmlSystemGetDriverVersion"),
        nvml=_system(system, "nvmlSystemGetNVMLVersion"),
        cuda=_cuda(system),
        libraries=loaded_versions(proc),
        window_s=window,
        gpus=gpus,
        lost=lost,
    )
    pynvml.nvmlShutdown()
    return document


def _why(error: Any) -> str:
    name = error_name(error)
    advice = {
        "LibraryNotFound": "found no libnvidia-ml.so.1; install the driver, or let the container see it",
        "DriverNotLoaded": "the nvidia kernel module is not there; load it, or install the driver",
        "LibRmVersionMismatch": "kernel module and libnvidia-ml differ in version; reload the module or reboot",
        "NoPermission": "the user may not open /dev/nvidiactl; give it the right, or run as root",
    }.get(name, "nothing else is known; read the kernel log for NVRM lines")
    return f"NVML does not start: {name}, {advice}"


def _system(reader: Reader, function: str) -> str:
    """A version of the whole system; "" where this driver cannot say."""
    known = getattr(reader.nvml, function, None)
    try:
        return text(known()) if known else ""
    except reader.nvml.NVMLError:
        return ""


def _cuda(reader: Reader) -> str:
    """13000 -> "13.0"."""
    number = _system(reader, "nvmlSystemGetCudaDriverVersion_v2") or _system(reader, "nvmlSystemGetCudaDriverVersion")
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number.isdecimal() else ""


def _gpus(pynvml: Any, proc: Path) -> tuple[list[GpuDoc], dict[str, str], float]:
    """Documents of all GPUs, what was lost (index or bdf -> error name), and the window of the NVLink counters."""
    lost: dict[str, str] = {}
    readers: list[Reader] = []
    found: list[dict[str, Any]] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            lost[str(index)] = error_name(error)
            continue
        reader = Reader(pynvml, handle)
        info = reader.call("bdf", "nvmlDeviceGetPciInfo")
        if info is None:
            lost[str(index)] = reader.errors["bdf"]
            continue
        readers.append(reader)
        pci_id = f"{info.pciDeviceId & 0xFFFF:04x}:{info.pciDeviceId >> 16:04x}"
        found.append({"bdf": nvlink.bdf_of(info), "pci_id": pci_id, "index": index, **facts(reader, proc)})
    links = [min(facts_["nvlink_count"] or 0, nvlink.MOST_LINKS) for facts_ in found]
    documents, window = nvlink.watch(readers, links)
    gpus = []
    for at, (reader, known) in enumerate(zip(readers, found, strict=True)):
        others = [(other["bdf"], readers[i].handle) for i, other in enumerate(found) if i != at and links[i]]
        p2p = nvlink.peers(reader, others) if links[at] else {}
        if reader.lost:
            lost[known["bdf"]] = reader.lost
        gpus.append(GpuDoc(**known, nvlinks=documents[at], p2p_nvlink=p2p, errors=reader.errors))
    return gpus, lost, window
