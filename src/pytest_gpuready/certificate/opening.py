"""The first lines of a run: what is about to be tested, against what, and how long it may take. ASCII."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_gpuready.certificate.folded import folded, folded_lines
from pytest_gpuready.certificate.uncovered import CONTINUED
from pytest_gpuready.inventory import NodeFound, applies
from pytest_gpuready.model import Inventory, Node, Profile
from pytest_gpuready.probes import Probe

COLUMNS = 90
"""Of several nodes a line is cut there: what is not told here stands on the certificate."""
RANGES_AT_MOST = 6
SAID_AT_MOST = 3
ASSUMED_AT_MOST = 4


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
    """Basis and its note, GPUs expected and `seen` (on the bus, by NVML; of all nodes together), assumptions, seconds
    that long tests take, where the run lies, and where an earlier one was moved to ("" for none)."""
    nodes = inventory.nodes
    found = [slot.gpu for node in nodes for slot in node.slots if slot.gpu]
    names = (
        nodes[0].name if len(nodes) == 1 else f"{len(nodes)} nodes {folded((n.name for n in nodes), RANGES_AT_MOST)}"
    )
    word, note = basis
    said = {
        "replay": f"BASIS REPLAY of {note}, CERTIFIES NO HARDWARE",
        "stand-in": f"BASIS STAND-IN ({note}), CERTIFIES NO HARDWARE",
    }.get(word, f"BASIS hardware, {names}")
    if len(nodes) > 1 and word != "hardware":
        said += f", {names}"
    clauses = profile.up_to(level)
    on_bus, by_nvml = seen
    several = len(nodes) > 1
    lines = [
        f"{said}, level {level}, profile {profile.name} {profile.version} (sha256 {profile.sha256[:12]})",
        f"GPUs expected {sum(len(node.slots) for node in nodes)}, on the bus {on_bus}, by NVML {by_nvml}; "
        f"{found[0].name or found[0].pci_id if found else 'none as expected'}",
        f"driver {_all_say(n.driver for n in nodes)}, CUDA {_all_say(n.cuda for n in nodes)}; "
        f"{len(clauses)} clauses on {sum(len(inventory.parts(c.per)) for c in clauses)} parts",
        *(_incomplete(inventory) if several else ()),
        *_assumed(inventory),
        where,
    ]
    if long_s >= 60:
        lines.append(f"long tests take about {long_s / 60:.0f} min in all, more on a busy or larger machine")
    if moved_to:
        lines.append(f"the earlier run lies in {moved_to}")
    return [line if len(line) <= COLUMNS else f"{line[: COLUMNS - 4]} ..." for line in lines] if several else lines


def _all_say(values: Iterable[str]) -> str:
    """What all nodes say, or how many say what: "580.159.04", "580.159.04 (998), unknown (2)"."""
    counts = Counter(value or "unknown" for value in values)
    if len(counts) == 1:
        return next(iter(counts))
    told = [f"{value} ({count})" for value, count in counts.most_common(SAID_AT_MOST)]
    return ", ".join(told) + (f" and {len(counts) - len(told)} more" if len(counts) > len(told) else "")


def _incomplete(inventory: Inventory) -> list[str]:
    """The nodes whose own word about themselves is not complete, in one line."""
    names = list(inventory.problems)
    count = "1 node says" if len(names) == 1 else f"{len(names)} nodes say"
    return [f"{count} nothing or not all of themselves: {folded(names, RANGES_AT_MOST)}"] if names else []


def _assumed(inventory: Inventory) -> list[str]:
    """What is assumed; of several nodes what they have in common once, and not more than a few lines."""
    lines = folded_lines(inventory.assumptions, (node.name for node in inventory.nodes))
    if len(inventory.nodes) == 1:
        return [f"assumed: {text}" for text in lines]
    continued = [text for text in lines if text.startswith(CONTINUED)]
    lines = [text for text in lines if text not in continued]
    told = [f"assumed: {text}" for text in lines[:ASSUMED_AT_MOST]]
    if len(lines) > ASSUMED_AT_MOST:
        told.append(f"and {len(lines) - ASSUMED_AT_MOST} more assumptions, on the certificate")
    return [*continued, *told]


def seen(*found: NodeFound) -> tuple[int, int]:
    """How many GPUs the bus and NVML show on these nodes, expected or not."""
    on_bus = sum(len(one.node_doc.gpus) for one in found if one.node_doc)
    return on_bus, sum(len(one.nvml_doc.gpus) for one in found if one.nvml_doc)


def long_s(probes: Sequence[Probe], profile: Profile, inventory: Inventory, level: int) -> float:
    """How long the commands that take their time usually take, for what a run asks for, in seconds.

    Nodes are measured side by side: the one with most to do counts.
    """

    def on(node: Node) -> float:
        asked = {c.metric for c in profile.up_to(level) if not applies(c, node)}
        return sum(
            probe.command(node, scope).typical_s
            for probe in probes
            if asked & set(probe.metrics)
            for scope in probe.scopes(node)
        )

    return max((on(node) for node in inventory.nodes), default=0.0)
