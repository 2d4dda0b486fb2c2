"""Matrix products as they are read: a recorded run of seven formats on two H200s, and the same with something wrong."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.model import Measurement
from tests.probes.stress_docs import answers, document, says, value

FORMATS = ("fp64", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8")


def product(data: dict[str, Any], gpu: int, name: str) -> dict[str, Any]:
    """The result of a format on a GPU."""
    found: dict[str, Any] = next(
        phase["gemm"] for phase in data["gpus"][gpu]["phases"] if phase["gemm"]["format"] == name
    )
    return found


def test_a_run_as_recorded() -> None:
    """Seven formats on both GPUs: right, at the power limit, equal bit for bit, slowed by nothing but the power cap."""
    found = answers("gemm")
    for gpu in (0, 1):
        assert value(found["stress.gemm.ended", gpu]) == "as planned"
        assert value(found["stress.gemm.reasons", gpu]) == "none but benign"
        assert value(found["stress.gemm.digests", gpu]) == "equal to its peers"
        assert 660 < value(found["stress.gemm.power", gpu]) < 710
        for name in FORMATS:
            assert value(found[f"stress.{name}.wrong", gpu]) == 0
            assert value(found[f"stress.{name}.per_watt", gpu]) > 0
    assert 600 < value(found["stress.bf16.sustained", 0]) < 800
    assert 430 < value(found["stress.bf16.per_clock", 0]) < 500
    assert ("stress.fp4.wrong", 0) not in found, "this model multiplies none"


def test_units_and_conditions_are_said() -> None:
    """INT8 counts operations, the others floating-point ones; shape, time, CV, clock and power stand beside a rate."""
    found = answers("gemm")
    for name, unit in (("int8", "TOPS"), ("fp16", "TFLOPS")):
        rate, clock = found[f"stress.{name}.sustained", 0], found[f"stress.{name}.per_clock", 0]
        assert isinstance(rate, Measurement)
        assert isinstance(clock, Measurement)
        assert (rate.unit, clock.unit) == (unit, f"{unit}/GHz")
        assert rate.conditions.startswith("8192 x 8192 x ")
        assert all(word in rate.conditions for word in (" s, CV ", " MHz", " W"))
        assert rate.detail.startswith("burst ")


def test_one_wrong_element_is_named_with_heat_and_clock() -> None:
    """Place, bits, product, temperature and clock of the moment; a right second run takes nothing back."""

    def flip(data: dict[str, Any]) -> None:
        place = {"pass_number": 12, "row": 3, "col": 700, "tile": 5, "bit": 9, "t": 4.0}
        product(data, 1, "bf16").update(error_count=1, errors=[{**place, "expected": "0x3f80", "found": "0x3d80"}])

    found = answers("gemm", flip, lambda _: None)["stress.bf16.wrong", 1]
    assert isinstance(found, Measurement)
    assert (found.value, found.stands, found.repeats) == (1, True, (0,))
    told = "row 3, column 700 (tile 5) in product 12: expected 0x3f80, found 0x3d80 (bit 9), "
    assert found.detail.startswith(told)
    assert found.detail.endswith(" MHz")
    assert " C, " in found.detail[len(told) :]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"passes": 0, "checked": 0, "flop": 0.0, "tflops": [], "sustained_tflops": 0.0}, "products of fp16 that were"),
        ({"reference": None}, "checked by a reference, found none"),
    ],
)
def test_what_nobody_compared_is_not_right(change: dict[str, Any], line: str) -> None:
    """No product, or no reference: there is no count of wrong elements; the other formats keep theirs."""
    found = answers("gemm", lambda data: product(data, 0, "fp16").update(change))
    assert line in says(found["stress.fp16.wrong", 0])
    assert value(found["stress.bf16.wrong", 0]) == 0


def test_a_rate_without_a_clock_says_nothing_of_the_silicon() -> None:
    """Where NVML gave no clock, the rate stands and what is over the clock is open, with NVML's word."""

    def blind(data: dict[str, Any]) -> None:
        data["gpus"][0]["errors"] = {"sm_mhz": "NotSupported"}
        for phase in data["gpus"][0]["phases"]:
            del phase["seen"]["samples"]["sm_mhz"]

    found = answers("gemm", blind)
    assert value(found["stress.int8.sustained", 0]) > 1000
    assert says(found["stress.int8.per_clock", 0]).endswith("found 0 (NotSupported)")


def test_a_digest_that_stands_alone_is_named() -> None:
    """Of two that differ nobody knows which; who has none leaves it open; another library or shape is no peer."""

    def other(data: dict[str, Any]) -> None:
        product(data, 1, "tf32")["golden"] = "00"

    def none(data: dict[str, Any]) -> None:
        del product(data, 1, "tf32")["golden"]

    def library(data: dict[str, Any]) -> None:
        product(data, 1, "tf32")["cublas"] = "12.0.0"

    differ = answers("gemm", other)
    for gpu in (0, 1):
        assert "found tf32 (1:1): nobody knows which is wrong" in says(differ["stress.gemm.digests", gpu])
        assert differ["stress.gemm.digests", gpu].proven, "one of them is wrong"  # type: ignore[union-attr]
    assert says(answers("gemm", none)["stress.gemm.digests", 1]).endswith("expected a digest of tf32, found none")
    assert "expected a peer with the same library" in says(answers("gemm", library)["stress.gemm.digests", 0])


def test_a_format_that_failed_costs_itself() -> None:
    """CUDA could not give memory for one format: its four metrics are open, and the load did not end as planned."""

    def fail(data: dict[str, Any]) -> None:
        phase = data["gpus"][0]["phases"][2]
        del phase["gemm"]
        phase["problem"] = "gemm bf16: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"

    found = answers("gemm", fail)
    for metric in ("wrong", "sustained", "per_clock", "per_watt"):
        assert "OUT_OF_MEMORY" in says(found[f"stress.bf16.{metric}", 0])
        assert value(found[f"stress.fp16.{metric}", 0]) >= 0
    for metric in ("ended", "digests", "reasons", "power"):
        assert "OUT_OF_MEMORY" in says(found[f"stress.gemm.{metric}", 0]), "the clauses over all formats are open"


def test_the_power_is_that_of_all_formats() -> None:
    """A load that was stopped midway says nothing about the format that draws most, whatever the others drew."""

    def stop(data: dict[str, Any]) -> None:
        gpu = data["gpus"][0]
        gpu["stopped"] = {"t": 30.0, "phase": 4, "why": "nobody watched any more", "gpu": False}
        for phase in gpu["phases"][4:]:
            del phase["gemm"]
            phase["problem"] = "stopped at 30.0 s: nobody watched any more"

    found = answers("gemm", stop)
    for name in ("fp8_e4m3", "fp8_e5m2", "int8"):
        assert "stopped at 30.0 s" in says(found[f"stress.{name}.wrong", 0])
    assert "stopped at 30.0 s" in says(found["stress.gemm.power", 0])
    assert value(found["stress.gemm.power", 1]) > 600

    def unread(data: dict[str, Any]) -> None:
        del data["gpus"][0]["phases"][6]["seen"]["samples"]["power_w"]

    assert "samples of power_w under load, found 0" in says(answers("gemm", unread)["stress.gemm.power", 0])


def test_the_recorded_run_lasted_as_long_as_it_had_to() -> None:
    """Every format ran between 5 and 12 s, both GPUs together."""
    data = document("gemm")
    assert all(5 <= window["end"] - window["begin"] <= 12.5 for window in data["windows"])
    assert len(data["windows"]) == len(FORMATS)
