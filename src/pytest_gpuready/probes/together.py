"""Host-to-device copies of all GPUs of a node at the same time ("copies-together")."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem
from pytest_gpuready.model.agent_doc import TogetherDoc
from pytest_gpuready.parse.agent import together_doc
from pytest_gpuready.probes.answers import agent_command, evidence, not_measured

METRIC = "pcie.h2d.concurrent"
TIMEOUT_S = 180.0


class TogetherProbe:
    """`python -m pytest_gpuready.agent copies-together BDF...`, once a node that has at least two GPUs."""

    name = "copies-together"
    metrics: tuple[str, ...] = (METRIC,)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        return (node.part,) if len(_found(node)) > 1 else ()

    def command(self, node: Node, scope: Part) -> Command:
        return agent_command(node, "copies-together", *_found(node).values(), timeout_s=TIMEOUT_S)

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        seen = tuple(digest for result in results for digest in evidence(result))
        runs = [_document(result) for result in results] or ["no run of the copies"]
        return tuple(_answer(slot.part, _found(node).get(slot.part), runs, seen) for slot in node.slots)


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
    part: Part, bdf: str | None, runs: Sequence[TogetherDoc | str], seen: tuple[str, ...]
) -> Measurement | Problem:
    if bdf is None:
        return not_measured(METRIC, part, f"{part.label} was not found, so nothing was copied to it", seen)
    rates: list[float] = []
    for run in runs:
        if isinstance(run, str):
            return not_measured(METRIC, part, run, seen)
        if bdf not in run.gb_per_s:
            return not_measured(
                METRIC, part, f"expected a rate of {bdf}, found none among {len(run.gb_per_s)} GPUs", seen
            )
        rates.append(run.gb_per_s[bdf])
    at_once = len(runs[0].gb_per_s) if isinstance(runs[0], TogetherDoc) else 0
    return Measurement(
        metric=METRIC,
        part=part.name,
        value=rates[0],
        unit="GB/s",
        conditions=f"{at_once} GPUs at the same time",
        repeats=tuple(rates[1:]),
        evidence=seen,
    )
