"""What every probe of one agent document has in common: the command, the evidence, and an answer for every metric.

A metric that a probe forgot would be a hole on the certificate; `complete` turns it into a Problem that says so.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

from pytest_gpuready.model import Command, CommandResult, Measurement, Node, Part, Problem, ProblemKind
from pytest_gpuready.model.command import GRACE_S, PYTHON

Answer = Measurement | Problem


def agent_command(
    node: Node, *words: str, timeout_s: float, grace_s: float = GRACE_S, says: str = "", typical_s: float = 0.0
) -> Command:
    """The agent on this node with these words."""
    argv = (PYTHON, "-m", "pytest_gpuready.agent", *words)
    return Command(node=node.name, argv=argv, timeout_s=timeout_s, grace_s=grace_s, says=says, typical_s=typical_s)


def evidence(result: CommandResult) -> tuple[str, ...]:
    """sha256 of what the command printed on stdout."""
    return (hashlib.sha256(result.stdout.encode("utf-8", "replace")).hexdigest(),)


def not_measured(
    metric: str,
    part: Part,
    says: str,
    seen: tuple[str, ...] = (),
    kind: ProblemKind = ProblemKind.NOT_MEASURED,
    *,
    proven: bool = False,
) -> Problem:
    """A problem of this metric on this part, in one line."""
    says = " ".join(says.split())
    return Problem(metric=metric, part=part.name, kind=kind, says=says, evidence=seen, proven=proven)


def complete(wanted: Iterable[tuple[str, Part]], runs: Sequence[Sequence[Answer]]) -> tuple[Answer, ...]:
    """One answer for each wanted metric and part, from the first run and its retests in order.

    Retests become `repeats`; a run that has no value makes the whole a Problem, for then nothing was repeated.
    """
    found = []
    by_run = [{(answer.metric, answer.part): answer for answer in run} for run in runs]
    for metric, part in wanted:
        answers = [run.get((metric, part.name)) for run in by_run] or [None]
        found.append(_one(metric, part, answers))
    return tuple(found)


def _one(metric: str, part: Part, answers: Sequence[Answer | None]) -> Answer:
    measured: list[Measurement] = []
    for answer in answers:
        if answer is None:
            return not_measured(metric, part, f"{part.label}: expected {metric} from the agent, found nothing")
        if isinstance(answer, Problem):
            return answer
        measured.append(answer)
    first, *again = measured
    seen = tuple(dict.fromkeys(digest for one in measured for digest in one.evidence))
    return dataclasses.replace(first, repeats=tuple(one.value for one in again), evidence=seen)
