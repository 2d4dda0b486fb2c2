"""What the NVML probe says about healthy, broken and missing GPUs, from documents made by hand."""

from __future__ import annotations

import msgspec
import pytest
import yaml

import pytest_gpuready.profiles
from pytest_gpuready.model import (
    Command,
    CommandResult,
    Gpu,
    Inventory,
    Measurement,
    Node,
    Part,
    Problem,
    ProblemKind,
    Slot,
    Value,
)
from pytest_gpuready.model.agent_doc import GpuDoc, NvLinkDoc, NvmlDoc, ProcessDoc, encode
from pytest_gpuready.probes.node import NodeProbe
from pytest_gpuready.probes.nvml import NvmlProbe

VERSION = "580.95.05"


def bdf(index: int) -> str:
    return f"0000:{0x19 + 16 * index:02x}:00.0"


def gpu(index: int, of: int = 2, **changed: object) -> GpuDoc:
    """A healthy GPU of a node of `of`, with single fields changed."""
    good: dict[str, object] = {
        "bdf": bdf(index),
        "pci_id": "10de:2335",
        "index": index,
        "name": "made by hand",
        "uuid": f"GPU-{index:08d}-0000-4000-8000-000000000000",
        "vbios": "96.00.A5.00.01",
        "inforom_image": "G520.0282.02.02",
        "inforom_valid": True,
        "memory_total_mib": 143771,
        "gsp_version": VERSION,
        **dict.fromkeys(("ecc_current", "ecc_pending", "persistence"), True),
        **dict.fromkeys(("mig_current", "mig_pending"), False),
        **dict.fromkeys(("ecc_uncorrected_volatile", "ecc_uncorrected_aggregate", "ecc_corrected_volatile"), 0),
        **dict.fromkeys(("remap_correctable", "remap_uncorrectable", "remap_pending", "remap_failure"), 0),
        "retired_pages_pending": 0,
        "recovery_action": 0,
        "compute_mode": 0,
        "power_enforced_mw": 700000,
        "power_default_mw": 700000,
        "clock_app_sm_mhz": 1980,
        "clock_app_sm_default_mhz": 1980,
        "clock_app_memory_mhz": 3201,
        "clock_app_memory_default_mhz": 3201,
        "clock_event_reasons": 1,
        "temperature_gpu_c": 32,
        "temperature_memory_c": 31,
        "temperature_slowdown_c": 89,
        "temperature_memory_max_c": 95,
        "processes": [],
        "fabric_state": 3,
        "fabric_status": 0,
        "fabric_health_mask": 0,
        "nvlink_count": 18,
        "nvlinks": [link(n) for n in range(18)],
        "p2p_nvlink": {bdf(other): 0 for other in range(of) if other != index},
    }
    return GpuDoc(**(good | changed))  # type: ignore[arg-type]


def link(number: int, **changed: object) -> NvLinkDoc:
    good: dict[str, object] = {
        "link": number,
        "active": True,
        "version": "4.0",
        "speed_mb_per_s": 26562,
        "remote": "switch",
        **dict.fromkeys(("replay", "recovery", "crc"), (0, 0)),
    }
    return NvLinkDoc(**(good | changed))  # type: ignore[arg-type]


def links(*down: int) -> list[NvLinkDoc]:
    return [link(n, active=n not in down) for n in range(18)]


def document(*gpus: GpuDoc, **changed: object) -> NvmlDoc:
    good: dict[str, object] = {
        "driver_module": VERSION,
        "driver": VERSION,
        "nvml": f"13.{VERSION}",
        "libraries": {"libnvidia-ml": VERSION, "libcuda": VERSION},
        "window_s": 0.25,
        "gpus": list(gpus),
    }
    return NvmlDoc(**(good | changed))  # type: ignore[arg-type]


def node(count: int = 2, *, gone: tuple[int, ...] = ()) -> Node:
    """A node of `count` expected GPUs; those in `gone` are not on the PCI bus."""
    slots = (
        Slot(
            part=Part(node="node01", index=i),
            expected_bdf=bdf(i),
            gpu=None if i in gone else Gpu(bdf=bdf(i), on_bus=True),
        )
        for i in range(count)
    )
    return Node(name="node01", slots=tuple(slots))


def result(stdout: str, **changed: object) -> CommandResult:
    command = Command(node="node01", argv=("python", "-m", "pytest_gpuready.agent", "nvml"), timeout_s=60.0)
    good: dict[str, object] = {"exit_code": 0, "stderr": "", "started": "2026-12-01T00:00:00Z", "duration_s": 0.3}
    return CommandResult(command=command, stdout=stdout, **(good | changed))  # type: ignore[arg-type]


Found = dict[tuple[str, str], Measurement | Problem]


def read(found: NvmlDoc | CommandResult, of: Node) -> Found:
    """All answers of the probe by metric and part; none is there twice."""
    if isinstance(found, NvmlDoc):
        found = result(encode(probe="nvml", host="node01", boot_id="0-1", data=found).decode())
    answers = NvmlProbe().read(Inventory(nodes=(of,)), of, of.part, [found])
    by_key = {(answer.metric, answer.part): answer for answer in answers}
    assert len(by_key) == len(answers)
    return by_key


def value(found: Found, metric: str, part: str = "node01/gpu0") -> Value:
    answer = found[metric, part]
    assert isinstance(answer, Measurement), answer
    return answer.value


def problem(found: Found, metric: str, part: str = "node01/gpu0") -> Problem:
    answer = found[metric, part]
    assert isinstance(answer, Problem), answer
    return answer


def one(metric: str, **changed: object) -> Value:
    """The value of a metric on a GPU with these fields changed."""
    return value(read(document(gpu(0, **changed), gpu(1)), node()), metric)


def expected_values() -> dict[str, Value]:
    """What base.yaml asks for at level 1, metric -> word or bound."""
    path = pytest_gpuready.profiles.__path__[0]
    with open(f"{path}/data/base.yaml", encoding="utf-8") as file:  # noqa: PTH123
        clauses = yaml.safe_load(file)["clauses"]
    found = {}
    for clause in clauses.values():
        limit = clause.get("limit", {})
        if clause["level"] == 1 and ("equals" in limit or "at_most" in limit):
            found[clause["metric"]] = limit.get("equals", limit.get("at_most"))
    return found


def test_every_level_1_metric_has_a_probe() -> None:
    """The two probes together answer every metric that a level-1 clause without DCGM names, each once."""
    path = pytest_gpuready.profiles.__path__[0]
    with open(f"{path}/data/base.yaml", encoding="utf-8") as file:  # noqa: PTH123
        clauses = yaml.safe_load(file)["clauses"].values()
    named = {clause["metric"] for clause in clauses if clause["level"] == 1 and "dcgm" not in clause.get("needs", [])}
    answered = [*NodeProbe({}).metrics, *NvmlProbe().metrics]
    assert named <= set(answered)
    assert len(answered) == len(set(answered))


def test_healthy_pair_says_exactly_what_the_profile_asks_for() -> None:
    """On healthy GPUs every metric has a value, and every word is the word that base.yaml compares with."""
    found = read(document(gpu(0), gpu(1)), node())
    assert not [answer for answer in found.values() if isinstance(answer, Problem)]
    wanted = {m: v for m, v in expected_values().items() if m in NvmlProbe.metrics}
    parts = {m: "node01" if m == "driver.agreement" else "node01/gpu1" for m in wanted}
    assert {m: value(found, m, parts[m]) for m in wanted} == wanted


def test_evidence_is_the_digest_of_stdout() -> None:
    """Each answer points to the raw output that it came from, problems too."""
    found = read(document(gpu(0, ecc_current=None), gpu(1)), node())
    digests = {answer.evidence for answer in found.values()}
    assert len(digests) == 1
    assert [len(text) for text in digests.pop()] == [64]


@pytest.mark.parametrize(
    ("changed", "metric", "said"),
    [
        ({"ecc_pending": False}, "ecc.mode", "enabled, pending disabled"),
        ({"ecc_current": False}, "ecc.mode", "disabled, pending enabled"),
        ({"mig_current": True, "mig_pending": True}, "mig.mode", "enabled"),
        ({"compute_mode": 3}, "compute.mode", "exclusive process"),
        ({"persistence": False}, "persistence.mode", "disabled"),
        ({"inforom_valid": False}, "inforom.valid", "corrupted"),
        ({"recovery_action": 1}, "recovery.action", "GPU reset"),
        ({"recovery_action": 42}, "recovery.action", "unknown action 42"),
        ({"power_enforced_mw": 500000}, "power.limit.below_default", 200.0),
        ({"power_default_mw": 350000, "power_enforced_mw": 350000}, "power.limit.default", 350.0),
        ({"clock_app_sm_mhz": 1410}, "clock.locked", "1410 MHz of 1980 MHz default"),
        ({"clock_event_reasons": 0x88}, "clock.event_reasons", "HW power brake, HW slowdown"),
        ({"clock_event_reasons": 0x5}, "clock.event_reasons", "none but benign"),
        ({"clock_event_reasons": 0x101}, "clock.event_reasons", "none but benign"),
        ({"clock_event_reasons": 0x1000}, "clock.event_reasons", "other bits 0x1000"),
        ({"temperature_gpu_c": 80}, "temperature.gpu.margin", 9),
        ({"temperature_memory_c": 96}, "temperature.memory.margin", -1),
        ({"fabric_state": 2, "fabric_status": None}, "fabric.state", "in progress"),
        ({"fabric_health_mask": 1}, "fabric.state", "completed, degraded bandwidth"),
        ({"fabric_health_mask": 0x1BA}, "fabric.state", "completed, route unhealthy unknown (entry 3)"),
        ({"fabric_health_mask": 0x5AA}, "fabric.state", "completed, too few NVLinks"),
        ({"fabric_health_mask": 0x1AA}, "fabric.state", "completed"),
        ({"fabric_status": 999}, "fabric.state", "completed, NVML error 999"),
        ({"nvlinks": links(3, 4)}, "nvlink.links.active", 16),
        ({"nvlinks": [link(0, version="3.0"), link(1)], "nvlink_count": 2}, "nvlink.version", "3.0, 4.0"),
        ({"nvlinks": [link(0, speed_mb_per_s=20000), link(1)], "nvlink_count": 2}, "nvlink.speed", 20000),
        ({"nvlinks": [link(0, crc=(4, 6), replay=(1, 1)), link(1)], "nvlink_count": 2}, "nvlink.errors", 2),
        ({"nvlinks": [link(0, crc=(4, 6), replay=(1, 1)), link(1)], "nvlink_count": 2}, "nvlink.errors.total", 7),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_word(changed: dict[str, object], metric: str, said: Value) -> None:
    """A value outside the profile's says what is there instead."""
    assert one(metric, **changed) == said


@pytest.mark.parametrize(
    ("changed", "metric", "said"),
    [
        *(
            ({field: -1}, metric, f"expected {field} of 0 or more for {metric}, found -1")
            for field, metric in {
                "ecc_uncorrected_volatile": "ecc.uncorrected.volatile",
                "ecc_uncorrected_aggregate": "ecc.uncorrected.aggregate",
                "ecc_corrected_volatile": "ecc.corrected.volatile",
                "remap_pending": "remap.pending",
                "remap_failure": "remap.failure",
                "remap_correctable": "remap.correctable",
                "remap_uncorrectable": "remap.uncorrectable",
                "retired_pages_pending": "retired_pages.pending",
            }.items()
        ),
        ({"temperature_gpu_c": -273}, "temperature.gpu.margin", "from -40 to 150 C"),
        ({"temperature_slowdown_c": 4294967295}, "temperature.gpu.margin", "found 4294967295"),
        ({"temperature_memory_c": -273}, "temperature.memory.margin", "found -273"),
        ({"temperature_memory_max_c": 4294967295}, "temperature.memory.margin", "found 4294967295"),
        ({"memory_total_mib": 10**15}, "gpu.memory.total", "from 1 to 2097152 MiB"),
        ({"power_enforced_mw": 10**12}, "power.limit.below_default", "from 1 to 5000000 mW"),
        ({"power_enforced_mw": 0, "power_default_mw": 0}, "power.limit.below_default", "found 0"),
        ({"power_default_mw": 10**12}, "power.limit.default", "found 1000000000000"),
        ({"vbios": ""}, "gpu.vbios", "expected vbios for gpu.vbios, found an empty text"),
        ({"inforom_image": " "}, "gpu.inforom.image", "found an empty text"),
        ({"uuid": ""}, "gpu.present", "expected uuid for gpu.present, found an empty text"),
        ({"nvlinks": [link(0, crc=(-5, -5))], "nvlink_count": 1}, "nvlink.errors", "counter of 0 or more"),
    ],
)
def test_what_no_gpu_can_have_is_no_value(changed: dict[str, object], metric: str, said: str) -> None:
    """A number beyond what a GPU can have, and an empty text, are a problem of their metric and never a value."""
    answer = problem(read(document(gpu(0, **changed), gpu(1)), node()), metric)
    assert answer.kind is ProblemKind.NOT_MEASURED
    assert said in answer.says


def test_foreign_process_is_named() -> None:
    """A process of somebody else is counted and named."""
    found = read(document(gpu(0, processes=[ProcessDoc(pid=4711, name="train.py", used_mib=2048)]), gpu(1)), node())
    answer = found["processes.foreign", "node01/gpu0"]
    assert isinstance(answer, Measurement)
    assert (answer.value, answer.detail) == (1, "pid 4711 train.py 2048 MiB")


@pytest.mark.parametrize(("mask", "said"), [(0x1, "unlocked"), (0x2, "locked by application clocks")])
def test_clock_without_application_clocks_in_nvml(mask: int, said: str) -> None:
    """Where NVML has no application clocks any more the clock-event bit decides, and the detail says so."""
    fields = [f"clock_app_{what}_mhz" for what in ("sm", "sm_default", "memory", "memory_default")]
    gone = dict.fromkeys(fields, None) | {"errors": dict.fromkeys(fields, "NotSupported"), "clock_event_reasons": mask}
    answer = read(document(gpu(0, **gone), gpu(1)), node())["clock.locked", "node01/gpu0"]
    assert isinstance(answer, Measurement)
    assert answer.value == said
    assert "judged by the clock-event bit" in answer.detail


def test_margin_without_thresholds() -> None:
    """A chip that tells margins only has the same distance to slowdown: 55 now, slowdown at -2, so 57."""
    changed = {
        "temperature_slowdown_c": None,
        "temperature_margin_c": 55,
        "temperature_slowdown_tlimit_c": -2,
        "errors": {"temperature_slowdown_c": "NotSupported"},
    }
    assert one("temperature.gpu.margin", **changed) == 57


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("NotSupported", ProblemKind.NO_SUCH_THING),
        ("FunctionNotFound", ProblemKind.NOT_MEASURED),
        ("NoPermission", ProblemKind.NOT_MEASURED),
        ("Unknown", ProblemKind.NOT_MEASURED),
    ],
)
def test_missing_field_is_a_problem_with_its_error(error: str, kind: ProblemKind) -> None:
    """A value that NVML does not give never becomes a good one: the problem names field and error."""
    found = read(document(gpu(0, ecc_current=None, errors={"ecc_current": error}), gpu(1)), node())
    said = problem(found, "ecc.mode")
    assert said.kind is kind
    assert f"expected ecc_current for ecc.mode, found {error}" in said.says


@pytest.mark.parametrize("metric", sorted(set(NvmlProbe.metrics) - {"gpu.present", "gpu.pci_id", "driver.agreement"}))
def test_empty_document_of_a_gpu_measures_nothing(metric: str) -> None:
    """A GPU of which NVML says nothing but its address has no value at all, whatever the metric."""
    empty = GpuDoc(bdf=bdf(0), pci_id="10de:2335", index=0)
    problem(read(document(empty, gpu(1)), node()), metric)


def test_gpu_that_nvml_lost() -> None:
    """A lost GPU is on the bus and not answered; everything else about it is a problem, its neighbour is measured."""
    found = read(document(gpu(1), lost={"0": "GpuIsLost"}), node())
    assert value(found, "gpu.present") == "on the bus, not answered by NVML"
    assert "GPU 0 is missing from NVML" in problem(found, "ecc.mode").says
    assert value(found, "ecc.mode", "node01/gpu1") == "enabled"
    assert value(found, "nvlink.links.active", "node01/gpu1") == 18


def test_half_read_document_of_a_lost_gpu_counts_for_nothing() -> None:
    """A GPU that was lost while it was read is not answered, however much of it was read before."""
    found = read(document(gpu(0), gpu(1), lost={bdf(0): "GpuIsLost"}), node())
    assert value(found, "gpu.present") == "on the bus, not answered by NVML"
    assert "GpuIsLost" in problem(found, "gpu.vbios").says


def test_gpu_that_is_not_on_the_bus_either() -> None:
    """An expected GPU that neither bus nor NVML shows is absent."""
    found = read(document(gpu(1)), node(gone=(0,)))
    assert value(found, "gpu.present") == "absent"


def test_nvml_as_a_whole_is_no_verdict() -> None:
    """Where NVML does not start nothing was measured: every metric is a problem, presence included."""
    found = read(document(problem="NVML does not start: DriverNotLoaded; load it", gpus=[]), node())
    assert {answer.metric for answer in found.values()} == set(NvmlProbe.metrics)
    assert all(isinstance(a, Problem) and a.kind is ProblemKind.NOT_MEASURED for a in found.values())
    assert VERSION in problem(found, "driver.agreement", "node01").says


@pytest.mark.parametrize(
    "broken",
    [
        result("", exit_code=None, timed_out=True),
        result("Segmentation fault", exit_code=139),
        result('{"gpuready_agent":1,"probe":"nvml"'),
    ],
)
def test_agent_that_failed(broken: CommandResult) -> None:
    """A command that hung, crashed or printed garbage is a problem for every metric of every expected GPU."""
    found = read(broken, node(8))
    assert len(found) == (len(NvmlProbe.metrics) - 1) * 8 + 1
    assert all(isinstance(answer, Problem) for answer in found.values())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"driver_module": "570.86.15"}, "kernel module 570.86.15 beside 580.95.05"),
        ({"libraries": {"libnvidia-ml": VERSION, "libcuda": "570.86.15"}}, "libcuda 570.86.15 beside 580.95.05"),
        ({"libraries": {"libnvidia-ml": VERSION}, "driver_module": "1.2"}, "kernel module 1.2 beside 580.95.05"),
        ({"libraries": {"libcuda": VERSION}}, "agree"),
    ],
)
def test_driver_parts_that_differ(changed: dict[str, object], said: str) -> None:
    """The part that differs is named, also where another part is silent; NVML's own version stands in for its file."""
    assert value(read(document(gpu(0), gpu(1), **changed), node()), "driver.agreement", "node01") == said


def test_gsp_firmware_of_another_version() -> None:
    """GSP firmware that is not the driver's is a finding on the node that names the GPU."""
    found = read(document(gpu(0, gsp_version="550.54.15"), gpu(1)), node())
    assert value(found, "driver.agreement", "node01") == "GSP of GPU 0 550.54.15 beside 580.95.05"


def test_missing_libcuda_is_not_measured() -> None:
    """Without libcuda nobody knows whether it would fit."""
    found = read(document(gpu(0), gpu(1), libraries={"libnvidia-ml": VERSION}), node())
    said = problem(found, "driver.agreement", "node01")
    assert said.kind is ProblemKind.NOT_MEASURED
    assert "libcuda.so.1 not found" in said.says


def topology(*gpus: GpuDoc) -> list[Value]:
    found = read(document(*gpus), node(len(gpus)))
    return [value(found, "nvlink.topology", f"node01/gpu{i}") for i in range(len(gpus))]


def test_topology_blames_the_gpu_with_fewer_links() -> None:
    """Two links down on one GPU of eight make its pairs short; only that GPU is named."""
    assert topology(*(gpu(i, 8, nvlinks=links(*((3, 4) if i == 5 else ()))) for i in range(8))) == [18] * 5 + [
        16,
        18,
        18,
    ]


def test_topology_blames_both_of_an_equal_pair() -> None:
    """Where a pair of two has no P2P and equal links, both are named."""
    assert topology(gpu(0, p2p_nvlink={bdf(1): 4}), gpu(1, p2p_nvlink={bdf(0): 4})) == [0, 0]


def test_topology_blames_the_one_that_is_off_the_fabric() -> None:
    """One GPU of eight without P2P to anybody is named alone, though its links are up like the others'."""
    off = {bdf(other): 3 for other in range(7)}
    others = [gpu(i, 8, p2p_nvlink={bdf(o): 3 if o == 7 else 0 for o in range(8) if o != i}) for i in range(7)]
    assert topology(*others, gpu(7, 8, p2p_nvlink=off)) == [18] * 7 + [0]


def test_topology_of_direct_links() -> None:
    """Without a switch the links that end at the peer count, the lesser side of each pair."""
    ends = [[1, 1, 1, 1], [0, 0, 0, 0]]
    pair = [
        gpu(i, nvlink_count=4, nvlinks=[link(n, remote="gpu", remote_bdf=bdf(o)) for n, o in enumerate(ends[i])])
        for i in range(2)
    ]
    assert topology(*pair) == [4, 4]
    one_down = [link(n, remote="gpu", remote_bdf=bdf(0), active=n > 0) for n in range(4)]
    assert topology(pair[0], gpu(1, nvlink_count=4, nvlinks=one_down)) == [4, 3]


def test_topology_with_a_missing_peer() -> None:
    """Peers that do not answer are said, the others compared; with no peer left nothing was measured."""
    found = read(document(gpu(0, 3), gpu(1, 3), lost={"2": "GpuIsLost"}), node(3))
    answer = found["nvlink.topology", "node01/gpu0"]
    assert isinstance(answer, Measurement)
    assert (answer.value, answer.detail) == (18, "1 of 2 peers do not answer")
    problem(read(document(gpu(0), lost={"1": "GpuIsLost"}), node()), "nvlink.topology")


def test_a_gpu_whose_peers_are_lost_is_not_to_blame() -> None:
    """What to do about it is to be done to the peers that do not answer, and they are named."""
    pair = problem(read(document(gpu(0), lost={"1": "GpuIsLost"}), node()), "nvlink.topology")
    assert pair.says == "node01 GPU 0: its only peer, GPU 1, does not answer; begin with GPU-1 on GPU 1"
    assert pair.advice == "begin with GPU-1 on GPU 1"
    last = read(document(gpu(2, 4), lost={"1": "GpuIsLost"}), node(4))
    said = problem(last, "nvlink.topology", "node01/gpu2")
    assert said.says == "node01 GPU 2: none of its 3 peers answers; begin with GPU-1 on each of them"


def test_unreadable_links_cost_only_their_gpu() -> None:
    """A GPU whose link states cannot be read is not measured; its peers are compared among themselves."""
    mute = [link(n, active=None, errors={"active": "Unknown"}) for n in range(18)]
    found = read(document(gpu(0, 3), gpu(1, 3), gpu(2, 3, nvlinks=mute)), node(3))
    assert value(found, "nvlink.topology", "node01/gpu1") == 18
    assert "Unknown" in problem(found, "nvlink.topology", "node01/gpu2").says


def test_counters_that_a_generation_lacks_are_named() -> None:
    """A kind of counter that no link has is named in the detail; one that a single link fails to give is a problem."""
    no_crc = [link(n, crc=None, errors={"crc": "NotSupported"}) for n in range(18)]
    answer = read(document(gpu(0, nvlinks=no_crc), gpu(1)), node())["nvlink.errors", "node01/gpu0"]
    assert isinstance(answer, Measurement)
    assert "without crc" in answer.detail
    one_mute = [*no_crc[:1], *links()[1:]]
    problem(read(document(gpu(0, nvlinks=one_mute), gpu(1)), node()), "nvlink.errors")


def test_counter_that_ran_backwards_is_no_measurement() -> None:
    """A counter that sank between the readings was reset: its growth is unknown, not negative."""
    reset = [link(0, replay=(9, 0)), *links()[1:]]
    problem(read(document(gpu(0, nvlinks=reset), gpu(1)), node()), "nvlink.errors")


def test_retests_become_repeats() -> None:
    """Values of further runs follow the first; a run without a value leaves none."""
    of = node()
    runs = [document(gpu(0, temperature_gpu_c=t), gpu(1)) for t in (32, 40)]
    results = [result(encode(probe="nvml", host="n", boot_id="b", data=run).decode()) for run in runs]
    by_key = {(a.metric, a.part): a for a in NvmlProbe().read(Inventory(nodes=(of,)), of, of.part, results)}
    answer = by_key["temperature.gpu.margin", "node01/gpu0"]
    assert isinstance(answer, Measurement)
    assert (answer.value, answer.repeats, len(answer.evidence)) == (57, (49,), 2)
    broken = [*results, result("half")]
    assert all(isinstance(a, Problem) for a in NvmlProbe().read(Inventory(nodes=(of,)), of, of.part, broken))


def test_wire_round_trip_of_the_fixture() -> None:
    """The hand-made documents are documents of the protocol: they survive encoding and strict decoding."""
    made = document(gpu(0), gpu(1))
    assert msgspec.json.decode(msgspec.json.encode(made), type=NvmlDoc) == made
