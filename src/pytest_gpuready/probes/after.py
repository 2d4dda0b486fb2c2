"""The health of a node when all load of a level has ended, held against the clauses that it had to keep before.

Nothing is promised anew here: each reading is judged by the profile's own clause of that metric. A clause that the
profile or the site file takes out, that is not required or has no limit, that does not apply to the node or that a
virtual machine hides is left out, and `detail` says so. The GPU must still be the one that it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.inventory import applies
from pytest_gpuready.judge import judge
from pytest_gpuready.model import (
    Clause,
    Command,
    CommandResult,
    Inventory,
    Measurement,
    Node,
    Outcome,
    Part,
    Problem,
    Profile,
    Slot,
)
from pytest_gpuready.model.agent_doc import AfterDoc
from pytest_gpuready.model.units import show
from pytest_gpuready.parse.agent import after_doc
from pytest_gpuready.probes.answers import Answer, agent_command, complete, evidence, not_measured
from pytest_gpuready.probes.node_log import log_answers
from pytest_gpuready.probes.nvml import nvml_answers

OF_GPU = (
    "gpu.present",
    "gpu.memory.total",
    "inforom.valid",
    "ecc.uncorrected.volatile",
    "ecc.uncorrected.aggregate",
    "remap.pending",
    "remap.failure",
    "remap.uncorrectable",
    "recovery.action",
    "power.limit.below_default",
    "fabric.state",
    "nvlink.links.active",
    "xid.hardware",
    "pcie.log.uncorrected",
    "processes.foreign",
)
OF_NODE = ("xid.unplaced", "sxid.fatal", "driver.agreement")
"""What is read again; what a load changes for a while by itself (clocks, temperatures) is not in here."""

LOADED_LEVELS = (2, 3, 4)
"""Levels that have a load to look back at."""
WELL = "as promised"
TIMEOUT_S = 120.0
MOST_TOLD = 8
LONGEST = 160


@dataclass(slots=True)
class _Held:
    """What became of the clauses on one part: phrases, or reason -> the clauses that have it."""

    failed: list[str] = field(default_factory=list)
    open: dict[str, list[str]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    noted: list[str] = field(default_factory=list)


class AfterProbe:
    """`python -m pytest_gpuready.agent after N`, once a node, when everything else of level N has been taken."""

    def __init__(self, level: int, profile: Profile) -> None:
        self.name = f"after-{level}"
        self.follows_level = level
        self._of_gpu, self._of_node = f"health.after.{level}", f"node.after.{level}"
        self.metrics: tuple[str, ...] = (self._of_gpu, self._of_node)
        self._clauses = {m: [c for c in profile.up_to(level) if c.metric == m] for m in (*OF_GPU, *OF_NODE)}

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """The node as a whole: all its GPUs are read in one go."""
        return (node.part,)

    def command(self, node: Node, scope: Part) -> Command:
        """The agent's probe "after" of this level: NVML and a long kernel log, two minutes at most."""
        level = self.follows_level
        return agent_command(node, "after", str(level), timeout_s=TIMEOUT_S, says=f"health after level {level}")

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        """Both metrics: one word for each expected GPU and one for the node."""
        wanted = [*((self._of_gpu, slot.part) for slot in node.slots), (self._of_node, node.part)]
        return complete(wanted, [self._run(node, result) for result in results])

    def _run(self, node: Node, result: CommandResult) -> list[Answer]:
        seen = evidence(result)
        try:
            document = after_doc(result, self.follows_level)
        except (ToolError, ParseError) as error:
            parts = [*((self._of_gpu, slot.part) for slot in node.slots), (self._of_node, node.part)]
            return [not_measured(metric, part, str(error), seen) for metric, part in parts]
        then = _as_now(node, document)
        read = [*nvml_answers(then, document.nvml, seen), *log_answers(then, document.log, document.bus, seen)]
        found = {(answer.metric, answer.part): answer for answer in read}
        answers = []
        for slot in node.slots:
            held = self._hold(node, slot.part, OF_GPU, found)
            held.failed[:0] = _another(slot, document)
            answers.append(_answer(self._of_gpu, slot.part, held, seen))
        answers.append(_answer(self._of_node, node.part, self._hold(node, node.part, OF_NODE, found), seen))
        return answers

    def _hold(self, node: Node, part: Part, metrics: Sequence[str], found: dict[tuple[str, str], Answer]) -> _Held:
        held = _Held()
        for metric in metrics:
            for clause in self._clauses[metric]:
                _judge(held, clause, node, part, found[metric, part.name])
        return held


def _judge(held: _Held, clause: Clause, node: Node, part: Part, found: Answer) -> None:
    name = f"{clause.id} {clause.metric}"
    why = clause.excluded or clause.not_applicable or applies(clause, node)
    if not why and not clause.required:
        why = "not required"
    if why:
        held.left_out.setdefault(why, []).append(clause.id)
        return
    verdict = judge(clause, part.name, found, peers={}, virtual=bool(node.virtual))
    if verdict.outcome is Outcome.OBSERVED:
        held.left_out.setdefault(verdict.reason, []).append(clause.id)
    elif isinstance(found, Problem):
        held.open.setdefault(found.says, []).append(clause.id)
    elif verdict.outcome in (Outcome.PASS, Outcome.MARGINAL):
        held.kept.append(f"{clause.metric} {_short(show(found.value, clause.unit))}")
        if "also noted" in found.detail:  # Xid 154 is no error, and says why the driver asks for a recovery
            held.noted.append(_short(found.detail))
    elif verdict.outcome is Outcome.FAIL:
        told = f" ({_short(found.detail)})" if found.detail else ""
        held.failed.append(f"{name} {_short(show(found.value, clause.unit))}{told}, promised {clause.limit}")
    else:
        held.open.setdefault(verdict.reason, []).append(clause.id)


def _answer(metric: str, part: Part, held: _Held, seen: tuple[str, ...]) -> Answer:
    """A finding counts first, then what could not be read; nothing held against anything is no health either."""
    noted = [*dict.fromkeys(held.noted), *([f"left out {_reasons(held.left_out)}"] if held.left_out else [])]
    detail = "; ".join([*([f"read {', '.join(held.kept)}"] if held.kept else []), *noted])
    if held.failed:
        without = [clause for clauses in held.open.values() for clause in clauses]
        value = _some(held.failed, "; ") + (f"; not measured: {_some(without)}" if without else "")
        return Measurement(metric=metric, part=part.name, value=value, detail="; ".join(noted), evidence=seen)
    if held.open:
        return not_measured(metric, part, f"{part.label} after the load: {_reasons(held.open)}", seen)
    if not held.kept:
        says = f"{part.label}: expected a clause to hold the health against, found none ({detail or 'none there'})"
        return not_measured(metric, part, says, seen)
    return Measurement(metric=metric, part=part.name, value=WELL, detail=detail, evidence=seen)


def _as_now(node: Node, document: AfterDoc) -> Node:
    """The node with its GPUs on the bus or not as the bus shows them after the load."""
    there = {gpu.bdf for gpu in document.bus}
    slots = tuple(
        dataclasses.replace(slot, gpu=dataclasses.replace(slot.gpu, on_bus=slot.gpu.bdf in there)) if slot.gpu else slot
        for slot in node.slots
    )
    return dataclasses.replace(node, slots=slots)


def _another(slot: Slot, document: AfterDoc) -> list[str]:
    """What says that the GPU is not the one that it was before the load, or no longer where it was."""
    before = slot.gpu
    if before is None:
        return []
    said = []
    if before.on_bus and all(gpu.bdf != before.bdf for gpu in document.bus):
        said.append(f"gone from the PCI bus, where it was at {before.bdf} before the load")
    now = next((gpu for gpu in document.nvml.gpus if gpu.bdf == before.bdf), None)
    if now and before.uuid and now.uuid and now.uuid != before.uuid:
        said.append(f"another GPU at {before.bdf}: {_short(now.uuid)}, was {before.uuid} before the load")
    if now and now.pci_id and before.pci_id and now.pci_id != before.pci_id:
        said.append(f"another model at {before.bdf}: {_short(now.pci_id)}, was {before.pci_id} before the load")
    return said


def _reasons(why: dict[str, list[str]]) -> str:
    """ "GPU-3, GPU-6 (no GPU at 0000:3b:00.0); GPU-27 (no NVSwitch is expected)": each reason once."""
    return _some([f"{', '.join(clauses)} ({_short(reason)})" for reason, clauses in why.items()], "; ")


def _some(phrases: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(phrases) - MOST_TOLD} more" if len(phrases) > MOST_TOLD else ""
    return between.join(phrases[:MOST_TOLD]) + more


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
