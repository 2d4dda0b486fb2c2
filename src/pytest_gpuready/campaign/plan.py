"""What a run would do, before it does it: the fan-outs in the order of `Taking`, and what is left out and why.

The order is not described a second time. A rehearsal is a `Taking` that notes each fan-out instead of running it; what
has yet to be measured is taken to hold, and what the inventory has shown already counts as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store, Taken, key_of
from pytest_gpuready.campaign.taking import Taking
from pytest_gpuready.model import Clause, Command, Inventory, Node, Outcome, Part, Profile
from pytest_gpuready.probes import Probe

AGAIN = " again"
"""Behind the name of a probe whose fan-out is a retest."""

Asked = Sequence[tuple[Clause, Sequence[Part]]]
"""Clauses and the parts that they are judged on, in the order of their tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fan-out: one command a node. `level` is that of the clause that asks first."""

    probe: str
    level: int
    commands: tuple[Command, ...]

    @property
    def longest_s(self) -> float:
        """How long it takes at most, all nodes at once."""
        return max(command.timeout_s + command.grace_s for command in self.commands)

    @property
    def typical_s(self) -> float:
        """How long it usually takes; 0 where that is seconds."""
        return max(command.typical_s for command in self.commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Clauses that are not judged on these nodes, and why."""

    reason: str
    clauses: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run as it would be. `asked_now` steps are those that the plan itself has taken: the inventory's.

    `unreached`: node -> why it is asked for nothing more. `blocked`: level -> what the inventory shows
    to fail below it.
    """

    steps: tuple[Step, ...]
    asked_now: int
    level: int
    keep_going: bool
    profile: Profile
    nodes: tuple[str, ...]
    unreached: Mapping[str, str]
    left_out: tuple[LeftOut, ...]
    blocked: Mapping[int, tuple[LeftOut, ...]]
    missing: tuple[str, ...]
    """GPUs that are expected and were not found, so that nothing can be asked about them."""
    unasked: tuple[str, ...]
    """Clauses of the level that no collected test judges."""
    waits: tuple[str, ...]
    """Metrics that have to hold before what needs them is measured."""
    again: tuple[str, ...]
    """Clauses that are measured once more before they condemn."""
    gates: Mapping[int, int]
    """Level -> how many gate clauses stand below it."""
    silent: tuple[str, ...] = ()
    """Nodes of whose word about themselves nothing counts: of them there is no plan."""


class Rehearsal(Taking):
    """Takes nothing: notes what would be taken, in the same order."""

    def __init__(
        self, *, store: Store, findings: Findings, keep_going: bool, unreached: Mapping[str, str], level: int = 0
    ) -> None:
        super().__init__(store=store, findings=findings, keep_going=keep_going, unreached=unreached)
        self.steps: list[Step] = []
        self.due: list[Clause] = []
        """Clauses that a test judges on some node, one for each position of the part."""
        self._level = level
        self._noted: set[str] = set()

    def ask(self, asked: Asked) -> None:
        """What the tests of these clauses would take, as each of them asks for it."""
        for clause, parts in asked:
            for part in parts:
                if (clause.id, part.index) not in self._done and self._is_due(clause, self._node(part)):
                    self.take(clause, part)
                    self.due.append(clause)

    def take(self, clause: Clause, part: Part) -> None:
        """As `Taking.take`, with the level of this clause for what is noted."""
        outer, self._level = self._level, clause.level
        try:
            super().take(clause, part)
        finally:
            self._level = outer

    def _node(self, part: Part) -> Node:
        return self.findings.inventory.node(part.node)

    def _outcome(self, clause: Clause, part: Part) -> Outcome:
        if (clause.id, part.index) not in self._done:
            self.take(clause, part)
        probe = self.findings.probe_of(clause.metric)
        scope = self.findings.scope(probe, part) if probe else None
        if probe and scope and key_of(probe.name, scope.name) in self._noted:
            return Outcome.PASS
        return self.findings.verdict(clause, part).outcome

    def _take(self, probe: Probe, scopes: Mapping[str, Part]) -> None:
        # What is noted is not stored: that is not looked up for each clause again.
        new = {name: s for name, s in scopes.items() if key_of(probe.name, s.name) not in self._noted}
        self._note(probe, {name: s for name, s in new.items() if not self.findings.is_stored(probe, s)}, "")
        self._again(probe, {name: s for name, s in new.items() if self.findings.wants_retest(probe, s)})

    def _again(self, probe: Probe, scopes: Mapping[str, Part]) -> None:
        self._note(probe, scopes, AGAIN)

    def _note(self, probe: Probe, scopes: Mapping[str, Part], mark: str) -> None:
        keys = {name: key_of(probe.name, scope.name) + mark for name, scope in scopes.items()}
        due = {name: s for name, s in scopes.items() if keys[name] not in self._noted and name not in self._unreached}
        if due:
            self._noted.update(keys[name] for name in due)
            commands = tuple(self._commands(probe, due).values())
            self.steps.append(Step(probe=probe.name + mark, level=self._level, commands=commands))


def plan(
    *,
    asked: Asked,
    firsts: Sequence[Probe],
    taken: Mapping[str, Taken],
    unreached: Mapping[str, str],
    store: Store,
    findings: Findings,
    level: int,
    keep_going: bool,
    silent: Sequence[str] = (),
) -> Plan:
    """The plan of a run over what the tests ask for; `taken` is what the inventory's probes (`firsts`) have said.

    `silent` are nodes of which nothing of that counts.

    Raises:
        StoreError: the store cannot be read.
    """
    inventory, profile = findings.inventory, findings.profile
    rehearsal = Rehearsal(store=store, findings=findings, keep_going=keep_going, unreached=unreached)
    rehearsal.ask(asked)
    clauses = profile.up_to(level)
    with_test = {clause.id for clause, _ in asked}
    return Plan(
        steps=(*_inventory_steps(firsts, taken, unreached, inventory), *rehearsal.steps),
        asked_now=len(firsts),
        level=level,
        keep_going=keep_going,
        profile=profile,
        nodes=tuple(node.name for node in inventory.nodes),
        unreached=unreached,
        left_out=_left_out(
            (clause.id, node.name, why.replace(node.name, "the node"))
            for clause in clauses
            for node in inventory.nodes
            if (why := findings.not_applicable(clause, node))
        ),
        blocked={} if keep_going else _blocked(rehearsal, inventory, clauses),
        missing=tuple(
            slot.part.label
            for node in inventory.nodes
            if node.name not in unreached
            for slot in node.slots
            if slot.gpu is None
        ),
        unasked=tuple(clause.id for clause in clauses if clause.id not in with_test),
        waits=tuple(sorted({metric for clause in rehearsal.due for metric in clause.after})),
        again=tuple(dict.fromkeys(clause.id for clause in rehearsal.due if clause.retest)),
        gates={n: sum(clause.gate for clause in profile.up_to(n - 1)) for n in range(2, level + 1)},
        silent=tuple(silent),
    )


def _inventory_steps(
    firsts: Sequence[Probe], taken: Mapping[str, Taken], unreached: Mapping[str, str], inventory: Inventory
) -> list[Step]:
    """The first contact: whoever was refused after the first of it was not asked for the rest."""
    steps = []
    for probe in firsts:
        names = [
            node.name
            for node in inventory.nodes
            if node.name not in unreached or probe is firsts[0] or taken[key_of(probe.name, node.name)].earlier
        ]
        if names:
            here = [Node(name=name, slots=()) for name in names]
            commands = tuple(probe.command(node, node.part) for node in here)
            steps.append(Step(probe=probe.name, level=1, commands=commands))
    return steps


def _blocked(rehearsal: Rehearsal, inventory: Inventory, clauses: Sequence[Clause]) -> dict[int, tuple[LeftOut, ...]]:
    """Level -> what keeps it from running on which nodes, as far as the inventory shows it."""
    found = {}
    for level in sorted({clause.level for clause in clauses} - {1}):
        blockers = [(blocker[0], node) for node in inventory.nodes if (blocker := rehearsal.blocked_by(level, node))]
        if blockers:
            found[level] = _left_out(
                (clause.id, node.name, f"{clause.id} {clause.metric}") for clause, node in blockers
            )
    return found


def _left_out(cells: Iterable[tuple[str, str, str]]) -> tuple[LeftOut, ...]:
    """Clause, node and reason -> each reason once, with the clauses that have it on the same nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for clause, node, why in cells:
        nodes.setdefault((why, clause), []).append(node)
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (why, clause), names in nodes.items():
        rows.setdefault((why, tuple(names)), []).append(clause)
    return tuple(LeftOut(reason=why, clauses=tuple(ids), nodes=names) for (why, names), ids in rows.items())
