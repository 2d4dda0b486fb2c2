"""One driver per tool: which command, which metrics it answers, and how its output reads.

A probe never raises and never leaves a hole: `read` answers every one of its metrics for every part of its scope,
with a `Measurement` or with a `Problem` that says why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem


class Probe(Protocol):
    """A tool that answers metrics.

    `scopes` are what one command each is run for: the node, or every GPU. `read` takes all results of one scope: the
    first run and its retests, in order.
    """

    name: str
    metrics: tuple[str, ...]

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """Parts for which the command is run once each, one after the other."""
        ...

    def command(self, node: Node, scope: Part) -> Command:
        """The command for one scope."""
        ...

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        """Every metric of this probe for every part of the scope."""
        ...


def follows_level(probe: Probe) -> int:
    """The level whose load a probe comes after, taken last of that level; 0 for one that may be taken at any time."""
    level: int = getattr(probe, "follows_level", 0)
    return level
