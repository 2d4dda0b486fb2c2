"""What one phase of one GPU cannot be, or is not good for, costs that phase of that GPU; what is found wrong stands."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.model import Measurement, Problem
from pytest_gpuready.model.stress_checks import doubts, unfit
from pytest_gpuready.model.stress_doc import GemmResult, HbmResult, Phase, PulseResult, Reference
from pytest_gpuready.probes.stress_amounts import checks
from tests.probes.stress_docs import Change, answers, document, says, value
from tests.probes.test_stress_gemm import product
from tests.probes.test_stress_long import WORD, each

PLACE = {"pass_number": 3, "row": 1, "col": 2, "tile": 0, "bit": 1, "expected": "0x1", "found": "0x3"}


def burn(data: dict[str, Any]) -> dict[str, Any]:
    """The burn-in of the first GPU."""
    found: dict[str, Any] = data["gpus"][0]["phases"][0]["burn"]
    return found


def idle_burn(data: dict[str, Any]) -> None:
    """One product of each format in 240 s."""
    for one in burn(data)["each"]:
        elements = one["m"] * one["n"]
        one.update(seconds=one["seconds"] / one["passes"], passes=1, checked=elements, flop=2.0 * elements * one["k"])
    total = burn(data)
    total.update(passes=len(total["each"]), checked=sum(one["checked"] for one in total["each"]))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: data["gpus"][0].update(phases=[]), "expected 1 phases"),
        (lambda data: data["gpus"][0]["phases"][0].update(kind="gemm"), "as planned"),
        (lambda data: data["gpus"][0]["phases"][0].pop("burn"), "or the reason for none, found neither"),
        (lambda data: data["gpus"][0]["phases"][0].update(idle={"seconds": 1.0}), "expected a result of kind burn"),
        (lambda data: burn(data).update(passes=3), "as many products in all as of each format"),
        (lambda data: burn(data).update(checked=3), "as many elements compared in all as of each format"),
        (lambda data: burn(data)["each"][0].update(flop=1e12), "operations of"),
        (lambda data: burn(data)["each"][0].update(checked=5), "as many elements compared in all as of"),
        (lambda data: burn(data)["each"][2].update(sustained_tflops=9000.0), "a sustained rate among those of its"),
        (lambda data: burn(data)["each"][0].update(m=4096), "operations of"),
        (lambda data: burn(data).update(seconds=-1.0), "expected numbers from 0 on"),
        (lambda data: burn(data).update(error_count=2), "expected the first of 2 errors with its place"),
        (lambda data: burn(data).update(seconds=5.0), "expected 240 s of load, found its end after 5.0 s"),
        (lambda data: burn(data).update(seconds=300.0), "expected at most 260 s of load"),
        (lambda data: burn(data).update(late_s=4000.0), "expected the load to begin with the others"),
        (idle_burn, "240 s full of products, found"),
        (lambda data: data["gpus"][0]["ready"].update(bdf="0000:99:00.0"), "found it on 0000:99:00.0"),
        (lambda data: data["gpus"][0].pop("ready"), "expected its worker to say that it is ready"),
    ],
)
def test_a_contradiction_costs_one_gpu(change: Change, line: str) -> None:
    """One line says what cannot be; nothing of that GPU counts, and everything of the other one does."""
    found = answers("burn", change)
    for metric in ("ended", "wrong", "reasons", "power", "margin"):
        assert line in says(found[f"stress.burn.{metric}", 0])
        assert isinstance(found[f"stress.burn.{metric}", 1], Measurement)


def test_a_contradiction_costs_one_phase() -> None:
    """One count too many in BF16: its rates are open, those of the other formats of the same GPU stand."""
    found = answers("gemm", lambda data: product(data, 0, "bf16").update(checked=1))
    for metric in ("wrong", "sustained", "per_clock"):
        assert "expected every element of" in says(found[f"stress.bf16.{metric}", 0])
        assert isinstance(found[f"stress.fp16.{metric}", 0], Measurement)
        assert isinstance(found[f"stress.bf16.{metric}", 1], Measurement)


def test_a_burn_in_has_every_format() -> None:
    """Products of one format are no burn-in, however many they are."""

    def alone(data: dict[str, Any]) -> None:
        one = next(one for one in burn(data)["each"] if one["format"] == "bf16")
        one.update(seconds=240.0)
        rate = one["flop"] / 240 / 1e12
        one.update(tflops=[rate] * 100, sustained_tflops=rate)
        burn(data).update(each=[one], passes=one["passes"], checked=one["checked"])

    assert "expected products of bf16, fp16" in says(answers("burn", alone)["stress.burn.wrong", 0])


GEMM = GemmResult(
    seconds=12.0,
    format="bf16",
    m=8192,
    n=8192,
    k=32768,
    tflops=[600.0] * 40,
    sustained_tflops=600.0,
    half_width=0.001,
    passes=1637,
    checked=1637 * 8192 * 8192,
    flop=2.0 * 8192 * 8192 * 32768 * 1637,
    error_count=0,
    reference=Reference(kind="freivalds+recomputed", max_residual=0.4, limit=1.0),
)
ASKED = Phase(kind="gemm", format="bf16", seconds=12.0, least_s=5.0, within=0.005)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, ""),
        ({"format": "fp16"}, "expected format bf16, found 'fp16'"),
        ({"reference": Reference(kind="", max_residual=0.0, limit=0.0)}, "expected a reference that is known"),
        (
            {"reference": Reference(kind="recomputed", max_residual=1.5, limit=1.0)},
            "wrong elements counted at a residual",
        ),
        ({"reference": Reference(kind="recomputed", max_residual=1.5, limit=9.0)}, "as a part of its limit"),
        ({"seconds": 6.0}, "expected 12 s of load, found its end after 6.0 s"),
        ({"enough": True, "half_width": None}, "found no interval"),
        ({"enough": True, "half_width": 0.5}, "found 50 %"),
        ({"enough": True, "seconds": 0.3}, "expected 5 s of load, found its end after 0.3 s"),
        ({"tflops": [100.0] * 40, "sustained_tflops": 100.0}, "expected rates near"),
    ],
)
def test_what_products_cannot_be(changed: dict[str, Any], line: str) -> None:
    """Reference, time, interval and rate fit each other, or the first line says which does not."""
    told = list(doubts(ASKED, GemmResult(**{name: getattr(GEMM, name) for name in GEMM.__struct_fields__} | changed)))
    assert (line in told[0]) if line else told == []


def test_a_load_that_may_end_early_must_have_been_asked_to() -> None:
    """Only a phase with an interval may end as known well enough."""
    short = GemmResult(**{name: getattr(GEMM, name) for name in GEMM.__struct_fields__} | {"enough": True})
    assert "as if it had been told to" in next(doubts(Phase(kind="gemm", format="bf16", seconds=12.0), short))


def test_bandwidth_is_of_memory_and_repeated() -> None:
    """A rate over less than a GiB may be that of a cache; a note that memory was short lowers that; repeats count."""
    asked = Phase(kind="hbm", kernel="read", repeats=5)
    one = HbmResult(seconds=0.25, kernel="read", gb_per_s=[4600.0] * 5, size_bytes=2**20)
    assert "expected at least 1 GiB for a bandwidth, found 1048576 bytes" in next(unfit(asked, one))
    note = "memory for 1 arrays of 1073741824 bytes was not to be had, took half"
    assert not list(unfit(asked, HbmResult(kernel="read", size_bytes=2**29, notes=[note])))
    few = HbmResult(seconds=0.25, kernel="read", gb_per_s=[4600.0], size_bytes=2**32)
    assert "expected 5 repeats, found 1" in next(doubts(asked, few))


def test_pulses_are_as_many_as_fit() -> None:
    """Nine in ten of them at least, each compared; a GPU that begins later has room for fewer."""
    asked = Phase(kind="pulse", format="bf16", period_s=1.0, duty=0.5, seconds=6.0, stagger_s=0.25)
    few = PulseResult(seconds=6.0, period_s=1.0, duty=0.5, cycles=4, checked=4 * 8192 * 8192, error_count=0)
    assert "expected 6 pulses of 1 s in 6 s, found 4" in next(unfit(asked, few))
    assert not list(unfit(asked, few, place=7))
    idle = PulseResult(seconds=6.0, period_s=1.0, duty=0.5, cycles=6, checked=1, error_count=0)
    assert "expected a product of each of 6 pulses compared" in next(unfit(asked, idle))
    assert next(doubts(asked, PulseResult(seconds=6.0, period_s=9.0, duty=0.5, cycles=6, checked=1, error_count=0)))


def test_pulses_out_of_step_are_not_measured_and_hide_nothing() -> None:
    """One late pulse on one GPU: its wrong results, and those of the other GPU, are FAIL all the same."""

    def late(data: dict[str, Any]) -> None:
        data["gpus"][0]["phases"][0]["pulse"]["late_max_s"] = 0.021
        data["gpus"][1]["phases"][0]["pulse"].update(error_count=9, errors=[PLACE])
        data["gpus"][1]["phases"][1]["seen"]["reasons"]["0x80"] = 20

    found = answers("pulse", late)
    assert "pulses not in step" in says(found["stress.pulse.wrong", 0])
    assert "pulses not in step" in says(found["stress.pulse.ended", 0])
    assert value(found["stress.pulse.wrong", 1]) == 9
    assert value(found["stress.pulse.reasons", 1]) == "HW power brake"

    def both(data: dict[str, Any]) -> None:
        data["gpus"][0]["phases"][0]["pulse"].update(late_max_s=0.021, error_count=2, errors=[PLACE])

    assert value(answers("pulse", both)["stress.pulse.wrong", 0]) == 2


@pytest.mark.parametrize("cut", [{"cut": True, "seconds": 2.0}, {"late_s": 9.0}])
def test_wrong_products_stand_whatever_else_is_open(cut: dict[str, Any]) -> None:
    """A phase that was cut or began late has no rate; the wrong element in it is a FAIL that stands."""
    found = answers("gemm", lambda data: product(data, 0, "bf16").update(cut, error_count=1, errors=[PLACE]))
    wrong = found["stress.bf16.wrong", 0]
    assert isinstance(wrong, Measurement)
    assert (wrong.value, wrong.stands) == (1, True)
    assert isinstance(found["stress.bf16.sustained", 0], Problem)


def test_a_gpu_that_slows_midway_has_its_rate_and_its_reason() -> None:
    """A fifth of the rate in the second half is measured, not a contradiction: the rate is that of the second half."""

    def slow(data: dict[str, Any]) -> None:
        one = product(data, 0, "bf16")
        rates = one["tflops"]
        held = [rate if at < 0.45 * len(rates) else 0.2 * rate for at, rate in enumerate(rates)]
        passes = int(one["passes"] * statistics.fmean(held) / statistics.fmean(rates))
        elements = one["m"] * one["n"]
        one.update(tflops=held, passes=passes, checked=passes * elements, flop=2.0 * elements * one["k"] * passes)
        one.update(sustained_tflops=statistics.median(held[len(held) // 2 :]))
        data["gpus"][0]["phases"][2]["seen"]["reasons"].update({"0x8": 50, "0x40": 50})

    found = answers("gemm", slow)
    assert 120 < value(found["stress.bf16.sustained", 0]) < 150
    assert value(found["stress.gemm.reasons", 0]) == "HW slowdown, HW thermal slowdown"
    assert value(found["stress.gemm.reasons", 1]) == "none but benign"


def test_stalls_count() -> None:
    """Two windows of five at a third of the rate: not the median but the mean is what was done, and both are told."""

    def stutter(data: dict[str, Any]) -> None:
        one = product(data, 0, "bf16")
        one["tflops"] = [rate * (0.3 if at % 5 in (1, 3) else 1.0) for at, rate in enumerate(one["tflops"])]

    found = answers("gemm", stutter)["stress.bf16.sustained", 0]
    assert 400 < value(found) < 530
    assert isinstance(found, Measurement)
    assert "it stalls; median 6" in found.conditions


def test_recorded_rates_are_what_the_worker_said() -> None:
    """Of real runs the smaller of median and mean is within 1 % of the median."""
    found, data = answers("gemm"), document("gemm")
    for gpu in (0, 1):
        for name in ("fp64", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8"):
            told = product(data, gpu, name)["sustained_tflops"]
            assert 0.99 * told <= value(found[f"stress.{name}.sustained", gpu]) <= told


def test_products_have_the_shape_of_their_format() -> None:
    """Smaller ones, for memory was short, are not measured: they do not fill the chip."""

    def small(data: dict[str, Any]) -> None:
        one = product(data, 0, "fp16")
        passes = one["passes"] * 4096
        one.update(
            m=512, n=512, k=2048, passes=passes, checked=passes * 512 * 512, flop=2.0 * 512 * 512 * 2048 * passes
        )
        one["notes"] = ["memory for (8192, 8192, 32768) was not to be had, took (512, 512, 2048)"]

    assert FORMATS["fp16"].shape == (8192, 8192, 32768)
    line = says(answers("gemm", small)["stress.fp16.sustained", 0])
    assert "found 512 x 512 x 2048: smaller than asked (memory for" in line


@pytest.mark.parametrize(
    ("error", "open_"), [("Unknown", True), ("Timeout", True), ("", True), ("NotSupported", False)]
)
def test_counters_that_no_gpu_gave_are_no_counters_that_no_gpu_has(error: str, open_: bool) -> None:
    """ECC counters missing on all GPUs leave the load open, unless NVML says that the GPUs have none."""

    def without(data: dict[str, Any]) -> None:
        for gpu in data["gpus"]:
            for mark in ("before", "after"):
                gpu[mark].pop("ecc_uncorrected_volatile", None)
            gpu["errors"] = {"ecc_uncorrected_volatile": error} if error else {}

    found = answers("gemm", without)["stress.gemm.ended", 0]
    assert isinstance(found, Problem) is open_
    assert not open_ or "expected the counter of uncorrected ECC errors before the load, found none" in says(found)


def test_pulses_of_smaller_products_are_not_those_agreed() -> None:
    """Where memory was short the chip was not filled: the worker says so, and nothing of the pulses counts."""

    def short(data: dict[str, Any]) -> None:
        for one in each(data, 0, "pulse"):
            one["notes"] = ["memory for (8192, 8192, 2048) was not to be had, took (512, 512, 512)"]

    line = says(answers("pulse", short)["stress.pulse.wrong", 0])
    assert "expected pulses of products that fill the chip, found smaller ones (memory for (8192, 8192, 2048)" in line


def test_the_shape_is_that_of_the_engine() -> None:
    """TF32 was half as deep before engine 2: a document of engine 1 says what it promised, one of engine 2 does not."""

    def claimed(data: dict[str, Any]) -> None:
        data["engine"] = 2

    assert value(answers("gemm")["stress.tf32.sustained", 0]) > 300
    line = says(answers("gemm", claimed)["stress.tf32.sustained", 0])
    assert "expected tf32 products of 8192 x 8192 x 32768, found 8192 x 8192 x 16384: smaller than asked" in line


def test_digests_under_load_are_compared_where_the_algorithm_is_the_same() -> None:
    """The golden product is equal, the one under load is not: of two nobody knows which, in a burn-in neither."""

    def other(data: dict[str, Any]) -> None:
        product(data, 1, "tf32")["digest"] = "00"

    def burnt(data: dict[str, Any]) -> None:
        next(one for one in data["gpus"][1]["phases"][0]["burn"]["each"] if one["format"] == "tf32")["digest"] = "00"

    assert "found tf32 (1:1): nobody knows" in says(answers("gemm", other)["stress.gemm.digests", 0])
    found = answers("burn", burnt)
    for gpu in (0, 1):
        assert "found tf32 (1:1): nobody knows" in says(found["stress.burn.wrong", gpu])


# --- memory -----------------------------------------------------------------------------------------------------------


def test_patterns_cover_what_the_plan_promised() -> None:
    """A twentieth of the memory, or four bytes, is not nearly all of it; what the worker says about it is told."""
    assert [checks(name) for name in ("walking", "inversions", "address", "random", "modulo20", "fade")] == [
        64,
        9,
        2,
        2,
        40,
        2,
    ]

    def little(data: dict[str, Any]) -> None:
        for one in each(data, 0, "pattern"):
            one.update(checked_bytes=one["checked_bytes"] // 20, seconds=one["seconds"] / 20)
            one["notes"] = ["asked for 142604386304 bytes, took 7130219315: that is all that was free"]

    found = answers("patterns", little)
    assert "over 142.6 GB, found it over 7.1 GB (asked for" in says(found["stress.patterns.wrong", 0])
    assert value(found["stress.patterns.wrong", 1]) == 0

    def wrong(data: dict[str, Any]) -> None:
        little(data)
        each(data, 0, "pattern")[0].update(error_count=1, errors=[WORD])

    found_wrong = answers("patterns", wrong)["stress.patterns.wrong", 0]
    assert value(found_wrong) == 1
    assert isinstance(found_wrong, Measurement)
    assert "; walking: asked for 142604386304 bytes" in found_wrong.conditions


def test_bytes_and_share_of_the_memory_fit() -> None:
    """One GiB of 140 is no share of 95 %; a cache of which four bytes were read was not read."""

    def few(data: dict[str, Any]) -> None:
        each(data, 0, "alloc")[0]["bytes"] = 2**30
        each(data, 0, "cache")[0]["checked_bytes"] = 4

    found = answers("memory", few)
    assert "expected the bytes that were taken to be their share" in says(found["stress.memory.allocated", 0])
    assert "bytes compared in 0.529 s, found 4" in says(found["stress.cache.l1.wrong", 0])
    assert value(found["stress.cache.l2.wrong", 0]) == 0


def test_a_pointer_read_wrong_is_a_fail_of_the_gpu_not_of_the_host() -> None:
    """In the GPU's own memory it is the GPU's, and stands; in host memory nobody knows."""

    def walk(where: str) -> Change:
        def change(data: dict[str, Any]) -> None:
            phase = data["gpus"][0]["phases"][9]
            del phase["latency"]
            end = "to end at 0x7f00 after 91645 steps, found it at 0x7f80: a pointer was read wrong"
            phase["problem"] = f"latency: expected a walk through {where} {end}"

        return change

    own = answers("memory", walk("the GPU's memory"))["stress.memory.ended", 0]
    assert "a pointer was read wrong" in value(own)
    assert isinstance(own, Measurement)
    assert own.stands
    assert "a pointer was read wrong" in says(answers("memory", walk("host memory"))["stress.memory.ended", 0])
