"""Items that stand for several parts: with several nodes a clause is one test a node, with many one test for all.

A test a part is what pytest shows best, and too much of it where there are thousands. What a grouped item said of each
part crosses to the controller as one string.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpuready.model import Inventory, Part

MANY = 64
"""From more nodes on a clause is one test for all of them: thousands of tests cost more than what they judge."""

SHOWN = 8
"""Parts of an item that are told one by one."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of one part: the outcome's word, or "ERROR", and why."""

    part: Part
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Group:
    """The parts that an item stands for, as the parameter of its test: those of a node, or of many."""

    name: str
    parts: tuple[Part, ...]


def groups(inventory: Inventory, parts: Sequence[Part]) -> list[Part | Group]:
    """What a clause test is parametrised with: its parts; of several nodes one group a node, of many one group.

    Only where the test asks for nothing but our fixtures: any other may be asked for each part.
    """
    if len(inventory.nodes) == 1:
        return list(parts)
    if len(inventory.nodes) > MANY:
        return [Group(f"{len(inventory.nodes)} nodes", tuple(parts))] if parts else []
    by_node: dict[str, list[Part]] = {}
    for part in parts:
        by_node.setdefault(part.node, []).append(part)
    return [Group(node, tuple(of_it)) for node, of_it in by_node.items()]


def encode(said: Sequence[Said]) -> str:
    """One string for what was said of each part: outcome, reason, nodes and indices."""
    told: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for one in said:
        told.setdefault((one.outcome, one.reason), []).append((one.part.node, one.part.index))
    return msgspec.json.encode([(*what, parts) for what, parts in told.items()]).decode()


def decode(text: str) -> Iterator[Said]:
    """The other way round."""
    for outcome, reason, parts in msgspec.json.decode(text, type=list[tuple[str, str, list[tuple[str, int]]]]):
        for node, index in parts:
            yield Said(Part(node=node, index=index), outcome, reason)
