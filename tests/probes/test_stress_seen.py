"""What the watch saw under load: read throughout, possible, and of a GPU that was loaded; and how a load ended."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.model import Measurement
from pytest_gpuready.probes.soak import seconds
from pytest_gpuready.probes.stress_pieces import BURN_S
from tests.probes.stress_docs import Change, answers, says, value

ECC = "ecc_uncorrected_volatile"


def seen(data: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """What was seen of the first GPU in a phase."""
    found: dict[str, Any] = data["gpus"][0]["phases"][number]["seen"]
    return found


def column(name: str, *values: float | None) -> Change:
    """These values in all samples of the burn-in, again and again."""

    def change(data: dict[str, Any]) -> None:
        samples = seen(data)["samples"]
        samples[name] = [values[at % len(values)] for at in range(len(samples["t"]))]

    return change


def early(data: dict[str, Any]) -> None:
    """The watch fell silent after 10 s."""
    one = seen(data)
    one.update(taken=10, reasons={"0x4": 10}, samples={name: rows[:10] for name, rows in one["samples"].items()})


def first_half(data: dict[str, Any]) -> None:
    """Heat and reasons were read in the first half of the time alone."""
    samples = seen(data)["samples"]
    half = len(samples["t"]) // 2
    for name in ("temperature_c", "reasons"):
        samples[name] = samples[name][:half] + [None] * (len(samples["t"]) - half)


def gap(data: dict[str, Any]) -> None:
    """A document that says the longest gap itself."""
    seen(data).update(read={"temperature_c": 2300, "reasons": 2300}, gap_s={"temperature_c": 9.5, "reasons": 9.5})


def counted(data: dict[str, Any]) -> None:
    """A document that says how many readings there were over all samples."""
    seen(data).update(read={"temperature_c": 3, "reasons": 3})


def elsewhere(data: dict[str, Any]) -> None:
    """All samples lie outside the window."""
    seen(data)["samples"]["t"] = [t - 5000 for t in seen(data)["samples"]["t"]]


def tiny(data: dict[str, Any]) -> None:
    """The window is a hundredth of a second of a load of 240."""
    data["windows"][0]["end"] = data["windows"][0]["begin"] + 0.01


@pytest.mark.parametrize("change", [early, first_half, gap, counted, elsewhere])
def test_what_was_not_read_throughout_is_not_known(change: Change) -> None:
    """Neither "no reason but benign ones" nor degrees left to the limit; the other GPU keeps its own."""
    found = answers("burn", change)
    assert "expected clock-event reasons under burn" in says(found["stress.burn.reasons", 0])
    assert "expected temperature under burn" in says(found["stress.burn.margin", 0])
    assert value(found["stress.burn.reasons", 1]) == "none but benign"


def test_a_window_holds_the_load() -> None:
    """Samples of a hundredth of a second say nothing of 240 s, on any GPU."""
    found = answers("burn", tiny)
    for gpu in (0, 1):
        for metric in ("reasons", "margin"):
            assert "of burn, found a window of 0.01 s" in says(found[f"stress.burn.{metric}", gpu])


def test_all_readings_of_a_newer_document_count() -> None:
    """Counts and gaps over all samples come before what thinned samples can tell."""

    def whole(data: dict[str, Any]) -> None:
        samples = seen(data)["samples"]
        seen(data)["samples"] = {name: rows[::40] for name, rows in samples.items()}
        read = dict.fromkeys(("temperature_c", "reasons", "power_w", "sm_mhz"), 2400)
        seen(data).update(read=read, gap_s={"temperature_c": 0.2, "reasons": 0.2}, near_slowdown_s=7.5)

    found = answers("burn", whole)
    assert value(found["stress.burn.reasons", 0]) == "none but benign"
    assert value(found["stress.burn.hot", 0]) == 7.5


def test_the_hottest_moment_may_lie_between_the_kept_samples() -> None:
    """The span is over all samples: 88 of 89 degrees are one degree left."""
    found = answers("burn", lambda data: seen(data)["spans"]["temperature_c"].update(high=88.0))
    assert value(found["stress.burn.margin", 0]) == 1


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        (column("temperature_c", 0.0), "margin"),
        (column("temperature_c", -200.0), "margin"),
        (column("temperature_c", 60.0, 200.0), "margin"),
        (lambda data: data["gpus"][0].update(slowdown_c=1000.0), "margin"),
        (column("power_w", 5000.0), "power"),
        (column("sm_mhz", 1.0), "clocks"),
    ],
)
def test_values_that_cannot_be_are_none(change: Change, metric: str) -> None:
    """Frozen, burning, thousands of watts, a clock of one megahertz: not measured, with what was found."""
    assert ", found" in says(answers("burn", change)[f"stress.burn.{metric}", 0])


def idle_reasons(data: dict[str, Any]) -> None:
    seen(data)["reasons"] = {"0x1": seen(data)["taken"]}
    seen(data)["samples"]["reasons"] = [1.0] * len(seen(data)["samples"]["t"])


def idle_power(data: dict[str, Any]) -> None:
    seen(data)["spans"]["power_w"] = {"low": 115.0, "median": 118.0, "high": 121.0}


@pytest.mark.parametrize("change", [idle_reasons, column("utilisation", 0.0), idle_power])
def test_an_idle_gpu_was_not_loaded(change: Change) -> None:
    """Idle in its reasons, its utilisation or its power: reasons, power and margin of no load say nothing."""
    found = answers("burn", change)
    for metric in ("reasons", "power", "margin"):
        assert "expected the GPU under load" in says(found[f"stress.burn.{metric}", 0])


def test_a_reason_that_nobody_knows_is_not_benign() -> None:
    """A bit beyond the table is named; it is neither good nor bad."""
    found = answers("burn", lambda data: seen(data)["reasons"].update({"0x200": 50}))
    assert "expected clock-event reasons that are known, found 0x200" in says(found["stress.burn.reasons", 0])


def test_samples_that_the_summary_forgot_count() -> None:
    """Every kept sample shows the power brake, the summary does not: it was there."""
    assert value(answers("burn", column("reasons", 128.0))["stress.burn.reasons", 0]) == "HW power brake"


def test_counters_see_what_falls_between_samples() -> None:
    """NVML's own nanoseconds of brake and heat are reasons, with their seconds; the power cap's are benign."""

    def grown(data: dict[str, Any]) -> None:
        seen(data)["counted"].update(throttle_power_brake_ns=2 * 10**9)
        data["gpus"][0]["after"]["throttle_hw_thermal_ns"] += 56 * 10**9

    found = answers("burn", grown)["stress.burn.reasons", 0]
    assert isinstance(found, Measurement)
    assert found.value == "HW thermal slowdown, HW power brake"
    assert found.detail == "HW thermal slowdown 56 s by NVML's counter; HW power brake 2 s by NVML's counter"
    assert value(answers("burn")["stress.burn.reasons", 0]) == "none but benign"


def test_a_reason_that_was_seen_stands_where_the_rest_is_open() -> None:
    """A GPU that met the power brake and then died has met the power brake."""

    def died(data: dict[str, Any]) -> None:
        seen(data)["reasons"]["0x80"] = 3
        phase = data["gpus"][0]["phases"][0]
        del phase["burn"]
        phase["problem"] = data["gpus"][0]["problem"] = "ended by signal 9"

    assert value(answers("burn", died)["stress.burn.reasons", 0]) == "HW power brake"


@pytest.mark.parametrize(("piece", "last"), [("gemm", "gemm"), ("pulse", "pulse"), ("burn", "burn")])
def test_a_gpu_that_was_refused_met_nothing(piece: str, last: str) -> None:
    """Nobody loaded it, so that nothing slowed it says nothing."""

    def refused(data: dict[str, Any]) -> None:
        gpu = data["gpus"][0]
        del gpu["ready"]
        gpu["refused"] = "expected nobody else on the GPU, found process 4711 (python)"
        for phase in gpu["phases"]:
            del phase[phase["kind"]]
            phase["problem"] = gpu["refused"]

    assert "not loaded: expected nobody else" in says(answers(piece, refused)[f"stress.{last}.reasons", 0])


# --- how it ended -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (lambda gpu: gpu.update(problem="process 4711 did not end on SIGKILL"), True),
        (lambda gpu: gpu.update(problem="expected its end within 3 s of being told, found none: it hangs"), False),
        (lambda gpu: gpu.update(problem="expected it to wait, found its end: signal SIGSEGV"), False),
        (lambda gpu: gpu["after"].pop(ECC), False),
        (lambda gpu: (gpu["after"].pop(ECC), gpu["before"].pop(ECC)), False),
        (lambda gpu: gpu["before"].update({ECC: 7}), False),
        (lambda gpu: gpu.update(stopped={"t": 9.0, "phase": 0, "why": "nobody watched any more", "gpu": False}), None),
    ],
)
def test_an_end_out_of_order_is_no_end_as_planned(change: Any, fails: bool | None) -> None:
    """All results are there: a process that cannot be killed is the GPU's fault; of the rest nobody knows."""

    def changed(data: dict[str, Any]) -> None:
        change(data["gpus"][0])
        if fails is None:
            phase = data["gpus"][0]["phases"][0]
            del phase["burn"]
            phase["problem"] = "stopped at 9.0 s: nobody watched any more"

    found = answers("burn", changed)
    if fails:
        assert "did not end on SIGKILL" in value(found["stress.burn.ended", 0])
    else:
        assert says(found["stress.burn.ended", 0])
    assert value(found["stress.burn.ended", 1]) == "as planned"


def test_a_short_burn_in_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than the default is not asked for, and where a plan has it, its results are those of no burn-in."""
    for text in ("60s", "239s"):
        with pytest.raises(Exception, match="expected from 4m to 336h"):
            seconds(text)
    assert seconds("4m") == BURN_S == 240
    monkeypatch.setattr("pytest_gpuready.probes.stress_long.BURN_S", 300.0)
    found = answers("burn")
    assert "expected a burn-in of 300 s at least, found one of 240 s" in says(found["stress.burn.wrong", 0])
    assert "expected a burn-in" in says(found["stress.burn.margin", 0])
