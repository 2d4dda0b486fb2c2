"""GpuDoc -> value of each level-1 metric of one GPU, in the words that the profiles compare with.

A reading whose field NVML did not give raises `Unread` with the field and NVML's name for the error; the probe makes a
Problem of it. Nothing in here turns a missing value into a good one, and a value that no GPU can have is a missing one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_gpuready.model import Value
from pytest_gpuready.model.agent_doc import GpuDoc

Reading = tuple[Value, str]
"""The value that is judged and the detail shown beside it."""

ABSENT = ("NotSupported", "FunctionNotFound")

COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "GPU reset",
    2: "node reboot",
    3: "drain P2P",
    4: "drain and reset",
    5: "recover IMEX domain",
    6: "bus reset",
    7: "system reboot",
}
# Clock-event bits, worst first, and whether they say nothing against the GPU.
REASONS = {
    0x80: ("HW power brake", False),
    0x40: ("HW thermal slowdown", False),
    0x20: ("SW thermal slowdown", False),
    0x10: ("sync boost", False),
    0x8: ("HW slowdown", False),
    0x2: ("application clocks", False),
    0x100: ("display clock", True),
    0x4: ("SW power cap", True),
    0x1: ("idle", True),
}
APPLICATION_CLOCKS = 0x2
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
FABRIC_COMPLETED = 3
FABRIC_BAD, FABRIC_RESERVED = 1, 3
# Shift of a two-bit health entry -> what is wrong where it reads 1 (0 is not reported, 2 is fine, 3 has no meaning).
FABRIC_HEALTH = {0: "degraded bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access time-out recovery"}
FABRIC_CONFIGURATION = {
    2: "wrong system GUID",
    3: "wrong chassis serial",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}


class Unread(Exception):  # noqa: N818 - no error of the program: NVML did not give this field
    """NVML did not give a field; `error` is its name for why."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(field, error)
        self.field = field
        self.error = error


def need(gpu: GpuDoc, field: str) -> Any:
    """The field's value. Raises: Unread."""
    value = getattr(gpu, field)
    if value is None:
        raise Unread(field, gpu.errors.get(field, "no answer"))
    return value


# What a GPU can have: lowest, highest, in words.
TEMPERATURE = (-40, 150, "C")
MARGIN = (-190, 190, "C")
MEMORY_MIB = (1, 2 * 2**20, "MiB")
POWER_MW = (1, 5_000_000, "mW")


def within(gpu: GpuDoc, field: str, bounds: tuple[int, int, str]) -> int:
    """A number that a GPU can have. Raises: Unread."""
    value: int = need(gpu, field)
    low, high, unit = bounds
    if not low <= value <= high:
        raise Unread(f"{field} from {low} to {high} {unit}", f"{value}")
    return value


def _plain(field: str) -> Callable[[GpuDoc], Reading]:
    return lambda gpu: (need(gpu, field), "")


def _text(field: str) -> Callable[[GpuDoc], Reading]:
    def read(gpu: GpuDoc) -> Reading:
        text = need(gpu, field)
        if not text.strip():
            raise Unread(field, "an empty text")
        return text, ""

    return read


def _counter(field: str) -> Callable[[GpuDoc], Reading]:
    def read(gpu: GpuDoc) -> Reading:
        counted = need(gpu, field)
        if counted < 0:
            raise Unread(f"{field} of 0 or more", f"{counted}")
        return counted, ""

    return read


def _mode(current: str, pending: str) -> Callable[[GpuDoc], Reading]:
    """ "enabled", or "enabled, pending disabled" where the next reset changes it."""

    def read(gpu: GpuDoc) -> Reading:
        words = ["enabled" if need(gpu, field) else "disabled" for field in (current, pending)]
        return (words[0] if words[0] == words[1] else f"{words[0]}, pending {words[1]}"), ""

    return read


def _inforom_valid(gpu: GpuDoc) -> Reading:
    return ("valid" if need(gpu, "inforom_valid") else "corrupted"), ""


def _recovery(gpu: GpuDoc) -> Reading:
    action = need(gpu, "recovery_action")
    return RECOVERY_ACTIONS.get(action, f"unknown action {action}"), ""


def _compute_mode(gpu: GpuDoc) -> Reading:
    mode = need(gpu, "compute_mode")
    return COMPUTE_MODES.get(mode, f"unknown mode {mode}"), ""


def _persistence(gpu: GpuDoc) -> Reading:
    return ("enabled" if need(gpu, "persistence") else "disabled"), ""


def _below_default(gpu: GpuDoc) -> Reading:
    enforced, default = within(gpu, "power_enforced_mw", POWER_MW), within(gpu, "power_default_mw", POWER_MW)
    return (default - enforced) / 1000, f"enforced {enforced / 1000:g} W, default {default / 1000:g} W"


def _power_default(gpu: GpuDoc) -> Reading:
    return within(gpu, "power_default_mw", POWER_MW) / 1000, ""


def _clock_locked(gpu: GpuDoc) -> Reading:
    """Application clocks beside their defaults; where NVML has none any more, the clock-event bit for them."""
    said, absent = [], []
    for name, now, default in (
        ("SM", "clock_app_sm_mhz", "clock_app_sm_default_mhz"),
        ("memory", "clock_app_memory_mhz", "clock_app_memory_default_mhz"),
    ):
        try:
            clock, usual = need(gpu, now), need(gpu, default)
        except Unread as unread:
            if unread.error not in ABSENT:
                raise
            absent.append(f"{name}: {unread.error}")
            continue
        if clock != usual:
            return f"{clock} MHz of {usual} MHz default", f"{name} application clock"
        said.append(f"{name} {clock} MHz, the default")
    if not absent:
        return "unlocked", "; ".join(said)
    locked = bool(need(gpu, "clock_event_reasons") & APPLICATION_CLOCKS)
    detail = f"no application clocks in NVML ({', '.join(absent)}): judged by the clock-event bit for them"
    return ("locked by application clocks" if locked else "unlocked"), "; ".join([*said, detail])


def _event_reasons(gpu: GpuDoc) -> Reading:
    mask = need(gpu, "clock_event_reasons")
    bad = [name for bit, (name, benign) in REASONS.items() if mask & bit and not benign]
    benign = [name for bit, (name, harmless) in REASONS.items() if mask & bit and harmless]
    unknown = mask & ~sum(REASONS)
    if unknown:
        bad.append(f"other bits 0x{unknown:x}")
    return (", ".join(bad) or "none but benign"), f"mask 0x{mask:x}" + "".join(f", {name}" for name in benign)


def _gpu_margin(gpu: GpuDoc) -> Reading:
    """Degrees to the slowdown temperature; newer chips tell thresholds as margins only."""
    if gpu.temperature_slowdown_c is not None or "temperature_margin_c" in gpu.errors:
        now = within(gpu, "temperature_gpu_c", TEMPERATURE)
        limit = within(gpu, "temperature_slowdown_c", TEMPERATURE)
        return limit - now, f"{now} C, slowdown at {limit} C"
    margin = within(gpu, "temperature_margin_c", MARGIN)
    slowdown = within(gpu, "temperature_slowdown_tlimit_c", MARGIN)
    return margin - slowdown, f"thermal margin {margin} C, slowdown at {slowdown} C"


def _memory_margin(gpu: GpuDoc) -> Reading:
    now = within(gpu, "temperature_memory_c", TEMPERATURE)
    limit = within(gpu, "temperature_memory_max_c", TEMPERATURE)
    return limit - now, f"{now} C, maximum {limit} C"


def _processes(gpu: GpuDoc) -> Reading:
    found = need(gpu, "processes")
    told = [
        f"pid {process.pid} {process.name or '(name unknown)'}"
        + ("" if process.used_mib is None else f" {process.used_mib} MiB")
        for process in found[:8]
    ]
    return len(found), ", ".join(told) + (f", and {len(found) - 8} more" if len(found) > 8 else "")


def _fabric(gpu: GpuDoc) -> Reading:
    """State, and once it is completed, status and every health entry that is bad."""
    state = need(gpu, "fabric_state")
    word = FABRIC_STATES.get(state, f"unknown state {state}")
    if state != FABRIC_COMPLETED:
        return word, ""
    bad = []
    status = need(gpu, "fabric_status")
    if status:
        bad.append(f"NVML error {status}")
    if gpu.fabric_health_mask is None:
        if gpu.errors.get("fabric_health_mask") not in ABSENT:
            need(gpu, "fabric_health_mask")
        return ", ".join([word, *bad]), "this driver tells no fabric health"
    mask = gpu.fabric_health_mask
    for shift, name in FABRIC_HEALTH.items():
        entry = (mask >> shift) & 0x3
        if entry in (FABRIC_BAD, FABRIC_RESERVED):
            bad.append(name if entry == FABRIC_BAD else f"{name} unknown (entry {entry})")
    configuration = (mask >> 8) & 0xF
    if configuration > 1:
        bad.append(FABRIC_CONFIGURATION.get(configuration, f"wrong configuration {configuration}"))
    return ", ".join([word, *bad]), f"health mask 0x{mask:x}"


# Metric -> unit and reading.
READINGS: dict[str, tuple[str, Callable[[GpuDoc], Reading]]] = {
    "gpu.pci_id": ("", _plain("pci_id")),
    "gpu.memory.total": ("MiB", lambda gpu: (within(gpu, "memory_total_mib", MEMORY_MIB), "")),
    "gpu.vbios": ("", _text("vbios")),
    "gpu.inforom.image": ("", _text("inforom_image")),
    "inforom.valid": ("", _inforom_valid),
    "ecc.mode": ("", _mode("ecc_current", "ecc_pending")),
    "ecc.uncorrected.volatile": ("", _counter("ecc_uncorrected_volatile")),
    "ecc.uncorrected.aggregate": ("", _counter("ecc_uncorrected_aggregate")),
    "ecc.corrected.volatile": ("", _counter("ecc_corrected_volatile")),
    "remap.pending": ("", _counter("remap_pending")),
    "remap.failure": ("", _counter("remap_failure")),
    "remap.correctable": ("", _counter("remap_correctable")),
    "remap.uncorrectable": ("", _counter("remap_uncorrectable")),
    "retired_pages.pending": ("", _counter("retired_pages_pending")),
    "recovery.action": ("", _recovery),
    "mig.mode": ("", _mode("mig_current", "mig_pending")),
    "compute.mode": ("", _compute_mode),
    "persistence.mode": ("", _persistence),
    "power.limit.below_default": ("W", _below_default),
    "power.limit.default": ("W", _power_default),
    "clock.locked": ("", _clock_locked),
    "clock.event_reasons": ("", _event_reasons),
    "temperature.gpu.margin": ("C", _gpu_margin),
    "temperature.memory.margin": ("C", _memory_margin),
    "processes.foreign": ("", _processes),
    "fabric.state": ("", _fabric),
}
