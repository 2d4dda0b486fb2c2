"""`dcgmi diag`, one test a probe: run as a child of the agent, which watches the GPUs meanwhile.

Each test runs by itself. One that has no plug-in, hangs or is killed costs only itself; a long tier is continued where
it stopped; and none runs twice. The software checks, which DCGM repeats before each, count every time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from pytest_gpuready.model import (
    Command,
    CommandResult,
    Inventory,
    Measurement,
    Node,
    Parameter,
    Part,
    Problem,
    Profile,
)
from pytest_gpuready.model.agent_doc import AROUND_GRACE_S
from pytest_gpuready.model.units import show
from pytest_gpuready.parse.dcgm_skus import lowest
from pytest_gpuready.probes.answers import Answer, agent_command, complete, evidence, not_measured
from pytest_gpuready.probes.dcgm_reading import PASSED, Reading, Said, read
from pytest_gpuready.probes.dcgm_tests import SOFTWARE, TESTS, DcgmTest, duration_s, floors, given
from pytest_gpuready.probes.watched import watch
from pytest_gpuready.profiles.dcgm_parameters import PRECISIONS, precision_refused

READY, PLUGINS, SOFTWARE_NODE = "dcgm.ready", "dcgm.plugins", "dcgm.software.node"
ADDRESSES = "-"


class DcgmProbe:
    """One test of `dcgmi diag` on a node. `burn_s`: how long a soak is asked for, 0 for none."""

    document = "around"
    """The agent's document that holds its results."""

    def __init__(self, test: DcgmTest, profile: Profile, burn_s: float = 0.0) -> None:
        self._test = test
        self._profile = profile
        self._burn_s = burn_s
        self.name = f"dcgm-{test.name}"
        self.metrics: tuple[str, ...] = (test.metric,)
        if test.name == SOFTWARE:
            self.metrics = (test.metric, READY, PLUGINS, SOFTWARE_NODE)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        """The node: DCGM tests all its GPUs at once. None where DCGM is not asked."""
        return () if node.dcgm_none else (node.part,)

    def command(self, node: Node, scope: Part) -> Command:
        """`dcgmi diag -r TEST -j` with the parameters of this profile, under the watch."""
        parameters = self._given(node)
        words = ["dcgmi", "diag", "-r", self._test.words, "-j"]
        if parameters:
            words += ["-p", ";".join(parameter.word for parameter in parameters)]
        longer = max(0.0, duration_s(self._test, parameters) - self._test.duration_s)
        watched = ",".join(slot.gpu.bdf for slot in node.slots if slot.gpu) or ADDRESSES
        return agent_command(
            node,
            "around",
            watched,
            "--",
            *words,
            timeout_s=self._test.timeout_s + 2 * longer,
            grace_s=AROUND_GRACE_S,
            says=f"DCGM {self._test.name} (level {self._test.level})",
            typical_s=self._test.typical_s + longer,
        )

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        """The test's metric for every expected GPU (or the node), and what the first test says of DCGM itself."""
        return complete(self._wanted(node), [tuple(self._run(node, result)) for result in results])

    def _wanted(self, node: Node) -> list[tuple[str, Part]]:
        if self._test.per == "node":
            return [(self._test.metric, node.part)]
        wanted = [(self._test.metric, slot.part) for slot in node.slots]
        return wanted + [(metric, node.part) for metric in self.metrics[1:]]

    def _given(self, node: Node) -> tuple[Parameter, ...]:
        return given(self._test, node, self._profile, self._burn_s)

    def _run(self, node: Node, result: CommandResult) -> Iterator[Answer]:
        reading, seen = read(self._test, node, result), evidence(result)
        conditions = self._conditions(node, reading)
        if self._test.per == "node":
            yield self._answer(self._test.metric, node.part, reading.whole, conditions, seen)
            return
        for slot in node.slots:
            said = reading.gpus.get(slot.bdf) if slot.gpu else None
            if said is None:
                gone = "" if slot.gpu else "it was not found, so DCGM did not test it"
                yield not_measured(self._test.metric, slot.part, f"{slot.part.label}: {gone or reading.doubt}", seen)
                continue
            if not said.failed and not said.open and (blind := self._blind(node, reading, said)):
                said = Said(open=blind)
            answer = self._answer(self._test.metric, slot.part, said, conditions, seen)
            yield _watched(answer, reading, slot.bdf) if isinstance(answer, Measurement) else answer
        if self._test.name == SOFTWARE:
            yield self._ready(node, reading, seen)
            yield self._plugins(node, seen)
            yield self._answer(SOFTWARE_NODE, node.part, reading.whole, conditions, seen)

    def _answer(self, metric: str, part: Part, said: Said, conditions: str, seen: tuple[str, ...]) -> Answer:
        if said.open:
            return not_measured(metric, part, f"{part.label}: {said.open}", seen)
        return Measurement(
            metric=metric,
            part=part.name,
            value=said.failed or PASSED,
            detail=said.detail,
            conditions=conditions,
            evidence=seen,
            stands=said.stands,
        )

    def _ready(self, node: Node, reading: Reading, seen: tuple[str, ...]) -> Answer:
        known = node.dcgm
        if reading.doubt:
            busy = f" ({', '.join(known.busy)} runs there)" if known and known.busy else ""
            return not_measured(READY, node.part, f"{node.name}: {reading.doubt}{busy}", seen)
        said = [f"DCGM {reading.version or 'of unknown version'}", _engine(node)]
        if known and not known.root:
            said.append("not root: EUD and some checks need it")
        if known and (known.sku_file or known.sku_problem):
            said.append(known.sku_problem or known.sku_file)
        if reading.numbering:
            said.append(f"GPUs known {reading.numbering}")
        return Measurement(metric=READY, part=node.part.name, value="ready", detail="; ".join(said), evidence=seen)

    def _plugins(self, node: Node, seen: tuple[str, ...]) -> Answer:
        known = node.dcgm
        if known is None or not known.plugins:
            none = "expected a plug-in folder of DCGM where packages put it, found none"
            says = f"{node.name}: {none}; which tests have a plug-in shows when each runs"
            return not_measured(PLUGINS, node.part, says, seen)
        wanted = [clause.metric.removeprefix("dcgm.") for clause in self._profile.clauses if clause.after == (READY,)]
        optional = ("nccl_tests", "rist", "cpu_eud")
        missing = [name for name in wanted if name not in known.plugins and name not in optional]
        value = f"not found: {', '.join(missing)}" if missing else "all found"
        detail = f"found: {', '.join(known.plugins)} (in {', '.join(known.folders)})"
        if missing:
            detail += "; closed plug-ins come with the package datacenter-gpu-manager-4-proprietary"
        return Measurement(metric=PLUGINS, part=node.part.name, value=value, detail=detail, evidence=seen)

    def _conditions(self, node: Node, reading: Reading) -> str:
        """Version, what the test was given, and the floors of the SKU file that are in force beside that."""
        parameters = self._given(node)
        said = [f"dcgmi {reading.version or '(version unknown)'}, {_engine(node)}"]
        if parameters:
            said.append(
                "given " + ", ".join(f"{p.word.partition('.')[2]}{f' {p.unit}' if p.unit else ''}" for p in parameters)
            )
        mine = {p.name for p in parameters}
        own = [
            f"{name.partition('.')[2]} {value}{' (not used)' if name in mine else ''}"
            for name, value in floors(node).items()
            if name.startswith(f"{self._test.name}.")
        ]
        if own:
            said.append(f"floors of diag-skus.yaml: {', '.join(own[:12])}")
        elif node.dcgm and self._test.name != SOFTWARE:
            said.append("floors: DCGM's own defaults")
        return "; ".join(said)

    def _blind(self, node: Node, reading: Reading, said: Said) -> str:
        """Why a pass of this test proves nothing: too short, another precision, a floor that nothing could miss."""
        parameters = self._given(node)
        asked_s = duration_s(self._test, parameters)
        if reading.doc and reading.doc.seconds < asked_s:
            took = f"found it ended after {reading.doc.seconds:.0f} s"
            return f"expected {self._test.name} to run for {asked_s:.0f} s, {took}"
        for parameter in parameters:
            if parameter.name == "diagnostic.precision":
                return _precision(str(parameter.value), said)
        own = floors(node)
        for known in self._profile.dcgm:
            in_force = next((str(p.value) for p in parameters if p.name == known.name), own.get(known.name, ""))
            floor = lowest(in_force)
            if known.test == self._test.name and known.ceiling and floor is not None and floor < 0.1 * known.ceiling:
                return (
                    f"expected a floor of at least a tenth of {show(known.ceiling, known.unit)}, found "
                    f"{show(floor, known.unit)}: a pass proves nothing"
                )
        return ""


def dcgm_probes(profile: Profile, burn_s: float = 0.0) -> list[DcgmProbe]:
    """A probe for each test, in the order of their levels."""
    return [DcgmProbe(test, profile, burn_s) for test in TESTS]


def _engine(node: Node) -> str:
    if node.dcgm is None:
        return "host engine unknown"
    return "nv-hostengine" if node.dcgm.host_engine else "embedded engine"


def _precision(asked: str, said: Said) -> str:
    """What ran on a GPU must be what was asked for: DCGM passes over words that it does not know."""
    refused = precision_refused(asked)
    if refused:
        return f"expected a precision that DCGM has, found {asked}: {refused}"
    ran = [text for text in said.info if "Running with precisions:" in text]
    missing = [n for letter, n in PRECISIONS.items() if letter in asked and not all(f"{n} 1" in text for text in ran)]
    if not ran:
        return f"expected precision {asked}, found no word of what ran"
    return f"expected precision {asked}, found {', '.join(missing)} not run" if missing else ""


def _watched(answer: Measurement, reading: Reading, bdf: str) -> Measurement:
    doc = reading.doc
    if doc is None or bdf not in doc.watch:
        return answer
    return dataclasses.replace(answer, watch=watch([doc.watch[bdf]], bdf, {"took": f"{doc.seconds:.0f} s"}))
