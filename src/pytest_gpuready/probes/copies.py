"""Host copies of one GPU at a time ("copies"): link under load, bandwidth, PCIe errors while data moved.

Several results of a scope are a first run and its retests. Link readings, clock events and wrong bytes take the worst
of all runs; other values of later runs stand in `repeats`. A run without an answer leaves none: what the others found
is told in the problem. Only bytes that one run found to be wrong stay wrong whatever became of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, Watch
from pytest_gpuready.model.agent_doc import CopiesDoc
from pytest_gpuready.model.units import show
from pytest_gpuready.parse.agent import copies_doc
from pytest_gpuready.probes.answers import agent_command, evidence, not_measured
from pytest_gpuready.probes.copy_answer import Missing, OneAnswer, Reading
from pytest_gpuready.probes.copy_readings import BAD_IN_ANY_RUN, METRICS, WORST, answer, moved_bytes
from pytest_gpuready.probes.together import TogetherProbe
from pytest_gpuready.probes.watched import watch

__all__ = ["CopiesProbe", "TogetherProbe"]

TIMEOUT_S = 120.0


class CopiesProbe:
    """`python -m pytest_gpuready.agent copies BDF`, once for every GPU that was found."""

    name = "copies"
    metrics: tuple[str, ...] = METRICS

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """GPUs that have an address to copy to."""
        return tuple(slot.part for slot in node.slots if slot.gpu and slot.gpu.bdf)

    def command(self, node: Node, scope: Part) -> Command:
        """Raises: KeyError where the scope is none of `scopes(node)`."""
        bdf = {slot.part: slot.gpu.bdf for slot in node.slots if slot.gpu}[scope]
        return agent_command(node, "copies", bdf, timeout_s=TIMEOUT_S, says=f"copies GPU {scope.index}")

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        seen = tuple(dict.fromkeys(digest for result in results for digest in evidence(result)))
        runs = [_document(result) for result in results]
        docs = [run for run in runs if isinstance(run, CopiesDoc)]
        watched = _watch(docs)
        return tuple(
            _merge(metric, scope, [answer(metric, run, node) for run in runs], seen, watched) for metric in self.metrics
        )


def _document(result: CommandResult) -> CopiesDoc | str:
    """The document of one run, or the line that says why there is none."""
    try:
        doc = copies_doc(result)
    except (ToolError, ParseError) as error:
        return str(error)
    asked = result.command.argv[-1]
    if doc.bdf != asked:
        return f"copies: expected a document about {asked}, found one about {doc.bdf[:40]!r}"
    return doc


def _watch(docs: Sequence[CopiesDoc]) -> Watch | None:
    watches = [doc.watch for doc in docs if doc.watch]
    if not watches:
        return None
    last = docs[-1]
    moved = sum(moved_bytes(doc) for doc in docs)
    facts = {"moved": show(moved / 1e9, "GB"), "host CPUs": last.cpus or "not bound"}
    if last.numa_node >= 0:
        facts["NUMA node"] = str(last.numa_node)
    return watch(watches, last.bdf, facts)


def _merge(
    metric: str, part: Part, answers: Sequence[OneAnswer], seen: tuple[str, ...], watched: Watch | None
) -> Measurement | Problem:
    """All runs in one answer; a run without an answer is a problem that tells the others' values."""
    if metric in BAD_IN_ANY_RUN and any(isinstance(one, Reading) and one.value for one in answers):
        answers = [one for one in answers if isinstance(one, Reading)]
    for number, one in enumerate(answers, 1):
        if isinstance(one, Missing):
            others = [show(a.value, a.unit) for a in answers if isinstance(a, Reading)]
            alike = all(isinstance(other, Missing) and other.says == one.says for other in answers)
            gave = f" (the other runs gave {', '.join(others)})" if others else ""
            says = one.says if alike else f"run {number} of {len(answers)}{gave}: {one.says}"
            return not_measured(metric, part, says, seen, one.kind)
    readings = [one for one in answers if isinstance(one, Reading)]
    if not readings:
        return not_measured(metric, part, "no run of the copies", seen)
    first, repeats = readings[0], tuple(reading.value for reading in readings[1:])
    if metric in WORST:
        first, repeats = min(readings, key=WORST[metric]), ()
    return Measurement(
        metric=metric,
        part=part.name,
        value=first.value,
        unit=first.unit,
        detail=first.detail,
        conditions=first.conditions,
        repeats=repeats,
        evidence=seen,
        watch=watched,
    )
