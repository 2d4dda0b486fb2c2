"""From the store to verdicts: which probe answers a metric, what it found on a part, and what follows.

All of it is derived from stored results, so every process of a run, and anybody who judges it again, comes to the
same verdicts; nothing is measured here (`taking` does that). Nothing in here raises for what a node did or failed to
do: that is a `Problem` of its part alone.

A retest settles only what a clause with `retest` asks it to settle. Whatever else one run alone has found outside its
limit stands, and so does an alarm of the watch: neither a better second run nor one that broke takes it back.

What is compared with peers is judged among all that is stored (`among_peers`); one run alone says nothing about it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_gpuready.campaign.among_peers import AmongPeers
from pytest_gpuready.campaign.answerer import another
from pytest_gpuready.campaign.store import NOT_AGAIN, Store, Taken, key_of
from pytest_gpuready.inventory import applies
from pytest_gpuready.judge import Found, judge
from pytest_gpuready.model import (
    Clause,
    CommandResult,
    Inventory,
    Measurement,
    Node,
    Outcome,
    Part,
    Problem,
    ProblemKind,
    Profile,
    Value,
    Verdict,
)
from pytest_gpuready.model.clause import LEVELS
from pytest_gpuready.probes import Probe, follows_level

RETEST_RUNS = 2


@dataclass(frozen=True, slots=True)
class _Read:
    """What the stored results of one scope say; `problem` says why nothing where that is so.

    `once` is True where it was measured and may be measured again, `wants_retest` where a limit of its own asks for it,
    `unanswered` where the transport brought no answer back.
    """

    answers: dict[tuple[str, str], Found]
    problem: str
    once: bool
    wants_retest: bool
    unanswered: bool


class Findings:
    """What was found, clause by clause and part by part, as far as it is stored."""

    def __init__(self, *, store: Store, probes: Sequence[Probe], profile: Profile, inventory: Inventory) -> None:
        self.profile = profile
        self.inventory = inventory
        self._store = store
        self._probe_of = {metric: probe for probe in probes for metric in probe.metrics}
        self._read: dict[str, _Read] = {}
        self._kept: dict[str, tuple[bytes, Inventory, _Read]] = {}  # of which file and inventory each was read
        # What follows from the same objects as before is not worked out again: a run asks for each cell many times.
        self._lacking: dict[tuple[str, Part], Problem] = {}
        self._scopes: dict[tuple[str, Part], tuple[Part | None, str]] = {}
        self._reasons: dict[tuple[str, str], tuple[Clause, str]] = {}
        self._verdicts: dict[tuple[str, Part], tuple[Clause, Found, object, Verdict]] = {}
        self._stamps: Counter[str] = Counter()
        self._among = AmongPeers(
            find=self.found,
            stamp=lambda metric: self._stamps[self._probe_of[metric].name if metric in self._probe_of else ""],
            parts=self._parts,
            inventory=lambda: self.inventory,
        )

    def found(self, metric: str, part: Part) -> Found:
        """The measurement of this metric on this part, or the problem.

        Raises:
            StoreError: the run directory cannot be used.
        """
        probe = self._probe_of.get(metric)
        if probe is None:
            return self._problem(metric, part, f"{part.label}: no probe answers {metric}")
        scope, key = self._place(probe, part)
        if scope is None:
            slot = self.inventory.slot(part)
            gone = "no GPU was found in its place" if slot is None or slot.gpu is None else "it cannot be asked"
            return self._problem(metric, part, f"{part.label}: {gone}")
        read = self._read.get(key) or self._stored(probe, scope)
        if read is None:
            return self._problem(metric, part, f"{part.label}: {metric} was not measured")
        if answer := read.answers.get((metric, part.name)):
            return answer
        default = read.problem or f"{part.label}: {probe.name} says nothing about {metric}"
        return self._problem(metric, part, default)

    def _problem(self, metric: str, part: Part, says: str) -> Problem:
        known = self._lacking.get((metric, part))
        if known is None or known.says != says:
            known = Problem(metric=metric, part=part.name, kind=ProblemKind.NOT_MEASURED, says=says)
            self._lacking[metric, part] = known
        return known

    def unanswered(self, metric: str, part: Part) -> str:
        """Why no answer came back to what measures this metric on this part; "" where one did, or nobody asked."""
        probe = self._probe_of.get(metric)
        scope, key = self._place(probe, part) if probe else (None, "")
        read = (self._read.get(key) or self._stored(probe, scope)) if probe and scope else None
        return read.problem.removesuffix(NOT_AGAIN) if read and read.unanswered else ""

    def verdict(self, clause: Clause, part: Part) -> Verdict:
        """The verdict of a clause on a part.

        Raises:
            StoreError: the run directory cannot be used.
        """
        reason = self.not_applicable(clause, self.inventory.node(part.node))
        if reason:
            outcome = Outcome.NOT_APPLICABLE
            return Verdict(clause=clause.id, part=part.name, outcome=outcome, limit=clause.limit, reason=reason)
        return self.judge(clause, part, self.found(clause.metric, part))

    def judge(self, clause: Clause, part: Part, found: Found) -> Verdict:
        """The verdict of a clause about something found on a part."""
        virtual = bool(self.inventory.node(part.node).virtual)
        if clause.limit and clause.limit.uniform:  # the peers may have been measured meanwhile
            return judge(clause, part.name, found, peers=self.peers(clause.metric, part), virtual=virtual)
        seen = self._among.seen(clause, part)
        known = self._verdicts.get((clause.id, part))
        if known is None or known[0] is not clause or known[1] is not found or known[2] is not seen:
            known = clause, found, seen, judge(clause, part.name, found, peers={}, virtual=virtual, seen=seen)
            self._verdicts[clause.id, part] = known
        return known[3]

    def not_applicable(self, clause: Clause, node: Node) -> str:
        """Why this clause has nothing to judge on this node: profile, site file or inventory say so; else ""."""
        if clause.excluded:
            return f"excluded by the site file: {clause.excluded}"
        known = self._reasons.get((clause.id, node.name))
        if known is None or known[0] is not clause:
            known = self._reasons[clause.id, node.name] = clause, clause.not_applicable or applies(clause, node)
        return known[1]

    def measured_with(self, metric: str, part: Part) -> tuple[tuple[str, ...], tuple[Part, ...]]:
        """All metrics and parts that the measurement of this metric on this part answers."""
        node, probe = self.inventory.node(part.node), self._probe_of.get(metric)
        if probe is None or part in probe.scopes(node):
            return probe.metrics if probe else (metric,), (part,)
        return probe.metrics, (node.part, *(slot.part for slot in node.slots))

    def peers(self, metric: str, part: Part) -> dict[str, Value]:
        """Values of a metric on all parts of the same kind on this node, as far as they are stored."""
        node = self.inventory.node(part.node)
        parts = [node.part] if part.index < 0 else [slot.part for slot in node.slots]
        found = ((p.name, self.found(metric, p)) for p in parts)
        return {name: f.value for name, f in found if isinstance(f, Measurement)}

    def probe_of(self, metric: str) -> Probe | None:
        """Who answers a metric."""
        return self._probe_of.get(metric)

    def scope(self, probe: Probe, part: Part) -> Part | None:
        """What this probe is asked about to answer for a part: the part itself or its node; None where neither is."""
        return self._place(probe, part)[0]

    def nodes_of_scopes(self) -> dict[str, str]:
        """The store's name of every scope that there is -> its node."""
        probes = {probe.name: probe for probe in self._probe_of.values()}.values()
        return {
            key_of(probe.name, scope.name): node.name
            for node in self.inventory.nodes
            for probe in probes
            for scope in probe.scopes(node)
        }

    def is_stored(self, probe: Probe, scope: Part) -> bool:
        """True where this scope was measured, or it is known why it cannot be."""
        return self._stored(probe, scope) is not None

    def wants_retest(self, probe: Probe, scope: Part) -> bool:
        """True where a clause that condemns nothing without a retest fails on the only run there is."""
        read = self._stored(probe, scope)
        return bool(read and read.wants_retest)

    def with_peers(self, probe: Probe, level: int) -> tuple[Clause, ...]:
        """Clauses with a limit against peers that this probe answers, up to a level."""
        return tuple(
            clause
            for clause in self.profile.clauses
            if clause.peers and clause.metric in probe.metrics and clause.level <= level
        )

    def far_once(self, clause: Clause) -> tuple[Part, ...]:
        """Scopes to measure again: a part there was measured once and is far from its peers."""
        probe = self._probe_of.get(clause.metric)
        scopes: dict[Part, None] = {}
        for part in self._among.far(clause) if probe else ():
            scope = self.scope(probe, part) if probe else None
            read = self._stored(probe, scope) if probe and scope else None
            found = self.found(clause.metric, part)
            if scope and read and read.once and isinstance(found, Measurement) and not found.stands:
                scopes[scope] = None
        return tuple(scopes)

    def in_order(self, level: int) -> list[Clause]:
        """Clauses of this level and below as they are to be taken: level by level, what follows a load behind it."""

        def place(clause: Clause) -> tuple[int, bool]:
            probe = self._probe_of.get(clause.metric)
            return clause.level, bool(probe and follows_level(probe))

        return sorted(self.profile.up_to(level), key=place)

    def verdicts_of(self, probe: Probe, scope: Part) -> list[tuple[Clause, Verdict]]:
        """Verdicts, from what is stored, of all clauses that this scope of the probe answers and that apply."""
        node = self.inventory.node(scope.node)
        parts = [node.part, *(slot.part for slot in node.slots)] if scope == node.part else [scope]
        verdicts = [
            (clause, self.verdict(clause, part))
            for clause in self.profile.clauses
            if clause.metric in probe.metrics
            for part in parts
            if (clause.per == "node") == (part.index < 0)
        ]
        return [one for one in verdicts if one[1].outcome is not Outcome.NOT_APPLICABLE]

    def failed(self, probe: Probe, scope: Part) -> bool:
        """True where the results of this scope FAIL a required clause, together or any of them, an earlier attempt's
        too, when judged alone, or a part is far from its peers. So it is where one of several parts is known to be
        wrong, and nobody knows which."""
        taken = self._store.read(key_of(probe.name, scope.name))
        if taken is None or not (taken.results or taken.earlier):
            return False  # no answer is no FAIL
        verdicts = self.verdicts_of(probe, scope)
        if any(clause.required and verdict.outcome is Outcome.FAIL for clause, verdict in verdicts):
            return True
        if self._was_far(probe, scope) or any(self._proven(found) for found in self._required(probe, scope)):
            return True
        if len(taken.results) == 1 and not taken.earlier and not taken.problem:
            return False  # alone it is what all are together
        node = self.inventory.node(scope.node)
        alone = self._each_alone(probe, node, scope, [*taken.earlier, *taken.results])
        told = (one for answers in alone for one in answers)
        return any(
            clause.required and (self._fails(clause, node, found) or self._proven(found)) for clause, found in told
        )

    def _required(self, probe: Probe, scope: Part) -> list[Found]:
        """What this scope says to required clauses that apply to its node."""
        read, node = self._stored(probe, scope), self.inventory.node(scope.node)
        clauses = (clause for clause in self.profile.clauses if clause.required)
        metrics = {clause.metric for clause in clauses if not self.not_applicable(clause, node)}
        return [found for found in read.answers.values() if found.metric in metrics] if read else []

    @staticmethod
    def _proven(found: Found) -> bool:
        return isinstance(found, Problem) and found.proven

    def _was_far(self, probe: Probe, scope: Part) -> bool:
        """True where a required clause saw a part of this scope far from its peers in any run."""
        node = self.inventory.node(scope.node)
        parts = [node.part, *(slot.part for slot in node.slots)] if scope == node.part else [scope]
        return any(
            seen is not None and bool(seen.far)
            for clause in self.with_peers(probe, max(LEVELS))
            if clause.required
            for part in parts
            for seen in self._among.seen(clause, part)
        )

    def _parts(self, clause: Clause) -> list[Part]:
        """Parts on which a clause applies."""
        nodes = [node for node in self.inventory.nodes if not self.not_applicable(clause, node)]
        return [part for node in nodes for part in self.inventory.parts(clause.per, node)]

    def reread(self, probe: Probe | None = None, scope: Part | None = None) -> None:
        """Look at the store again, for one scope or for all: what has changed there is read anew."""
        if probe and scope:
            self._read.pop(key_of(probe.name, scope.name), None)
            self._stamps[probe.name] += 1
        else:
            self._read.clear()
            self._stamps.update(probe.name for probe in self._probe_of.values())

    def _place(self, probe: Probe, part: Part) -> tuple[Part | None, str]:
        """The scope of a part, and its name in the store."""
        at = (probe.name, part)
        known = self._scopes.get(at)
        if known is None:
            node = self.inventory.node(part.node)
            scope = next((scope for scope in probe.scopes(node) if scope in (part, node.part)), None)
            known = self._scopes[at] = scope, key_of(probe.name, scope.name) if scope else ""
        return known

    def _stored(self, probe: Probe, scope: Part) -> _Read | None:
        """What is stored for this scope; None where that is nothing."""
        key = key_of(probe.name, scope.name)
        if known := self._read.get(key):
            return known
        file, kept = self._store.file_digest(key), self._kept.get(key)
        if kept and kept[0] == file and kept[1] is self.inventory:
            return self._read.setdefault(key, kept[2])
        taken = self._store.read(key)
        if taken is None or taken.empty:
            return None
        node = self.inventory.node(scope.node)
        answers, problem = self._read_taken(probe, node, scope, taken)
        once = not taken.problem and len(taken.results) < RETEST_RUNS
        again = once and self._wants_retest(probe, answers)
        answers = {**answers, **self._standing(probe, node, scope, taken, answers)}
        read = self._read[key] = _Read(answers, problem, once, again, bool(taken.problem))
        self._kept[key] = file, self.inventory, read
        self._stamps[probe.name] += 1
        return read

    def _standing(
        self, probe: Probe, node: Node, scope: Part, taken: Taken, together: dict[tuple[str, str], Found]
    ) -> dict[tuple[str, str], Found]:
        """What one run of several found and no other run takes back, where all runs together do not say it already."""
        runs = len(taken.results) + bool(taken.problem)
        stands: dict[tuple[str, str], Found] = {}
        if runs < 2:
            return stands
        for number, answers in enumerate(self._each_alone(probe, node, scope, taken.results), 1):
            for clause, found in answers:
                alarm = found.watch.alarm if isinstance(found, Measurement) and found.watch else ""
                stays = not clause.retest or alarm or (isinstance(found, Measurement) and found.stands)
                if not stays or not self._fails(clause, node, found):
                    continue
                key = (found.metric, found.part)
                if isinstance(found, Measurement) and not self._fails(clause, node, together.get(key)):
                    conditions = ", ".join(filter(None, (f"run {number} of {runs}", found.conditions)))
                    stands.setdefault(key, dataclasses.replace(found, conditions=conditions))
        return stands

    def _each_alone(
        self, probe: Probe, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> Iterator[list[tuple[Clause, Found]]]:
        """Of each result, read as if there were no other, what it says to every clause that applies to the node.

        What is compared with neighbours (`uniform`) says nothing alone.
        """
        clauses = [
            clause
            for clause in self.profile.clauses
            if clause.metric in probe.metrics and not self.not_applicable(clause, node)
            if not (clause.limit and clause.limit.uniform)
        ]
        for result in results:
            answers, _ = self._read_taken(probe, node, scope, Taken(results=[result]))
            yield [(clause, found) for clause in clauses for found in answers.values() if found.metric == clause.metric]

    def _fails(self, clause: Clause, node: Node, found: Found | None) -> bool:
        if found is None:
            return False
        verdict = judge(clause, found.part, found, peers={}, virtual=bool(node.virtual))
        return verdict.outcome is Outcome.FAIL

    def _read_taken(
        self, probe: Probe, node: Node, scope: Part, taken: Taken
    ) -> tuple[dict[tuple[str, str], Found], str]:
        """What all these results together say, and why nothing where that is so."""
        if taken.problem:
            return {}, taken.problem
        asked = probe.command(node, scope)
        if any((result.command.node, result.command.argv) != (node.name, asked.argv) for result in taken.results):
            return {}, f"{scope.label}: expected the results of {probe.name} on it, found those of another command"
        document = getattr(probe, "document", probe.name)
        # Where the node itself could not be read, nothing says who is the right one, and the run is INCOMPLETE.
        if node.boot_id or node.name not in self.inventory.problems:
            for result in taken.results:
                if other := another(node, result, document):
                    return {}, other
        try:
            return {(f.metric, f.part): f for f in probe.read(self.inventory, node, scope, taken.results)}, ""
        except Exception as error:  # a reader that breaks on a document has not measured anything
            return {}, (
                f"{scope.label}: expected to read what {probe.name} printed, found {type(error).__name__}: {error}; "
                "keep the evidence and report it"
            )

    def _wants_retest(self, probe: Probe, answers: dict[tuple[str, str], Found]) -> bool:
        """True where a clause that condemns nothing without a retest fails on the first run."""
        for clause in self.profile.clauses:
            if not clause.retest or clause.metric not in probe.metrics:
                continue
            first = [f for (m, _), f in answers.items() if m == clause.metric and isinstance(f, Measurement)]
            again = (f for f in first if not f.repeats and not f.stands)
            judged = (judge(clause, f.part, f, peers={}, virtual=False) for f in again)
            if any(verdict.outcome is Outcome.FAIL for verdict in judged):
                return True
        return False
