"""What faults of the built-in engine do to its documents: to those of one GPU, as an agent would have written them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from pytest_gpuready.faults import BAD, Documents

Change = Callable[[Documents], None]

_WORD = {"address": 0x1F3A8040, "expected": "0x5a5a1234", "found": "0x5a5a1634", "bit": 10}


def _gpu(documents: Documents, piece: str) -> dict[str, Any]:
    bdf = documents.bdfs[BAD]
    found: dict[str, Any] = next(gpu for gpu in documents.stress(piece)["gpus"] if gpu["bdf"] == bdf)
    return found


def _results(documents: Documents, piece: str, kind: str) -> Iterator[dict[str, Any]]:
    for phase in _gpu(documents, piece)["phases"]:
        if kind in phase:
            yield phase[kind]


def word(piece: str, kind: str, field: str, value: str) -> Change:
    """One word was not read as it had been written."""

    def change(documents: Documents) -> None:
        found = next(one for one in _results(documents, piece, kind) if one[field] == value)
        found.update(error_count=1, errors=[_WORD])

    return change


def slow_memory(share: float, *kernels: str) -> Change:
    def change(documents: Documents) -> None:
        for one in _results(documents, "memory", "hbm"):
            if not kernels or one["kernel"] in kernels:
                one["gb_per_s"] = [rate * share for rate in one["gb_per_s"]]

    return change


def little_memory(documents: Documents) -> None:
    for one in _results(documents, "memory", "alloc"):
        one.update(share=0.7, bytes=int(one["bytes"] * 0.7 / 0.95), notes=["asked for more: that is all that was free"])


def ended(piece: str, since: int, problem: str = "", stopped: str = "") -> Change:
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


def refused(documents: Documents) -> None:
    gpu = _gpu(documents, "memory")
    gpu.pop("ready", None)
    gpu["refused"] = "expected nobody else on the GPU, found process 4711 (python); end what uses it"
    for phase in gpu["phases"]:
        phase.pop(phase["kind"], None)
        phase.pop("seen", None)
        phase["problem"] = gpu["refused"]


def wrong(name: str, *, number: int, count: int) -> Change:
    """Wrong elements of a format: from the first product on (-1), or in one of them."""

    def change(documents: Documents) -> None:
        found = next(one for one in _results(documents, "gemm", "gemm") if one["format"] == name)
        place = {"pass_number": number, "row": 1152, "col": 640, "tile": 77, "bit": 9}
        found.update(error_count=count, errors=[{**place, "expected": "0x3f80", "found": "0x4180", "t": 2.5}])

    return change


def always_wrong(documents: Documents) -> None:
    """One format comes out the same way every time, and not as on the other GPUs; nothing else shows it."""
    found = next(one for one in _results(documents, "gemm", "gemm") if one["format"] == "fp8_e4m3")
    found.update(golden="0" * len(found["golden"]), digest="0" * len(found["digest"]))


def slower(names: tuple[str, ...], rate: float, *, clock: float = 1.0, power: float = 1.0) -> Change:
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


def hot(documents: Documents) -> None:
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


def slowed_midway(documents: Documents) -> None:
    """It falls to a fifth of its rate before the middle of one format: slowdown by hardware, for heat."""
    phase = _bf16(documents)
    rates = phase["gemm"]["tflops"]
    _rates(phase["gemm"], [rate if at < 0.45 * len(rates) else 0.2 * rate for at, rate in enumerate(rates)])
    phase["seen"]["reasons"].update({"0x8": 50, "0x40": 50})
    samples = phase["seen"]["samples"]
    samples["sm_mhz"] = [v if at < 0.45 * len(rates) else 0.2 * v for at, v in enumerate(samples["sm_mhz"])]


def stalls(documents: Documents) -> None:
    """Two windows of five are slow: their median does not show it."""
    result = _bf16(documents)["gemm"]
    _rates(result, [rate * (0.3 if at % 5 in (1, 3) else 1.0) for at, rate in enumerate(result["tflops"])])


def braked_between_samples(documents: Documents) -> None:
    """NVML counts 3 s of power brake that no sample of the reasons has met."""
    gpu = _gpu(documents, "gemm")
    gpu["after"]["throttle_power_brake_ns"] = gpu["before"].get("throttle_power_brake_ns", 0) + 3 * 10**9
    gpu["before"].setdefault("throttle_power_brake_ns", 0)


def other_under_load(documents: Documents) -> None:
    """The golden product is that of the others; the one under load, by the same algorithm, is not."""
    found = next(one for one in _results(documents, "gemm", "gemm") if one["format"] == "fp8_e4m3")
    found.update(digest="0" * len(found["digest"]))


def little_tested(documents: Documents) -> None:
    """So much memory was taken by somebody else that the patterns covered a twentieth."""
    for one in _results(documents, "memory", "pattern"):
        note = "asked for 142604386304 bytes, took 7130218496: that is all that was free"
        one.update(checked_bytes=one["checked_bytes"] // 20, seconds=one["seconds"] / 20, notes=[note])


def pointer(documents: Documents) -> None:
    """A walk through its own memory ends elsewhere: one pointer of it was not read as it had been written."""
    phase = _gpu(documents, "memory")["phases"][-1]
    del phase["latency"]
    walk = "expected a walk through the GPU's memory to end at 0x7f00 after 91645 steps, found it at 0x7f80"
    phase["problem"] = f"latency: {walk}: a pointer was read wrong"


def undead(documents: Documents) -> None:
    """All results are there, and the worker cannot be killed: it sits in the driver."""
    _gpu(documents, "gemm")["problem"] = "process 4711 did not end on SIGKILL"


def hangs_at_the_end(documents: Documents) -> None:
    _gpu(documents, "gemm")["problem"] = "expected its end within 3 s of being told, found none: it hangs"


def blind(documents: Documents) -> None:
    """Clock-event reasons were read in the first seconds of each format and then no more."""
    for phase in _gpu(documents, "gemm")["phases"]:
        samples, kept = phase["seen"]["samples"], 10
        samples["reasons"] = samples["reasons"][:kept] + [None] * (len(samples["reasons"]) - kept)
        phase["seen"].update(reasons={"0x4": kept})


def liar(documents: Documents) -> None:
    """Its worker says that it compared one element more than its products have."""
    _bf16(documents)["gemm"]["checked"] += 1


def xid(documents: Documents) -> None:
    line = f"NVRM: Xid (PCI:{documents.bdfs[BAD].rsplit('.', 1)[0]}): 94, Contained ECC error"
    documents.stress("gemm")["log"] = [{"t": 1.0, "text": line}]
    documents.after(3)["log"]["lines"].append({"t": 2000.0, "text": line})
