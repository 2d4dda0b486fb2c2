"""Health after the load, held against the clauses of a profile; the document of the demo node changed by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from pytest_gpuready.inventory import NodeFound, resolve
from pytest_gpuready.model import CommandResult, Inventory, Measurement, Problem, Profile
from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
from pytest_gpuready.probes.after import OF_GPU, OF_NODE, WELL, AfterProbe
from pytest_gpuready.profiles import load
from tests.nodes import demo_results

Change = Callable[[dict[str, Any]], None]
H200 = load("h200-sxm")
RECORDED = {json.loads(result.stdout)["probe"]: result for result in demo_results()}
AFTER = RECORDED["after-2"]


def inventory() -> Inventory:
    """The demo node as level 1 found it."""
    node, nvml = RECORDED["node"], RECORDED["nvml"]
    found = NodeFound(node=node_doc(node), nvml=nvml_doc(nvml), boot_id=envelope(node, "node").boot_id)
    return resolve(None, {"node01": found}, profile=H200)


def read(change: Change = lambda data: None, profile: Profile = H200) -> dict[str, Measurement | Problem]:
    """Part -> what the probe says of level 2 when the document was changed so."""
    document = json.loads(AFTER.stdout)
    change(document["data"])
    return answers(dataclasses.replace(AFTER, stdout=json.dumps(document)), profile)


def answers(result: CommandResult, profile: Profile = H200) -> dict[str, Measurement | Problem]:
    nodes = inventory()
    node = nodes.nodes[0]
    found = AfterProbe(2, profile).read(nodes, node, node.part, [result])
    assert [a.metric for a in found] == ["health.after.2", "health.after.2", "node.after.2"]
    return {answer.part: answer for answer in found}


def value(answer: Measurement | Problem) -> str:
    assert isinstance(answer, Measurement), answer
    return str(answer.value)


def gpu(**changed: Any) -> Change:
    """The second GPU of the NVML document with these fields."""
    return lambda data: data["nvml"]["gpus"][1].update(changed)


def line(text: str) -> Change:
    return lambda data: data["log"]["lines"].append({"t": 3000.0, "text": text})


def without(profile: Profile, *, keep: tuple[str, ...]) -> Profile:
    """The profile in which the site file excludes all health clauses but these."""
    metrics = (*OF_GPU, *OF_NODE)
    clauses = tuple(
        dataclasses.replace(c, excluded="agreed") if c.metric in metrics and c.id not in keep else c
        for c in profile.clauses
    )
    return dataclasses.replace(profile, clauses=clauses)


def test_a_node_that_no_load_has_changed() -> None:
    """Every GPU and the node are as promised, and the detail says what was read."""
    found = read()
    assert {part: value(answer) for part, answer in found.items()} == dict.fromkeys(
        ("node01", "node01/gpu0", "node01/gpu1"), WELL
    )
    answer = found["node01/gpu0"]
    assert isinstance(answer, Measurement)
    assert all(metric in answer.detail for metric in OF_GPU if metric != "fabric.state"), answer.detail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (gpu(recovery_action=1), "GPU-16 recovery.action GPU reset, promised none"),
        (gpu(remap_pending=1), "GPU-12 remap.pending 1, promised 0"),
        (gpu(remap_failure=1), "GPU-13 remap.failure 1, promised 0"),
        (gpu(remap_uncorrectable=2), "GPU-14 remap.uncorrectable 2, promised 0"),
        (gpu(ecc_uncorrected_volatile=1), "GPU-9 ecc.uncorrected.volatile 1, promised 0"),
        (gpu(ecc_uncorrected_aggregate=1), "GPU-10 ecc.uncorrected.aggregate 1, promised 0"),
        (gpu(inforom_valid=False), "GPU-6 inforom.valid corrupted, promised valid"),
        (gpu(memory_total_mib=71000), "GPU-3 gpu.memory.total 71000 MiB, promised >= 143771 MiB"),
        (gpu(processes=[{"pid": 7, "name": "x", "used_mib": 1}]), "GPU-26 processes.foreign 1"),
        (gpu(power_enforced_mw=400000), "GPU-20 power.limit.below_default 300 W"),
        (gpu(fabric_state=2), "GPU-27 fabric.state in progress"),
        (
            line("NVRM: Xid (PCI:0000:00:07): 79, pid=1, name=x, GPU has fallen off the bus."),
            "GPU-28 xid.hardware 1 (Xid 79 GPU has fallen off the bus on 0000:00:07.0 at 3000.0 s), promised 0",
        ),
        (
            line("nvidia 0000:00:07.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"),
            "GPU-36 pcie.log.uncorrected 1",
        ),
        (gpu(uuid="GPU-99999999-0000-4000-8000-000000000009"), "another GPU at 0000:00:07.0: GPU-99999999"),
    ],
)
def test_what_a_load_breaks_is_named(change: Change, said: str) -> None:
    """The clause that no longer holds stands in the value with what was found; the other GPU is as promised."""
    found = read(change)
    assert said in value(found["node01/gpu1"])
    assert value(found["node01/gpu0"]) == WELL


def test_an_xid_that_asks_for_recovery_is_told() -> None:
    """Xid 154 alone is a note: the reading of the recovery action decides, and the note stands in the detail."""
    answer = read(line("NVRM: Xid (PCI:0000:00:07): 154, GPU recovery action changed from 0x0 to 0x1"))["node01/gpu1"]
    assert value(answer) == WELL
    assert isinstance(answer, Measurement)
    assert "also noted: Xid 154" in answer.detail


def test_what_belongs_to_the_node() -> None:
    """A fatal SXid, an Xid on an address that nobody has, and a driver of two versions are the node's."""
    sxid = read(line("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"))
    assert "GPU-30 sxid.fatal 1" in value(sxid["node01"])
    xid = read(line("NVRM: Xid (PCI:0000:dd:00): 79, pid=1, name=x, GPU has fallen off the bus."))
    assert "GPU-35 xid.unplaced 1" in value(xid["node01"])
    driver = read(lambda data: data["nvml"].update(driver_module="570.1"))
    assert "GPU-7 driver.agreement" in value(driver["node01"])
    assert value(driver["node01/gpu0"]) == WELL


def test_a_gpu_that_is_gone() -> None:
    """A GPU that NVML and the bus no longer show is a finding; what cannot be read of it is named beside that."""

    def gone(data: dict[str, Any]) -> None:
        data["nvml"]["gpus"].pop(1)
        data["bus"].pop(1)
        data["nvml"]["gpus"][0]["p2p_nvlink"] = {}

    said = value(read(gone)["node01/gpu1"])
    assert said.startswith("gone from the PCI bus, where it was at 0000:00:07.0 before the load")
    assert "GPU-1 gpu.present absent" in said
    assert "not measured: GPU-3" in said


def test_a_gpu_that_only_the_bus_lost() -> None:
    """NVML may still answer from its memory: a GPU that has left the bus is a finding all the same."""
    assert value(read(lambda data: data["bus"].pop(1))["node01/gpu1"]).startswith("gone from the PCI bus")


def test_what_cannot_be_read_is_not_well() -> None:
    """A required reading that NVML no longer gives is a Problem that names it; a finding beside it counts first."""
    lost = {"recovery_action": None, "errors": {"recovery_action": "Unknown"}}
    answer = read(gpu(**lost))["node01/gpu1"]
    assert isinstance(answer, Problem)
    assert "GPU-16 (node01 GPU 1: expected recovery_action" in answer.says
    both = value(read(gpu(**lost, remap_pending=1))["node01/gpu1"])
    assert both == "GPU-12 remap.pending 1, promised 0; not measured: GPU-16"


def test_nvml_that_does_not_answer_after_the_load() -> None:
    """Nothing is as promised then: every part is a Problem with NVML's reason, said once."""
    problem = "NVML does not start: GpuIsLost; read the kernel log for NVRM lines"

    def silent(data: dict[str, Any]) -> None:
        data["nvml"] = {**data["nvml"], "problem": problem, "gpus": [], "window_s": 0.0}

    found = read(silent)
    assert all(isinstance(answer, Problem) for answer in found.values())
    answer = found["node01/gpu1"]
    assert isinstance(answer, Problem)
    assert answer.says.count("GpuIsLost") == 1


def test_a_log_with_gaps_is_not_well() -> None:
    """A kernel log that lost its beginning cannot prove that no Xid came with the load."""
    found = read(lambda data: data["log"].update(complete=False))
    assert all(isinstance(answer, Problem) for answer in found.values())


def test_a_clause_that_is_out_is_left_out_and_said() -> None:
    """What the site file excludes, the profile does not require or calls not applicable is not held against anybody."""
    for out in ({"excluded": "agreed"}, {"required": False}, {"not_applicable": "none here", "limit": None}):
        clauses = tuple(dataclasses.replace(c, **out) if c.id == "GPU-12" else c for c in H200.clauses)  # type: ignore[arg-type]
        answer = read(gpu(remap_pending=1), dataclasses.replace(H200, clauses=clauses))["node01/gpu1"]
        assert value(answer) == WELL
        assert isinstance(answer, Measurement)
        assert "left out GPU-12 (" in answer.detail


def test_nothing_left_to_hold_it_against_is_not_well() -> None:
    """With every clause of its health excluded, a GPU is not as promised: nothing was promised."""
    found = read(profile=without(H200, keep=()))
    assert all(isinstance(answer, Problem) for answer in found.values())
    only = read(gpu(recovery_action=2), without(H200, keep=("GPU-16",)))
    assert value(only["node01/gpu1"]) == "GPU-16 recovery.action node reboot, promised none"


def test_the_profiles_own_limit_is_the_promise() -> None:
    """A contract that agrees to one remapped row holds after the load as well."""
    limit = next(c.limit for c in H200.clauses if c.id == "GPU-14")
    assert limit is not None
    agreed = dataclasses.replace(limit, at_most=1.0)
    clauses = tuple(dataclasses.replace(c, limit=agreed) if c.id == "GPU-14" else c for c in H200.clauses)
    profile = dataclasses.replace(H200, clauses=clauses)
    assert value(read(gpu(remap_uncorrectable=1), profile)["node01/gpu1"]) == WELL
    assert "GPU-14" in value(read(gpu(remap_uncorrectable=2), profile)["node01/gpu1"])


def test_an_agent_that_does_not_answer() -> None:
    """A deadline after the load leaves every part without a measurement."""
    hung = dataclasses.replace(AFTER, exit_code=None, timed_out=True, stdout="")
    assert all(isinstance(answer, Problem) for answer in answers(hung).values())


def test_every_metric_is_a_clause_of_level_1() -> None:
    """What is read again is what level 1 promises: each metric has a required clause there."""
    for metric in (*OF_GPU, *OF_NODE):
        (clause,) = [c for c in H200.clauses if c.metric == metric]
        assert (clause.level, clause.required) == (1, True)
