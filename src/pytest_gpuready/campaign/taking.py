"""Measures what nobody has measured yet: one fan-out a measurement over all nodes that are due, tier by tier.

A node is due for a clause where the clause applies, its gates below hold (or are to be passed over), and what the
clause waits for holds. A node that does not answer costs only itself: who could not be reached at the start, or twice
in a row later, is not asked again, and the store says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pytest_gpuready.campaign.findings import RETEST_RUNS, Findings
from pytest_gpuready.campaign.store import Store, Taken, key_of
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
        self._done: set[tuple[str, int]] = set()
        self._blocked: dict[tuple[int, str], tuple[Clause, Part] | None] = {}

    def take(self, clause: Clause, part: Part) -> None:
        """See that what this clause needs on this part is in the store: measured on all nodes at once.

        Raises:
            StoreError: the run directory cannot be used.
        """
        probe = self.findings.probe_of(clause.metric)
        if probe is None or (clause.id, part.index) in self._done:
            return
        scopes = {
            node.name: scope
            for node in self.findings.inventory.nodes
            for at in self.findings.inventory.parts(clause.per, node)
            if at.index == part.index and (scope := self.findings.scope(probe, at))
            if self._is_due(clause, node)
        }
        if follows_level(probe) and not all(self.findings.is_stored(probe, scope) for scope in scopes.values()):
            self._load_first(probe)
        self._take(probe, scopes)
        self._done.add((clause.id, part.index))

    def blocked_by(self, level: int, node: Node) -> tuple[Clause, Part] | None:
        """The first gate clause below `level` that fails on this node; measures what the gates need.

        Raises:
            StoreError: the run directory cannot be used.
        """
        key = (level, node.name)
        if key not in self._blocked:
            self._blocked[key] = next(
                (
                    (clause, part)
                    for clause in self.findings.in_order(level - 1)
                    if clause.gate and not self.waits_for(clause, node)
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

    def _outcome(self, clause: Clause, part: Part) -> Outcome:
        self.take(clause, part)
        return self.findings.verdict(clause, part).outcome

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
        missing = {name: scope for name, scope in scopes.items() if not self.findings.is_stored(probe, scope)}
        asked = {name: scope for name, scope in missing.items() if name not in self._unreached}
        for name in missing.keys() - asked.keys():
            self._store.put(key_of(probe.name, missing[name].name), Taken(problem=self._unreached[name]))
        self._store.take(self._commands(probe, asked))
        for name, scope in missing.items():
            self.findings.reread(probe, scope)
            self._count(name, key_of(probe.name, scope.name))
        again = {name: scope for name, scope in scopes.items() if self.findings.wants_retest(probe, scope)}
        if again:
            self._store.again(self._commands(probe, again), runs=RETEST_RUNS)
            for scope in again.values():
                self.findings.reread(probe, scope)

    def _commands(self, probe: Probe, scopes: Mapping[str, Part]) -> dict[str, Command]:
        inventory = self.findings.inventory
        return {
            key_of(probe.name, scope.name): probe.command(inventory.node(name), scope) for name, scope in scopes.items()
        }

    def _count(self, name: str, key: str) -> None:
        """A node that fails in the transport twice in a row is gone: the others do not wait for it again and again."""
        taken = self._store.read(key)
        if name in self._unreached or taken is None:
            return
        if not taken.problem:
            self._failed[name] = 0
            return
        self._failed[name] += 1
        if self._gives_up and self._failed[name] == GIVEN_UP:
            self._unreached[name] = f"{taken.problem} (not asked again)"
