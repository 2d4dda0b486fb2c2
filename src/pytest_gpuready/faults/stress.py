"""Faults that the built-in engine shows: wrong words and results, slow silicon, little power, heat, GPUs that go."""

from __future__ import annotations

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
        opens=here("STRESS-13", *_GEMM[12:]),
        blocks=ABOVE_3,
        suspect="86 °C",
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
