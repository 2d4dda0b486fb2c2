"""The built-in engine (agent probe "stress"): all GPUs of a node at once, one piece of load a probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, Watch
from pytest_gpuready.model.stress_doc import STRESS_GRACE_S
from pytest_gpuready.parse.agent import stress_doc
from pytest_gpuready.probes import stress_gemm, stress_long, stress_memory
from pytest_gpuready.probes.answers import Answer, agent_command, complete, evidence, not_measured
from pytest_gpuready.probes.soak import share_s
from pytest_gpuready.probes.stress_answers import Said
from pytest_gpuready.probes.stress_pieces import FORMATS, PIECES, Piece, formats_of
from pytest_gpuready.probes.stress_run import Run, run_of

METRICS = {
    "memory": stress_memory.METRICS,
    "gemm": stress_gemm.METRICS,
    "patterns": stress_memory.PATTERN_METRICS,
    "pulse": stress_long.PULSE_METRICS,
    "burn": stress_long.BURN_METRICS,
}


class StressProbe:
    """One piece. `burn_s`: how long a soak is asked for, 0 for none."""

    document = "stress"
    """The agent's document that holds its results."""

    def __init__(self, piece: Piece, burn_s: float = 0.0) -> None:
        self._piece = piece
        self._burn_s = burn_s
        self.name = f"stress-{piece.name}"
        self.metrics: tuple[str, ...] = METRICS[piece.name]

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """The node: its GPUs are loaded together. None where no GPU was found."""
        return (node.part,) if _addresses(node) else ()

    def command(self, node: Node, scope: Part) -> Command:
        """The agent's `stress` with the plan of this piece and the GPUs that were found."""
        plan = self._piece.plan(node, share_s(self._burn_s, node))
        return agent_command(
            node,
            "stress",
            msgspec.json.encode(plan).decode(),
            *_addresses(node),
            timeout_s=self._piece.timeout_s(plan),
            grace_s=STRESS_GRACE_S,
            says=f"{self._piece.says} (level {self._piece.level})",
            typical_s=self._piece.typical_s(plan),
        )

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        """Every metric of the piece for every expected GPU."""
        lacks = {metric for name in FORMATS if name not in formats_of(node) for metric in stress_gemm.of_format(name)}
        wanted = [(metric, slot.part) for slot in node.slots for metric in self.metrics if metric not in lacks]
        return complete(wanted, [tuple(self._run(node, result)) for result in results])

    def _run(self, node: Node, result: CommandResult) -> Iterator[Answer]:
        seen = evidence(result)
        try:
            doc = stress_doc(result)
        except (ToolError, ParseError) as error:
            for slot in node.slots:
                yield from (not_measured(metric, slot.part, str(error), seen) for metric in self.metrics)
            return
        runs = [run_of(doc, slot) for slot in node.slots]
        for run, told in zip(runs, self._told(runs), strict=True):
            known = {said.metric: said for said in told}
            watches: dict[tuple[int, ...], Watch] = {}
            for metric in self.metrics:
                said = known.get(metric) or Said(metric, problem=run.why or f"expected {metric}, found no such phase")
                if not said.problem and said.of not in watches:
                    watches[said.of] = run.watch(said.of)
                yield said.answer(run.slot.part, seen, watches.get(said.of))

    def _told(self, runs: Sequence[Run]) -> list[Iterator[Said]]:
        """What the document says of each GPU."""
        name = self._piece.name
        if name == "gemm":
            digests = stress_gemm.compared(runs)
            return [stress_gemm.gemm(run, digests.get(run.slot.bdf, {"problem": run.why})) for run in runs]
        if name == "burn":
            hottest = stress_long.hottest_of(runs)
            apart = stress_gemm.burnt(runs)
            return [stress_long.burn(run, hottest, apart) for run in runs]
        read = {"memory": stress_memory.memory, "patterns": stress_memory.patterns, "pulse": stress_long.pulse}[name]
        return [read(run) for run in runs]


def _addresses(node: Node) -> list[str]:
    return [slot.gpu.bdf for slot in node.slots if slot.gpu and slot.gpu.bdf]


def stress_probes(burn_s: float = 0.0) -> list[StressProbe]:
    """A probe for each piece, in the order of their levels."""
    return [StressProbe(piece, burn_s) for piece in PIECES]
