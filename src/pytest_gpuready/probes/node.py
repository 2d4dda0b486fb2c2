"""What the node document answers: Xids and SXids since boot, foreign settings, nouveau, GPUs that nobody expects.

A kernel log that lost its beginning proves no absence: without an Xid in what is left, nothing was measured. An Xid
that is there counts all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, Slot
from pytest_gpuready.model.agent_doc import KernelLog, NodeDoc
from pytest_gpuready.parse.agent import node_doc
from pytest_gpuready.parse.kernel_log import APPLICATION, Sxid, Xid, sxids, xids
from pytest_gpuready.probes.answers import Answer, agent_command, complete, evidence, not_measured
from pytest_gpuready.probes.environment import foreign
from pytest_gpuready.probes.kernel_events import doubt, tell

PER_GPU = ("xid.hardware", "xid.application")
PER_NODE = ("xid.unplaced", "sxid.fatal", "sxid.nonfatal", "environment.foreign", "nouveau.loaded", "gpu.unexpected")


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
        return agent_command(node, "node", timeout_s=60.0)

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
            *_log_answers(node, document.kernel_log, seen),
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


def _log_answers(node: Node, log: KernelLog, seen: tuple[str, ...]) -> list[Answer]:
    events = xids(log.lines)
    switches = sxids(log.lines)
    places = {slot.bdf for slot in node.slots if slot.bdf}
    answers: list[Answer] = []
    for slot in node.slots:
        own = [xid for xid in events if slot.bdf and xid.bdf == slot.bdf]
        hardware = [xid for xid in own if xid.hardware]
        application = [xid for xid in own if xid.kind == APPLICATION]
        aside = [xid for xid in own if not xid.hardware and xid.kind != APPLICATION]
        unknown = _doubt_about(slot)
        answers.append(_from_log("xid.hardware", slot.part, hardware, log, seen, doubt_about_gpu=unknown, aside=aside))
        answers.append(_from_log("xid.application", slot.part, application, log, seen, doubt_about_gpu=unknown))
    unplaced = [xid for xid in events if xid.hardware and xid.bdf not in places]
    fatal = [event for event in switches if event.fatal]
    other = [event for event in switches if not event.fatal]
    return [
        *answers,
        _from_log("xid.unplaced", node.part, unplaced, log, seen),
        _from_log("sxid.fatal", node.part, fatal, log, seen),
        _from_log("sxid.nonfatal", node.part, other, log, seen),
    ]


def _from_log(
    metric: str,
    part: Part,
    events: Sequence[Xid | Sxid],
    log: KernelLog,
    seen: tuple[str, ...],
    *,
    doubt_about_gpu: str = "",
    aside: Sequence[Xid] = (),
) -> Answer:
    """The number of events; no events in a log that cannot prove their absence are a Problem."""
    if not events:
        reason = doubt_about_gpu or doubt(log)
        if reason:
            return not_measured(metric, part, f"{part.label}: {reason}", seen)
    detail = tell(events)
    if aside:
        detail = "; ".join(filter(None, (detail, f"also noted: {tell(aside)}")))
    return Measurement(
        metric=metric,
        part=part.name,
        value=len(events),
        detail=detail,
        conditions=log.source + ("" if log.complete else ", not from the beginning: at least"),
        evidence=seen,
    )


def _doubt_about(slot: Slot) -> str:
    """Why a log without lines about this GPU proves nothing: an absent GPU has no clean record."""
    if not slot.bdf:
        return "the GPU's address is unknown, so no line can be its own; declare its bdf in the site file"
    return "" if slot.gpu else f"no GPU is at {slot.bdf}, so an empty log says nothing of it; begin with gpu.present"


def _unexpected(node: Node, document: NodeDoc, seen: tuple[str, ...]) -> Answer:
    """GPUs that the inventory found and nobody expects. Without a PCI bus to look at there is nothing to count."""
    if not document.pci_visible and not node.extra_gpus:
        says = f"{node.part.label}: expected a PCI bus in sysfs, found none (a sandbox?); run on the node itself"
        return not_measured("gpu.unexpected", node.part, says, seen)
    return _count("gpu.unexpected", node.part, node.extra_gpus, seen, ", ")


def _count(metric: str, part: Part, things: Sequence[str], seen: tuple[str, ...], between: str) -> Answer:
    detail = between.join(things[:20]) + (f"{between}and {len(things) - 20} more" if len(things) > 20 else "")
    return Measurement(metric=metric, part=part.name, value=len(things), detail=detail, evidence=seen)
