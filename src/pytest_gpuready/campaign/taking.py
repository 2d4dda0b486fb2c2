"""Measures what nobody has measured yet: one fan-out a measurement over all nodes that are due, tier by tier.

A node is due for a clause where the clause applies, its gates below hold (or are to be passed over), and what the
clause waits for holds. A node that does not answer costs only itself: who could not be reached at the start, or twice
in a row later, is not asked again, and the store says so. What was lost in a row is told by the store's journal, and
measurements are taken in the order of the tests, whichever of them asks first: so neither depends on how many processes
the run is spread over.

Where a measurement answers a clause with a limit against peers, all of its parts are measured before one is judged,
and who is far from them is measured again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pytest_gpuready.campaign.findings import RETEST_RUNS, Findings
from pytest_gpuready.campaign.store import NOT_AGAIN, Store, Taken, key_of
from pytest_gpuready.model import Clause, Command, Node, Outcome, Part
from pytest_gpuready.probes import Probe, follows_level

GIVEN_UP = 2
"""Fan-outs in a row in which a node that was reached once could not be reached."""


class Taking:
    """Takes measurements for findings to read."""

    def __init__(
        self,
        *,
        store: Store,
        findings: Findings,
        keep_going: bool = False,
        unreached: Mapping[str, str] | None = None,
        gives_up: bool = False,
    ) -> None:
        """`unreached`: node -> why it is not asked for anything; `gives_up` where a node can be lost on the way."""
        self._store = store
        self.findings = findings
        self._keep_going = keep_going
        self._unreached = dict(unreached or {})
        self._gives_up = gives_up
        self._failed: Counter[str] = Counter()
        self._node_of: dict[str, str] = {}
        self._order: dict[tuple[str, int], tuple[Clause, list[Part]]] = {}
        self._ahead = False
        self._passed: set[tuple[str, int]] = set()
        self._done: set[tuple[str, int]] = set()
        self._with_peers: set[str] = set()
        self._repeated: set[str] = set()
        self._blocked: dict[tuple[int, str], tuple[Clause, Part] | None] = {}
        self._gates_of: dict[int, list[Clause]] = {}

    def follow(self, asked: Iterable[tuple[Clause, Sequence[Part]]]) -> None:
        """These are the clauses that will be asked for, and on which parts, in this order."""
        for clause, parts in asked:
            for part in parts:
                self._order.setdefault((clause.id, part.index), (clause, []))[1].append(part)

    def take(self, clause: Clause, part: Part) -> None:
        """See that what this clause needs on this part is in the store: measured on all nodes at once.

        Raises:
            StoreError: the run directory cannot be used.
        """
        probe = self.findings.probe_of(clause.metric)
        at = (clause.id, part.index)
        if probe is None or at in self._done:
            return
        if at in self._order and not self._ahead:
            self._before(at)
        asked = [clause]
        nested = probe.name in self._with_peers  # asked for what it has to wait for itself
        if not nested:
            asked += [other for other in self.findings.with_peers(probe, clause.level) if other is not clause]
        if not any(one.peers for one in asked):
            self._take_at(probe, asked, part.index)
            self._done.add((clause.id, part.index))
            return
        self._with_peers.add(probe.name)
        try:
            for index in self._indices(asked):
                self._take_at(probe, asked, index)
                self._done.add((clause.id, index))
            self._again_among_peers(probe, asked)
        finally:
            if not nested:
                self._with_peers.discard(probe.name)

    def _before(self, at: tuple[str, int]) -> None:
        """Take what the tests before this one ask for: another process may have them, and be behind."""
        self._ahead = True
        try:
            for earlier, (clause, parts) in self._order.items():
                if earlier == at:
                    break
                if earlier in self._done or earlier in self._passed:
                    continue
                self._passed.add(earlier)
                due = (part for part in parts if self._is_due(clause, self.findings.inventory.node(part.node)))
                if part := next(due, None):
                    self.take(clause, part)
        finally:
            self._ahead = False

    def blocked_by(self, level: int, node: Node) -> tuple[Clause, Part] | None:
        """The first gate clause below `level` that fails on this node; measures what the gates need.

        Raises:
            StoreError: the run directory cannot be used.
        """
        key = (level, node.name)
        if level < 2:
            return None
        if key not in self._blocked:
            self._blocked[key] = self.blocked_by(level - 1, node) or next(
                (
                    (clause, part)
                    for clause in self._gates(level - 1)
                    if not self.waits_for(clause, node)
                    for part in self.findings.inventory.parts(clause.per, node)
                    if self._outcome(clause, part) is Outcome.FAIL
                ),
                None,
            )
        return self._blocked[key]

    def waits_for(self, clause: Clause, node: Node) -> tuple[Clause, Part] | None:
        """What has to hold on this node before the clause may be measured, and does not; measures what that needs.

        Raises:
            StoreError: the run directory cannot be used.
        """
        for metric in clause.after:
            for first in self.findings.profile.of_metric(metric):
                for part in self.findings.inventory.parts(first.per, node):
                    if self._outcome(first, part) not in (Outcome.PASS, Outcome.MARGINAL):
                        return first, part
        return None

    def _gates(self, level: int) -> list[Clause]:
        """The gate clauses of this level, in the order in which they are to be taken."""
        if level not in self._gates_of:
            self._gates_of[level] = [
                clause for clause in self.findings.in_order(level) if clause.gate and clause.level == level
            ]
        return self._gates_of[level]

    def _outcome(self, clause: Clause, part: Part) -> Outcome:
        self.take(clause, part)
        return self.findings.verdict(clause, part).outcome

    def _take_at(self, probe: Probe, clauses: Sequence[Clause], index: int) -> None:
        """Measure what these clauses need on the parts of this index, on all nodes at once."""
        scopes = {
            node.name: scope
            for clause in clauses
            for node in self.findings.inventory.nodes
            for at in self.findings.inventory.parts(clause.per, node)
            if at.index == index and (scope := self.findings.scope(probe, at))
            if self._is_due(clause, node)
        }
        if follows_level(probe) and not all(self.findings.is_stored(probe, scope) for scope in scopes.values()):
            self._load_first(probe)
        self._take(probe, scopes)

    def _indices(self, clauses: Sequence[Clause]) -> list[int]:
        """The indices of all parts that these clauses are about, in order."""
        return sorted({part.index for clause in clauses for part in self.findings.inventory.parts(clause.per)})

    def _again_among_peers(self, probe: Probe, clauses: Sequence[Clause]) -> None:
        """Measure again who is far from its peers, one scope of a node at a time."""
        far = dict.fromkeys(scope for clause in clauses if clause.peers for scope in self.findings.far_once(clause))
        by_node: dict[str, list[Part]] = {}
        for scope in sorted(far):
            by_node.setdefault(scope.node, []).append(scope)
        for turn in itertools.zip_longest(*by_node.values()):
            self._again(probe, {scope.node: scope for scope in turn if scope})

    def _is_due(self, clause: Clause, node: Node) -> bool:
        if self.findings.not_applicable(clause, node):
            return False
        if not self._keep_going and self.blocked_by(clause.level, node):
            return False
        return not self.waits_for(clause, node)

    def _load_first(self, last: Probe) -> None:
        """Take all that applies up to the level that `last` follows, so that nothing loads a node afterwards."""
        level = follows_level(last)
        for clause in self.findings.in_order(level):
            probe = self.findings.probe_of(clause.metric)
            if probe is None or follows_level(probe) >= level:
                continue
            for part in {part.index: part for part in self.findings.inventory.parts(clause.per)}.values():
                self.take(clause, part)

    def _take(self, probe: Probe, scopes: Mapping[str, Part]) -> None:
        """Measure these scopes, node -> its scope, where they are not stored; then again where a retest is wanted."""
        self._hear()  # before it is asked what is missing: what another process stores meanwhile is not written over
        missing = {name: scope for name, scope in scopes.items() if not self.findings.is_stored(probe, scope)}
        asked = {name: scope for name, scope in missing.items() if name not in self._unreached}
        for name in missing.keys() - asked.keys():
            self._store.put(key_of(probe.name, missing[name].name), Taken(problem=self._unreached[name]))
        self._store.take(self._commands(probe, asked))
        for scope in missing.values():
            self.findings.reread(probe, scope)
        again = {name: scope for name, scope in scopes.items() if self.findings.wants_retest(probe, scope)}
        if again:
            self._again(probe, again)

    def _again(self, probe: Probe, scopes: Mapping[str, Part]) -> None:
        """Measure these scopes once more, node -> its scope; none of them a third time.

        A replay may have nothing to give again: it is not asked, and what it gave not read, for every clause anew.
        """
        due = {name: scope for name, scope in scopes.items() if key_of(probe.name, scope.name) not in self._repeated}
        if not due:
            return
        self._repeated |= {key_of(probe.name, scope.name) for scope in due.values()}
        self._store.again(self._commands(probe, due), runs=RETEST_RUNS)
        for scope in due.values():
            self.findings.reread(probe, scope)

    def _commands(self, probe: Probe, scopes: Mapping[str, Part]) -> dict[str, Command]:
        inventory = self.findings.inventory
        return {
            key_of(probe.name, scope.name): probe.command(inventory.node(name), scope) for name, scope in scopes.items()
        }

    def _hear(self) -> None:
        """A node that fails in the transport twice in a row is gone: the others do not wait for it again and again."""
        if not self._gives_up:
            return
        self._node_of = self._node_of or self.findings.nodes_of_scopes()
        for key, lost in self._store.news():
            name = self._node_of.get(key, "")
            self._failed[name] = self._failed[name] + 1 if lost else 0
            if self._failed[name] == GIVEN_UP and name and name not in self._unreached:
                taken = self._store.read(key) or Taken()
                self._unreached[name] = f"{taken.problem.removesuffix(NOT_AGAIN)}{NOT_AGAIN}"
