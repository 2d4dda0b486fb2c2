"""Memory patterns, pulses and burn-in as they are read: recorded runs, and the same with something wrong in them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.model import Measurement
from tests.probes.stress_docs import answers, says, value

WORD = {"address": 0x40, "expected": "0xffffffff", "found": "0xfffffdff", "bit": 9}


def each(data: dict[str, Any], gpu: int, kind: str) -> list[dict[str, Any]]:
    """The results of a kind of one GPU."""
    return [phase[kind] for phase in data["gpus"][gpu]["phases"] if kind in phase]


def test_patterns_as_recorded() -> None:
    """Six patterns over 95 % of the memory of two H200s without a wrong word, at the rate of the memory."""
    found = answers("patterns")
    assert value(found["stress.patterns.ended", 0]) == "as planned"
    assert value(found["stress.patterns.wrong", 1]) == 0
    wrong = found["stress.patterns.wrong", 1]
    assert isinstance(wrong, Measurement)
    assert wrong.conditions.startswith("walking, inversions, address, random, modulo20, fade; ")
    assert 4000 < value(found["stress.patterns.rate", 0]) < 4814


def test_a_wrong_word_is_named_and_stands() -> None:
    """Pattern, address, expected, found and bit stand in the finding; a second run that is clean takes nothing back."""

    def flip(data: dict[str, Any]) -> None:
        each(data, 1, "pattern")[4].update(error_count=3, errors=[WORD] * 3)

    found = answers("patterns", flip, lambda _: None)["stress.patterns.wrong", 1]
    assert value(found) == 3
    assert isinstance(found, Measurement)
    assert found.stands
    assert found.detail == "3 under modulo20, first at 0x40: expected 0xffffffff, found 0xfffffdff (bit 9)"
    assert value(answers("patterns", flip)["stress.patterns.wrong", 0]) == 0


def test_a_pattern_that_compared_nothing_proves_nothing() -> None:
    """No words compared, or a pattern that ended early: there is no count of wrong words, not even 0."""

    def nothing(data: dict[str, Any]) -> None:
        each(data, 0, "pattern")[2]["checked_bytes"] = 0

    def cut(data: dict[str, Any]) -> None:
        each(data, 0, "pattern")[5]["cut"] = True

    assert "expected words that were compared under pattern address" in says(
        answers("patterns", nothing)["stress.patterns.wrong", 0]
    )
    found = answers("patterns", cut)
    assert "ended after" in says(found["stress.patterns.wrong", 0])
    assert "ended after" in says(found["stress.patterns.ended", 0])


def test_pulses_as_recorded() -> None:
    """The power of both GPUs swings by more than half of its limit, in step, and every product looked at is right."""
    found = answers("pulse")
    for gpu in (0, 1):
        assert value(found["stress.pulse.ended", gpu]) == "as planned"
        assert value(found["stress.pulse.reasons", gpu]) == "none but benign"
        assert value(found["stress.pulse.wrong", gpu]) == 0
        assert 400 < value(found["stress.pulse.swing", gpu]) < 700


def test_a_brake_in_pulses_is_named() -> None:
    """A power brake in one of seven kinds of pulses is the reading of the whole."""

    def brake(data: dict[str, Any]) -> None:
        data["gpus"][0]["phases"][3]["seen"]["reasons"]["0x80"] = 1

    found = answers("pulse", brake)
    assert value(found["stress.pulse.reasons", 0]) == "HW power brake"
    assert value(found["stress.pulse.reasons", 1]) == "none but benign"


def test_power_that_nobody_saw_is_no_swing() -> None:
    """Without samples of the power, or of the reasons, nobody knows; the error of NVML is told."""

    def blind(data: dict[str, Any]) -> None:
        data["gpus"][0]["errors"] = {"power_w": "NotSupported"}
        for phase in data["gpus"][0]["phases"]:
            del phase["seen"]["samples"]["power_w"]
            del phase["seen"]["samples"]["reasons"]

    found = answers("pulse", blind)
    assert says(found["stress.pulse.swing", 0]).endswith("found 0 (NotSupported)")
    assert "expected clock-event reasons under pulse" in says(found["stress.pulse.reasons", 0])


def test_a_burn_in_as_recorded() -> None:
    """240 s at 690 W and more, no wrong element, 25 degrees left, a temperature that moves little at the end."""
    found = answers("burn")
    for gpu in (0, 1):
        assert value(found["stress.burn.ended", gpu]) == "as planned"
        assert value(found["stress.burn.wrong", gpu]) == 0
        assert 680 < value(found["stress.burn.power", gpu]) < 710
        assert 20 < value(found["stress.burn.margin", gpu]) < 40
        assert value(found["stress.burn.hot", gpu]) == 0
        assert 0 < value(found["stress.burn.clocks", gpu]) < 50
        assert abs(value(found["stress.burn.drift", gpu])) < 3
    margin = found["stress.burn.margin", 1]
    assert isinstance(margin, Measurement)
    assert "; hottest of the node: n1 GPU " in margin.detail
    assert margin.watch
    assert set(margin.watch.series) >= {"power_w", "sm_mhz", "temperature_c"}
    assert len(margin.watch.times_s) > 100


def test_the_time_near_the_limit_is_summed() -> None:
    """A GPU that was within 5 degrees of its slowdown temperature for a while: how long, and how near."""

    def hot(data: dict[str, Any]) -> None:
        gpu = data["gpus"][0]
        rows = gpu["phases"][0]["seen"]["samples"]["temperature_c"]
        rows[100:110] = [gpu["slowdown_c"] - 4.0] * 10

    found = answers("burn", hot)
    assert value(found["stress.burn.margin", 0]) == 4
    assert 5 < value(found["stress.burn.hot", 0]) < 60
    assert value(found["stress.burn.hot", 1]) == 0


def test_wrong_memory_in_a_burn_in_counts() -> None:
    """An error of the memory between two products is as wrong as one of a product."""

    def spoil(data: dict[str, Any]) -> None:
        place = {"pass_number": 0, "row": 0, "col": 4096, "tile": 0, "bit": 3, "format": "memory"}
        burn = data["gpus"][1]["phases"][0]["burn"]
        burn.update(error_count=1, errors=[{**place, "expected": "0x0", "found": "0x8"}])

    found = answers("burn", spoil)["stress.burn.wrong", 1]
    assert value(found) == 1
    assert isinstance(found, Measurement)
    assert found.detail.startswith("memory row 0, column 4096")


@pytest.mark.parametrize(
    ("change", "ended", "others"),
    [
        ({"stopped": {"t": 12.5, "phase": 0, "why": "Xid 79"}}, "stopped at 12.5 s: Xid 79", "stopped at 12.5 s"),
        ({"problem": "ended by signal 9"}, None, "ended by signal 9"),
        ({"problem": "burn: cuEventQuery: CUDA_ERROR_LAUNCH_FAILED"}, "CUDA_ERROR_LAUNCH_FAILED", "LAUNCH_FAILED"),
    ],
)
def test_how_a_load_ended_early(change: dict[str, Any], ended: str | None, others: str) -> None:
    """Heat, an Xid or an error of CUDA in kernels that are right is the GPU's fault; a dead worker is nobody's yet.

    What was measured on the other GPU stays.
    """

    def end(data: dict[str, Any]) -> None:
        data["gpus"][0].update(change)
        phase = data["gpus"][0]["phases"][0]
        del phase["burn"]
        phase["problem"] = change.get("problem") or "stopped at 12.5 s: Xid 79"

    found = answers("burn", end)
    if ended is None:
        assert others in says(found["stress.burn.ended", 0])
    else:
        assert ended in value(found["stress.burn.ended", 0])
    assert others in says(found["stress.burn.wrong", 0])
    assert value(found["stress.burn.ended", 1]) == "as planned"


def test_a_gpu_that_was_not_found_was_not_loaded() -> None:
    """An expected GPU without an address has no answer to any metric, and never the answer of another."""
    found = answers("burn", gpus=3)
    assert "it was not found" in says(found["stress.burn.ended", 2])
    assert "it was not found" in says(found["stress.burn.margin", 2])
    assert value(found["stress.burn.ended", 1]) == "as planned"
