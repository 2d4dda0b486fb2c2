"""What the node document answers: the kernel log since boot, foreign settings, nouveau, GPUs that nobody expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem
from pytest_gpuready.model.agent_doc import NodeDoc
from pytest_gpuready.parse.agent import node_doc
from pytest_gpuready.probes import node_log
from pytest_gpuready.probes.answers import Answer, agent_command, complete, evidence, not_measured
from pytest_gpuready.probes.environment import foreign
from pytest_gpuready.probes.node_log import PER_GPU, log_answers

PER_NODE = (*node_log.PER_NODE, "environment.foreign", "nouveau.loaded", "gpu.unexpected")


class NodeProbe:
    """The agent's node document, once per node. `allowed_environment`: what the site file allows, name -> value."""

    name = "node"
    metrics: tuple[str, ...] = (*PER_GPU, *PER_NODE)

    def __init__(self, allowed_environment: Mapping[str, str]) -> None:
        self._allowed = dict(allowed_environment)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """The node as a whole."""
        return (node.part,)

    def command(self, node: Node, scope: Part) -> Command:
        """The agent's probe "node", one minute at most."""
        return agent_command(node, "node", timeout_s=60.0, says="inventory")

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        """Every metric for the node or for each expected GPU of it."""
        return complete(_wanted(node), [self._run(node, result) for result in results])

    def _run(self, node: Node, result: CommandResult) -> list[Answer]:
        seen = evidence(result)
        try:
            document = node_doc(result)
        except (ToolError, ParseError) as error:
            return [not_measured(metric, part, str(error), seen) for metric, part in _wanted(node)]
        settings = foreign(document, self._allowed)
        return [
            *log_answers(node, document.kernel_log, document.gpus, seen),
            _count("environment.foreign", node.part, settings, seen, "; "),
            Measurement(
                metric="nouveau.loaded",
                part=node.part.name,
                value="loaded" if document.nouveau else "not loaded",
                evidence=seen,
            ),
            _unexpected(node, document, seen),
        ]


def _wanted(node: Node) -> list[tuple[str, Part]]:
    gpus = [(metric, slot.part) for metric in PER_GPU for slot in node.slots]
    return gpus + [(metric, node.part) for metric in PER_NODE]


def _unexpected(node: Node, document: NodeDoc, seen: tuple[str, ...]) -> Answer:
    """GPUs that the inventory found and nobody expects. Without a PCI bus to look at there is nothing to count."""
    if not document.pci_visible and not node.extra_gpus:
        says = f"{node.part.label}: expected a PCI bus in sysfs, found none (a sandbox?); run on the node itself"
        return not_measured("gpu.unexpected", node.part, says, seen)
    return _count("gpu.unexpected", node.part, node.extra_gpus, seen, ", ")


def _count(metric: str, part: Part, things: Sequence[str], seen: tuple[str, ...], between: str) -> Answer:
    detail = between.join(things[:20]) + (f"{between}and {len(things) - 20} more" if len(things) > 20 else "")
    return Measurement(metric=metric, part=part.name, value=len(things), detail=detail, evidence=seen)
