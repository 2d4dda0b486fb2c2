"""Everything about one GPU but its address and its NVLinks: which NVML call fills which field of `GpuDoc`.

Units are those of the field's name. Newer calls are tried first where a call was renamed or its structure grew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_gpuready.agent import nvlink
from pytest_gpuready.agent.nvml_reader import MISSING, Reader, signed, text
from pytest_gpuready.model.agent_doc import ProcessDoc

MIB = 2**20
SM, MEMORY = 1, 2
SLOWDOWN, MEMORY_MAX = 1, 2
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
MEMORY_TEMPERATURE, SLOWDOWN_TLIMIT, RECOVERY_ACTION = 82, 194, 230

# Field of GpuDoc -> function, arguments, and what makes the value of the answer.
SINGLE: dict[str, tuple[str, tuple[int, ...], Callable[[Any], Any]]] = {
    "name": ("nvmlDeviceGetName", (), text),
    "uuid": ("nvmlDeviceGetUUID", (), text),
    "serial": ("nvmlDeviceGetSerial", (), text),
    "part_number": ("nvmlDeviceGetBoardPartNumber", (), text),
    "vbios": ("nvmlDeviceGetVbiosVersion", (), text),
    "inforom_image": ("nvmlDeviceGetInforomImageVersion", (), text),
    "module_id": ("nvmlDeviceGetModuleId", (), int),
    "memory_total_mib": ("nvmlDeviceGetMemoryInfo", (), lambda info: info.total // MIB),
    "memory_clock_max_mhz": ("nvmlDeviceGetMaxClockInfo", (MEMORY,), int),
    "memory_bus_width_bit": ("nvmlDeviceGetMemoryBusWidth", (), int),
    "virtualization_mode": ("nvmlDeviceGetVirtualizationMode", (), int),
    "gsp_version": ("nvmlDeviceGetGspFirmwareVersion", (), text),
    "ecc_uncorrected_volatile": ("nvmlDeviceGetTotalEccErrors", (UNCORRECTED, VOLATILE), int),
    "ecc_uncorrected_aggregate": ("nvmlDeviceGetTotalEccErrors", (UNCORRECTED, AGGREGATE), int),
    "ecc_corrected_volatile": ("nvmlDeviceGetTotalEccErrors", (CORRECTED, VOLATILE), int),
    "ecc_corrected_aggregate": ("nvmlDeviceGetTotalEccErrors", (CORRECTED, AGGREGATE), int),
    "retired_pages_pending": ("nvmlDeviceGetRetiredPagesPendingStatus", (), int),
    "compute_mode": ("nvmlDeviceGetComputeMode", (), int),
    "persistence": ("nvmlDeviceGetPersistenceMode", (), bool),
    "power_enforced_mw": ("nvmlDeviceGetEnforcedPowerLimit", (), int),
    "power_default_mw": ("nvmlDeviceGetPowerManagementDefaultLimit", (), int),
    "power_now_mw": ("nvmlDeviceGetPowerUsage", (), int),
    "clock_sm_mhz": ("nvmlDeviceGetClockInfo", (SM,), int),
    "clock_sm_max_mhz": ("nvmlDeviceGetMaxClockInfo", (SM,), int),
    "clock_app_sm_mhz": ("nvmlDeviceGetApplicationsClock", (SM,), int),
    "clock_app_sm_default_mhz": ("nvmlDeviceGetDefaultApplicationsClock", (SM,), int),
    "clock_app_memory_mhz": ("nvmlDeviceGetApplicationsClock", (MEMORY,), int),
    "clock_app_memory_default_mhz": ("nvmlDeviceGetDefaultApplicationsClock", (MEMORY,), int),
    "temperature_slowdown_c": ("nvmlDeviceGetTemperatureThreshold", (SLOWDOWN,), int),
    "temperature_memory_max_c": ("nvmlDeviceGetTemperatureThreshold", (MEMORY_MAX,), int),
    "temperature_margin_c": ("nvmlDeviceGetMarginTemperature", (), int),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", (), int),
    "pcie_generation_max": ("nvmlDeviceGetMaxPcieLinkGeneration", (), int),
    "pcie_generation_max_device": ("nvmlDeviceGetGpuMaxPcieLinkGeneration", (), int),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", (), int),
    "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth", (), int),
}


def facts(reader: Reader, proc: Path) -> dict[str, Any]:
    """Everything about one GPU but its address and its NVLinks, as arguments of `GpuDoc`."""
    found: dict[str, Any] = {}
    for field, (function, arguments, value) in SINGLE.items():
        answer = reader.call(field, function, *arguments)
        if answer is not None:
            found[field] = value(answer)
    found["inforom_valid"] = _inforom(reader)
    _pair(reader, found, ("ecc_current", "ecc_pending"), "nvmlDeviceGetEccMode")
    _pair(reader, found, ("mig_current", "mig_pending"), "nvmlDeviceGetMigMode")
    remap = ("remap_correctable", "remap_uncorrectable", "remap_pending", "remap_failure")
    rows = reader.call(remap, "nvmlDeviceGetRemappedRows")
    if rows is not None:
        found.update(zip(remap, (int(count) for count in rows), strict=True))
    reasons = reader.first(
        "clock_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    )
    found["clock_event_reasons"] = None if reasons is None else int(reasons)
    found["temperature_gpu_c"] = _temperature(reader)
    found.update(
        reader.values(
            [
                ("temperature_memory_c", MEMORY_TEMPERATURE, 0),
                ("temperature_slowdown_tlimit_c", SLOWDOWN_TLIMIT, 0),
                ("recovery_action", RECOVERY_ACTION, 0),
            ]
        )
    )
    if "temperature_slowdown_tlimit_c" in found:
        found["temperature_slowdown_tlimit_c"] = signed(found["temperature_slowdown_tlimit_c"])
    found["processes"] = _processes(reader, proc)
    found.update(_fabric(reader))
    found["nvlink_count"] = nvlink.count(reader)
    return found


def _pair(reader: Reader, found: dict[str, Any], fields: tuple[str, str], function: str) -> None:
    """A mode as it is and as it will be after the next reset."""
    modes = reader.call(fields, function)
    if modes is not None:
        found.update(zip(fields, (bool(mode) for mode in modes), strict=True))


def _inforom(reader: Reader) -> bool | None:
    """True where NVML finds the InfoROM valid, False where it finds it corrupted, None where it cannot check."""
    reader.call("inforom_valid", "nvmlDeviceValidateInforom")
    error = reader.errors.get("inforom_valid")
    if error == "CorruptedInforom":
        del reader.errors["inforom_valid"]
        return False
    return True if error is None else None


def _temperature(reader: Reader) -> int | None:
    """Degrees Celsius of the GPU, by the call that binding and driver have."""
    for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
        reader.errors.pop("temperature_gpu_c", None)
        answer = reader.call("temperature_gpu_c", function, 0)
        if reader.errors.get("temperature_gpu_c") not in (MISSING, "ArgumentVersionMismatch", "NotSupported"):
            return None if answer is None else int(answer)
    return None


def _processes(reader: Reader, proc: Path) -> list[ProcessDoc] | None:
    """Processes other than this one that compute or draw on the GPU; None where NVML does not list them."""
    found: dict[int, ProcessDoc] = {}
    compute = reader.first(
        "processes", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"
    )
    if compute is None:
        return None
    # Drawing processes are an extra: a data-centre GPU may well refuse that list.
    drawing = Reader(reader.nvml, reader.handle).first(
        "processes", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"
    )
    for process in [*compute, *(drawing or [])]:
        if process.pid != os.getpid():
            used = process.usedGpuMemory
            found[process.pid] = ProcessDoc(
                pid=process.pid, name=_name(proc, process.pid), used_mib=None if used is None else used // MIB
            )
    return list(found.values())


def _name(proc: Path, pid: int) -> str:
    """What the process calls itself; "" where it is gone or belongs to another pid namespace."""
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()[:64]
    except OSError:
        return ""


def _fabric(reader: Reader) -> Mapping[str, int]:
    """State, status and health of the NVLink fabric, from the newest structure that binding and driver both know."""
    fields = ("fabric_state", "fabric_status", "fabric_health_mask")
    for function, structure in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        for field in fields:
            reader.errors.pop(field, None)
        make = getattr(reader.nvml, structure, None)
        if make is None:
            reader.errors.update(dict.fromkeys(fields, MISSING))
            continue
        info = make()
        answer = reader.call(fields, function, _by_reference(info))
        if answer is None:
            if reader.errors["fabric_state"] in (MISSING, "ArgumentVersionMismatch", "InvalidArgument"):
                continue
            return {}
        found = {"fabric_state": int(info.state), "fabric_status": int(info.status)}
        if hasattr(info, "healthMask"):
            found["fabric_health_mask"] = int(info.healthMask)
        else:
            reader.errors["fabric_health_mask"] = MISSING
        return found
    return {}


def _by_reference(structure: Any) -> Any:
    import ctypes  # noqa: PLC0415 - loaded by the binding already

    return ctypes.byref(structure)
