"""The first lines of a run: what is about to be tested, against what, and how long it may take. ASCII."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.inventory import NodeFound, applies
from pytest_gpuready.model import Inventory, Profile
from pytest_gpuready.probes import Probe


def header_lines(
    profile: Profile,
    inventory: Inventory,
    level: int,
    *,
    basis: tuple[str, str],
    seen: tuple[int, int],
    long_s: float,
    where: str,
    moved_to: str,
) -> list[str]:
    """Basis and its note, GPUs expected and `seen` (on the bus, by NVML), assumptions, seconds that long tests take,
    where the run lies, and where an earlier one was moved to ("" for none)."""
    node = inventory.nodes[0]
    found = [slot.gpu for slot in node.slots if slot.gpu]
    word, note = basis
    said = {
        "replay": f"BASIS REPLAY of {note}, CERTIFIES NO HARDWARE",
        "stand-in": f"BASIS STAND-IN ({note}), CERTIFIES NO HARDWARE",
    }.get(word, f"BASIS hardware, {node.name}")
    clauses = profile.up_to(level)
    on_bus, by_nvml = seen
    lines = [
        f"{said}, level {level}, profile {profile.name} {profile.version} (sha256 {profile.sha256[:12]})",
        f"GPUs expected {len(node.slots)}, on the bus {on_bus}, by NVML {by_nvml}; "
        f"{found[0].name or found[0].pci_id if found else 'none as expected'}",
        f"driver {node.driver or 'unknown'}, CUDA {node.cuda or 'unknown'}; "
        f"{len(clauses)} clauses on {sum(len(inventory.parts(c.per)) for c in clauses)} parts",
        *(f"assumed: {text}" for text in inventory.assumptions),
        where,
    ]
    if long_s >= 60:
        lines.append(f"long tests take about {long_s / 60:.0f} min in all, more on a busy or larger machine")
    if moved_to:
        lines.append(f"the earlier run lies in {moved_to}")
    return lines


def seen(found: NodeFound) -> tuple[int, int]:
    """How many GPUs the bus and NVML show on a node, expected or not."""
    on_bus = len(found.node_doc.gpus) if found.node_doc else 0
    return on_bus, len(found.nvml_doc.gpus) if found.nvml_doc else 0


def long_s(probes: Sequence[Probe], profile: Profile, inventory: Inventory, level: int) -> float:
    """How long the commands that take their time usually take, for what a run asks for, in seconds."""
    asked = {c.metric for c in profile.up_to(level) for node in inventory.nodes if not applies(c, node)}
    return sum(
        probe.command(node, scope).typical_s
        for probe in probes
        if asked & set(probe.metrics)
        for node in inventory.nodes
        for scope in probe.scopes(node)
    )
