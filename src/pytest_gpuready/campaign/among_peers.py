"""Clauses with a limit against peers on all parts: looked at once, and again only when something else was read.

A part is seen among all that is stored, so nobody is judged before all that are due are measured (`taking` sees to
that): then neither the order of tests nor the number of processes, nor who was measured first, changes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_gpuready.judge import Found
from pytest_gpuready.judge.among import Run, Seen, look
from pytest_gpuready.model import Clause, Inventory, Measurement, Part


@dataclass(frozen=True, slots=True)
class _View:
    """What was seen, of which clause and nodes, and what the store had been read for then."""

    clause: Clause
    nodes: object
    stamp: int
    runs: tuple[Run, ...]
    of_part: dict[Part, tuple[Seen | None, ...]] = field(default_factory=dict)


class AmongPeers:
    """Every part among its peers, clause by clause."""

    def __init__(
        self,
        *,
        find: Callable[[str, Part], Found],
        stamp: Callable[[str], int],
        parts: Callable[[Clause], Sequence[Part]],
        inventory: Callable[[], Inventory],
    ) -> None:
        """`find` is what is stored of a metric on a part, `stamp` how often anything of a metric was read anew,
        `parts` those on which a clause applies."""
        self._find = find
        self._stamp = stamp
        self._parts = parts
        self._inventory = inventory
        self._views: dict[str, _View] = {}

    def seen(self, clause: Clause, part: Part) -> tuple[Seen | None, ...]:
        """The part among its peers, run by run; nothing where the clause has no peers."""
        if clause.peers is None:
            return ()
        view = self._view(clause)
        known = view.of_part.get(part)
        if known is None:
            known = view.of_part[part] = tuple(run.get(part) for run in view.runs)
        return known

    def far(self, clause: Clause) -> tuple[Part, ...]:
        """Parts that are far from their peers in the first run."""
        runs = self._view(clause).runs
        return tuple(part for part, seen in runs[0].items() if seen.far) if runs else ()

    def _view(self, clause: Clause) -> _View:
        inventory, known = self._inventory(), self._views.get(clause.id)
        current = known and (known.clause is clause and known.nodes is inventory.nodes)
        if not known or not current or known.stamp != self._stamp(clause.metric):
            found = {part: self._find(clause.metric, part) for part in self._parts(clause)}
            measured = {part: one for part, one in found.items() if isinstance(one, Measurement)}
            runs = look(clause, measured, inventory)
            known = self._views[clause.id] = _View(clause, inventory.nodes, self._stamp(clause.metric), runs)
        return known
