"""One test of a clause: its measurement, its verdict, and what its report says of each part that it stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from pytest_gpuready.acceptance import Acceptance
from pytest_gpuready.certificate.folded import folded
from pytest_gpuready.certificate.lines import finding_line, one_line
from pytest_gpuready.errors import GpuReadyError, OutOfSpec
from pytest_gpuready.grouped import SHOWN, Group, Said, encode
from pytest_gpuready.judge import Found
from pytest_gpuready.model import Clause, Outcome, Part, Problem, ProblemKind, Verdict
from pytest_gpuready.model.units import show

CLAUSE = pytest.StashKey[Clause]()
VERDICT = pytest.StashKey[Verdict]()
BLOCKED = pytest.StashKey[str]()
NO_ANSWER = "gpuready.no_answer"
"""The property of a report whose test lacks nothing but the answers of nodes that gave none."""
LOST = "gpuready.lost"
"""The property that says why nodes that had answered before gave no answer: JSON, node -> reason."""
SAID = pytest.StashKey[list[Said]]()
"""What a test that stands for several parts came to on each of them."""
UNRECORDED = "gpuready.unrecorded"
"""The property of a report that says why the recording of this process is incomplete, said once."""
USUAL = pytest.StashKey[Callable[..., Any]]()
"""How pytest itself shows why a test failed."""
WHY_LOST = pytest.StashKey[dict[str, str]]()
"""Nodes from which no answer came to such a test, though one had come before -> why."""

_ENDS = (Exception, pytest.skip.Exception, pytest.fail.Exception)
"""How a test may end other than by returning, and the session goes on."""


class NotMeasuredError(GpuReadyError):
    """A clause has no measurement on this part; the text is the finding's line."""


class LostError(NotMeasuredError):
    """A clause has no measurement on this part, because no answer came from its node; `why` is the node's reason."""

    def __init__(self, line: str, why: str) -> None:
        super().__init__(line)
        self.why = why


class NoAnswerError(NotMeasuredError):
    """All that a test lacks is what nodes would have to say that gave no answer; the text names them."""


class Judging:
    """What clause tests ask for and what they come to."""

    def __init__(self, config: pytest.Config, acceptance: Acceptance) -> None:
        self._config = config
        self._acceptance = acceptance
        self._unrecorded = ""

    def measured(self, item: pytest.Item, part: Part) -> Found:
        """See the fixture of this name. A group has no one measurement: its test asks for each part when it is called.

        Raises:
            NotMeasuredError: there is no value, it is above the physical ceiling, or runs disagree about the limit.
        """
        __tracebackhide__ = True
        if isinstance(parameter(item), Group):
            return Problem(
                metric="", part="", kind=ProblemKind.NOT_MEASURED, says="asked for before the test was called"
            )
        return self._measured(item, part)

    def require(self, item: pytest.Item, part: Part, found: Found) -> None:
        """See the fixture of this name.

        Raises:
            OutOfSpec: the finding lies outside the limit.
        """
        __tracebackhide__ = True
        acceptance, clause = self._acceptance, item.stash[CLAUSE]
        if (found.metric, found.part) != (clause.metric, part.name):
            raise NotMeasuredError(
                f"{clause.id}: expected {clause.metric} of {part.name} to judge, found {found.metric} of {found.part}; "
                "correct the test"
            )
        verdict = acceptance.findings.judge(clause, part, found)
        item.stash[VERDICT] = verdict
        self._config.hook.pytest_gpuready_verdict(verdict=verdict)
        if verdict.outcome is Outcome.FAIL:
            raise OutOfSpec(finding_line(acceptance.inventory, clause, part, found, verdict))

    def call(self, item: pytest.Function) -> bool | None:
        """Call a test that stands for several parts once for each; it ends as its worst part does. None for others."""
        __tracebackhide__ = True
        group = parameter(item)
        if not isinstance(group, Group):
            return None
        said = item.stash[SAID] = []
        ends: list[tuple[Part, BaseException]] = []
        names = item._fixtureinfo.argnames
        for part in group.parts:
            forget(item)
            try:
                item.obj(**{name: self._argument(item, name, part) for name in names})
                if VERDICT not in item.stash:
                    raise AssertionError(_no_verdict(item))
            except pytest.exit.Exception:
                raise
            except _ENDS as end:
                said.append(self._said(item, part, end))
                ends.append((part, end))
            else:
                said.append(self._said(item, part, None))
        silent = self._silent()
        lost = {p.node: end.why for p, end in ends if isinstance(end, LostError) and p.node not in silent}
        if lost:
            item.stash[WHY_LOST] = lost
        worst = _worst(ends, all_of_them=len(ends) == len(group.parts), silent=silent)
        if worst:
            raise worst
        return True

    def _silent(self) -> frozenset[str]:
        """Nodes that said nothing of themselves: neither system nor driver, nor that they have a GPU."""
        inventory = self._acceptance.inventory
        nodes = (node for node in inventory.nodes if node.name in inventory.problems)
        return frozenset(
            node.name
            for node in nodes
            if not (node.kernel or node.driver or node.cuda or any(slot.gpu for slot in node.slots))
        )

    def before_report(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Write what this phase of a clause test said into the item's properties, before its report is made."""
        if not self._unrecorded and (unrecorded := self._acceptance.reach.unrecorded):
            self._unrecorded = unrecorded
            item.user_properties.append((UNRECORDED, one_line(unrecorded)))
        clause = item.stash.get(CLAUSE, None)
        if clause is None:
            return
        verdict = item.stash.get(VERDICT, None)
        excinfo = call.excinfo
        if excinfo is not None and call.when == "call" and isinstance(excinfo.value, (OutOfSpec, NotMeasuredError)):
            # Its line is all that is shown; a traceback costs as much as twenty tests, and thousands may fail.
            line = str(excinfo.value)
            item.stash[USUAL] = item.repr_failure
            item.repr_failure = lambda *_, **__: line  # type: ignore[method-assign]
        about = parameter(item)
        if isinstance(about, Group):
            if call.when != "call" and excinfo is None:
                return
            each = [one for one in item.stash.get(SAID, []) if call.when == "call"]
            known = {one.part for one in each}
            end = excinfo.value if excinfo else None
            each += [self._said(item, part, end) for part in about.parts if part not in known]
            properties: list[tuple[str, object]] = [
                ("gpuready.clause", clause.id),
                ("gpuready.part", about.name),
                ("gpuready.cells", encode(each)),
            ]
            if isinstance(end, NoAnswerError):
                properties.append((NO_ANSWER, str(end)))
            if call.when == "call" and WHY_LOST in item.stash:
                properties.append((LOST, json.dumps(item.stash[WHY_LOST])))
        else:
            if excinfo is None and (call.when != "call" or verdict is None):
                return
            said = self._said(item, about, excinfo.value if excinfo else None)
            properties = [
                ("gpuready.clause", clause.id),
                ("gpuready.part", about.name),
                ("gpuready.outcome", said.outcome),
                ("gpuready.reason", said.reason),
            ]
            if verdict is not None and verdict.value is not None:
                properties.append(("gpuready.value", show(verdict.value, clause.unit)))
            if clause.peers:
                properties.append(("gpuready.peers", str(clause.peers)))
            if clause.limit:
                properties += [("gpuready.limit", str(clause.limit)), ("gpuready.source", str(clause.limit.source))]
        mine = {name for name, _ in properties} | {"gpuready.value"}
        item.user_properties[:] = [p for p in item.user_properties if p[0] not in mine] + properties

    def after_report(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """A clause that returned without judging fails; a finding is shown as its line, not as a traceback."""
        if CLAUSE not in item.stash:
            return
        if USUAL in item.stash:
            item.repr_failure = item.stash[USUAL]  # type: ignore[method-assign]
            del item.stash[USUAL]
        if report.when == "call" and report.passed and VERDICT not in item.stash and SAID not in item.stash:
            report.outcome = "failed"
            report.longrepr = _no_verdict(item)
        elif call.excinfo is not None and isinstance(call.excinfo.value, (OutOfSpec, NotMeasuredError)):
            report.longrepr = str(call.excinfo.value)
            if not item.stash[CLAUSE].required:
                # It stands on the certificate and counts neither way, so it must not set the exit code.
                report.outcome = "skipped"
                report.wasxfail = f"not required: {call.excinfo.value}"

    def _measured(self, item: pytest.Item, part: Part) -> Found:
        __tracebackhide__ = True
        acceptance, clause = self._acceptance, item.stash[CLAUSE]
        findings, taking = acceptance.findings, acceptance.taking
        node = acceptance.inventory.node(part.node)
        reason = findings.not_applicable(clause, node)
        if reason:
            pytest.skip(f"NOT APPLICABLE: {reason}")
        if not acceptance.settings.keep_going and (blocker := taking.blocked_by(clause.level, node)):
            item.stash[BLOCKED] = f"blocked by {blocker[0].id} on {blocker[1].label}"
            pytest.skip(f"NOT TESTED: {item.stash[BLOCKED]}")
        if waits := taking.waits_for(clause, node):
            item.stash[BLOCKED] = f"waits for {waits[0].id} on {waits[1].label}, which does not hold"
            pytest.skip(f"NOT TESTED: {item.stash[BLOCKED]}")
        taking.take(clause, part)
        found = findings.found(clause.metric, part)
        verdict = findings.judge(clause, part, found)
        if verdict.outcome in (Outcome.NOT_MEASURED, Outcome.UNSTABLE):
            item.stash[VERDICT] = verdict
            line = finding_line(acceptance.inventory, clause, part, found, verdict)
            why = findings.unanswered(clause.metric, part)
            raise LostError(line, why) if why else NotMeasuredError(line)
        return found

    def _argument(self, item: pytest.Function, name: str, part: Part) -> Any:
        """The value of a fixture of ours for one part of a group; of any other what pytest has set up."""
        __tracebackhide__ = True
        if name == "part":
            return part
        if name == "gpu":
            return self._acceptance.inventory.slot(part)
        if name == "measured":
            return self._measured(item, part)
        if name == "require":
            judge: Callable[[Found], None] = lambda found: self.require(item, part, found)  # noqa: E731
            return judge
        return item.funcargs[name]

    def _said(self, item: pytest.Item, part: Part, end: BaseException | None) -> Said:
        """What a test said of a part by how it ended."""
        verdict = item.stash.get(VERDICT, None)
        if isinstance(end, pytest.skip.Exception):
            return Said(part, Outcome.NOT_TESTED.value, one_line(item.stash.get(BLOCKED, f"skipped: {end.msg}")))
        if verdict is not None and (end is None or isinstance(end, (OutOfSpec, NotMeasuredError))):
            return Said(part, verdict.outcome.value, one_line(verdict.reason))
        return Said(part, "ERROR", one_line(f"{type(end).__name__}: {end}"))


def forget(item: pytest.Item) -> None:
    """What an item said of one part says nothing of the next."""
    if VERDICT in item.stash:
        del item.stash[VERDICT]
    if BLOCKED in item.stash:
        del item.stash[BLOCKED]


def parameter(item: pytest.Item) -> Part | Group:
    """What a clause test is about."""
    about: Part | Group = item.callspec.params["part"]  # type: ignore[attr-defined]
    return about


def parts_of(item: pytest.Item) -> tuple[Part, ...]:
    """The parts that a clause test stands for."""
    about = parameter(item)
    return about.parts if isinstance(about, Group) else (about,)


def _no_verdict(item: pytest.Item) -> str:
    return f"{item.stash[CLAUSE].id}: expected a verdict, found none; the test returned without require"


def _worst(
    ends: list[tuple[Part, BaseException]], *, all_of_them: bool, silent: Collection[str]
) -> BaseException | None:
    """How a test ends that ended so on its parts: broken, out of spec, not measured, or skipped on all of them.

    Nodes that gave no answer, from the start (`silent`) or any more, are named and not more: why they did not is no
    finding of this clause.
    """
    skipped = [end for _, end in ends if isinstance(end, pytest.skip.Exception)]
    out = [str(end) for _, end in ends if isinstance(end, OutOfSpec)]
    # A node that was not reached says the same of all its parts: once is enough.
    unmeasured = {part.node: str(end) for part, end in reversed(ends) if isinstance(end, NotMeasuredError)}
    known = (pytest.skip.Exception, OutOfSpec, NotMeasuredError)
    broken = next((end for _, end in ends if not isinstance(end, known)), None)
    if broken is not None:
        return broken
    if not out and not unmeasured:
        return skipped[0] if all_of_them else None
    others = {p.node for p, end in ends if isinstance(end, NotMeasuredError) and not isinstance(end, LostError)}
    mute = {node for node in unmeasured if node in silent or node not in others}
    quiet = [node for node in reversed(unmeasured) if node in mute]
    lines = [*out, *(said for node, said in reversed(unmeasured.items()) if node not in mute)]
    told = [*lines[:SHOWN], *([f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])]
    if quiet:
        count = f", {len(quiet)} nodes" if len(quiet) > 1 else ""
        told.append(f"no answer: {folded(quiet, SHOWN)}{count}; see the certificate")
    text = "\n".join(told)
    if out:
        return OutOfSpec(text)
    return NotMeasuredError(text) if lines else NoAnswerError(text)
