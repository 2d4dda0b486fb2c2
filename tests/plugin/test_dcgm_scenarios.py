"""All four levels of DCGM on the replayed 8-GPU node, played by the stand-in: every trap to its true outcome.

The stand-in answers the very commands that the suite gives, at the transport's seam. Gates are left aside in the
catalogue's runs, so that one scenario shows all of its tests; whole runs of pytest with gates stand below it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.campaign.findings import Findings
from pytest_gpuready.campaign.store import Store
from pytest_gpuready.campaign.taking import Taking
from pytest_gpuready.certificate.build import Facts, Record, build
from pytest_gpuready.inventory import NodeFound, load_site, resolve
from pytest_gpuready.model import Command, CommandResult, Inventory, Parameter, Profile, Source
from pytest_gpuready.model.agent_doc import AroundDoc, DcgmDoc, encode
from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
from pytest_gpuready.probes.dcgm import dcgm_probes
from pytest_gpuready.profiles import load
from tests.dcgm_scenarios import CASES, Case, by_name, on_node
from tests.judged import cells, judged, parts
from tests.nodes import BDFS, COMPOSED, SITE, eight_gpus, level_4, write_recording
from tests.plugin.conftest import Accept
from tests.standin.playing import run as play

DRIVER = "580.159.04"
FOLDERS = {
    "4": "/usr/libexec/datacenter-gpu-manager-4/plugins/cuda13",
    "3": "/usr/share/nvidia-validation-suite/plugins/cuda12",
}
ENDS = tuple(case for case in CASES if not case.hangs)


class Played:
    """A transport on which the stand-in of a scenario answers every DCGM command, in this process."""

    def __init__(self, case: Case, inventory: Inventory, scratch: Path) -> None:
        self._case = case
        self._scratch = scratch
        node = inventory.nodes[0]
        self._boot_id = node.boot_id
        serials = [slot.gpu.serial for slot in node.slots if slot.gpu]
        self._scenario = on_node(case.scenario, serials=serials, driver=driver_of(case))
        if case.left_behind:
            (scratch / str(self._scenario["state_file"])).write_text("0\n")

    def run(self, command: Command) -> CommandResult:
        asked = list(command.argv[command.argv.index("--") + 1 :])
        name = "software" if asked[3] == "1" else asked[3]
        more = self._case.words.get(name, ())
        stdout, stderr, code = play(self._scratch, self._scenario, [*asked[1:], *more])
        document = AroundDoc(
            argv=asked,
            exit_code=code,
            stdout=stdout,
            stderr=stderr,
            seconds=900.0,
            watch_problem="played by a stand-in",
        )
        printed = encode(probe="around", host="node01", boot_id=self._boot_id, data=document).decode()
        return CommandResult(
            command=command, exit_code=0, stdout=printed, stderr="", started="2026-11-30T10:00:00Z", duration_s=1.0
        )

    def stop(self) -> None:
        """Nothing runs here."""


def driver_of(case: Case) -> str:
    return str(case.scenario.get("driver", DRIVER))


@functools.cache
def node_results(driver: str, version: str) -> tuple[CommandResult, ...]:
    """The 8-GPU node with a DCGM on it, named a stand-in by its driver as the stand-in of dcgmi names it."""
    dcgm = DcgmDoc(path="/usr/bin/dcgmi", root=True, host_engine=[7], plugins={FOLDERS[version[0]]: []})
    made = []
    for result in eight_gpus():
        text = result.stdout.replace(DRIVER, f"{driver} stand-in")
        document: dict[str, Any] = json.loads(text)
        if document["probe"] == "node":
            document["data"]["dcgm"] = json.loads(encode(probe="", host="", boot_id="", data=dcgm))["data"]
            text = json.dumps(document)
        made.append(dataclasses.replace(result, stdout=text))
    return tuple(made)


def inventory_of(case: Case, directory: Path) -> Inventory:
    site = directory / "site.yaml"
    site.write_text(SITE.format(gpus="8"))
    by_word = {r.command.argv[3]: r for r in node_results(driver_of(case), case.version)}
    found = NodeFound(
        node=node_doc(by_word["node"]),
        nvml=nvml_doc(by_word["nvml"]),
        boot_id=envelope(by_word["node"], "node").boot_id,
    )
    return resolve(load_site(site), {"node01": found}, profile=load("h200-sxm"))


def profile_of(case: Case) -> Profile:
    """The profile, and what a case asks for beside it, although such a profile would not load."""
    profile = load("h200-sxm")
    source = Source(kind="declared", cite="the scenario")
    asked = tuple(
        Parameter(name=name, value=value, source=source)
        for given in case.parameters.values()
        for name, value in given.items()
    )
    return dataclasses.replace(profile, dcgm=(*profile.dcgm, *asked))


@pytest.mark.parametrize("case", ENDS, ids=lambda case: case.name)
def test_every_trap_comes_to_its_true_outcome(tmp_path: Path, case: Case) -> None:
    """Each test on each GPU has the outcome that the scenario declares; only a healthy node would be ACCEPTED."""
    inventory, whole = inventory_of(case, tmp_path), profile_of(case)
    # Judged are DCGM's clauses alone: the rest of the node was measured by nobody here.
    # None waits for another, so that each is asked.
    mine = tuple(dataclasses.replace(c, after=()) for c in whole.clauses if c.suite == "dcgm_levels")
    profile = dataclasses.replace(whole, clauses=mine)
    store = Store(tmp_path / "out", Played(case, inventory, tmp_path))
    findings = Findings(store=store, probes=dcgm_probes(whole), profile=profile, inventory=inventory)
    taking = Taking(store=store, findings=findings, keep_going=True)
    verdicts = {}
    for clause in profile.clauses:
        for part in inventory.parts(clause.per):
            taking.take(clause, part)
            verdicts[clause.id, part.name] = findings.verdict(clause, part)
    by_metric = {clause.metric: clause.id for clause in profile.clauses}
    wrong = []
    for test in case.tests:
        for gpu in range(8):
            said, verdict = case.follow(test, gpu), verdicts[by_metric[f"dcgm.{test}"], f"node01/gpu{gpu}"]
            found = findings.found(f"dcgm.{test}", inventory.nodes[0].slots[gpu].part)
            told = f"{verdict.reason} {verdict.value or ''} {getattr(found, 'detail', '')}"
            if verdict.outcome.value != said.outcome or said.words.lower() not in told.lower():
                expected = f"{said.outcome} {said.words!r}"
                wrong.append(f"{test} gpu{gpu}: expected {expected}, found {verdict.outcome.value} {told[:300]}")
    assert not wrong, "\n".join(wrong[:12])
    records = {key: [Record(outcome=verdict.outcome.value)] for key, verdict in verdicts.items()}
    facts = Facts(started="", issued="", finished=True, level_asked=4, basis="stand-in")
    certificate = build(findings=findings, records=records, facts=facts, log_of=lambda _: [])
    assert (certificate.judged == "ACCEPTED") is not_a_trap(case), certificate.why


def not_a_trap(case: Case) -> bool:
    """Where everything passes, and nothing of it is said of the node alone."""
    return not case.follows


def recorded(case: Case, directory: Path) -> Path:
    """A recording of the node in which the stand-in answered every DCGM command, and no load changed anything."""
    directory.mkdir(exist_ok=True)
    inventory = inventory_of(case, directory)
    (node,) = inventory.nodes
    played = Played(case, inventory, directory)
    results = list(node_results(driver_of(case), case.version))
    results = level_4(results, BDFS)
    results += [played.run(probe.command(node, node.part)) for probe in dcgm_probes(load("h200-sxm"))]
    return write_recording(directory / "node", results, composed=f"{COMPOSED}; dcgmi played by a stand-in")


def test_a_healthy_node_would_be_accepted_at_level_4(accept: Accept) -> None:
    """Four levels of pytest: every DCGM clause has its place and passes, and the page says that it is no hardware."""
    recorded(by_name("healthy-4.6.0"), accept.path / "case")
    run = accept("--gpuready-replay", "case/node", "-m", "level4")
    assert (run.code, run.status) == (0, "ACCEPTED"), run.certificate["why"]
    assert run.certificate["basis"] == "replay"
    assert all(len(run.parts(f"DCGM-{n}")) == 8 for n in (2, *range(5, 15)))
    assert run.cells("NOT TESTED", "NOT MEASURED", "FAIL") == {"DCGM-4": (-1,)}


def test_a_failed_tier_blocks_the_next(tmp_path: Path) -> None:
    """A GPU that fails pcie at level 2 keeps levels 3 and 4 from running; the finding names it alone."""
    certificate = judged(tmp_path, recorded(by_name("pcie-generation-3"), tmp_path / "case"), level=4)
    assert certificate.judged == "REJECTED"
    assert cells(certificate, "FAIL") == {"DCGM-6": (3,)}
    not_tested = cells(certificate, "NOT TESTED")
    assert {f"DCGM-{n}" for n in range(7, 15)} <= set(not_tested)
    assert all("blocked by DCGM-6 on node01 GPU 3" in part.reason for part in parts(certificate, "DCGM-13"))


def test_where_dcgm_does_not_work_nothing_else_of_it_is_started(tmp_path: Path) -> None:
    """Another diagnostic runs: DCGM-1 says so, all of DCGM waits for it, and the built-in clauses go on."""
    certificate = judged(tmp_path, recorded(by_name("another-diag-running"), tmp_path / "case"), level=4)
    assert certificate.judged == "INCOMPLETE"
    (ready,) = parts(certificate, "DCGM-1")
    assert "another diagnostic" in ready.reason
    waiting = cells(certificate, "NOT TESTED")
    assert {f"DCGM-{n}" for n in range(5, 15)} <= set(waiting)
    assert "waits for DCGM-1" in parts(certificate, "DCGM-5")[0].reason
    assert "PCIE-5" in cells(certificate, "PASS")


def test_an_xid_in_the_first_run_is_not_taken_back_by_a_retest(tmp_path: Path) -> None:
    """targeted_stress with an Xid on GPU 3, and one with a low figure on GPU 5; the second run passes on both."""
    first = Case(
        name="xid-then-pass",
        trap="",
        scenario={
            "tests": {
                "targeted_stress": {
                    "gpus": {
                        "3": {"status": "Fail", "errors": [{"id": 101, "text": "Detected XID 48 for GPU 3"}]},
                        "5": {"status": "Fail", "errors": [{"id": 50, "text": "GPU 5 stress level low"}]},
                    }
                }
            }
        },
    )
    healthy = by_name("healthy-4.6.0")
    inventory, whole = inventory_of(first, tmp_path), profile_of(first)
    runs = [Played(case, inventory, tmp_path) for case in (first, healthy)]

    class Twice(Played):
        def run(self, command: Command) -> CommandResult:
            return runs[command.repeat].run(command)

    store = Store(tmp_path / "out", Twice(first, inventory, tmp_path))
    findings = Findings(store=store, probes=dcgm_probes(whole), profile=whole, inventory=inventory)
    (clause,) = whole.of_metric("dcgm.targeted_stress")
    Taking(store=store, findings=findings, keep_going=True).take(clause, inventory.nodes[0].slots[0].part)
    outcomes = [findings.verdict(clause, slot.part).outcome.value for slot in inventory.nodes[0].slots]
    assert outcomes == ["PASS", "PASS", "PASS", "FAIL", "PASS", "UNSTABLE", "PASS", "PASS"]
