"""Whole acceptance runs over ssh on the imitation cluster: many nodes, one certificate, faults that name themselves.

At level 1 a run asks each host twice, `node` first and then `nvml`: what changes "at the second agent command" changes
between the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.model import Command, Node, Part
from pytest_gpuready.probes.answers import agent_command
from pytest_gpuready.probes.nvml import NvmlProbe
from pytest_gpuready.transport.recording import read_meta
from tests.cluster.imitation import Imitation
from tests.cluster.slurm_cluster import SlurmCluster, missing
from tests.plugin.conftest import BARE, LIGHT, OWN_LEASE, SUITES

SITE = """site: 1
profile: h200-sxm
diagnostics: builtin
transport: ssh
ssh: {{config: {config}, connect_timeout_s: {connect_timeout_s}}}
slurm: {{python: {python}}}
nodes:
  {prefix}[1-4]: {{gpus: 2}}
"""

TIMES = re.compile(r"(?<=within )[\d.]+(?= s)|\b[0-9a-f]{64}\b|\d{4}-\d\d-\d\dT[\d:+.Z]+")
"""What differs between two runs in which the same was found: windows, digests of documents with such, moments."""

OF_NODE = {f"GPU-{number}" for number in (28, 30, 32, 33, 34, 35, 36)}
"""Clauses that the document "node" answers."""

Cells = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Ran:
    """How a run ended, and its certificate."""

    code: int
    out: Path
    certificate: dict[str, Any]

    def node(self, name: str) -> dict[str, Any]:
        (found,) = (node for node in self.certificate["nodes"] if node["name"] == name)
        return found

    def judged(self) -> list[str]:
        return [node["judged"] for node in self.certificate["nodes"]]

    def cells(self, name: str, *outcomes: str) -> Cells:
        """(clause, GPU index or "") -> outcome on one host; only these outcomes, or all."""
        return {
            (clause["id"], part["part"].removeprefix(name).removeprefix("/gpu")): part["outcome"]
            for suite in self.certificate["suites"]
            for clause in suite["clauses"]
            for part in clause["parts"]
            if part["part"].partition("/")[0] == name and (not outcomes or part["outcome"] in outcomes)
        }

    def lines(self, name: str) -> str:
        """All that is said about a host."""
        return "\n".join(self.node(name)["why"])

    def document(self, name: str, probe: str) -> dict[str, Any]:
        """What an agent of the host printed."""
        asked = f"agent {probe}"
        (file,) = (e["file"] for e in self.certificate["evidence"] if e["node"] == name and asked in e["command"])
        said: dict[str, Any] = json.loads((self.out / file).read_text())["data"]
        return said

    def comparable(self) -> object:
        """The certificate without what no two runs have in common."""
        kept = {k: v for k, v in self.certificate.items() if k not in ("number", "started", "issued", "do_next")}
        kept["evidence"] = sorted((each["node"], each["command"], each["exit_code"]) for each in kept["evidence"])
        by_slurm = ("command", "CUDA_VISIBLE_DEVICES")
        kept["environment"] = {k: v for k, v in kept["environment"].items() if not k.endswith(by_slurm)}
        return json.loads(TIMES.sub("..", json.dumps(kept)))


class Runs:
    """Runs of level 1 on the cluster."""

    def __init__(self, cluster: Imitation, pytester: pytest.Pytester, templates: Path) -> None:
        pytester.makepyfile(templates=OWN_LEASE.format(compiled=str(templates)))
        pytester.syspathinsert()
        self._cluster = cluster
        self._pytester = pytester
        self._number = 0

    def __call__(self, *arguments: str, connect_timeout_s: float = 10) -> Ran:
        self._number += 1
        out = self._pytester.path / f"out{self._number}"
        site = self._pytester.path / "site.yaml"
        cluster = self._cluster
        more = {"connect_timeout_s": connect_timeout_s, "python": cluster.equipped_python}
        site.write_text(SITE.format(config=cluster.config, prefix=cluster.prefix, **more))
        words = [
            "-p",
            "templates",
            "-m",
            "level1",
            "--gpuready-site",
            str(site),
            "--gpuready-out",
            str(out),
            *arguments,
            str(SUITES),
        ]
        if arguments:
            ended = self._pytester.runpytest_subprocess(*LIGHT, *words, timeout=120)
        else:
            ended = self._pytester.runpytest_inprocess(*BARE, *words)
        return Ran(int(ended.ret), out, json.loads((out / "certificate.json").read_text()))


@pytest.fixture
def runs(
    imitation: Imitation,
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Runs:
    """Runs that do not wait for the disk, and share what is compiled of the page's templates."""
    monkeypatch.setattr("pytest_gpuready.files.os.fsync", lambda descriptor: None)
    return Runs(imitation, pytester, tmp_path_factory.getbasetemp() / "compiled-templates")


@pytest.fixture
def slurm(
    imitation: Imitation, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmCluster]:
    """Slurm on the same hosts."""
    if why := missing():
        pytest.fail(why, pytrace=False)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), imitation.prefix, imitation.folder)
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def faults() -> Iterator[ExitStack]:
    """Faults that are there to the end of the test."""
    with ExitStack() as stack:
        yield stack


def put(faults: ExitStack, *each: AbstractContextManager[None]) -> None:
    for fault in each:
        faults.enter_context(fault)


def clean(ran: Ran, name: str) -> bool:
    """True where all of a host was measured and is as promised."""
    outcomes = set(ran.cells(name).values())
    return ran.node(name)["judged"] == "ACCEPTED" and outcomes == {"PASS", "OBSERVED", "NOT APPLICABLE"}


def test_four_nodes_are_accepted_by_ssh_by_slurm_and_with_workers(
    imitation: Imitation, runs: Runs, slurm: SlurmCluster
) -> None:
    """Four hosts, no two alike, are asked at once and keep all; with workers and by srun nothing differs but times."""
    with imitation.all_at_once():
        ran = runs()
    certificate = ran.certificate
    assert (ran.code, certificate["verdict"]) == (0, "STAND-IN: would be ACCEPTED"), certificate["why"]
    assert certificate["basis_note"] == "'NVIDIA H200 (stand-in)' names itself a stand-in"
    assert certificate["exclusions"] == []
    first = imitation.names[0]
    left_out = {clause for clause, _ in ran.cells(first, "NOT APPLICABLE")}
    assert left_out == {"GPU-15", "DCGM-1", "DCGM-2", "DCGM-3", "DCGM-4"}
    assert all(clean(ran, name) and ran.cells(name) == ran.cells(first) for name in imitation.names)
    gpus = [gpu for node in certificate["nodes"] for gpu in node["gpus"]]
    for things, what in (
        (certificate["nodes"], ("host", "boot_id", "system_serial")),
        (gpus, ("bdf", "uuid", "serial")),
    ):
        for field in what:
            assert len({thing[field] for thing in things}) == len(things), field
    recording = imitation.folder / "recording"
    shared = runs("-n", "4", "--gpuready-transport", "slurm", "--gpuready-record", str(recording))
    assert (shared.code, shared.comparable()) == (0, ran.comparable())
    switches = read_meta(recording).switches or {}
    assert {name: path[-1] for name, path in switches.items()} == dict.fromkeys(imitation.names, "spine")
    assert slurm.is_idle()


def test_faults_of_host_and_hardware_cost_their_host_alone(imitation: Imitation, runs: Runs, faults: ExitStack) -> None:
    """A lost GPU, a dead sshd, a link that is down are named; a clock that is wrong and a full disk spoil nothing."""
    lost, dead, cut_off, astray = imitation.names
    put(
        faults,
        imitation.read_only_tmp(lost),
        imitation.ecc_errors(lost, 0),
        imitation.lost_gpu(lost, 1, at=2),
        imitation.dead_sshd(dead),
        imitation.link_down(cut_off),
        imitation.wrong_clock(astray, -400 * 86400),
        imitation.full_disk(astray),
        imitation.narrow_link(astray, 1),
    )
    ran = runs(connect_timeout_s=5)
    assert (ran.code, ran.judged()) == (1, ["REJECTED", "INCOMPLETE", "INCOMPLETE", "ACCEPTED"])
    assert set(ran.cells(lost, "FAIL")) == {("GPU-9", "0"), ("GPU-10", "0"), ("GPU-1", "1")}
    assert "GpuIsLost" in ran.lines(lost)
    for name, found in ((dead, "Connection refused"), (cut_off, "(timed out|No route to host)")):
        assert re.search(f"expected to log in by ssh, found .*{found}", ran.lines(name))
        assert not ran.cells(name, "PASS", "FAIL")
    assert clean(ran, astray)
    # A link is judged under load, at level 2.
    assert [gpu["link"]["width"] for gpu in ran.document(astray, "node")["gpus"]] == [16, 8]
    assert [gpu["pcie_width"] for gpu in ran.document(astray, "nvml")["gpus"]] == [16, 8]


def test_faults_of_the_agent_cost_their_host_alone(
    imitation: Imitation, runs: Runs, faults: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed agent, a driver that hangs, a host that is another one and a reboot in between are each said as that."""
    killed, hung, other, rebooted = imitation.names

    def command(_self: NvmlProbe, node: Node, _scope: Part) -> Command:
        return agent_command(node, "nvml", timeout_s=1.0 if node.name == hung else 60.0)

    monkeypatch.setattr(NvmlProbe, "command", command)
    put(
        faults,
        imitation.killed_agent(killed),
        imitation.hung_driver(hung),
        imitation.other_name(other, "elsewhere"),
        imitation.rebooted(rebooted, at=2),
    )
    ran = runs()
    assert (ran.code, ran.judged()) == (20, ["INCOMPLETE"] * 4)
    for name, says in {
        killed: "exit code -9",
        hung: "within 1 s, found none",
        other: f"expected the host {other} to answer, found one that calls itself 'elsewhere'",
        rebooted: "expected answers of boot [0-9a-f-]+1, found one of boot [0-9a-f-]+2",
    }.items():
        assert re.search(says, ran.lines(name)), (name, ran.lines(name))
        assert not ran.cells(name, "FAIL")
        # What the other document of the host said counts, unless it is not that host.
        assert {clause for clause, _ in ran.cells(name, "PASS")} == (set() if name == other else OF_NODE)
