"""What one run of a `dcgmi diag` test says of every GPU: real runs of 4.6.0, and every way to be fooled by one."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from pytest_gpuready.model import Dcgm, Inventory, Measurement, Node, Parameter, Problem, Profile
from pytest_gpuready.model.agent_doc import LogLine, WatchDoc
from pytest_gpuready.probes.dcgm import DcgmProbe, dcgm_probes
from pytest_gpuready.probes.dcgm_tests import SOFTWARE, TESTS, DcgmTest, duration_s, given
from pytest_gpuready.profiles import load
from tests.dcgm_runs import around, dcgm_node, recorded

TEST = {test.name: test for test in TESTS}
EIGHT = tuple(f"16500000000{i:02d}" for i in range(8))


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load("h200-sxm")


def read(profile: Profile, name: str, node: Node, stdout: str, **more) -> dict[str, Measurement | Problem]:
    """Answers of one run by "metric part", GPUs as gpu0, the node as node."""
    probe = DcgmProbe(TEST[name], profile)
    result = around(probe.command(node, node.part), stdout, **more)
    found = probe.read(Inventory(nodes=(node,)), node, node.part, [result])
    return {f"{f.metric.removeprefix('dcgm.')} {f.part.partition('/')[2] or 'node'}": f for f in found}


def word(found: Measurement | Problem) -> str:
    """ "passed", "failed ..", or "open ..": what an answer amounts to."""
    if isinstance(found, Problem):
        return f"open {found.says.partition(': ')[2]}"
    return str(found.value) if found.value in ("passed", "ready") else f"failed {found.value}"


# recorded run, test, GPUs of the node, answer -> how it begins, or what it contains
REAL: tuple[tuple[str, str, int, dict[str, str]], ...] = (
    ("h200x1/r1-json", SOFTWARE, 1, {"software gpu0": "passed", "ready node": "ready", "software.node node": "passed"}),
    ("h200x1/r2-json", "memory", 1, {"memory gpu0": "passed"}),
    ("h200x1/r2-json", "pcie", 1, {"pcie gpu0": "passed"}),
    ("h200x1/r3-json", "targeted_power", 1, {"targeted_power gpu0": "passed"}),
    ("h200x1/r3-json", "memory_bandwidth", 1, {"memory_bandwidth gpu0": "open expected a result of memory_bandwidth"}),
    ("h200x1/pcie-gen6", "pcie", 1, {"pcie gpu0": "failed pcie: error 45 PCIE_GENERATION, DCGM: TRIAGE"}),
    ("h200x1/pcie-gen6-text", "pcie", 1, {"pcie gpu0": "failed pcie: error 45"}),
    ("h200x1/pcie-gen6-iterations2", "pcie", 1, {"pcie gpu0": "failed pcie: error 45"}),
    ("h200x1/memory-while-110GB-held", "memory", 1, {"memory gpu0": "open memory: Skip"}),
    ("h200x1/memtest-8s", "memtest", 1, {"memtest gpu0": "exit code 137"}),
    ("h200x1/sigint-5s", "diagnostic", 1, {"diagnostic gpu0": "killed by a signal"}),
    ("h200x1/unknown-test", "pulse_test", 1, {"pulse_test gpu0": "plug-in package is missing"}),
    (
        "h200x1/r1-json-host-absent",
        SOFTWARE,
        1,
        {"software gpu0": "unreachable", "ready node": "unreachable", "software.node node": "unreachable"},
    ),
    ("h200x1/r1-json-while-other-runs", SOFTWARE, 1, {"ready node": "another diagnostic"}),
    ("injected/healthy-8gpu-r1-json", SOFTWARE, 8, {"software gpu7": "passed", "software.node node": "passed"}),
    (
        "injected/row-remap-failure-r1-json",
        SOFTWARE,
        8,
        {"software gpu3": "failed software: error 80", "software gpu2": "passed", "ready node": "ready"},
    ),
    (
        "injected/recovery-action-reset-r1-json",
        SOFTWARE,
        2,
        {"software gpu1": "failed software: error 125", "software gpu0": "open"},
    ),
    (
        "injected/nonroot-embedded",
        SOFTWARE,
        8,
        {"software gpu0": "open no GPU is named", "software.node node": "failed software: error 96"},
    ),
    ("injected/bad-cuda-env-embedded", SOFTWARE, 1, {"software.node node": "failed software: error 28"}),
    ("injected/fabric-in-progress-r1-json", SOFTWARE, 2, {"software.node node": "failed software: error 112"}),
    ("injected/mixed-models-r1-json", SOFTWARE, 1, {"ready node": "different models"}),
    ("injected/plugins-absent-r1-json", SOFTWARE, 1, {"ready node": "no plug-ins", "software gpu0": "Cannot load"}),
    ("injected/nvvs-absent-r1-json", SOFTWARE, 1, {"ready node": "nvvs is missing"}),
    (
        "injected/hostengine-killed-midrun-json-HUNG",
        SOFTWARE,
        1,
        {"ready node": "signal 9", "software.node node": "signal 9"},
    ),
    ("injected/one-plugin-absent-closed-plugin-eud", "eud", 1, {"eud gpu0": "plug-in package is missing"}),
    ("injected/timeout-exceeded-json", "memtest", 1, {"memtest gpu0": "Timeout"}),
)


@pytest.mark.parametrize(("run", "name", "gpus", "expected"), REAL, ids=[f"{r[0]}-{r[1]}" for r in REAL])
def test_real_runs_have_their_right_reading(profile, run, name, gpus, expected):
    """A recorded run of dcgmi 4.6.0 passes, fails or leaves open exactly what it shows."""
    stdout, stderr, code = recorded(run)
    found = read(profile, name, dcgm_node(gpus, serials=()), stdout, stderr=stderr, exit_code=code)
    for answer, says in expected.items():
        got = word(found[answer])
        assert got.startswith(says) or (says not in ("passed", "ready") and says in got), (answer, got)


# --- runs that are written here -------------------------------------------------------------------------------------


def results(
    tests: dict[str, list[dict[str, Any]]], *, gpus: int = 2, summary: str = "Pass", driver: str = "580.159.04", **more
) -> str:
    """JSON of 4.x: test -> results of its GPUs, with the software checks passing before them."""
    software = [{"status": "Pass"} for _ in range(gpus)]
    listed = {"software": software, **tests}
    categories = [
        {
            "category": "Hardware",
            "tests": [
                {
                    "name": name,
                    "results": [
                        {"entity_group": "GPU", "entity_group_id": 1, "entity_id": i, **one}
                        for i, one in enumerate(rows)
                    ],
                    "test_summary": {"status": summary if name in tests else "Pass"},
                }
            ],
        }
        for name, rows in listed.items()
    ]
    entities = [{"entity_id": i, "serial_num": EIGHT[i], "device_id": "2335"} for i in range(gpus)]
    return json.dumps(
        {
            "DCGM Diagnostic": {"test_categories": categories},
            "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
            "metadata": {"version": "4.6.0", "Driver Version Detected": driver},
            **more,
        }
    )


PASS = {"status": "Pass"}
ERROR = {"warning": "GPU 1 is slow", "error_id": 30, "error_category": 1, "error_severity": 4}


def two() -> Node:
    return dcgm_node(2, serials=EIGHT)


def test_a_pass_carries_what_it_was_given(profile):
    """A pass says version, engine, parameters and what the test itself told."""
    found = read(profile, "memory_bandwidth", two(), results({"memory_bandwidth": [PASS, {**PASS, "info": ["fast"]}]}))
    answer = found["memory_bandwidth gpu1"]
    assert word(answer) == "passed"
    assert answer.detail == "fast"
    assert answer.conditions.startswith("dcgmi 4.6.0, nv-hostengine; given minimum_bandwidth=2700000 MB/s")


def test_a_failure_counts_whatever_the_exit_code_and_the_doubts(profile):
    """A Fail stands although the exit code is 0, and although the run was cut off."""
    text = results({"pcie": [PASS, {"status": "Fail", "warnings": [ERROR]}]})
    for more in ({}, {"ended_early": True}, {"cut": True}):
        found = read(profile, "pcie", two(), text, **more)
        assert word(found["pcie gpu1"]).startswith("failed pcie: error 30 LOW_BANDWIDTH")
        assert "suspect: GPU 1" in found["pcie gpu1"].detail or "GPU 1" in found["pcie gpu1"].detail
    assert word(found["pcie gpu0"]).startswith("open")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"exit_code": 226}, "although nothing failed"),
        ({"exit_code": 205}, "although nothing failed"),
        ({"exit_code": 139}, "killed by signal 11"),
        ({"ended_early": True}, "found it running after"),
        ({"cut": True}, "more than is kept"),
        ({"problem": "expected to start 'dcgmi', found No such file", "exit_code": None}, "expected to start 'dcgmi'"),
    ],
)
def test_no_pass_where_the_run_did_not_end_well(profile, more, says):
    """Results that read Pass prove nothing beside an exit code, an end or a cut that does not fit."""
    found = read(profile, "pcie", two(), results({"pcie": [PASS, PASS]}), **more)
    for gpu in ("pcie gpu0", "pcie gpu1"):
        assert word(found[gpu]).startswith("open")
        assert says in word(found[gpu])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([PASS, {"status": "Skip"}], "Skip"),
        ([PASS, {"status": "Not Run"}], "did not run"),
        ([PASS], "no result"),
        ([PASS, {"status": "Fine"}], "cannot be read"),
        ([PASS, {**PASS, "warnings": [ERROR]}], "error 30"),
        ([PASS, {**PASS, "info": ["Suppressed error:  GPU 1 had uncorrectable errors"]}], "Suppressed"),
        ([PASS, {"status": "Fail", "warnings": [{**ERROR, "error_id": 4711}]}], "error 4711 UNLISTED"),
    ],
)
def test_only_the_gpu_with_the_odd_result_loses_its_pass(profile, rows, says):
    """Skip, Not Run, no result, an unknown word, an error beside a Pass: no pass; its neighbour keeps its own."""
    found = read(profile, "pcie", two(), results({"pcie": rows}))
    assert word(found["pcie gpu0"]) == "passed"
    assert word(found["pcie gpu1"]) != "passed"
    assert says.lower() in word(found["pcie gpu1"]).lower() or "suppressed" in str(found["pcie gpu1"])


def test_a_test_that_is_absent_was_not_measured(profile):
    """Results of another test alone are no result of this one."""
    found = read(profile, "pulse_test", two(), results({"memtest": [PASS, PASS]}))
    assert "no result of pulse_test" in word(found["pulse_test gpu0"]) or "found none" in word(found["pulse_test gpu0"])


def test_a_summary_that_fails_alone_blames_nobody_and_passes_nobody(profile):
    """Every GPU reads Pass and the summary reads Fail: no GPU passes."""
    found = read(profile, "pcie", two(), results({"pcie": [PASS, PASS]}, summary="Fail"), exit_code=226)
    assert {word(found[f"pcie gpu{i}"]).split()[0] for i in (0, 1)} == {"failed"}
    assert "its summary says Fail" in word(found["pcie gpu0"])


def test_another_test_that_fails_beside_it_is_not_passed_over(profile):
    """A run that was asked for one test and fails another proves nothing about the first."""
    text = results({"pcie": [PASS, PASS], "memory": [{"status": "Fail", "warnings": [ERROR]}, PASS]})
    found = read(profile, "pcie", two(), text, exit_code=226)
    assert "memory failing beside it" in word(found["pcie gpu0"])


def test_software_checks_count_every_time_they_repeat(profile):
    """A row remap that the software checks find before a later test fails that test on this GPU alone."""
    text = json.loads(results({"memtest": [PASS, PASS]}))
    row = text["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][1]
    row.update(status="Fail", warnings=[{**ERROR, "error_id": 85, "warning": "GPU 1 has pending row remappings"}])
    found = read(profile, "memtest", two(), json.dumps(text), exit_code=226)
    assert word(found["memtest gpu1"]).startswith("failed software: error 85")
    assert word(found["memtest gpu0"]) == "passed"


def test_gpus_are_known_by_serial_number_not_by_place(profile):
    """DCGM numbers GPUs its own way: a failing number is blamed on the GPU that has its serial."""
    node = dcgm_node(2, serials=tuple(reversed(EIGHT[:2])))
    text = results({"pcie": [PASS, {"status": "Fail", "warnings": [ERROR]}]})
    found = read(profile, "pcie", node, text, exit_code=226)
    assert word(found["pcie gpu0"]).startswith("failed")
    assert word(found["pcie gpu1"]) == "passed"


def test_a_gpu_that_dcgm_does_not_list_was_not_measured(profile):
    """Seven of eight GPUs in DCGM's list: the eighth has no result, and is told."""
    node = dcgm_node(8, serials=EIGHT)
    found = read(profile, "pcie", node, results({"pcie": [PASS] * 7}, gpus=7))
    assert word(found["pcie gpu6"]) == "passed"
    assert word(found["pcie gpu7"]).startswith("open expected a result of pcie")


def test_without_serials_another_number_of_gpus_is_nobodys(profile):
    """Two GPUs in DCGM's list, three here and no serial numbers: nobody knows which is which."""
    found = read(profile, "pcie", dcgm_node(3, serials=()), results({"pcie": [PASS, PASS]}))
    assert all("to tell which" in word(found[f"pcie gpu{i}"]) for i in range(3))


def test_results_of_another_machine_do_not_even_fail(profile):
    """Another driver, or another device id, is another machine: neither its Pass nor its Fail is ours."""
    text = results({"pcie": [PASS, {"status": "Fail", "warnings": [ERROR]}]}, driver="470.1")
    found = read(profile, "pcie", two(), text)
    assert all("another machine" in word(found[f"pcie gpu{i}"]) for i in (0, 1))
    other = dcgm_node(2, serials=EIGHT, pci_id="10de:2330")
    found = read(profile, "pcie", other, results({"pcie": [PASS, PASS]}))
    assert "expected device 2330, found 2335" in word(found["pcie gpu0"])


def test_output_of_another_command_is_none_of_this_one(profile):
    """A result that a transport gave for other words is not believed."""
    node = two()
    pcie, memory = (DcgmProbe(TEST[name], profile) for name in ("pcie", "memory"))
    wrong = around(memory.command(node, node.part), results({"pcie": [PASS, PASS]}))
    result = dataclasses.replace(wrong, command=pcie.command(node, node.part))
    found = pcie.read(Inventory(nodes=(node,)), node, node.part, [result])
    assert all(isinstance(f, Problem) and "expected the output of" in f.says for f in found)


def test_a_floor_that_nothing_could_miss_proves_nothing(profile):
    """A SKU entry a thousand times too low leaves the memory bandwidth unmeasured unless the profile gives its own."""
    floors = {"2335": {"memory_bandwidth.minimum_bandwidth": "2333"}}
    node = dcgm_node(2, serials=EIGHT, dcgm=Dcgm(path="/usr/bin/dcgmi", floors=floors))
    text = results({"memory_bandwidth": [PASS, PASS]})
    assert word(read(profile, "memory_bandwidth", node, text)["memory_bandwidth gpu0"]) == "passed"
    # A profile that knows the ceiling and whose own value was taken out leaves the SKU file's floor in force.
    blind = dataclasses.replace(
        profile, dcgm=tuple(dataclasses.replace(p, value=2333) if p.ceiling else p for p in profile.dcgm)
    )
    found = read(blind, "memory_bandwidth", node, text)
    assert "a pass proves nothing" in word(found["memory_bandwidth gpu0"])


def test_an_alarm_of_the_watch_travels_with_the_result(profile):
    """A hardware Xid in the window of the test stands in the measurement of every GPU that was watched."""
    line = LogLine(t=5.0, text="NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus.")
    watch = {"0000:19:00.0": WatchDoc(period_s=2.0, before={}, after={}, samples={"t": []}, log=[line])}
    found = read(profile, "targeted_power", two(), results({"targeted_power": [PASS, PASS]}), watch=watch)
    assert "Xid 79" in found["targeted_power gpu0"].watch.alarm
    assert found["targeted_power gpu1"].watch is None


def test_a_missing_gpu_keeps_its_line(profile):
    """An expected GPU that nobody found has an answer that says so."""
    node = two()
    gone = dataclasses.replace(node, slots=(node.slots[0], dataclasses.replace(node.slots[1], gpu=None)))
    found = read(profile, "pcie", gone, results({"pcie": [PASS]}, gpus=1))
    assert word(found["pcie gpu0"]) == "passed"
    assert "was not found" in word(found["pcie gpu1"])


def test_ready_tells_engine_files_and_who_is_in_the_way(profile):
    """The first clause says which DCGM it is, and names a diagnostic of others that runs."""
    busy = Dcgm(path="/usr/bin/dcgmi", busy=("nvvs (pid 812)",), sku_file="diag-skus.yaml (sha256 0a1b)")
    node = dcgm_node(2, serials=EIGHT, dcgm=busy)
    found = read(profile, SOFTWARE, node, results({}))
    said = found["ready node"].detail
    assert "DCGM 4.6.0; embedded engine; not root" in said
    assert "diag-skus.yaml (sha256 0a1b); GPUs known by serial number" in said
    text, err, code = recorded("h200x1/r1-json-while-other-runs")
    found = read(profile, SOFTWARE, node, text, stderr=err, exit_code=code)
    assert "nvvs (pid 812) runs there" in word(found["ready node"])


def test_plugins_that_are_not_installed_are_named_before_hours_are_spent(profile):
    """Level 1 tells which tests of the profile have no plug-in."""
    known = Dcgm(path="/usr/bin/dcgmi", folders=("cuda13",), plugins=("memory", "pcie", "diagnostic", "memtest"))
    node = dcgm_node(2, serials=EIGHT, dcgm=known)
    value = read(profile, SOFTWARE, node, results({}))["plugins node"].value
    assert value == "not found: memory_bandwidth, targeted_stress, targeted_power, nvbandwidth, eud, pulse_test"


# --- commands -------------------------------------------------------------------------------------------------------


def words(profile: Profile, name: str, node: Node, burn_s: float = 0.0) -> str:
    return DcgmProbe(TEST[name], profile, burn_s).command(node, node.part).line


def test_pcie_is_held_to_the_profile(profile):
    """Generation, width, NVLinks and the lower host copy floor go to DCGM as parameters."""
    linked = dcgm_node(2, serials=EIGHT, nvlink=True)
    asked = words(profile, "pcie", linked).rsplit(" ", 1)[-1].split(";")
    assert "pcie.h2d_d2h_single_pinned.min_pci_generation=5" in asked
    assert "pcie.h2d_d2h_single_unpinned.min_pci_width=16" in asked
    assert "pcie.h2d_d2h_single_pinned.min_bandwidth=45" in asked
    assert "pcie.gpu_nvlinks_expected_up=18" in asked
    assert "nvlinks_expected" not in words(profile, "pcie", two())


def test_software_checks_are_level_1_for_they_have_no_name_in_4():
    """`-r software` is refused by 4.x; level 1 is what runs those checks, and nothing else."""
    assert TEST[SOFTWARE].words == "1"
    assert {test.words for test in TESTS if test.name != SOFTWARE} == {t.name for t in TESTS if t.name != SOFTWARE}


def test_every_test_is_watched_and_has_a_deadline_beyond_its_time(profile):
    """Each command names all GPUs for the watch, runs dcgmi behind "--" and waits longer than the test may take."""
    node = two()
    for probe in dcgm_probes(profile, burn_s=14400):
        command = probe.command(node, node.part)
        assert command.argv[3:6] == ("around", "0000:19:00.0,0000:1a:00.0", "--")
        assert command.argv[6:10] == ("dcgmi", "diag", "-r", command.argv[9])
        assert command.timeout_s > command.typical_s > 0
        assert command.grace_s >= 10


def test_a_soak_is_shared_by_arithmetic_power_and_memory(profile):
    """Four hours are a quarter each for diagnostic, targeted_power, memtest and the burn-in; others keep their time."""
    node = two()
    for name in ("diagnostic", "targeted_power", "memtest"):
        assert f"{name}.test_duration=3600" in words(profile, name, node, 14400)
        assert duration_s(TEST[name], given(TEST[name], node, profile, 14400)) == 3600
    assert "test_duration" not in words(profile, "pcie", node, 14400)
    assert "memtest.test_duration=600" in words(profile, "memtest", node)


def test_a_link_that_dcgm_itself_asks_more_of_keeps_that(profile):
    """Generation 6 in the SKU file is not lowered to the profile's 5; generation 3 is raised to it."""
    name = "pcie.h2d_d2h_single_pinned.min_pci_generation"
    for own, is_given in (("3", True), ("5", False), ("6", False)):
        known = Dcgm(path="/usr/bin/dcgmi", floors={"2335": {name: own}})
        assert (f"{name}=5" in words(profile, "pcie", dcgm_node(2, serials=EIGHT, dcgm=known))) is is_given


def test_a_longer_time_of_the_sku_file_is_not_cut_short(profile):
    """Where DCGM's own file asks for more time than its default, that is what the test is given."""
    known = Dcgm(path="/usr/bin/dcgmi", floors={"2335": {"memtest.test_duration": "3600"}})
    assert "memtest.test_duration=3600" in words(profile, "memtest", dcgm_node(2, serials=EIGHT, dcgm=known))


def test_a_test_that_ends_before_its_time_proves_nothing(profile):
    """Asked for 120 s (or for a soak) and over in one: not measured; what it found wrong meanwhile counts."""
    text = results({"targeted_power": [PASS, {"status": "Fail", "warnings": [ERROR]}]})
    found = read(profile, "targeted_power", two(), text, seconds=1.0)
    assert "to run for 120 s, found it ended after 1 s" in word(found["targeted_power gpu0"])
    assert word(found["targeted_power gpu1"]).startswith("failed")


def test_a_floor_of_the_profile_never_takes_the_place_of_a_higher_one(profile):
    """`-p` wins over the SKU file, so what is lower there than here is all that is given."""
    name = "memory_bandwidth.minimum_bandwidth"
    for own, is_given in (("2333", True), ("2900000", False)):
        known = Dcgm(path="/usr/bin/dcgmi", floors={"2335": {name: own}})
        node = dcgm_node(2, serials=EIGHT, dcgm=known)
        assert (name in words(profile, "memory_bandwidth", node)) is is_given
        conditions = read(profile, "memory_bandwidth", node, results({"memory_bandwidth": [PASS, PASS]}))
        told = conditions["memory_bandwidth gpu0"].conditions
        assert f"floors of diag-skus.yaml: minimum_bandwidth {own}{' (not used)' if is_given else ''}" in told


def test_an_error_of_the_hardware_is_final_a_low_figure_is_not(profile):
    """An Xid in the first run is not taken back by a second one that passes; a low bandwidth may be."""
    for error, stands in ((101, True), (120, True), (30, False), (63, False), (4711, True)):
        row = {"status": "Fail", "warnings": [{**ERROR, "error_id": error}]}
        found = read(profile, "targeted_power", two(), results({"targeted_power": [PASS, row]}))
        assert found["targeted_power gpu1"].stands is stands


def test_a_test_of_the_node_is_judged_by_all_its_results(profile):
    """nccl_tests prints results of GPUs: each of them counts for the node."""
    fails = {"status": "Fail", "warnings": [{**ERROR, "error_id": 129}]}
    for rows, says in (
        ([PASS, PASS], "passed"),
        ([PASS, fails], "failed nccl_tests: error 129"),
        ([{"status": "Skip"}] * 2, "open nccl_tests: Skip"),
        ([{"status": "Odd"}, PASS], "open"),
        ([{"status": "Fail"}] * 2, "failed"),
    ):
        assert word(read(profile, "nccl_tests", two(), results({"nccl_tests": rows}))["nccl_tests node"]).startswith(
            says
        )


def test_a_result_of_the_cpu_is_none_of_a_gpu(profile):
    """A CPU that passes says nothing about GPUs."""
    text = json.loads(results({"memory": [PASS]}, gpus=1))
    row = text["DCGM Diagnostic"]["test_categories"][1]["tests"][0]["results"][0]
    row.update(entity_group="CPU", entity_group_id=7)
    found = read(profile, "memory", two(), json.dumps(text))
    assert all(word(found[f"memory gpu{i}"]).startswith("open") for i in (0, 1))


def test_software_checks_that_are_absent_are_missed(profile):
    """DCGM 4 runs them before every test; output without them is not all of it."""
    text = json.loads(results({"memory": [PASS, PASS]}))
    del text["DCGM Diagnostic"]["test_categories"][0]
    found = read(profile, "memory", two(), json.dumps(text))
    assert "expected the software checks before memory" in word(found["memory gpu0"])


def test_serials_of_another_machine_are_nobodys(profile):
    """A list of GPUs none of which is here: nothing of it counts, the node's clauses included."""
    found = read(profile, SOFTWARE, dcgm_node(2, serials=("77", "78")), results({}))
    assert all("serial numbers of others" in word(answer) for name, answer in found.items() if name != "plugins node")


def test_a_gpu_without_a_serial_does_not_hide_the_others(profile):
    """A GPU that NVML lost has no serial here; what DCGM says of the others by their serials counts."""
    node = dcgm_node(2, serials=EIGHT[:1])
    text = results({"pcie": [{"status": "Fail", "warnings": [{**ERROR, "warning": "GPU 0 is slow"}]}, PASS]})
    found = read(profile, "pcie", node, text, exit_code=226)
    assert word(found["pcie gpu0"]).startswith("failed pcie: error 30")
    assert word(found["pcie gpu1"]).startswith("open")


def test_without_serials_the_order_is_that_of_addresses_not_of_the_site_file(profile):
    """A site file that lists GPUs backwards does not turn the blame round."""
    forward = dcgm_node(2, serials=())
    backward = dataclasses.replace(
        forward,
        slots=tuple(
            dataclasses.replace(slot, part=forward.slots[i].part) for i, slot in enumerate(reversed(forward.slots))
        ),
    )
    text = json.loads(results({"pcie": [{"status": "Fail", "warnings": [{**ERROR, "warning": "GPU 0"}]}, PASS]}))
    for entity in text["entity_groups"][0]["entities"]:
        del entity["serial_num"]
    found = read(profile, "pcie", backward, json.dumps(text), exit_code=226)
    assert word(found["pcie gpu0"]) == "passed"
    assert word(found["pcie gpu1"]).startswith("failed")


def test_nvlinks_that_are_not_fitted_condemn_nobody(profile):
    """Error 14 where no NVLink is expected: not measured, with what to do; where it is expected, a failure."""
    down = {**ERROR, "error_id": 14, "warning": "GPU 1's NvLink link 3 is currently down"}
    text = results({"pcie": [PASS, {"status": "Fail", "warnings": [down]}]})
    found = read(profile, "pcie", two(), text, exit_code=226)
    assert word(found["pcie gpu1"]).startswith("open pcie: Fail, DCGM calls NVLinks down that are not fitted")
    linked = dcgm_node(2, serials=EIGHT, nvlink=True)
    assert word(read(profile, "pcie", linked, text, exit_code=226)["pcie gpu1"]).startswith("failed pcie: error 14")


def test_a_precision_that_was_asked_for_ran_on_every_gpu(profile):
    """FP64 asked for, run on one GPU of two: the other was not measured."""
    source = profile.dcgm[0].source
    asked = dataclasses.replace(profile, dcgm=(Parameter(name="diagnostic.precision", value="d", source=source),))
    ran = [{**PASS, "info": [f"Running with precisions: FP64 {i}, FP32 0, FP16 0"]} for i in (1, 0)]
    found = read(asked, "diagnostic", two(), results({"diagnostic": ran}))
    assert word(found["diagnostic gpu0"]) == "passed"
    assert "FP64 not run" in word(found["diagnostic gpu1"])


def test_another_version_than_the_installed_one_is_another_installation(profile):
    """dcgmi 3 on the PATH and results of 4: somebody else answered."""
    node = dcgm_node(2, serials=EIGHT, dcgm=Dcgm(path="/usr/bin/dcgmi", version="3.3.9"))
    found = read(profile, "pcie", node, results({"pcie": [PASS, PASS]}))
    assert "expected results of DCGM 3.3.9, found those of 4.6.0" in word(found["pcie gpu0"])


def test_a_character_that_cannot_be_written_is_replaced(profile):
    """Half a surrogate in an error's text does not lose the failure."""
    row = {"status": "Fail", "warnings": [{**ERROR, "warning": "GPU 1 \ud800 is slow"}]}
    found = read(profile, "pcie", two(), results({"pcie": [PASS, row]}), exit_code=226)
    assert found["pcie gpu1"].value.encode()


def test_where_dcgm_is_not_asked_nothing_runs(profile):
    """A node that is measured by the built-in engine has no scope for any DCGM test."""
    node = dataclasses.replace(two(), dcgm_none="the site file declares diagnostics: builtin")
    assert all(probe.scopes(node) == () for probe in dcgm_probes(profile))


def test_every_clause_about_dcgm_has_a_probe_and_every_probe_a_clause(profile):
    """Nothing of DCGM stands in the profile that nobody measures, and nothing is measured that nobody judges."""
    promised = {clause.metric for clause in profile.clauses if clause.metric.startswith("dcgm.")}
    measured = {metric for probe in dcgm_probes(profile) for metric in probe.metrics}
    assert promised == measured
    levels = {clause.metric: clause.level for clause in profile.clauses}
    assert all(levels[test.metric] == test.level for test in TESTS)
    assert all(isinstance(test, DcgmTest) for test in TESTS)


def test_a_table_where_json_was_asked_for_passes_nobody(profile):
    """What a table says is wrong counts; that it says Pass is not all that JSON would have said."""
    table = (
        "Successfully ran diagnostic for group.\n"
        "+---------------------------+------------------------------------------------+\n"
        "| Diagnostic                | Result                                         |\n"
        "+===========================+================================================+\n"
        "|-----  Metadata  ----------+------------------------------------------------|\n"
        "| DCGM Version              | 3.3.9                                          |\n"
        "|-----  Integration  -------+------------------------------------------------|\n"
        "| PCIe                      | Pass - All                                     |\n"
        "+---------------------------+------------------------------------------------+\n"
    )
    found = read(profile, "pcie", dcgm_node(2, serials=()), table)
    assert all(word(found[f"pcie gpu{i}"]).startswith("open") for i in (0, 1))
