"""Whether a GPU may be loaded: what was read of it before anything starts, and the line that refuses it.

Refused are GPUs that somebody else uses, that are cut up (MIG), that are as hot as the load may make them, and those
of which any of this cannot be known: nobody loads a GPU whose temperature is not watched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_gpuready.agent.gpu_facts import facts
from pytest_gpuready.agent.nvml_reader import Reader
from pytest_gpuready.model.agent_doc import ProcessDoc, Wire

NO_MIG = ("NotSupported", "FunctionNotFound")
"""What a GPU or a driver says that knows no MIG."""

NAMED = 3
"""Foreign processes that are called by name."""


class Gate(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What NVML said of a GPU before the load. `problem`: why it said nothing."""

    bdf: str
    problem: str = ""
    mig: bool | None = None
    processes: list[ProcessDoc] | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    memory_max_c: int | None = None
    errors: dict[str, str] = {}  # noqa: RUF012 - msgspec copies the empty defaults of its structs


def read(nvml: Any, handle: Any, bdf: str, proc: Path = Path("/proc")) -> Gate:
    """The GPU behind this handle as it is now."""
    reader = Reader(nvml, handle)
    found = facts(reader, proc)
    wanted = ("mig_current", "processes", "temperature_gpu_c", "temperature_slowdown_c")
    return Gate(
        bdf=bdf,
        problem=f"NVML: {reader.lost}" if reader.lost else "",
        mig=found.get("mig_current"),
        processes=found["processes"],
        temperature_c=found["temperature_gpu_c"],
        slowdown_c=slowdown(found),
        memory_max_c=found.get("temperature_memory_max_c"),
        errors={name: reader.errors[name] for name in wanted if name in reader.errors},
    )


def slowdown(found: dict[str, Any]) -> int | None:
    """Degrees Celsius from which the GPU slows itself down; newer ones say only how far away that is."""
    told: int | None = found.get("temperature_slowdown_c")
    if told is not None:
        return told
    parts = [found.get(f"temperature_{name}_c") for name in ("gpu", "margin", "slowdown_tlimit")]
    if None in parts:
        return None
    now, margin, at = parts
    return int(now + margin - at)  # type: ignore[operator]


def refusal(gate: Gate, margin_c: float) -> str:
    """Why this GPU is not loaded; "" where it is."""
    if gate.problem:
        return f"expected a GPU that answers, found {gate.problem}"
    return _shared(gate) or _in_use(gate) or _hot(gate, margin_c)


def _shared(gate: Gate) -> str:
    if gate.mig:
        return "expected a whole GPU, found MIG enabled; disable it before the load"
    why = gate.errors.get("mig_current")
    if gate.mig is None and why not in (None, *NO_MIG):
        return f"expected to read whether MIG is enabled, found {why}"
    return ""


def _in_use(gate: Gate) -> str:
    if gate.processes is None:
        return f"expected a list of the processes on the GPU, found {gate.errors.get('processes', 'none')}"
    if not gate.processes:
        return ""
    told = ", ".join(f"{process.pid} ({process.name or 'name unknown'})" for process in gate.processes[:NAMED])
    more = f" and {len(gate.processes) - NAMED} more" if len(gate.processes) > NAMED else ""
    return f"expected nobody else on the GPU, found process {told}{more}; end what uses it"


def _hot(gate: Gate, margin_c: float) -> str:
    needed = (
        ("temperature", "temperature_gpu_c", gate.temperature_c),
        ("slowdown temperature", "temperature_slowdown_c", gate.slowdown_c),
    )
    for what, name, value in needed:
        if value is None:
            return f"expected a {what} to stop at, found {gate.errors.get(name, 'none')}; it cannot be loaded safely"
    assert gate.temperature_c is not None
    assert gate.slowdown_c is not None
    most = gate.slowdown_c - margin_c
    if gate.temperature_c < most:
        return ""
    found = f"found {gate.temperature_c} °C; let it cool down"
    return f"expected less than {most:g} °C ({margin_c:g} below slowdown) before the load, {found}"
