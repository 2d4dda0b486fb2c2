"""The two layouts of `nvidia-smi -q` -> the names of `--query-gpu`, where it has one, else a name of the same style.

Text paths are lower-case titles joined by "/", XML paths are tags joined by "/", both without the GPU itself. A place
that holds two different values is unreadable, never the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_gpuready.parse.smi_values import Cell, SmiGpu, cell

_REASONS = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "applications clocks setting",
    "sw_power_cap": "sw power cap",
    "hw_slowdown": "hw slowdown",
    "hw_thermal_slowdown": "hw slowdown/hw thermal slowdown",
    "hw_power_brake_slowdown": "hw slowdown/hw power brake slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "sw thermal slowdown",
}
_NAMES: dict[str, tuple[str, ...]] = {
    "name": ("product name", "product_name"),
    "uuid": ("gpu uuid", "uuid"),
    "serial": ("serial number", "serial"),
    "pstate": ("performance state", "performance_state"),
    "gpu_recovery_action": ("gpu recovery action", "gpu_recovery_action"),
    "reset_status.reset_required": ("gpu reset status/reset required", "gpu_reset_status/reset_required"),
    "reset_status.drain_and_reset_recommended": (
        "gpu reset status/drain and reset recommended",
        "gpu_reset_status/drain_and_reset_recommended",
    ),
    "virtualization_mode": (
        "gpu virtualization mode/virtualization mode",
        "gpu_virtualization_mode/virtualization_mode",
    ),
    "mig.mode.current": ("mig mode/current", "mig_mode/current_mig"),
    "mig.mode.pending": ("mig mode/pending", "mig_mode/pending_mig"),
    "ecc.mode.current": ("ecc mode/current", "ecc_mode/current_ecc"),
    "ecc.mode.pending": ("ecc mode/pending", "ecc_mode/pending_ecc"),
    "pci.device_id": ("pci/device id", "pci/pci_device_id"),
    "pcie.link.gen.current": (
        "pci/gpu link info/pcie generation/current",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    ),
    "pcie.link.gen.gpucurrent": (
        "pci/gpu link info/pcie generation/device current",
        "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen",
    ),
    "pcie.link.gen.max": ("pci/gpu link info/pcie generation/max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "pcie.link.gen.gpumax": (
        "pci/gpu link info/pcie generation/device max",
        "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    ),
    "pcie.link.gen.hostmax": (
        "pci/gpu link info/pcie generation/host max",
        "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
    ),
    "pcie.link.width.current": (
        "pci/gpu link info/link width/current",
        "pci/pci_gpu_link_info/link_widths/current_link_width",
    ),
    "pcie.link.width.max": ("pci/gpu link info/link width/max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    "pcie.replay_counter": ("pci/replays since reset", "pci/replay_counter"),
    "ecc.sram_threshold_exceeded": (
        "ecc errors/aggregate/sram threshold exceeded",
        "ecc_errors/aggregate/sram_threshold_exceeded",
    ),
    "repair.channel_pending": ("ecc errors/channel repair pending", "ecc_errors/channel_repair_pending"),
    "repair.tpc_pending": ("ecc errors/tpc repair pending", "ecc_errors/tpc_repair_pending"),
    "repair.unrepairable_memory": ("ecc errors/unrepairable memory", "ecc_errors/unrepairable_memory"),
    "retired_pages.pending": (
        "retired pages/pending page blacklist",
        "retired pages/pending",
        "retired_pages/pending_blacklist",
        "retired_pages/pending_retirement",
    ),
    "retired_pages.double_bit.count": (
        "retired pages/double bit ecc",
        "retired_pages/double_bit_retirement/retired_count",
    ),
    "remapped_rows.correctable": ("remapped rows/correctable error", "remapped_rows/remapped_row_corr"),
    "remapped_rows.uncorrectable": ("remapped rows/uncorrectable error", "remapped_rows/remapped_row_unc"),
    "remapped_rows.pending": ("remapped rows/pending", "remapped_rows/remapped_row_pending"),
    "remapped_rows.failure": ("remapped rows/remapping failure occurred", "remapped_rows/remapped_row_failure"),
    "remapped_rows.histogram.none": (
        "remapped rows/bank remap availability histogram/none",
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_none",
    ),
    "temperature.gpu": ("temperature/gpu current temp", "temperature/gpu_temp"),
    "temperature.memory": ("temperature/memory current temp", "temperature/memory_temp"),
    "power.draw": (
        "gpu power readings/power draw",
        "power readings/power draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    ),
    "power.draw.average": ("gpu power readings/average power draw", "gpu_power_readings/average_power_draw"),
    "power.draw.instant": ("gpu power readings/instantaneous power draw", "gpu_power_readings/instant_power_draw"),
    "power.limit": (
        "gpu power readings/current power limit",
        "gpu power readings/power limit",
        "power readings/power limit",
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/power_limit",
        "power_readings/power_limit",
    ),
    "enforced.power.limit": (
        "gpu power readings/enforced power limit",
        "power readings/enforced power limit",
        "gpu_power_readings/enforced_power_limit",
        "power_readings/enforced_power_limit",
    ),
    "power.default_limit": (
        "gpu power readings/default power limit",
        "power readings/default power limit",
        "gpu_power_readings/default_power_limit",
        "power_readings/default_power_limit",
    ),
    "clocks.sm": ("clocks/sm", "clocks/sm_clock"),
    "clocks.max.sm": ("max clocks/sm", "max_clocks/sm_clock"),
    "clocks.applications.graphics": ("applications clocks/graphics", "applications_clocks/graphics_clock"),
    "clocks.default_applications.graphics": (
        "default applications clocks/graphics",
        "default_applications_clocks/graphics_clock",
    ),
    "utilization.gpu": ("utilization/gpu", "utilization/gpu_util"),
    "fabric.state": ("fabric/state", "fabric/state"),
    "fabric.status": ("fabric/status", "fabric/status"),
    "fabric.cliqueId": ("fabric/cliqueid", "fabric/cliqueId"),
    "fabric.clusterUuid": ("fabric/clusteruuid", "fabric/clusterUuid"),
    "fabric.health.summary": ("fabric/health/summary", "fabric/health/summary"),
    "fabric.health.bandwidth": ("fabric/health/bandwidth", "fabric/health/bandwidth"),
    "fabric.health.route_recovery": (
        "fabric/health/route recovery in progress",
        "fabric/health/route_recovery_in_progress",
    ),
    "fabric.health.route_unhealthy": ("fabric/health/route unhealthy", "fabric/health/route_unhealthy"),
    "fabric.health.access_timeout": (
        "fabric/health/access timeout recovery",
        "fabric/health/access_timeout_recovery",
    ),
    "fabric.health.incorrect_configuration": (
        "fabric/health/incorrect configuration",
        "fabric/health/incorrect_configuration",
    ),
    **{
        f"clocks_event_reasons.{name}": (
            f"clocks event reasons/{title}",
            f"clocks throttle reasons/{title}",
            f"clocks event reasons/{title.rpartition('/')[2]}",
            f"clocks throttle reasons/{title.rpartition('/')[2]}",
            f"clocks_event_reasons/clocks_event_reason_{name}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{name}",
        )
        for name, title in _REASONS.items()
    },
}
_BY_PATH = {path: name for name, paths in _NAMES.items() for path in paths}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One GPU's block as read: every value that stands at each path."""

    bdf: str
    fields: dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiLog:
    """One `-q` output. `attached`: the tool's own count; `complete`: None where the layout has no end mark.

    `repeated`: addresses that stand there twice. `short`: GPUs whose block lacks values that another block has.
    """

    driver: str
    attached: int | None
    gpus: tuple[SmiGpu, ...]
    complete: bool | None

    @property
    def repeated(self) -> tuple[str, ...]:
        seen: set[str] = set()
        return tuple(gpu.bdf for gpu in self.gpus if gpu.bdf in seen or seen.add(gpu.bdf))  # type: ignore[func-returns-value]

    @property
    def short(self) -> tuple[str, ...]:
        every = {name for gpu in self.gpus for name in gpu.cells}
        return tuple(gpu.part for gpu in self.gpus if every - set(gpu.cells))


def gpus_of(nodes: Iterable[Node]) -> tuple[SmiGpu, ...]:
    """The GPUs with their values by name."""
    return tuple(SmiGpu(bdf=node.bdf, cells=_cells(node.fields)) for node in nodes)


def _cells(fields: Mapping[str, list[str]]) -> dict[str, Cell]:
    found: dict[str, list[str]] = {}
    for path, values in fields.items():
        name = _BY_PATH.get(path) or _error_counter(path)
        if name:
            found.setdefault(name, []).extend(values)
    return {name: _one(values) for name, values in found.items()}


def _one(values: list[str]) -> Cell:
    cells = [cell(value) for value in values]
    told = {c.text for c in cells if c.kind != "absent"} or {cells[0].text}
    if len(told) == 1:
        return next(c for c in cells if c.text in told)
    return Cell(text=" / ".join(sorted(told))[:200], kind="unreadable")


def _error_counter(path: str) -> str:
    """ECC counters of every generation: "ecc.errors.uncorrected.volatile.<what>"."""
    first, _, rest = path.replace("_", " ").partition("/")
    scope, _, what = rest.partition("/")
    if first != "ecc errors" or scope not in ("volatile", "aggregate") or not what or "threshold" in what:
        return ""
    bad = "uncorrectable" in what or "double bit" in what
    good = not bad and ("correctable" in what or "single bit" in what)
    kind = "uncorrected" if bad else "corrected" if good else ""
    return f"ecc.errors.{kind}.{scope}.{what.replace('/', '.').replace(' ', '_').replace('-', '')}" if kind else ""
