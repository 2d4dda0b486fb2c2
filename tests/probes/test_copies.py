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
    KernelLog,
    LogLine,
    PciBridge,
    PciLink,
    TogetherDoc,
    WatchDoc,
    encode,
)
from pytest_gpuready.probes.copies import CopiesProbe, TogetherProbe
from pytest_gpuready.probes.pcie_link import gb_per_s
from pytest_gpuready.probes.together import _unmoved
from pytest_gpuready.profiles import load

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
    samples["reasons"] = [1] * 20
    samples |= more.pop("columns", {})
    more = {"phases": [("h2d", 0.05, 0.75), ("d2h", 0.75, 1.35), ("bidirectional", 1.35, 2.05)], **more}
    return WatchDoc(period_s=0.1, before=before, after={**before, **(after or {})}, samples=samples, **more)


def log(*texts: str, **more) -> KernelLog:
    lines = [LogLine(t=20.0 + i, text=text) for i, text in enumerate(texts)]
    return KernelLog(**{"source": "/dev/kmsg", "complete": True, "total_lines": 900, "lines": lines, **more})


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
        "log_after": log(),
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
        "pcie.copies.corrupted": (0, ""),
        "xid.hardware.after": (0, ""),
        "sxid.fatal.after": (0, ""),
        "clock.event_reasons.load": ("none but benign", ""),
    }
    stdout = result(document()).stdout
    assert answers["pcie.replays"].evidence == (hashlib.sha256(stdout.encode()).hexdigest(),)
    assert answers["pcie.link.width"].watch.facts["power"] == "77-118 W"
    assert answers["pcie.link.generation"].conditions == "17 samples under load"
    assert answers["pcie.bidirectional.bandwidth"].detail == "h2d 49.00, d2h 50.00"


def test_the_link_is_the_worst_sample_under_load():
    """One sample of Gen4 under load is the reading, and the detail says how often; samples outside do not count."""
    answers = read(document(watch=watch(generation=[1, 5, 5, 5, 4, *[5] * 15])))
    assert answers["pcie.link.generation"].value == 4
    assert answers["pcie.link.generation"].detail == "4 in 1 of 17 samples, else 5"


def test_retests_of_the_link_take_the_worst_of_all_runs():
    """A link that was narrow in any run is narrow; the other metrics carry later runs as repeats."""
    narrow = [copy("h2d", 27.0), copy("d2h", 26.0), copy("bidirectional", 40.0)]
    answers = read(document(), document(watch=watch(width=[8] * 20), copies=narrow))
    assert answers["pcie.link.width"].value == 8
    assert answers["pcie.link.width"].repeats == ()
    assert (answers["pcie.h2d.bandwidth"].value, answers["pcie.h2d.bandwidth"].repeats) == (55.4, (27.0,))
    assert len(answers["pcie.h2d.bandwidth"].evidence) == 2


def test_too_few_samples_are_no_reading():
    """Under eight samples under load the link was not measured; the NVML error stands in the line."""
    sparse = watch(generation=[None] * 15 + [5] * 5, errors={"generation": "GpuIsLost"})
    problem = read(document(watch=sparse))["pcie.link.generation"]
    assert isinstance(problem, Problem)
    assert problem.says == (
        "expected at least 10 samples of generation under load, 3 in each phase, "
        "found 5 (h2d 0, d2h 0, bidirectional 5); NVML: GpuIsLost"
    )


@pytest.mark.parametrize("column", ["generation", "width", "reasons"])
@pytest.mark.parametrize("seen", [[5, None] * 10, [*[5] * 13, *[None] * 7], None], ids=["half", "a phase", "all"])
def test_samples_that_are_missing_prove_nothing(column, seen):
    """Fewer than half of what the phases promise, a phase without samples, or no such column: no reading."""
    columns = {column: [] if seen is None else seen}
    metric = "clock.event_reasons.load" if column == "reasons" else f"pcie.link.{column}"
    bad = watch(columns=columns)
    if seen is None:
        del bad.samples[column]
    assert f"samples of {column} under load" in read(document(watch=bad))[metric].says


@pytest.mark.parametrize(("column", "value"), [("generation", 5.9), ("generation", 99), ("width", 15.5), ("width", 0)])
def test_a_link_is_a_whole_number(column, value):
    """A generation or width that no link has is no reading."""
    problem = read(document(watch=watch(columns={column: [value] * 20})))[f"pcie.link.{column}"]
    assert f"as {column} under load, found {value:g}" in problem.says


def test_a_slot_has_a_generation_that_exists():
    """A highest generation beyond any that there is, is no reading."""
    problem = read(document(pcie_generation_max=99))["pcie.slot.generation"]
    assert problem.says == "expected PCIe generation 1 to 6 of card and slot, found 99"


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (0x1, "none but benign"),
        (0x4, "none but benign"),
        (0x102, "none but benign"),
        (0x8, "HW slowdown"),
        (0x20, "SW thermal slowdown"),
        (0xC0, "HW thermal slowdown, HW power brake"),
    ],
)
@pytest.mark.parametrize("at", [7, 12])
def test_clock_events_under_load(mask, said, at):
    """One sample of heat, hardware slowdown or power brake is said, also the first of a phase; the power cap is not."""
    seen = watch(columns={"reasons": [*[1] * at, mask, *[1] * (19 - at)]})
    answer = read(document(watch=seen))["clock.event_reasons.load"]
    assert answer.value == said
    retested = read(document(), document(watch=seen))["clock.event_reasons.load"]
    assert (retested.value, retested.repeats) == (said, ())


def test_clock_events_outside_the_load_say_nothing_of_it():
    """A sample before the first phase does not count."""
    seen = watch(columns={"reasons": [0x80, *[1] * 19]}, phases=[("h2d", 0.15, 0.75), *watch().phases[1:]])
    assert read(document(watch=seen))["clock.event_reasons.load"].value == "none but benign"


def test_a_slowdown_between_two_samples_is_known_by_its_counter():
    """No sample shows it, and the counter of the time that a power brake held the clocks grew: it counts."""
    seen = watch({"throttle_power_brake_ns": 3_000_000})
    seen = msgspec.structs.replace(seen, before={**seen.before, "throttle_power_brake_ns": 0})
    answer = read(document(watch=seen))["clock.event_reasons.load"]
    assert answer.value == "HW power brake"
    assert "HW power brake for 3 ms" in answer.detail
    still = msgspec.structs.replace(seen, after={**seen.after, "throttle_power_brake_ns": 0})
    assert read(document(watch=still))["clock.event_reasons.load"].value == "none but benign"


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
    ecc = {"ecc_uncorrected_volatile": 3}
    seen = msgspec.structs.replace(watch(), after=ecc, errors={"pcie_fatal": "GpuIsLost", "pcie_lane": "NotSupported"})
    answers = read(document(watch=seen))
    assert "counter pcie_fatal before and after, found GpuIsLost" in answers["pcie.errors.fatal"].says
    assert answers["pcie.errors.lane"].kind is ProblemKind.NO_SUCH_THING


ALL_COPIES = ("h2d", "d2h", "bidirectional")
DIFFER = "bytes differ: expected 9 equal bytes, found 4"


@pytest.mark.parametrize(
    ("changed", "wrong", "says"),
    [
        ({"copies": [copy("h2d", 55.0, verified=False, wrong_bytes=4)], "problem": DIFFER}, 4, DIFFER),
        ({"problem": DIFFER}, 1, DIFFER),
        (
            {"copies": [*(copy(kind, 55.0) for kind in ALL_COPIES[:2]), copy("bidirectional", 99.0, verified=False)]},
            1,
            "bytes differ: expected every byte to arrive as it was sent, found 1 or more wrong",
        ),
        (
            {"copies": [copy(kind, 55.0, wrong_bytes=n) for n, kind in enumerate(ALL_COPIES)]},
            2,
            "bytes differ: expected every byte to arrive as it was sent, found 2 or more wrong",
        ),
        ({"problem": DIFFER, "watch": None, "copies": []}, 1, DIFFER),
    ],
)
def test_wrong_bytes_in_any_phase_are_corruption(changed, wrong, says):
    """Bytes that differ after any of the copies are counted; nothing else of that document is a number."""
    answers = read(document(**changed))
    assert answers.pop("pcie.copies.corrupted").value == wrong
    assert {answer.says for answer in answers.values()} == {says}


@pytest.mark.parametrize("broken_first", [True, False])
def test_wrong_bytes_stay_wrong_after_a_retest(broken_first):
    """One run with wrong bytes is enough, before or after a clean one, and beside one that died."""
    bad, clean, dead = document(problem=DIFFER), document(), result("", exit_code=None, timed_out=True)
    runs = (bad, clean, dead) if broken_first else (dead, clean, bad)
    answer = read(*runs)["pcie.copies.corrupted"]
    assert (answer.value, answer.repeats) == (1, ())
    assert isinstance(read(*runs)["pcie.h2d.bandwidth"], Problem)


def test_a_problem_beside_complete_copies_leaves_no_number():
    """Copies that all have a rate do not count where the document ends in a problem."""
    said = {answer.says for answer in read(document(problem="cuEventQuery: CUDA_ERROR_ECC_UNCORRECTABLE")).values()}
    assert said == {"cuEventQuery: CUDA_ERROR_ECC_UNCORRECTABLE"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"moved_bytes": 0}, "expected bytes moved by the copy h2d, found 0 in pieces of 536870912"),
        ({"moved_bytes": -TB}, "expected bytes moved by the copy h2d"),
        ({"size_bytes": 0}, "expected bytes moved by the copy h2d"),
        ({"wrong_bytes": -1}, "expected 0 or more wrong bytes of the copy h2d, found -1"),
        ({"repeats": []}, "expected at least 3 repeats of the copy h2d, found 0"),
        ({"repeats": [55.4, 55.4]}, "expected at least 3 repeats of the copy h2d, found 2"),
        ({"repeats": [55.4, 55.4, 0.0]}, "expected rates above 0 GB/s of the copy h2d, found 0"),
        ({"repeats": [3.0, 3.0, 55.4]}, "expected the median of the repeats of the copy h2d, 3 GB/s, found 55.4"),
        ({"gb_per_s": 55.41}, "expected the median of the repeats of the copy h2d, 55.4 GB/s, found 55.41"),
    ],
)
def test_a_copy_that_contradicts_itself_measures_nothing(changed, says):
    """Bytes, repeats and median of a copy must fit together, else its document has no numbers."""
    first = msgspec.structs.replace(copy("h2d", 55.4), **changed)
    answers = read(document(copies=[first, copy("d2h", 55.1), copy("bidirectional", 99.0)]))
    assert all(isinstance(answer, Problem) and says in answer.says for answer in answers.values())


def test_a_copy_that_was_left_out_is_not_forgotten():
    """A document without one of the three copies and without a reason measures nothing."""
    answers = read(document(copies=[copy("h2d", 55.4), copy("d2h", 55.1)]))
    says = "expected the copies h2d, d2h, bidirectional, found d2h, h2d"
    assert {answer.says for answer in answers.values()} == {says}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"watch": None}, "expected a watch around the copies, found none in the document"),
        ({"before": {}}, "uncorrected ECC errors before and after the copies, found no reading"),
        (
            {"after": {}, "errors": {"ecc_uncorrected_volatile": "GpuIsLost"}},
            "before and after the copies, found GpuIsL",
        ),
        ({"after": {"ecc_uncorrected_volatile": 1}}, "to stand or grow, found 3 then 1: something reset it"),
        ({"log_problem": "/dev/kmsg: lost"}, "the kernel log could not be read meanwhile: /dev/kmsg: lost"),
    ],
)
def test_what_nobody_watched_is_not_measured(changed, says):
    """Without watch, ECC counter or kernel log nobody knows what happened meanwhile: no metric has a value."""
    seen = None if "watch" in changed else msgspec.structs.replace(watch(), **changed)
    answers = read(document(watch=seen))
    assert all(isinstance(answer, Problem) and says in answer.says for answer in answers.values())


def test_an_alarm_is_not_excused_by_what_is_missing():
    """A hardware Xid in what could be read fails the measurements, though counters and part of the log were lost."""
    seen = watch(log=[LogLine(t=5.0, text="NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off")], log_problem="lost")
    seen.after.pop("ecc_uncorrected_volatile")
    assert "Xid 79" in read(document(watch=seen))["pcie.h2d.bandwidth"].watch.alarm


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
    assert problem.says.startswith("run 2 of 2 (the other runs gave 55.40 GB/s): ")
    assert problem.advice.startswith("read the kernel log")


def test_a_document_about_another_gpu_is_refused():
    """An answer about another address than the one asked for measures nothing."""
    other = msgspec.structs.replace(document(), bdf="0000:aa:00.0")
    assert "expected a document about 0000:19:00.0" in read(other)["pcie.h2d.bandwidth"].says


def test_alarms_of_every_run_reach_the_watch():
    """Hardware Xids of any GPU, fatal SXids and uncorrected ECC of any run are in the watch of every measurement."""
    line = LogLine(t=5.0, text="NVRM: Xid (PCI:0000:19:00): 48, pid=7, name=python, DBE")
    elsewhere = LogLine(t=5.1, text="NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus.")
    unknown = LogLine(t=5.2, text="NVRM: Xid (somewhere): 94")
    switch = LogLine(t=5.3, text="nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    harmless = [
        LogLine(t=5.4, text="NVRM: Xid (PCI:0000:2a:00): 31, pid=7, name=x, MMU Fault"),
        LogLine(t=5.5, text="nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 1"),
    ]
    bad = watch({"ecc_uncorrected_volatile": 5}, log=[line, line, elsewhere, unknown, switch, *harmless])
    seen = read(document(), document(watch=bad))["pcie.h2d.bandwidth"].watch
    assert seen.hardware_xids == (48, 48, 79, 0)
    assert seen.log_alarms == (
        "Xid 48 double-bit ECC error on 0000:19:00.0",
        "Xid 79 GPU has fallen off the bus on 0000:2a:00.0 (another GPU)",
        "Xid 0 Xid line that cannot be read on an unknown address",
        "fatal SXid 20034 on NVSwitch 0000:85:00.0 link 30",
    )
    assert seen.uncorrected_ecc == 2
    assert seen.alarm.startswith("Xid 48 double-bit ECC error on 0000:19:00.0, Xid 79")
    assert "in the kernel log; 2 uncorrected ECC errors meanwhile" in seen.alarm


OWN = "NVRM: Xid (PCI:0000:19:00): 48, pid=7, name=python, DBE"
OTHERS = "NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus."
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
QUIET = (
    "NVRM: Xid (PCI:0000:19:00): 31, pid=1, name=x, MMU Fault",
    "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 1",
)


def test_the_log_is_read_once_more_after_the_load():
    """Hardware Xids of any GPU and fatal SXids in the log after the copies are counted and named."""
    answers = read(document(log_after=log(OWN, OTHERS, SWITCH, *QUIET)))
    xid, sxid = answers["xid.hardware.after"], answers["sxid.fatal.after"]
    assert (xid.value, sxid.value) == (2, 1)
    assert "Xid 79 GPU has fallen off the bus on 0000:2a:00.0 at 21.0 s" in xid.detail
    assert sxid.detail == "SXid 20034 on NVSwitch 0000:85:00.0 link 30 at 22.0 s"
    assert read(document(log_after=log(*QUIET)))["xid.hardware.after"].value == 0


def test_events_count_whatever_else_is_missing():
    """An Xid counts in a log with gaps, in a document that is doubtful, and in the watch where nobody read the log."""
    for changed in (
        {"log_after": log(OWN, complete=False)},
        {"log_after": log(OWN), "problem": "cuMemcpyHtoDAsync: CUDA_ERROR_ECC_UNCORRECTABLE", "copies": []},
        {"log_after": None, "watch": watch(log=[LogLine(t=20.0, text=OWN)])},
        {"log_after": log(OWN), "watch": watch(log=[LogLine(t=20.0, text=OWN)])},
    ):
        assert read(document(**changed))["xid.hardware.after"].value == 1
    runs = [document(), document(log_after=log(OWN)), result("", exit_code=None, timed_out=True)]
    assert (read(*runs)["xid.hardware.after"].value, read(*runs)["xid.hardware.after"].repeats) == (1, ())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"log_after": None}, "expected the kernel log after the copies, found none in the document"),
        ({"log_after": log(complete=False)}, "with gaps, without their beginning"),
        ({"log_after": log(total_lines=0)}, "found 0 lines from /dev/kmsg"),
        ({"log_after": log(problem="/dev/kmsg: Operation not permitted")}, "found: /dev/kmsg: Operation not permitted"),
        ({"problem": "cuInit: nothing", "copies": []}, "cuInit: nothing"),
    ],
)
def test_no_event_is_believed_of_a_whole_log_only(changed, says):
    """Without the log since boot, or in a document that stopped half way, nobody knows that there was no event."""
    answers = read(document(**changed))
    for metric in ("xid.hardware.after", "sxid.fatal.after"):
        assert isinstance(answers[metric], Problem)
        assert says in answers[metric].says


def test_a_log_that_can_never_be_read_costs_its_own_clauses_only():
    """Where no source shows the kernel log after the copies either, copies keep their numbers and the log has none."""
    nowhere = "/dev/kmsg: Operation not permitted"
    answers = read(document(watch=watch(log_problem=nowhere), log_after=log(problem=nowhere, complete=False)))
    unmeasured = {name for name, answer in answers.items() if isinstance(answer, Problem)}
    assert unmeasured == {"xid.hardware.after", "sxid.fatal.after"}
    assert answers["pcie.h2d.bandwidth"].watch.facts["kernel log"] == f"not read: {nowhere}"


def test_what_the_watch_could_not_read_is_said():
    """An unreadable kernel log and an ECC counter that is not there stand among the facts."""
    xid = LogLine(t=5.0, text="NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.")
    seen = watch(log_problem="/dev/kmsg: Operation not permitted", errors={"ecc_uncorrected_volatile": "NotSupported"})
    seen = msgspec.structs.replace(seen, log=[xid])
    seen.before.pop("ecc_uncorrected_volatile")
    facts = read(document(watch=seen))["pcie.h2d.bandwidth"].watch.facts
    assert facts["kernel log"] == "not read: /dev/kmsg: Operation not permitted"
    assert facts["uncorrected ECC"] == "not read (NotSupported)"


def test_series_have_no_gap():
    """Plotted columns are of equal length and hold only what was read."""
    seen = read(document(watch=watch(width=[None, *[16] * 19])))["pcie.link.width"].watch
    assert {len(values) for values in seen.series.values()} == {19} == {len(seen.times_s)}


def test_one_command_per_gpu_that_was_found():
    """Each found GPU has a command with its address; an empty slot has none."""
    probe = CopiesProbe()
    parts = probe.scopes(node())
    assert [part.index for part in parts] == [0, 1]
    command = probe.command(node(), parts[1])
    assert command.line == "python -m pytest_gpuready.agent copies 0000:2a:00.0"
    assert command.timeout_s == 120


def together(*docs, metric="pcie.h2d.concurrent"):
    probe = TogetherProbe()
    [scope] = probe.scopes(node())
    results = [result(doc, "copies-together") for doc in docs]
    answers = probe.read(Inventory(nodes=(node(),)), node(), scope, results)
    return [answer for answer in answers if answer.metric == metric]


def test_together_answers_for_every_slot():
    """Each found GPU has its own rate, and a slot without a GPU says that it was not found."""
    rates = {BDF: 50.0, "0000:2a:00.0": 26.0}
    first, second, empty = together(TogetherDoc(gb_per_s=rates, seconds=3.0, log_after=log(*QUIET)))
    assert first.watch.alarm == ""
    assert (first.value, second.value, first.conditions) == (50.0, 26.0, "2 GPUs at the same time")
    assert empty.says == "node01 GPU 2 was not found, so nothing was copied to it"


def test_together_answers_for_both_ways():
    """Each way has the rate that was measured of it; what the log says is an alarm on both."""
    down, up = {BDF: 50.0, "0000:2a:00.0": 26.0}, {BDF: 48.0, "0000:2a:00.0": 25.0}
    doc = TogetherDoc(gb_per_s=down, d2h_gb_per_s=up, log_after=log(*QUIET))
    first, second, empty = together(doc, metric="pcie.d2h.concurrent")
    assert (first.value, second.value, first.unit) == (48.0, 25.0, "GB/s")
    assert first.conditions == "2 GPUs at the same time"
    assert empty.says == "node01 GPU 2 was not found, so nothing was copied to it"
    assert [answer.value for answer in together(doc)[:2]] == [50.0, 26.0]
    fallen = TogetherDoc(gb_per_s=down, d2h_gb_per_s=up, log_after=log(OTHERS))
    assert "Xid 79" in together(fallen, metric="pcie.d2h.concurrent")[0].watch.alarm


def test_an_older_document_says_nothing_of_the_way_back():
    """Rates to the device alone: those stand, the others are not measured, whatever other runs have."""
    down = {BDF: 50.0, "0000:2a:00.0": 26.0}
    old, new = (TogetherDoc(gb_per_s=down, d2h_gb_per_s=up, log_after=log(*QUIET)) for up in ({}, down))
    says = "expected copies to the host at once, found a document of an older agent without them; record it again"
    for docs in ([old], [new, old]):
        answers = together(*docs, metric="pcie.d2h.concurrent")[:2]
        assert [(a.kind, a.says) for a in answers] == [(ProblemKind.NOT_MEASURED, says)] * 2
    assert [answer.value for answer in together(old)[:2]] == [50.0, 26.0]
    assert {a.value for a in together(old, metric="copies.together.ended")[:2]} == {"ended, kernel log quiet"}


@pytest.mark.parametrize(
    ("up", "says"),
    [
        ({BDF: 50.0}, "expected a rate of 0000:2a:00.0, found none among 1 GPUs"),
        ({BDF: 50.0, "0000:2a:00.0": 0.0}, "expected a rate of 0000:2a:00.0 above 0 and up to 130 GB/s, found 0"),
        ({BDF: 131.0, "0000:2a:00.0": 26.0}, "above 0 and up to 130 GB/s, found 131"),
        ({BDF: 50.0, "0000:2a:00.0": 26.0, "0000:ab:00.0": 1.0}, "found one of '0000:ab:00.0'"),
    ],
)
def test_a_way_back_that_cannot_be_did_not_end_well(up, says):
    """Rates to the host are held to what those to the device are held to; the copies to the device stand."""
    doc = TogetherDoc(gb_per_s={BDF: 50.0, "0000:2a:00.0": 26.0}, d2h_gb_per_s=up, log_after=log(*QUIET))
    for metric in ("copies.together.ended", "pcie.d2h.concurrent"):
        assert all(isinstance(a, Problem) and says in a.says for a in together(doc, metric=metric)[:2])
    assert together(doc)[0].value == 50.0


def test_an_xid_after_copies_together_is_an_alarm():
    """A hardware Xid or fatal SXid in the log afterwards fails the rates of all GPUs, and is said with whose it is."""
    rates = {BDF: 50.0, "0000:2a:00.0": 26.0}
    first, second, _ = together(TogetherDoc(gb_per_s=rates, log_after=log(OTHERS, SWITCH)))
    assert "Xid 79 GPU has fallen off the bus on 0000:2a:00.0 (another GPU), fatal SXid 20034" in first.watch.alarm
    assert "Xid 79 GPU has fallen off the bus on 0000:2a:00.0, fatal" in second.watch.alarm


def test_together_without_a_log_is_not_measured():
    """Where nobody read the log afterwards there is no rate; a log that cannot be read is said beside it."""
    rates = {BDF: 50.0, "0000:2a:00.0": 26.0}
    assert isinstance(together(TogetherDoc(gb_per_s=rates))[0], Problem)
    unread = together(TogetherDoc(gb_per_s=rates, log_after=log(problem="no kmsg")))[0]
    assert unread.watch.facts["kernel log"].endswith("found: no kmsg")


def test_together_passes_the_problem_on():
    """Where the GPUs did not copy together, every one of them is not measured, for the same reason."""
    answers = together(TogetherDoc(problem="0000:2a:00.0: cuMemAlloc: out of memory"))
    assert {a.says for a in answers[:2]} == {"0000:2a:00.0: cuMemAlloc: out of memory"}


def test_how_the_copies_together_ended():
    """A quiet log is well; an Xid fails every GPU, also beside a problem; a problem or a doubt is not measured."""
    rates = {BDF: 50.0, "0000:2a:00.0": 26.0}

    def ended(**fields):
        return together(TogetherDoc(**fields), metric="copies.together.ended")

    quiet = ended(gb_per_s=rates, log_after=log(*QUIET))
    assert [answer.value for answer in quiet[:2]] == ["ended, kernel log quiet"] * 2
    assert quiet[2].says == "node01 GPU 2 was not found, so nothing was copied to it"
    fallen = ended(problem="CUDA_ERROR_UNKNOWN", log_after=log(OTHERS))
    assert all("Xid 79 of 0000:2a:00.0" in answer.value for answer in fallen[:2])
    assert {a.says for a in ended(problem="out of memory", log_after=log(*QUIET))[:2]} == {"out of memory"}
    assert all(isinstance(a, Problem) for a in ended(gb_per_s=rates))
    assert all(isinstance(a, Problem) for a in ended(gb_per_s=rates, log_after=log(problem="no kmsg")))


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ({}, "expected a rate of 0000:19:00.0, found none among 0 GPUs"),
        ({BDF: 50.0}, "expected a rate of 0000:2a:00.0, found none among 1 GPUs"),
        ({"0000:aa:00.0": 50.0, "0000:ab:00.0": 50.0}, "found one of '0000:aa:00.0'"),
        ({BDF: 50.0, "0000:2a:00.0": 26.0, "0000:ab:00.0": 50.0}, "found one of '0000:ab:00.0'"),
        ({BDF: 50.0, "0000:2a:00.0": 0.0}, "expected a rate of 0000:2a:00.0 above 0 and up to 130 GB/s, found 0"),
        ({BDF: 1e9, "0000:2a:00.0": 26.0}, "above 0 and up to 130 GB/s, found 1e+09"),
    ],
)
def test_copies_that_moved_nothing_did_not_end_well(rates, says):
    """However quiet the log: without a rate that can be, of each GPU and of no other, nothing was copied together."""
    doc = TogetherDoc(gb_per_s=rates, log_after=log(*QUIET))
    for metric in ("copies.together.ended", "pcie.h2d.concurrent"):
        assert all(isinstance(a, Problem) and says in a.says for a in together(doc, metric=metric)[:2])
    fallen = together(TogetherDoc(gb_per_s=rates, log_after=log(OTHERS)), metric="copies.together.ended")
    assert "Xid 79" in fallen[0].value, "what the log says counts first"


def test_a_rate_that_is_no_number_is_none():
    """NaN, which no document of the agent can hold, is no rate either."""
    rates = {BDF: float("nan"), "0000:2a:00.0": 26.0}
    assert "above 0 and up to 130 GB/s, found nan" in _unmoved(rates, {BDF, "0000:2a:00.0"}, 130.0)


def test_copies_together_are_no_faster_than_the_profile_allows_one():
    """What the profile calls above physics for one GPU is above physics for each of them together."""
    doc = TogetherDoc(gb_per_s={BDF: 64.0, "0000:2a:00.0": 26.0}, log_after=log(*QUIET))
    probe = TogetherProbe(load("h200-sxm"))
    first = probe.read(Inventory(nodes=(node(),)), node(), node().part, [result(doc, "copies-together")])[0]
    assert first.says == "expected a rate of 0000:19:00.0 above 0 and up to 63 GB/s, found 64"
    grace = TogetherProbe(load("gb200")).read(
        Inventory(nodes=(node(),)),
        node(),
        node().part,
        [result(TogetherDoc(gb_per_s={BDF: 210.0, "0000:2a:00.0": 205.0}, log_after=log(*QUIET)), "copies-together")],
    )
    assert grace[0].value == 210.0, "behind NVLink-C2C no PCIe link is in the way"


def test_copies_of_a_few_bytes_measure_nothing():
    """A link is loaded by large buffers and by gigabytes: a document of less has no metric, wrong bytes apart."""
    few = [copy(kind, 55.0, moved_bytes=3 * 10**8) for kind in ("h2d", "d2h", "bidirectional")]
    says = "expected copies of at least 1 GB in all, found 0.9 GB"
    assert {answer.says for answer in read(document(copies=few)).values()} == {says}
    small = [msgspec.structs.replace(copy(kind, 55.0), size_bytes=4096) for kind in ("h2d", "d2h", "bidirectional")]
    says = "expected buffers of at least 16 MiB for the copy h2d, found 4096 bytes"
    assert {answer.says for answer in read(document(copies=small)).values()} == {says}


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
    after = {"xid.hardware.after", "sxid.fatal.after"}  # recorded before the log was read once more
    hidden -= after
    assert all(answers[name].kind is ProblemKind.NOT_MEASURED for name in after)
    assert hidden == {"pcie.path.bandwidth", "pcie.aer.correctable", "pcie.aer.uncorrectable"}
    assert all(answers[name].kind is ProblemKind.HIDDEN for name in hidden)
    assert (answers["pcie.link.generation"].value, answers["pcie.link.width"].value) == (5, 16)
    assert round(answers["pcie.h2d.bandwidth"].value, 2) == 54.32
    assert round(answers["pcie.d2h.bandwidth"].value, 2) == 55.32
    assert answers["pcie.errors.nak"].value == 0
    assert answers["pcie.link.width"].watch.alarm == ""
