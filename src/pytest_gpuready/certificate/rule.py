"""What cells come to: one rule for the whole certificate and for every node of it.

It reads the document alone, so that whoever has the document comes to the same word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_gpuready.campaign.store import NOT_AGAIN
from pytest_gpuready.certificate.document import ClauseEntry, Judged, PartEntry
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.certificate.lines import one_line
from pytest_gpuready.certificate.tables import ids_text
from pytest_gpuready.model.units import show
from pytest_gpuready.profiles.metrics import AFTER_LOAD

Cell: TypeAlias = tuple[ClauseEntry, PartEntry]

OPEN = frozenset({"NOT MEASURED", "NOT TESTED", "UNSTABLE"})
WHY_AT_MOST = 40
"""Reasons told of a certificate over several nodes; the cells have all of them."""
MORE_REASONS = "more reasons, at the cells themselves"
NO_ANSWER = " gave no answer: "
ANY_NODE = "<node>"
"""Stands for the node's own name in a reason that several nodes share."""
_WORD = re.compile(r"[\w.-]+")
_INSIDE = ("PASS", "MARGINAL")
_EMPTY = ("NOT APPLICABLE", "OBSERVED")
_WORST_FIRST = {"FAIL": 0, "UNSTABLE": 1, "NOT MEASURED": 2, "NOT TESTED": 3, "OBSERVED": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run was asked for, and what holds of it whatever its cells say."""

    level: int
    finished: bool
    profile: str = ""
    """Its name; "" where there is none."""
    levels: frozenset[int] = frozenset()
    """Levels of which the profile has a clause, also of those above the level asked for."""
    blockers: tuple[str, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    """Nodes of which nothing came at all -> why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A verdict, why it is not ACCEPTED (worst first), and the level up to which every required cell has a verdict."""

    judged: Judged
    why: list[str]
    level_reached: int


def hidden(part: PartEntry) -> bool:
    """True where a virtual machine hides what a clause asks for, and the clause allows that."""
    return part.outcome == "OBSERVED" and part.value is None and not part.shown


def bad(clause: ClauseEntry, part: PartEntry) -> bool:
    """True where a cell stands in the way of ACCEPTED."""
    if not clause.required:
        return False
    if part.outcome == "OBSERVED":
        return not hidden(part)
    return part.outcome == "FAIL" or part.outcome in OPEN


def rule(cells: Sequence[Cell], asked: Asked, *, several: bool = False) -> Ruling:
    """The verdict that these cells come to; `several` where they are of more than one node.

    REJECTED by any FAIL of a required clause; else INCOMPLETE where a required cell has no verdict, a level has nothing
    left that could pass, nothing passed at all, or the run itself did not come to its end; else ACCEPTED.
    """
    why = [*asked.blockers, *([] if asked.finished else ["the run has not ended"])]
    if asked.profile:
        why += _nothing_to_accept(cells, asked)
    found = [cell for cell in cells if bad(*cell)]
    rejected = any(part.outcome == "FAIL" for _, part in found)
    accepted = bool(asked.profile) and not found and not why
    why += _lines_of_several(found, asked.silent) if several else _lines(found)
    return Ruling(
        judged="REJECTED" if rejected else "ACCEPTED" if accepted else "INCOMPLETE",
        why=why,
        level_reached=_level_reached(cells, asked.level),
    )


def held_by_all(whole: Ruling, left: Mapping[str, Sequence[str]]) -> Ruling:
    """The ruling of several nodes is ACCEPTED only where that of each is; `left`: those of which it is not, and why."""
    if whole.judged != "ACCEPTED" or not left:
        return whole
    groups: dict[str, list[str]] = {}
    for node, why in left.items():
        groups.setdefault(why[0] if why else "it is not accepted", []).append(node)
    lines = [f"{folded(nodes, 6)}: {why}" for why, nodes in groups.items()]
    return Ruling(judged="INCOMPLETE", why=lines[:WHY_AT_MOST], level_reached=whole.level_reached)


def _nothing_to_accept(cells: Sequence[Cell], asked: Asked) -> list[str]:
    """Why nothing can be accepted here, although no cell says so."""
    why = []
    if not any(part.outcome in _INSIDE for _, part in cells):
        why.append("nothing passed: no clause has a verdict inside its limit")
    for level in range(1, asked.level + 1):
        there = [(c, p) for c, p in cells if c.level == level]
        # That a load did no harm is nothing to accept: there must have been a load.
        needed = [p for c, p in there if c.required and c.metric not in AFTER_LOAD]
        if there and not needed:
            why.append(f"the profile {asked.profile} requires nothing at level {level}")
        elif needed and all(part.outcome in _EMPTY for part in needed):
            why.append(f"nothing of level {level} passed: what it requires is excluded or hidden")
    missing = ", ".join(str(n) for n in range(1, asked.level + 1) if n not in asked.levels)
    if missing:
        why.append(f"the profile {asked.profile} has no clause of level {missing}: nothing can be accepted there")
    return why


def _level_reached(cells: Sequence[Cell], asked: int) -> int:
    """A level of which all that could be measured is excluded or hidden is none that was reached."""
    reached = 0
    for level in range(1, asked + 1):
        there = [(clause, part) for clause, part in cells if clause.level == level and clause.required]
        measured = [part.outcome for clause, part in there if clause.metric not in AFTER_LOAD]
        open_ = any(part.outcome in OPEN for _, part in there)
        if open_ or all(outcome in _EMPTY for outcome in measured):
            break
        reached = level
    return reached


def _lines(found: Sequence[Cell]) -> list[str]:
    groups: dict[tuple[int, str, str], list[Cell]] = {}
    for clause, part in found:
        groups.setdefault(_same(clause, part, tried(part.reason)), []).append((clause, part))
    lines = []
    for (*_, reason), group in sorted(groups.items(), key=lambda item: item[0][0]):
        first = group[0][1].label
        parts = len({part.part for _, part in group})
        lines.append(_line(group, first if parts == 1 else f"{parts} parts from {first} on", reason))
    return lines


def _same(clause: ClauseEntry, part: PartEntry, reason: str) -> tuple[int, str, str]:
    """What cells have in common that are one line: what has no value, its reason; what has one, its clause as well."""
    rank = _WORST_FIRST[part.outcome]
    return rank, "" if part.outcome in OPEN and reason else clause.id, reason


def _lines_of_several(found: Sequence[Cell], silent: Mapping[str, str]) -> list[str]:
    """One line for one thing, on however many nodes; nodes that gave no answer are told by why they did not."""
    groups: dict[tuple[int, str, str], list[Cell]] = {}
    for clause, part in found:
        node = part.node
        if node not in silent:
            reason = nameless(of_any(tried(part.reason), part.label, node), node)
            groups.setdefault(_same(clause, part, reason), []).append((clause, part))
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    lines = []
    for (*_, reason), group in ordered[:WHY_AT_MOST]:
        nodes = dict.fromkeys(part.node for _, part in group)
        count = len({part.part for _, part in group})
        parts = group[0][1].label if count == 1 else f"{count} parts of {folded(nodes, 6)}"
        own = of_any(tried(group[0][1].reason), group[0][1].label, group[0][1].node)
        lines.append(_line(group, parts, own if len(nodes) == 1 else reason))
    if len(ordered) > WHY_AT_MOST:
        lines.append(f"and {len(ordered) - WHY_AT_MOST} {MORE_REASONS}")
    told = [f"{folded(nodes, 6)}{NO_ANSWER}{one_line(reason)}" for reason, nodes in by_reason(silent.items())]
    worst = sum(key[0] == 0 for key, _ in ordered[:WHY_AT_MOST])
    return [*lines[:worst], *told[:WHY_AT_MOST], *lines[worst:]]


def tried(reason: str) -> str:
    """What a reason says of a node that was asked, also where it was given up before: that has the same cause."""
    return reason.removesuffix(NOT_AGAIN)


def of_any(text: str, *names: str) -> str:
    """What a reason says, without the name of the part or node in front: equal where the cause is."""
    for name in names:
        text = text.removeprefix(f"{name}: ")
    return text


def nameless(text: str, name: str) -> str:
    """What a reason says, with `<node>` where it names this node."""
    if name not in text:
        return text
    return _WORD.sub(lambda m: ANY_NODE + m[0][len(name) :] if m[0].rstrip(".") == name else m[0], text)


def by_reason(problems: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """(reason, nodes) of (node, reason) pairs: reasons are equal where they differ in the node's own name alone."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, problem in problems:
        own = of_any(problem, name)
        groups.setdefault(nameless(own, name), []).append((name, own))
    return [
        (found[0][1] if len(found) == 1 else reason, [name for name, _ in found]) for reason, found in groups.items()
    ]


def _line(group: Sequence[Cell], parts: str, reason: str) -> str:
    clause, part = group[0]
    line = f"{ids_text(list(dict.fromkeys(other.id for other, _ in group)))} {part.outcome} on {parts}"
    if part.outcome == "FAIL" and part.value is not None:
        line += f": {show(part.value, clause.unit)}, expected {part.expected or clause.limit or 'no such thing'}"
    return one_line(f"{line}: {reason}" if reason else line)
