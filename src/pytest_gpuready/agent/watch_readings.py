"""What the watch reads of one GPU: counters by name and one sample of its state, every reading checked on its own.

A reading that fails is None (samples) or absent (counters) and its error name stands in `errors`: the watch goes on.
Fields are asked for by number, so that a binding older than a field does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from pytest_gpuready.agent.pci import BDF

COUNTERS = {
    "throttle_power_ns": 74,
    "throttle_thermal_ns": 75,
    "throttle_board_ns": 77,
    "pcie_replay": 94,
    "pcie_replay_rollover": 95,
    "pcie_recovery": 169,
    "pcie_correctable": 173,
    "pcie_nak_received": 174,
    "pcie_receiver": 175,
    "pcie_bad_tlp": 176,
    "pcie_nak_sent": 177,
    "pcie_bad_dllp": 178,
    "pcie_nonfatal": 179,
    "pcie_fatal": 180,
    "pcie_lcrc": 182,
    "pcie_lane": 183,
    "throttle_sw_thermal_ns": 269,
    "throttle_hw_thermal_ns": 270,
    "throttle_power_brake_ns": 271,
}
"""Counter -> NVML field."""

POWER_FIELD, MEMORY_TEMPERATURE_FIELD = 186, 82
COLUMNS = (
    "t",
    "power_w",
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "memory_temperature_c",
    "reasons",
    "generation",
    "width",
    "utilisation",
)
_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of NVML's value union by NVML's number of the type."""


class Readings:
    """One GPU under NVML. `errors` is reading -> error name, of the last failure of each."""

    def __init__(self, bdf: str) -> None:
        self.errors: dict[str, str] = {}
        self._handle: Any = None
        if not BDF.fullmatch(bdf):
            raise ValueError(f"expected a bus address such as 0000:19:00.0, found {bdf[:40]!r}")
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bdf.encode("ascii"))
        except pynvml.NVMLError as error:
            self.errors["nvml"] = error_name(error)
        self._power_field = True

    @property
    def alive(self) -> bool:
        """False where NVML does not answer for this GPU at all."""
        return self._handle is not None

    def counters(self) -> dict[str, int]:
        """Counters by name, those that the GPU has."""
        found = self._fields({number: name for name, number in COUNTERS.items()})
        counted = {name: int(value) for name, value in found.items()}
        if "pcie_replay" not in counted:
            replays = self._ask("pcie_replay", "nvmlDeviceGetPcieReplayCounter")
            if replays is not None:
                counted["pcie_replay"] = replays
                self.errors.pop("pcie_replay", None)
        for name, kind in (("ecc_corrected_volatile", 0), ("ecc_uncorrected_volatile", 1)):
            errors = self._ask(name, "nvmlDeviceGetTotalEccErrors", kind, 0)
            if errors is not None:
                counted[name] = errors
        return counted

    def sample(self) -> dict[str, float | None]:
        """One value per column but `t`; None where the reading failed."""
        wanted = {MEMORY_TEMPERATURE_FIELD: "memory_temperature_c"}
        if self._power_field:
            wanted[POWER_FIELD] = "power_w"
        fields = self._fields(wanted)
        power = fields.get("power_w")
        if power is None:  # a GPU without the instantaneous reading: the average of the last second
            self._power_field = False
            power = self._ask("power_w", "nvmlDeviceGetPowerUsage")
            if power is not None:
                self.errors.pop("power_w", None)
        utilisation = self._ask("utilisation", "nvmlDeviceGetUtilizationRates")
        return {
            "power_w": None if power is None else power / 1e3,
            "sm_mhz": self._ask("sm_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            "memory_mhz": self._ask("memory_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            "temperature_c": self._ask("temperature_c", "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            "memory_temperature_c": fields.get("memory_temperature_c"),
            "reasons": self._reasons(),
            "generation": self._ask("generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            "width": self._ask("width", "nvmlDeviceGetCurrPcieLinkWidth"),
            "utilisation": None if utilisation is None else utilisation.gpu,
        }

    def generation_max(self) -> int | None:
        """The PCIe generation that device and slot can both do."""
        found: int | None = self._ask("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration")
        return found

    def generation_max_device(self) -> int | None:
        """The PCIe generation that the device alone can do."""
        found: int | None = self._ask("pcie_generation_max_device", "nvmlDeviceGetGpuMaxPcieLinkGeneration")
        return found

    def _reasons(self) -> int | None:
        newer = "nvmlDeviceGetCurrentClocksEventReasons"
        older = "nvmlDeviceGetCurrentClocksThrottleReasons"
        found: int | None = self._ask("reasons", newer)
        if found is None:
            found = self._ask("reasons", older)
            if found is not None:
                self.errors.pop("reasons", None)
        return found

    def _fields(self, names: dict[int, str]) -> dict[str, float]:
        """Values of NVML fields by name, in one call; each field has its own error."""
        if self._handle is None:
            return {}
        try:
            values = pynvml.nvmlDeviceGetFieldValues(self._handle, list(names))
        except (pynvml.NVMLError, AttributeError) as error:
            for name in names.values():
                self.errors[name] = error_name(error)
            return {}
        return self._checked(values, names)

    def _checked(self, values: Sequence[Any], names: dict[int, str]) -> dict[str, float]:
        found: dict[str, float] = {}
        for value in values:
            name = names[value.fieldId]
            if value.nvmlReturn:
                self.errors[name] = error_name(pynvml.NVMLError(value.nvmlReturn))
            elif value.valueType < len(_UNION) and hasattr(value.value, _UNION[value.valueType]):
                found[name] = getattr(value.value, _UNION[value.valueType])
            else:
                self.errors[name] = f"value type {value.valueType}"
        return found

    def _ask(self, name: str, function: str, *arguments: int) -> Any:
        """What an NVML getter gives, None where it fails."""
        if self._handle is None:
            return None
        getter: Callable[..., Any] | None = getattr(pynvml, function, None)
        if getter is None:
            self.errors[name] = "FunctionNotFound"
            return None
        try:
            return getter(self._handle, *arguments)
        except pynvml.NVMLError as error:
            self.errors[name] = error_name(error)
            return None


def error_name(error: BaseException) -> str:
    """NVML's name of an error without its prefix: NotSupported, GpuIsLost; the type's name for any other error."""
    return type(error).__name__.removeprefix("NVMLError_")
