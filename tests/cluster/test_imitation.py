"""The imitation cluster: level 1 holds on each host, and each fault shows in the documents of its host alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from pytest_gpuready.errors import GpuReadyError, TransportError
from pytest_gpuready.inventory import NodeFound, applies, resolve
from pytest_gpuready.judge import judge
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Outcome, Part, Problem
from pytest_gpuready.model.agent_doc import NodeDoc, NvmlDoc
from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
from pytest_gpuready.probes.node import NodeProbe
from pytest_gpuready.probes.nvml import NvmlProbe
from pytest_gpuready.profiles import load
from tests.cluster.imitation import Imitation

PROFILE = load("h200-sxm")
DAYS = 400
BAD = (Outcome.FAIL, Outcome.NOT_MEASURED)

Said = dict[str, CommandResult | TransportError]


@dataclass(frozen=True)
class Level1:
    """What the probes of level 1 brought from each host, and what follows from it."""

    node: Said
    nvml: Said
    inventory: Inventory
    found: Mapping[tuple[str, str], Measurement | Problem]

    def verdicts(self, name: str) -> dict[tuple[str, int], Outcome]:
        """(clause, GPU or -1) -> outcome on one host, of all that applies there and the profile asks for."""
        node = self.inventory.node(name)
        return {
            (clause.id, part.index): judge(
                clause,
                part.name,
                self.found[clause.metric, part.name],
                peers=self._peers(clause.metric, part, node),
                virtual=bool(node.virtual),
            ).outcome
            for clause in PROFILE.up_to(1)
            if not clause.not_applicable and not applies(clause, node)
            for part in self.inventory.parts(clause.per)
            if part.node == name
        }

    def bad(self, name: str) -> set[tuple[str, int]]:
        """Where a host is not as promised."""
        return {cell for cell, outcome in self.verdicts(name).items() if outcome in BAD}

    def document(self, name: str) -> NodeDoc:
        return node_doc(result(self.node[name]))

    def gpus(self, name: str) -> NvmlDoc:
        return nvml_doc(result(self.nvml[name]))

    def _peers(self, metric: str, part: Part, node: Node) -> dict[str, str | int | float]:
        parts = [node.part] if part.index < 0 else [slot.part for slot in node.slots]
        found = ((peer.name, self.found[metric, peer.name]) for peer in parts)
        return {name: each.value for name, each in found if isinstance(each, Measurement)}


def result(outcome: CommandResult | TransportError) -> CommandResult:
    assert isinstance(outcome, CommandResult), outcome
    return outcome


def ask(cluster: Imitation, probe: str, *, impatient: str = "") -> Said:
    """What every host answers to an agent command; one of them has little time for it."""
    argv = ("python", "-m", "pytest_gpuready.agent", probe)
    commands = [
        Command(node=name, argv=argv, timeout_s=1.0 if name == impatient else 60.0, grace_s=0.2)
        for name in cluster.names
    ]
    return {command.node: outcome for command, outcome in cluster.ssh().run_many(commands)}


def level_1(cluster: Imitation) -> Level1:
    """Both probes of level 1, one after the other on all hosts, read and matched with what is expected."""
    said: dict[str, Said] = {probe: ask(cluster, probe) for probe in ("node", "nvml")}
    docs = {name: _found(said["node"][name], said["nvml"][name]) for name in cluster.names}
    inventory = resolve(None, docs, profile=PROFILE, option=PROFILE.name)
    probes = (NodeProbe({}), NvmlProbe())
    read = [
        answer
        for node in inventory.nodes
        for probe in probes
        for answer in probe.read(inventory, node, node.part, [result(said[probe.name][node.name])])
    ]
    return Level1(said["node"], said["nvml"], inventory, {(each.metric, each.part): each for each in read})


def _found(node: CommandResult | TransportError, nvml: CommandResult | TransportError) -> NodeFound:
    boot_id = envelope(result(node), "node").boot_id
    return NodeFound(node=node_doc(result(node)), nvml=nvml_doc(result(nvml)), boot_id=boot_id)


def test_level_1_holds_on_each_host(imitation: Imitation) -> None:
    """Four machines, none like another, keep every clause of level 1; all were measured and say they are stand-ins."""
    seen = level_1(imitation)
    for name in imitation.names:
        verdicts = seen.verdicts(name)
        assert {cell for cell, outcome in verdicts.items() if outcome not in (Outcome.PASS, Outcome.OBSERVED)} == set()
        required = {clause.id for clause in PROFILE.up_to(1) if clause.required and "dcgm" not in clause.needs}
        passed = {clause for (clause, _), outcome in verdicts.items() if outcome is Outcome.PASS}
        assert required - passed == {c.id for c in PROFILE.up_to(1) if c.not_applicable}
        document = seen.document(name)
        assert (document.hostname, document.virtual, document.system_vendor) == (name, "", "Stand-in")
    assert seen.inventory.stand_in == "'NVIDIA H200 (stand-in)' names itself a stand-in"
    nodes = [seen.inventory.node(name) for name in imitation.names]
    gpus = [slot.gpu for node in nodes for slot in node.slots if slot.gpu]
    assert all(gpu.on_bus and gpu.by_nvml and gpu.upstream for gpu in gpus)
    for different in (
        [node.boot_id for node in nodes],
        [node.system_serial for node in nodes],
        [gpu.bdf for gpu in gpus],
        [gpu.uuid for gpu in gpus],
        [gpu.serial for gpu in gpus],
    ):
        assert "" not in different
        assert len(set(different)) == len(different)


def test_faults_of_hardware_and_machine_show_on_their_host_alone(imitation: Imitation) -> None:
    """A GPU lost mid-run and one with ECC errors fail what they must; wrong clock, full disk, no /tmp spoil nothing."""
    lost, worn, astray, clean = imitation.names
    with ExitStack() as faults:
        for fault in (
            imitation.lost_gpu(lost, 1, at=2),
            imitation.ecc_errors(worn, 0),
            imitation.wrong_clock(astray, -DAYS * 86400),
            imitation.full_disk(astray),
            imitation.narrow_link(clean, 1),
            imitation.read_only_tmp(clean),
        ):
            faults.enter_context(fault)
        write = "for at in /tmp /var/tmp /dev/shm; do (echo much >$at/gpuready.x) 2>&- && exit 1; done; date +%s"
        writers = [Command(node=name, argv=("sh", "-c", write), timeout_s=60) for name in (astray, clean)]
        told = {command.node: result(outcome) for command, outcome in imitation.ssh().run_many(writers)}
        seen = level_1(imitation)
    assert [told[name].exit_code for name in (astray, clean)] == [0, 0]
    days = [round((time.time() - int(told[name].stdout)) / 86400) for name in (astray, clean)]
    assert days == [DAYS, 0]
    # Its neighbour has nobody to talk to over NVLink. What was read before the GPU was lost is as it was.
    assert {clause for clause, gpu in seen.bad(lost) if gpu == 1} >= {"GPU-1", "GPU-9", "NVL-1", "NVL-6"}
    assert {cell for cell in seen.bad(lost) if cell[1] != 1} == {("NVL-6", 0)}
    assert seen.gpus(lost).lost == {"1": "GpuIsLost"}
    assert seen.document(lost).gpus[1].link.width == 16
    assert seen.bad(worn) == {("GPU-9", 0), ("GPU-10", 0)}
    assert seen.bad(astray) == seen.bad(clean) == set()
    narrow = [(gpu.bdf, gpu.link.width) for gpu in seen.document(clean).gpus]
    assert narrow == [(imitation.bdf(clean, 0), 16), (imitation.bdf(clean, 1), 8)]
    assert [gpu.pcie_width for gpu in seen.gpus(clean).gpus] == [16, 8]


def test_faults_of_the_agent_show_on_their_host_alone(imitation: Imitation) -> None:
    """A killed, a hung, a foreign agent and one on another boot or host are told apart from each other."""
    killed, hung, foreign, rebooted = imitation.names
    with ExitStack() as faults:
        for fault in (
            imitation.killed_agent(killed),
            imitation.hung_driver(hung),
            imitation.other_protocol(foreign),
            imitation.other_name(foreign, "elsewhere"),
            imitation.rebooted(rebooted, at=2),
        ):
            faults.enter_context(fault)
        nodes = ask(imitation, "node")
        nvml = ask(imitation, "nvml", impatient=hung)
    assert (result(nvml[killed]).exit_code, result(nvml[killed]).timed_out) == (-9, False)
    assert (result(nvml[hung]).exit_code, result(nvml[hung]).timed_out) == (None, True)
    boots = [envelope(result(said[rebooted]), probe).boot_id for probe, said in (("node", nodes), ("nvml", nvml))]
    assert boots[0] != boots[1]
    said = {name: _hostname(nodes[name]) for name in imitation.names}
    assert said.pop(foreign) == f"python -m pytest_gpuready.agent node on {foreign}: expected agent protocol 1, found 2"
    assert said == {name: name for name in (killed, hung, rebooted)}
    assert '"host":"elsewhere"' in result(nodes[foreign]).stdout
    assert len(nvml_doc(result(nvml[rebooted])).gpus) == 2


def _hostname(outcome: CommandResult | TransportError) -> str:
    try:
        return node_doc(result(outcome)).hostname
    except GpuReadyError as error:
        return str(error).partition(";")[0]
