"""What the copies say about a GPU, and that whatever is missing is a problem and never a number."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import msgspec
import pytest

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
)
from pytest_gpuready.model.agent_doc import (
    AerDoc,
    CopiesDoc,
    CopyDoc,
    LogLine,
    PciBridge,
    PciLink,
    TogetherDoc,
    WatchDoc,
    encode,
)
from pytest_gpuready.probes.copies import CopiesProbe, TogetherProbe
from pytest_gpuready.probes.pcie_link import gb_per_s

BDF = "0000:19:00.0"
PART = Part(node="node01", index=0)
TB = 10**12
COUNTERS = (
    "pcie_replay",
    "pcie_nak_sent",
    "pcie_nak_received",
    "pcie_bad_tlp",
    "pcie_receiver",
    "pcie_lane",
    "pcie_fatal",
    "pcie_nonfatal",
    "ecc_uncorrected_volatile",
)


def node(virtual: str = "") -> Node:
    slots = (
        Slot(part=PART, gpu=Gpu(bdf=BDF, on_bus=True)),
        Slot(part=Part(node="node01", index=1), gpu=Gpu(bdf="0000:2a:00.0", on_bus=True)),
        Slot(part=Part(node="node01", index=2), expected_bdf="0000:3b:00.0"),
    )
    return Node(name="node01", slots=slots, virtual=virtual)


def copy(kind: str, rate: float, **more) -> CopyDoc:
    more = {"verified": True, "moved_bytes": TB // 2, **more}
    return CopyDoc(kind=kind, gb_per_s=rate, repeats=[rate - 0.1, rate, rate + 0.1], size_bytes=2**29, **more)


def watch(after: dict | None = None, generation=(5,) * 20, width=(16,) * 20, **more) -> WatchDoc:
    before = dict.fromkeys(COUNTERS, 3)
    times = [0.1 * (i + 1) for i in range(20)]
    samples = {"t": times, "generation": list(generation), "width": list(width), "power_w": [77.2, *[118.4] * 19]}
    more = {"phases": [("h2d", 0.05, 1.04), ("d2h", 1.04, 2.1)], **more}
    return WatchDoc(period_s=0.1, before=before, after={**before, **(after or {})}, samples=samples, **more)


def bridge(bdf: str, speed: float | None, width: int | None) -> PciBridge:
    return PciBridge(bdf=bdf, link=PciLink(speed_gt_per_s=speed, width=width))


def document(**more) -> CopiesDoc:
    more = {
        "copies": [copy("h2d", 55.4), copy("d2h", 55.1), copy("bidirectional", 99.0, each={"h2d": 49.0, "d2h": 50.0})],
        "watch": watch(),
        "path": [bridge("0000:17:00.0", 32.0, 16), bridge("0000:15:01.0", 32.0, 16)],
        "aer": AerDoc(correctable=(5, 5), fatal=(0, 0), nonfatal=(0, 0)),
        "pcie_generation_max": 5,
        "pcie_generation_max_device": 5,
        "cpus": "0-31",
        "numa_node": 0,
        **more,
    }
    return CopiesDoc(bdf=BDF, **more)


def result(doc, probe="copies", **more) -> CommandResult:
    command = Command(node="node01", argv=("python", "-m", "pytest_gpuready.agent", probe, BDF), timeout_s=120)
    stdout = doc if isinstance(doc, str) else encode(probe=probe, host="h", boot_id="b", data=doc).decode()
    more = {"exit_code": 0, **more}
    return CommandResult(
        command=command, stdout=stdout, stderr="", started="2026-11-30T12:00:00Z", duration_s=9.0, **more
    )


def read(*docs, virtual=""):
    results = [doc if isinstance(doc, CommandResult) else result(doc) for doc in docs]
    answers = CopiesProbe().read(Inventory(nodes=(node(),)), node(virtual), PART, results)
    assert [answer.metric for answer in answers] == list(CopiesProbe.metrics)
    assert all(answer.part == "node01/gpu0" for answer in answers)
    return {answer.metric: answer for answer in answers}


def test_a_healthy_gpu_answers_every_metric():
    """Sound copies give a measurement for each metric, with unit, watch and the digest of the raw output."""
    answers = read(document())
    assert all(isinstance(answer, Measurement) for answer in answers.values())
    assert {name: (answer.value, answer.unit) for name, answer in answers.items()} == {
        "pcie.link.generation": (5, ""),
        "pcie.link.width": (16, ""),
        "pcie.slot.generation": (5, ""),
        "pcie.path.bandwidth": (63.015, "GB/s"),
        "pcie.h2d.bandwidth": (55.4, "GB/s"),
        "pcie.d2h.bandwidth": (55.1, "GB/s"),
        "pcie.bidirectional.bandwidth": (99.0, "GB/s"),
        "pcie.errors.fatal": (0, ""),
        "pcie.replays": (0.0, "per TB"),
        "pcie.errors.nak": (0.0, "per TB"),
        "pcie.errors.bad_tlp": (0.0, "per TB"),
        "pcie.errors.receiver": (0.0, "per TB"),
        "pcie.errors.lane": (0.0, "per TB"),
        "pcie.aer.correctable": (0.0, "per TB"),
        "pcie.aer.uncorrectable": (0, ""),
    }
    stdout = result(document()).stdout
    assert answers["pcie.replays"].evidence == (hashlib.sha256(stdout.encode()).hexdigest(),)
    assert answers["pcie.link.width"].watch.facts["power"] == "77-118 W"
    assert answers["pcie.link.generation"].conditions == "18 samples under load"
    assert answers["pcie.bidirectional.bandwidth"].detail == "h2d 49.00, d2h 50.00"


def test_the_link_is_the_worst_sample_under_load():
    """One sample of Gen4 under load is the reading, and the detail says how often; samples outside do not count."""
    answers = read(document(watch=watch(generation=[1, 5, 5, 5, 4, *[5] * 15])))
    assert answers["pcie.link.generation"].value == 4
    assert answers["pcie.link.generation"].detail == "4 in 1 of 18 samples, else 5"


def test_retests_of_the_link_take_the_worst_of_all_runs():
    """A link that was narrow in any run is narrow; the other metrics carry later runs as repeats."""
    answers = read(document(), document(watch=watch(width=[8] * 20), copies=[copy("h2d", 27.0), copy("d2h", 26.0)]))
    assert answers["pcie.link.width"].value == 8
    assert answers["pcie.link.width"].repeats == ()
    assert (answers["pcie.h2d.bandwidth"].value, answers["pcie.h2d.bandwidth"].repeats) == (55.4, (27.0,))
    assert len(answers["pcie.h2d.bandwidth"].evidence) == 2


def test_too_few_samples_are_no_reading():
    """Under eight samples under load the link was not measured; the NVML error stands in the line."""
    sparse = watch(generation=[None] * 15 + [5] * 5, errors={"generation": "GpuIsLost"})
    problem = read(document(watch=sparse))["pcie.link.generation"]
    assert isinstance(problem, Problem)
    assert problem.says == ("expected at least 8 samples of the link generation under load, found 5 (NVML: GpuIsLost)")


@pytest.mark.parametrize(
    ("path", "value", "detail"),
    [
        ([bridge("0000:17:00.0", 32.0, 16), bridge("0000:15:01.0", 16.0, 16)], 31.508, "0000:15:01.0 16 GT/s x16"),
        ([bridge("0000:17:00.0", 32.0, 8)], 31.508, "0000:17:00.0 32 GT/s x8"),
        ([bridge("0000:17:00.0", 64.0, 16)], 63.015, "GPU 32 GT/s x16"),
    ],
)
def test_the_narrowest_hop_is_named(path, value, detail):
    """The path is as wide as its narrowest link, and the detail names that link."""
    measured = read(document(path=path))["pcie.path.bandwidth"]
    assert measured.value == value
    assert measured.detail.endswith(detail)


def test_a_hop_that_cannot_be_read_is_a_problem():
    """A bridge without speed or width may be the narrow one: no value, and the bridge is named."""
    problem = read(document(path=[bridge("0000:17:00.0", None, 16)]))["pcie.path.bandwidth"]
    assert isinstance(problem, Problem)
    assert "0000:17:00.0" in problem.says
    assert problem.kind is ProblemKind.NOT_MEASURED


def test_what_a_virtual_machine_cannot_show_is_hidden():
    """No bridge above the GPU and no AER are HIDDEN; so are bridges of a virtual machine, which are made up."""
    bare = read(document(path=[], aer=AerDoc()))
    made_up = read(document(path=[bridge("0000:00:1c.0", 2.5, 1)]), virtual="kvm")
    found = [bare["pcie.path.bandwidth"], bare["pcie.aer.correctable"], bare["pcie.aer.uncorrectable"]]
    for problem in (*found, made_up["pcie.path.bandwidth"]):
        assert problem.kind is ProblemKind.HIDDEN


def test_theory_of_a_link():
    """Known links: Gen3, Gen4, Gen5 and Gen6 x16, and the older coding of Gen2."""
    assert [round(gb_per_s(s, 16), 2) for s in (5.0, 8.0, 16.0, 32.0, 64.0)] == [8.0, 15.75, 31.51, 63.02, 121.0]


def test_growth_is_told_per_terabyte():
    """Errors that grew during 1.5 TB moved are divided by it; sums take both NAK counters."""
    answers = read(document(watch=watch({"pcie_replay": 6, "pcie_nak_sent": 4, "pcie_nak_received": 5})))
    assert answers["pcie.replays"].value == pytest.approx(2.0)
    assert answers["pcie.errors.nak"].value == pytest.approx(2.0)
    assert answers["pcie.errors.nak"].detail == "3 in 1500 GB"


def test_fatal_errors_are_counted_not_divided():
    """Fatal and non-fatal errors add up to a plain number."""
    answers = read(document(watch=watch({"pcie_fatal": 4, "pcie_nonfatal": 5})))
    assert answers["pcie.errors.fatal"].value == 3
    aer = read(document(aer=AerDoc(correctable=(1, 4), fatal=(0, 1), nonfatal=(0, 1))))
    assert aer["pcie.aer.uncorrectable"].value == 2
    assert aer["pcie.aer.correctable"].value == pytest.approx(2.0)


def test_a_counter_that_went_backwards_is_a_problem():
    """A counter that shrank was reset: nobody knows its growth, so there is no number."""
    problem = read(document(watch=watch({"pcie_bad_tlp": 0})))["pcie.errors.bad_tlp"]
    assert isinstance(problem, Problem)
    assert "found 3 then 0: something reset it" in problem.says


def test_a_missing_counter_is_a_problem():
    """A counter that the GPU did not give is a problem with NVML's error, and never 0."""
    seen = msgspec.structs.replace(watch(), after={}, errors={"pcie_fatal": "GpuIsLost", "pcie_lane": "NotSupported"})
    answers = read(document(watch=seen))
    assert "counter pcie_fatal before and after, found GpuIsLost" in answers["pcie.errors.fatal"].says
    assert answers["pcie.errors.lane"].kind is ProblemKind.NO_SUCH_THING


def test_unverified_copies_have_no_bandwidth():
    """A rate at which wrong bytes moved is no bandwidth; the problem is the agent's own line."""
    bad = document(copies=[copy("h2d", 55.0, verified=False)], problem="bytes differ: expected 9 equal bytes, found 1")
    answers = read(bad)
    assert answers["pcie.h2d.bandwidth"].says == "bytes differ: expected 9 equal bytes, found 1"
    assert answers["pcie.d2h.bandwidth"].says == "bytes differ: expected 9 equal bytes, found 1"


def test_without_cuda_only_what_needs_no_copy_is_measured():
    """Where CUDA did not start, bandwidth, link and counters per TB tell its line; the slot is still known."""
    answers = read(document(copies=[], problem="cuInit: expected CUDA_SUCCESS, found CUDA_ERROR_SYSTEM_NOT_READY"))
    measured = {name for name, answer in answers.items() if isinstance(answer, Measurement)}
    assert measured == {"pcie.slot.generation"}
    said = {answer.says for answer in answers.values() if isinstance(answer, Problem) and "cuInit" in answer.says}
    assert len(said) == 1


def test_a_run_that_died_leaves_no_value_and_hides_none():
    """A retest that timed out makes the metric a problem that still tells the first run's value."""
    problem = read(document(), result("", exit_code=None, timed_out=True))["pcie.h2d.bandwidth"]
    assert isinstance(problem, Problem)
    assert problem.says.startswith("run 2 of 2: ")
    assert problem.says.endswith("the other runs gave 55.40 GB/s")


def test_a_document_about_another_gpu_is_refused():
    """An answer about another address than the one asked for measures nothing."""
    other = msgspec.structs.replace(document(), bdf="0000:aa:00.0")
    assert "expected a document about 0000:19:00.0" in read(other)["pcie.h2d.bandwidth"].says


def test_alarms_of_every_run_reach_the_watch():
    """A hardware Xid of this GPU and uncorrected ECC during any run are in the watch of every measurement."""
    line = LogLine(t=5.0, text="NVRM: Xid (PCI:0000:19:00): 48, pid=7, name=python, DBE")
    elsewhere = LogLine(t=5.1, text="NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus.")
    bad = watch({"ecc_uncorrected_volatile": 5}, log=[line, elsewhere])
    seen = read(document(), document(watch=bad))["pcie.h2d.bandwidth"].watch
    assert seen.hardware_xids == (48,)
    assert seen.uncorrected_ecc == 2


def test_what_the_watch_could_not_read_is_said():
    """An unreadable kernel log and an ECC counter that is not there stand among the facts."""
    seen = watch(log_problem="/dev/kmsg: Operation not permitted", errors={"ecc_uncorrected_volatile": "NotSupported"})
    seen.before.pop("ecc_uncorrected_volatile")
    facts = read(document(watch=seen))["pcie.h2d.bandwidth"].watch.facts
    assert facts["kernel log"] == "not read: /dev/kmsg: Operation not permitted"
    assert facts["uncorrected ECC"] == "not read (NotSupported)"


def test_series_have_no_gap():
    """Plotted columns are of equal length and hold only what was read."""
    seen = read(document(watch=watch(width=[None, *[16] * 19])))["pcie.link.generation"].watch
    assert {len(values) for values in seen.series.values()} == {19} == {len(seen.times_s)}


def test_one_command_per_gpu_that_was_found():
    """Each found GPU has a command with its address; an empty slot has none."""
    probe = CopiesProbe()
    parts = probe.scopes(node())
    assert [part.index for part in parts] == [0, 1]
    command = probe.command(node(), parts[1])
    assert command.line == "python -m pytest_gpuready.agent copies 0000:2a:00.0"
    assert command.timeout_s == 120


def together(*docs):
    probe = TogetherProbe()
    [scope] = probe.scopes(node())
    results = [result(doc, "copies-together") for doc in docs]
    return probe.read(Inventory(nodes=(node(),)), node(), scope, results)


def test_together_answers_for_every_slot():
    """Each found GPU has its own rate, and a slot without a GPU says that it was not found."""
    first, second, empty = together(TogetherDoc(gb_per_s={BDF: 50.0, "0000:2a:00.0": 26.0}, seconds=3.0))
    assert (first.value, second.value, first.conditions) == (50.0, 26.0, "2 GPUs at the same time")
    assert empty.says == "node01 GPU 2 was not found, so nothing was copied to it"


def test_together_passes_the_problem_on():
    """Where the GPUs did not copy together, every one of them is not measured, for the same reason."""
    answers = together(TogetherDoc(problem="0000:2a:00.0: cuMemAlloc: out of memory"))
    assert {a.says for a in answers[:2]} == {"0000:2a:00.0: cuMemAlloc: out of memory"}


def test_together_needs_two():
    """A node with one GPU has nothing to copy together, so no command is run."""
    alone = Node(name="node01", slots=(Slot(part=PART, gpu=Gpu(bdf=BDF)),))
    assert TogetherProbe().scopes(alone) == ()
    command = TogetherProbe().command(node(), node().part)
    assert command.argv[-3:] == ("copies-together", BDF, "0000:2a:00.0")


def test_a_document_recorded_on_an_h200_reads():
    """A recorded document of a healthy H200 in a VM: its numbers, and HIDDEN for what the machine hides."""
    stdout = (Path(__file__).parents[1] / "data/copies/h200-1gpu/stdout.json").read_text()
    recorded = result(stdout)
    argv = (*recorded.command.argv[:-1], "0000:00:06.0")
    recorded = dataclasses.replace(recorded, command=dataclasses.replace(recorded.command, argv=argv))
    answers = read(recorded, virtual="a hypervisor (CPU flag)")
    hidden = {name for name, answer in answers.items() if isinstance(answer, Problem)}
    assert hidden == {"pcie.path.bandwidth", "pcie.aer.correctable", "pcie.aer.uncorrectable"}
    assert all(answers[name].kind is ProblemKind.HIDDEN for name in hidden)
    assert (answers["pcie.link.generation"].value, answers["pcie.link.width"].value) == (5, 16)
    assert round(answers["pcie.h2d.bandwidth"].value, 2) == 54.32
    assert round(answers["pcie.d2h.bandwidth"].value, 2) == 55.32
    assert answers["pcie.errors.nak"].value == 0
    assert answers["pcie.link.width"].watch.alarm == ""
