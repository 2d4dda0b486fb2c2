"""Where nobody declared in which rack a node stands: the leaf switch or block that the batch system knows it by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from pytest_gpuready.errors import TransportError
from pytest_gpuready.inventory.nodeset import fold
from pytest_gpuready.model import Inventory, Profile


def asked_for(profile: Profile, inventory: Inventory) -> bool:
    """True where a clause compares within racks, and of some node nobody declared its rack."""
    compares = any(clause.peers and "rack" in clause.peers.among for clause in profile.clauses)
    return compares and any(not node.rack for node in inventory.nodes)


def with_switches(inventory: Inventory, ask: Callable[[], Mapping[str, tuple[str, ...]] | None]) -> Inventory:
    """The inventory whose nodes without a declared rack have the switch that they hang on, and an assumption that says
    so. `ask` gives node -> names from the nearest switch on, None where there is nobody to ask."""
    open_ = [node.name for node in inventory.nodes if not node.rack]
    try:
        paths = ask()
    except TransportError as error:
        said = f"no rack is known of {fold(open_)}, and no switch either: {error}"
        return dataclasses.replace(inventory, assumptions=(*inventory.assumptions, said))
    if paths is None:
        return inventory
    nearest = {name: paths[name][0] for name in open_ if paths.get(name)}
    lines = []
    if nearest:
        switches = sorted(set(nearest.values()))
        more = f" and {len(switches) - 8} more" if len(switches) > 8 else ""
        named = ", ".join(name[:40] for name in switches[:8]) + more
        lines.append(f"racks of {fold(sorted(nearest))}: taken to be the switches that Slurm knows, {named}")
    if left := [name for name in open_ if name not in nearest]:
        lines.append(f"no rack is known of {fold(left)}: neither the site file nor Slurm names one")
    nodes = tuple(dataclasses.replace(node, rack=nearest.get(node.name, node.rack)) for node in inventory.nodes)
    return dataclasses.replace(inventory, nodes=nodes, assumptions=(*inventory.assumptions, *lines))
