"""Host-to-device copies of all GPUs of a node at the same time ("copies-together")."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, ProblemKind
from pytest_gpuready.model.agent_doc import TogetherDoc
from pytest_gpuready.parse.agent import together_doc

METRIC = "pcie.h2d.concurrent"
TIMEOUT_S = 180.0


class TogetherProbe:
    """`python -m pytest_gpuready.agent copies-together BDF...`, once a node that has at least two GPUs."""

    name = "copies-together"
    metrics = (METRIC,)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        return (node.part,) if len(_found(node)) > 1 else ()

    def command(self, node: Node, scope: Part) -> Command:
        return Command(
            node=node.name,
            argv=("python", "-m", "pytest_gpuready.agent", "copies-together", *_found(node).values()),
            timeout_s=TIMEOUT_S,
        )

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        evidence = tuple(hashlib.sha256(r.stdout.encode("utf-8", "replace")).hexdigest() for r in results)
        runs = [_document(result) for result in results] or ["no run of the copies"]
        return tuple(_answer(slot.part, _found(node).get(slot.part), runs, evidence) for slot in node.slots)


def _found(node: Node) -> dict[Part, str]:
    """Part -> address of the GPUs that were found."""
    return {slot.part: slot.gpu.bdf for slot in node.slots if slot.gpu and slot.gpu.bdf}


def _document(result: CommandResult) -> TogetherDoc | str:
    try:
        doc = together_doc(result)
    except (ToolError, ParseError) as error:
        return str(error)
    return doc.problem or doc


def _answer(
    part: Part, bdf: str | None, runs: Sequence[TogetherDoc | str], evidence: tuple[str, ...]
) -> Measurement | Problem:
    def problem(says: str) -> Problem:
        return Problem(metric=METRIC, part=part.name, kind=ProblemKind.NOT_MEASURED, says=says, evidence=evidence)

    if bdf is None:
        return problem(f"{part.label} was not found, so nothing was copied to it")
    rates: list[float] = []
    for run in runs:
        if isinstance(run, str):
            return problem(run)
        if bdf not in run.gb_per_s:
            return problem(f"expected a rate of {bdf}, found none among {len(run.gb_per_s)} GPUs")
        rates.append(run.gb_per_s[bdf])
    at_once = len(runs[0].gb_per_s) if isinstance(runs[0], TogetherDoc) else 0
    return Measurement(
        metric=METRIC,
        part=part.name,
        value=rates[0],
        unit="GB/s",
        conditions=f"{at_once} GPUs at the same time",
        repeats=tuple(rates[1:]),
        evidence=evidence,
    )
