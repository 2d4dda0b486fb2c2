"""A plan as lines for a person: as many for a thousand nodes as for one. ASCII."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from pytest_gpuready.campaign.plan import AGAIN, LeftOut, Plan, Step
from pytest_gpuready.campaign.progress_words import clock_time, plain
from pytest_gpuready.inventory.nodeset import NAME, fold
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.model.shown import shown

AGENT = (PYTHON, "-m", "pytest_gpuready.agent")
NOTHING = "nothing was measured, no test has run: exit code 0 of a dry run accepts nothing"
REASONS = 6
"""Reasons for which clauses are left out that are told one by one."""

UNREACHED = 3
"""Reasons for which nodes are not asked that are told one by one."""

BLOCKERS = 1
"""The same of what keeps a level from running on some nodes."""

ROWS = 24
"""Measurements that are told one by one."""

LONGEST = 160
LONGEST_SET = 60
_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


def plan_lines(plan: Plan, *, by: str, at_once: int = 0, others: int = 0) -> list[str]:
    """The plan. `by` is what the nodes are reached through, `at_once` how many it asks at a time (0: all), `others` how
    many tests were collected that judge no clause."""
    profile = plan.profile
    lines = [
        _line("nodes", f"{len(plan.nodes)}: {_set(plan.nodes)}" if len(plan.nodes) > 1 else plan.nodes[0]),
        _line("by", f"{by}, {at_once} nodes at a time" if at_once else by),
        _line("level", f"{plan.level}, profile {profile.name} {profile.version} (sha256 {profile.sha256[:12]})"),
        _line(
            "asked now", f"{_names(plan.steps[: plan.asked_now])}, for the plan depends on it; nothing is kept of it"
        ),
        *_refused(plan),
        "",
        " level  nodes  each  deadline    usual  command (agent: python -m pytest_gpuready.agent, on the node)",
        *_rows(plan.steps),
        "",
        _line("in all", _sums(plan.steps, at_once)),
        *_gates(plan),
    ]
    if plan.again:
        lines.append(_line("again", f"{_some(plan.again)}: measured once more before one of them fails; not counted"))
    if plan.missing:
        lines.append(_line("not there", f"{_some(plan.missing)}: expected and not found, so nothing asks about it"))
    if plan.left_out:
        lines += [_line("left out", f"{_ids(row)}: {_reason(row, plan)}") for row in plan.left_out[:REASONS]]
        if rest := plan.left_out[REASONS:]:
            lines.append(_line("left out", f"{sum(len(row.clauses) for row in rest)} more, for {len(rest)} reasons"))
    if plan.unasked:
        lines.append(_line("no test", f"{_some(plan.unasked)}: of this level, and no collected test judges it"))
    if others:
        lines.append(_line("besides", f"{others} tests that judge no clause; a dry run does not run them either"))
    return [*lines, *_silent(plan), _line("dry run", NOTHING)]


def _rows(steps: Sequence[Step]) -> list[str]:
    rows = [tuple(same) for _, same in groupby(steps, key=lambda step: (step.probe, step.level))]
    more = [f"        and {len(rows) - ROWS} more kinds"] if len(rows) > ROWS else []
    return [*(_row(row) for row in rows[:ROWS]), *more]


def _row(steps: Sequence[Step]) -> str:
    """Fan-outs of one probe: the nodes of the widest, how many commands each node gets, and the command."""
    first = max(steps, key=lambda step: len(step.commands))
    deadline = clock_time(max(command.timeout_s for step in steps for command in step.commands))
    usual = clock_time(max(step.typical_s for step in steps)) if any(step.typical_s for step in steps) else "seconds"
    kinds = len({_words(command.argv) for command in first.commands})
    line = shown(" ".join(_words(first.commands[0].argv)))
    more = f" ({kinds} forms, by node)" if kinds > 1 else ""
    again = " (once more)" if steps[0].probe.endswith(AGAIN) else ""
    return _cut(
        f"{steps[0].level:>6} {len(first.commands):>6} {len(steps):>5} {deadline:>9} {usual:>8}  {plain(line)}",
        f"{more}{again}",
    )


def _words(argv: Sequence[str]) -> tuple[str, ...]:
    """The words as they are shown: the agent by its name, of several addresses the first."""
    words = ("agent", *argv[len(AGENT) :]) if tuple(argv[: len(AGENT)]) == AGENT else tuple(argv)
    shown: list[str] = []
    for is_address, same in groupby(words, key=lambda word: all(map(_ADDRESS.fullmatch, word.split(",")))):
        if not is_address:
            shown += same
            continue
        addresses = [address for word in same for address in word.split(",")]
        shown.append(addresses[0] if len(addresses) == 1 else f"{addresses[0]},..{len(addresses)}")
    return tuple(shown)


def _sums(steps: Sequence[Step], at_once: int) -> str:
    commands = sum(len(step.commands) for step in steps)
    quick = sum(not step.typical_s for step in steps)
    long_s = sum(step.typical_s for step in steps)
    usual = [clock_time(long_s)] if long_s else []
    usual += [f"{quick} times some seconds"] if quick else []
    fan_outs = "1 fan-out" if len(steps) == 1 else f"{len(steps)} fan-outs"
    text = f"{fan_outs}, {commands} commands; usually {' and '.join(usual)}"
    text += f", at most {clock_time(sum(step.longest_s for step in steps))}"
    rounds = math.ceil(max((len(step.commands) for step in steps), default=1) / at_once) if at_once else 1
    return f"{text}, all nodes at once; {at_once} at a time up to {rounds} times that" if rounds > 1 else text


def _refused(plan: Plan) -> Iterator[str]:
    """Nodes that are not asked for more, by reason."""
    by_reason: dict[str, list[str]] = {}
    for node, why in plan.unreached.items():
        by_reason.setdefault(why.removeprefix(f"{node}: ").replace(node, "the node"), []).append(node)
    rows = list(by_reason.items())
    for why, nodes in rows[:UNREACHED]:
        yield _line("not asked", f"{_counted(nodes)}: {why}")
    if rest := rows[UNREACHED:]:
        yield _line("not asked", f"{sum(len(nodes) for _, nodes in rest)} more nodes, for {len(rest)} reasons")


def _silent(plan: Plan) -> Iterator[str]:
    if plan.silent:
        of_all = f"{len(plan.silent)} of {len(plan.nodes)} nodes, {_set(plan.silent)}"
        who = of_all if len(plan.nodes) > 1 else plan.nodes[0]
        yield _line("no plan", f"for {who}: no answer that counts, nothing can be measured there; exit code 1")


def _gates(plan: Plan) -> Iterator[str]:
    if plan.keep_going and plan.gates:
        yield _line("gates", "are passed over (--gpuready-keep-going)")
        return
    for level, count in plan.gates.items():
        yield _line("gates", f"level {level} only where level {level - 1} holds ({count} gate clauses below it)")
        blocked = plan.blocked.get(level, ())
        for row in blocked[:BLOCKERS]:
            yield _line("", f"not on {_counted(row.nodes)}: {row.reason} fails by the inventory")
        if rest := blocked[BLOCKERS:]:
            yield _line("", f"nor on {len({n for row in rest for n in row.nodes})} more, for {len(rest)} reasons")
    if plan.waits:
        yield _line("", f"what needs {', '.join(plan.waits)} only where that holds")
    yield _line("", "the plan takes it that what has yet to be measured holds")


def _reason(row: LeftOut, plan: Plan) -> str:
    return row.reason if len(row.nodes) == len(plan.nodes) else f"{row.reason} (on {_counted(row.nodes)})"


def _counted(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes, {_set(nodes)}"


def _ids(row: LeftOut) -> str:
    return _some(row.clauses, 6)


def _names(steps: Iterable[Step]) -> str:
    return " and ".join(plain(step.commands[0].says) for step in steps)


def _some(words: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"


def _set(nodes: Iterable[str]) -> str:
    """The nodes in one word, cut where nobody would read on."""
    every = tuple(nodes)
    folded = fold(every) if all(NAME.fullmatch(name) for name in every) else plain(",".join(every))
    return folded if len(folded) <= LONGEST_SET else f"{folded[: LONGEST_SET - 4]} ..."


def _line(label: str, text: str) -> str:
    return _cut(f"{label:<10}  {plain(text)}")


def _cut(text: str, end: str = "") -> str:
    room = LONGEST - len(end)
    return (text if len(text) <= room else f"{text[: room - 4]} ...") + end
