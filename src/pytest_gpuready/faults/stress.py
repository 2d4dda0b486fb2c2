"""Faults that the built-in engine shows: wrong words and results, slow silicon, little power, heat, GPUs that go."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from pytest_gpuready.faults import ABOVE_2, ABOVE_3, BAD, Documents, Fault, here

Change = Callable[[Documents], None]

_MEMORY = tuple(f"STRESS-{n}" for n in (*range(1, 10), 65, 66, 67))
_FORMATS = {"fp64": 14, "tf32": 18, "bf16": 22, "fp16": 26, "fp8_e4m3": 30, "fp8_e5m2": 34, "int8": 38}
"""Format -> the first of its four clauses."""
_GEMM = (
    "STRESS-10",
    "STRESS-11",
    "STRESS-12",
    "STRESS-13",
    *(f"STRESS-{first + n}" for first in _FORMATS.values() for n in range(4)),
)
_WORD = {"address": 0x1F3A8040, "expected": "0x5a5a1234", "found": "0x5a5a1634", "bit": 10}


def _gpu(documents: Documents, piece: str) -> dict[str, Any]:
    bdf = documents.bdfs[BAD]
    found: dict[str, Any] = next(gpu for gpu in documents.stress(piece)["gpus"] if gpu["bdf"] == bdf)
    return found


def _results(documents: Documents, piece: str, kind: str) -> Iterator[dict[str, Any]]:
    for phase in _gpu(documents, piece)["phases"]:
        if kind in phase:
            yield phase[kind]


def _word(piece: str, kind: str, field: str, value: str) -> Change:
    """One word was not read as it had been written."""

    def change(documents: Documents) -> None:
        found = next(one for one in _results(documents, piece, kind) if one[field] == value)
        found.update(error_count=1, errors=[_WORD])

    return change


def _slow_memory(share: float, *kernels: str) -> Change:
    def change(documents: Documents) -> None:
        for one in _results(documents, "memory", "hbm"):
            if not kernels or one["kernel"] in kernels:
                one["gb_per_s"] = [rate * share for rate in one["gb_per_s"]]

    return change


def _little_memory(documents: Documents) -> None:
    for one in _results(documents, "memory", "alloc"):
        one.update(share=0.7, bytes=int(one["bytes"] * 0.7 / 0.95), notes=["asked for more: that is all that was free"])


def _ended(piece: str, since: int, problem: str = "", stopped: str = "") -> Change:
    """Its worker ended before its time, or was stopped: no results from that phase on."""

    def change(documents: Documents) -> None:
        gpu = _gpu(documents, piece)
        if problem:
            gpu["problem"] = problem
        if stopped:
            gpu["stopped"] = {"t": 3.1, "phase": since, "why": stopped}
        for phase in gpu["phases"][since:]:
            phase.pop(phase["kind"], None)
            phase["problem"] = problem or f"stopped at 3.1 s: {stopped}"

    return change


def _refused(documents: Documents) -> None:
    gpu = _gpu(documents, "memory")
    gpu.pop("ready", None)
    gpu["refused"] = "expected nobody else on the GPU, found process 4711 (python); end what uses it"
    for phase in gpu["phases"]:
        phase.pop(phase["kind"], None)
        phase.pop("seen", None)
        phase["problem"] = gpu["refused"]


def _wrong(name: str, *, number: int, count: int) -> Change:
    """Wrong elements of a format: from the first product on (-1), or in one of them."""

    def change(documents: Documents) -> None:
        found = next(one for one in _results(documents, "gemm", "gemm") if one["format"] == name)
        place = {"pass_number": number, "row": 1152, "col": 640, "tile": 77, "bit": 9}
        found.update(error_count=count, errors=[{**place, "expected": "0x3f80", "found": "0x4180", "t": 2.5}])

    return change


def _always_wrong(documents: Documents) -> None:
    """One format comes out the same way every time, and not as on the other GPUs; nothing else shows it."""
    found = next(one for one in _results(documents, "gemm", "gemm") if one["format"] == "fp8_e4m3")
    found.update(golden="0" * len(found["golden"]), digest="0" * len(found["digest"]))


def _slower(names: tuple[str, ...], rate: float, *, clock: float = 1.0, power: float = 1.0) -> Change:
    """Products of these formats reach so much of their rate, at so much of the clock and of the power."""

    def change(documents: Documents) -> None:
        for phase in _gpu(documents, "gemm")["phases"]:
            one = phase["gemm"]
            if one["format"] not in names:
                continue
            one.update(tflops=[v * rate for v in one["tflops"]], sustained_tflops=one["sustained_tflops"] * rate)
            samples = phase["seen"]["samples"]
            samples["sm_mhz"] = [v * clock for v in samples["sm_mhz"]]
            samples["power_w"] = [v * power for v in samples["power_w"]]

    return change


def _hot(documents: Documents) -> None:
    for phase in _gpu(documents, "gemm")["phases"]:
        phase["seen"]["reasons"]["0x20"] = 12


def _rates(result: dict[str, Any], rates: list[float]) -> None:
    """Products as they are at these rates: as many fewer of them as the mean of the windows is smaller."""
    part = statistics.fmean(rates) / statistics.fmean(result["tflops"])
    passes = max(1, int(result["passes"] * part))
    elements = result["m"] * result["n"]
    result.update(tflops=rates, passes=passes, checked=passes * elements, flop=2.0 * elements * result["k"] * passes)
    result["sustained_tflops"] = statistics.median(rates[len(rates) // 2 :])


def _bf16(documents: Documents) -> dict[str, Any]:
    return next(phase for phase in _gpu(documents, "gemm")["phases"] if phase["gemm"]["format"] == "bf16")


def _slowed_midway(documents: Documents) -> None:
    """It falls to a fifth of its rate before the middle of one format: slowdown by hardware, for heat."""
    phase = _bf16(documents)
    rates = phase["gemm"]["tflops"]
    _rates(phase["gemm"], [rate if at < 0.45 * len(rates) else 0.2 * rate for at, rate in enumerate(rates)])
    phase["seen"]["reasons"].update({"0x8": 50, "0x40": 50})
    samples = phase["seen"]["samples"]
    samples["sm_mhz"] = [v if at < 0.45 * len(rates) else 0.2 * v for at, v in enumerate(samples["sm_mhz"])]


def _stalls(documents: Documents) -> None:
    """Two windows of five are slow: their median does not show it."""
    result = _bf16(documents)["gemm"]
    _rates(result, [rate * (0.3 if at % 5 in (1, 3) else 1.0) for at, rate in enumerate(result["tflops"])])


def _braked_between_samples(documents: Documents) -> None:
    """NVML counts 3 s of power brake that no sample of the reasons has met."""
    gpu = _gpu(documents, "gemm")
    gpu["after"]["throttle_power_brake_ns"] = gpu["before"].get("throttle_power_brake_ns", 0) + 3 * 10**9
    gpu["before"].setdefault("throttle_power_brake_ns", 0)


def _other_under_load(documents: Documents) -> None:
    """The golden product is that of the others; the one under load, by the same algorithm, is not."""
    found = next(one for one in _results(documents, "gemm", "gemm") if one["format"] == "fp8_e4m3")
    found.update(digest="0" * len(found["digest"]))


def _little_tested(documents: Documents) -> None:
    """So much memory was taken by somebody else that the patterns covered a twentieth."""
    for one in _results(documents, "memory", "pattern"):
        note = "asked for 142604386304 bytes, took 7130218496: that is all that was free"
        one.update(checked_bytes=one["checked_bytes"] // 20, seconds=one["seconds"] / 20, notes=[note])


def _pointer(documents: Documents) -> None:
    """A walk through its own memory ends elsewhere: one pointer of it was not read as it had been written."""
    phase = _gpu(documents, "memory")["phases"][-1]
    del phase["latency"]
    walk = "expected a walk through the GPU's memory to end at 0x7f00 after 91645 steps, found it at 0x7f80"
    phase["problem"] = f"latency: {walk}: a pointer was read wrong"


def _undead(documents: Documents) -> None:
    """All results are there, and the worker cannot be killed: it sits in the driver."""
    _gpu(documents, "gemm")["problem"] = "process 4711 did not end on SIGKILL"


def _hangs_at_the_end(documents: Documents) -> None:
    _gpu(documents, "gemm")["problem"] = "expected its end within 3 s of being told, found none: it hangs"


def _blind(documents: Documents) -> None:
    """Clock-event reasons were read in the first seconds of each format and then no more."""
    for phase in _gpu(documents, "gemm")["phases"]:
        samples, kept = phase["seen"]["samples"], 10
        samples["reasons"] = samples["reasons"][:kept] + [None] * (len(samples["reasons"]) - kept)
        phase["seen"].update(reasons={"0x4": kept})


def _liar(documents: Documents) -> None:
    """Its worker says that it compared one element more than its products have."""
    _bf16(documents)["gemm"]["checked"] += 1


def _xid(documents: Documents) -> None:
    line = f"NVRM: Xid (PCI:{documents.bdfs[BAD].rsplit('.', 1)[0]}): 94, Contained ECC error"
    documents.stress("gemm")["log"] = [{"t": 1.0, "text": line}]
    documents.after(3)["log"]["lines"].append({"t": 2000.0, "text": line})


_EIGHT = tuple(range(8))
_SUSTAINED = tuple(f"STRESS-{first + 1}" for first in _FORMATS.values())

STRESS: tuple[Fault, ...] = (
    Fault(
        name="memory-bit",
        says="One word of memory is not read as it was written.",
        change=_word("memory", "pattern", "pattern", "random"),
        reddens=here("STRESS-3"),
        blocks=ABOVE_2,
        suspect="0x1f3a8040",
    ),
    Fault(
        name="l2-bit",
        says="A bit in the L2 cache changes while nobody writes it.",
        change=_word("memory", "cache", "level", "l2"),
        reddens=here("STRESS-5"),
        blocks=ABOVE_2,
        suspect="bit 10",
    ),
    Fault(
        name="slow-memory",
        says="The memory of one GPU is a third too slow.",
        change=_slow_memory(0.66),
        reddens=here("STRESS-6", "STRESS-7", "STRESS-8", "STRESS-9", "STRESS-65"),
        blocks=ABOVE_2,
        suspect="STRESS-65",
    ),
    Fault(
        name="memory-behind-its-peers",
        says="Copies in the memory of one GPU are 8 % slower than in the others, inside the limit of the profile.",
        change=_slow_memory(0.92, "copy"),
        reddens=here("STRESS-8"),
        suspect="below the median",
    ),
    Fault(
        name="memory-taken",
        says="A quarter of the memory of one GPU cannot be had.",
        change=_little_memory,
        reddens=here("STRESS-2"),
        blocks=ABOVE_2,
        suspect="70 %",
    ),
    Fault(
        name="somebody-else",
        says="A process of somebody else sits on one GPU when the engine begins.",
        change=_refused,
        reddens={},
        opens=here(*_MEMORY),
    ),
    Fault(
        name="worker-hangs",
        says="A kernel on one GPU never returns; the others finish.",
        change=_ended("memory", 5, problem="expected the end of the phase within 60 s, found none: it hangs"),
        reddens={},
        opens=here("STRESS-1", "STRESS-3", "STRESS-8", "STRESS-9", "STRESS-65", "STRESS-66", "STRESS-67"),
    ),
    Fault(
        name="ecc-in-a-kernel",
        says="CUDA reports an uncorrectable error of the memory while one GPU is loaded.",
        change=_ended("memory", 5, problem="hbm copy: cuEventSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE"),
        reddens=here("STRESS-1"),
        opens=here("STRESS-3", "STRESS-8", "STRESS-9", "STRESS-65", "STRESS-66", "STRESS-67"),
        blocks=ABOVE_2,
        suspect="ECC_UNCORRECTABLE",
    ),
    Fault(
        name="wrong-tile",
        says="One tile of every BF16 product is wrong, the same way each time.",
        change=_wrong("bf16", number=-1, count=12077),
        reddens=here("STRESS-22"),
        blocks=ABOVE_3,
        suspect="in the first product",
    ),
    Fault(
        name="one-bit",
        says="One bit of one INT8 product is wrong, once.",
        change=_wrong("int8", number=917, count=1),
        reddens=here("STRESS-38"),
        blocks=ABOVE_3,
        suspect="in product 917",
    ),
    Fault(
        name="always-wrong",
        says="One GPU computes FP8 wrong the same way every time, and no reference notices.",
        change=_always_wrong,
        reddens=here("STRESS-13"),
        blocks=ABOVE_3,
        suspect="fp8_e4m3 (7 of 8 agree on another)",
    ),
    Fault(
        name="slow-silicon",
        says="One GPU needs more clocks for FP8 than its peers: not power, not heat.",
        change=_slower(("fp8_e4m3", "fp8_e5m2"), 0.8),
        reddens=here("STRESS-31", "STRESS-32", "STRESS-35", "STRESS-36"),
        blocks=ABOVE_3,
        suspect="STRESS-32",
    ),
    Fault(
        name="too-little-power",
        says="One GPU gets 70 % of its power: slower in every format, at a clock that is as slow.",
        change=_slower(tuple(_FORMATS), 0.8, clock=0.8, power=0.7),
        reddens=here("STRESS-12", *_SUSTAINED),
        blocks=ABOVE_3,
        suspect="STRESS-12",
    ),
    Fault(
        name="heat-under-load",
        says="One GPU slows itself down for heat under full load.",
        change=_hot,
        reddens=here("STRESS-11"),
        blocks=ABOVE_3,
        suspect="SW thermal slowdown",
    ),
    Fault(
        name="stopped-for-heat",
        says="One GPU had to be stopped for heat; the others finish.",
        change=_ended("gemm", 2, stopped="86 °C, 3 below slowdown"),
        reddens=here("STRESS-10"),
        opens=here("STRESS-11", "STRESS-13", *_GEMM[12:]),
        blocks=ABOVE_3,
        suspect="86 °C",
    ),
    Fault(
        name="slowed-midway",
        says="One GPU meets slowdown by hardware for heat midway through BF16 and falls to a fifth of its rate.",
        change=_slowed_midway,
        reddens=here("STRESS-11", "STRESS-23"),
        blocks=ABOVE_3,
        suspect="HW thermal slowdown",
    ),
    Fault(
        name="stalls",
        says="One GPU stalls again and again under BF16: most windows are fast, the work is not done.",
        change=_stalls,
        reddens=here("STRESS-23", "STRESS-24"),
        blocks=ABOVE_3,
        suspect="STRESS-23",
    ),
    Fault(
        name="brake-between-samples",
        says="A power brake of a few milliseconds again and again, which only NVML's own counter has seen.",
        change=_braked_between_samples,
        reddens=here("STRESS-11"),
        blocks=ABOVE_3,
        suspect="HW power brake 3 s",
    ),
    Fault(
        name="other-bits-under-load",
        says="The first FP8 product of one GPU is right, the one before its load is not that of its peers.",
        change=_other_under_load,
        reddens=here("STRESS-13"),
        blocks=ABOVE_3,
        suspect="fp8_e4m3 (7 of 8 agree on another)",
    ),
    Fault(
        name="little-memory-tested",
        says="The patterns of one GPU covered a twentieth of its memory, for the rest was not free.",
        change=_little_tested,
        reddens={},
        opens=here("STRESS-3"),
    ),
    Fault(
        name="pointer-read-wrong",
        says="A pointer in the memory of one GPU is not read as it was written.",
        change=_pointer,
        reddens=here("STRESS-1"),
        opens=here("STRESS-66", "STRESS-67"),
        blocks=ABOVE_2,
        suspect="a pointer was read wrong",
    ),
    Fault(
        name="worker-cannot-be-killed",
        says="All results are there, but the driver does not let go of the worker of one GPU.",
        change=_undead,
        reddens=here("STRESS-10"),
        blocks=ABOVE_3,
        suspect="did not end on SIGKILL",
    ),
    Fault(
        name="hangs-at-its-end",
        says="The worker of one GPU has all results and does not come back from freeing it.",
        change=_hangs_at_the_end,
        reddens={},
        opens=here("STRESS-10"),
    ),
    Fault(
        name="reasons-unread",
        says="NVML no longer tells the clock-event reasons of one GPU after the first second of a load.",
        change=_blind,
        reddens={},
        opens=here("STRESS-11"),
    ),
    Fault(
        name="counts-that-deny-each-other",
        says="The worker of one GPU counts what it cannot have counted: that format of that GPU is open, nothing else.",
        change=_liar,
        reddens={},
        opens=here("STRESS-10", "STRESS-11", "STRESS-13", "STRESS-22", "STRESS-23", "STRESS-24", "STRESS-25"),
    ),
    Fault(
        name="xid-under-products",
        says="One GPU reports a contained ECC error while all multiply: nothing measured meanwhile counts.",
        change=_xid,
        reddens=dict.fromkeys(_GEMM, _EIGHT) | {"AFTER-3": (BAD,)},
        blocks=ABOVE_3,
        suspect="Xid 94",
    ),
)
"""Faults of levels 2 and 3."""
