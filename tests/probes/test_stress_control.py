"""A count of no errors is worth what the engine's own check is: seen, not seen, left out, or of an older engine."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.model import Measurement
from pytest_gpuready.model.stress_doc import CACHE_PATTERNS, ENGINE, SEEN
from pytest_gpuready.probes.stress_control import SINCE
from tests.probes.stress_docs import Change, answers, says, value
from tests.probes.test_stress_long import WORD, each

KINDS = ("gemm", "pulse", "burn", "pattern", "cache")
WRONG = {
    ("memory", "cache"): ("stress.cache.l1.wrong", "stress.cache.l2.wrong"),
    ("memory", "pattern"): ("stress.memory.wrong",),
    ("patterns", "pattern"): ("stress.patterns.wrong",),
    ("gemm", "gemm"): ("stress.bf16.wrong", "stress.fp64.wrong"),
    ("pulse", "pulse"): ("stress.pulse.wrong",),
    ("burn", "burn"): ("stress.burn.wrong",),
}
CASES = [(piece, kind, metric) for (piece, kind), metrics in WRONG.items() for metric in metrics]
FAULT = {"pass_number": 3, "row": 1, "col": 2, "tile": 0, "bit": 1, "expected": "0x1", "found": "0x3"}


def newer(control: str, *, gpu: int | None = None) -> Change:
    """As the engine of this version says it; with this control on one GPU, and seen on the others."""

    def change(data: dict[str, Any]) -> None:
        data["engine"] = ENGINE
        for number in range(len(data["gpus"])):
            word = control if gpu in (None, number) else SEEN
            for kind in KINDS:
                for one in each(data, number, kind):
                    one["control"] = word
                    if kind == "cache":
                        one["patterns"] = list(CACHE_PATTERNS)
                    if kind == "burn":
                        one.update(memory_turns=7, memory_bytes=7 * 50 * 10**9)
                        for part in one["each"]:
                            part["control"] = word
                            if part["format"] == "tf32":
                                deep(part)
                        one["passes"] = sum(part["passes"] for part in one["each"])
                        one["checked"] = sum(part["checked"] for part in one["each"])

    return change


def deep(part: dict[str, Any]) -> None:
    """TF32 in the shape of today: half as many products of twice the depth."""
    m, n, k = part["m"], part["n"], 2 * part["k"]
    passes = part["passes"] // 2
    part.update(k=k, passes=passes, flop=2.0 * m * n * k * passes, checked=passes * m * n)


def then(*changes: Change) -> Change:
    """All of them in one document."""

    def change(data: dict[str, Any]) -> None:
        for one in changes:
            one(data)

    return change


def test_this_engine_makes_controls() -> None:
    """Its number stands in every document of it and is not that of an older one."""
    assert ENGINE >= SINCE > 0


@pytest.mark.parametrize(("piece", "kind", "metric"), CASES)
def test_a_control_that_was_seen_is_told(piece: str, kind: str, metric: str) -> None:
    """No errors, and a comparison that was seen to find one."""
    found = answers(piece, newer(SEEN))[metric, 0]
    assert value(found) == 0
    assert isinstance(found, Measurement)
    assert "a planted bit flip was seen" in found.conditions


@pytest.mark.parametrize(("piece", "kind", "metric"), CASES)
def test_a_control_that_was_not_seen_leaves_nothing_measured(piece: str, kind: str, metric: str) -> None:
    """What the check said instead is quoted, whatever a worker may write there; the other GPU has its value."""
    found = answers(piece, newer("bit 3 of word 9 was flipped, found 0 errors\x1b[2J" + "x" * 500, gpu=0))
    told = says(found[metric, 0])
    assert "the engine's own check did not see a planted bit flip: 'bit 3 of word 9 was flipped, found 0 " in told
    assert "\x1b" not in told
    assert len(told) < 300
    assert value(found[metric, 1]) == 0


@pytest.mark.parametrize(("piece", "kind", "metric"), CASES)
def test_a_newer_engine_that_leaves_it_out_has_measured_nothing(piece: str, kind: str, metric: str) -> None:
    """No control in a document whose engine makes them is no 0."""
    assert "found that it did not" in says(answers(piece, newer("", gpu=0))[metric, 0])


@pytest.mark.parametrize(("piece", "kind", "metric"), CASES)
def test_documents_of_older_engines_are_read_as_ever(piece: str, kind: str, metric: str) -> None:
    """Recordings of the first engine have no number: their counts stand, and that nobody controlled them is told."""
    found = answers(piece)[metric, 0]
    assert value(found) == 0
    assert isinstance(found, Measurement)
    assert "no control by a planted bit flip (by an older engine)" in found.conditions


@pytest.mark.parametrize(("piece", "kind", "metric"), CASES)
def test_errors_stand_whatever_the_control_says(piece: str, kind: str, metric: str) -> None:
    """A wrong element or word that was found with its place is a finding, also of a check that missed another."""

    def wrong(data: dict[str, Any]) -> None:
        for one in each(data, 0, kind):
            one.update(error_count=1, errors=[WORD if kind in ("cache", "pattern") else FAULT])

    found = answers(piece, then(newer("found 0 errors"), wrong))[metric, 0]
    assert value(found) >= 1
    assert isinstance(found, Measurement)
    assert found.stands
    assert "no control by a planted bit flip" in found.conditions


def test_one_format_of_a_burn_in_without_control_is_enough() -> None:
    """What the whole says of itself does not cover a format that says something else."""

    def one(data: dict[str, Any]) -> None:
        each(data, 0, "burn")[0]["each"][2]["control"] = "found 2 errors"

    assert "tf32: the engine's own check did not see" in says(
        answers("burn", then(newer(SEEN), one))["stress.burn.wrong", 0]
    )


def test_a_burn_in_tells_its_turns_of_memory() -> None:
    """How many there were and what was compared; without any, its clause of products and memory is open."""
    found = answers("burn", newer(SEEN))["stress.burn.wrong", 0]
    assert isinstance(found, Measurement)
    assert "7 turns of memory between them, 350 GB compared" in found.conditions

    def none(data: dict[str, Any]) -> None:
        each(data, 0, "burn")[0].update(memory_turns=0, memory_bytes=0)

    found = answers("burn", then(newer(SEEN), none))
    assert "expected turns of memory that were compared between the products, found 0" in says(
        found["stress.burn.wrong", 0]
    )
    assert value(found["stress.burn.wrong", 1]) == 0
    assert value(found["stress.burn.power", 0]) > 600


def test_an_older_burn_in_did_not_count_them() -> None:
    """Its conditions say so."""
    found = answers("burn")["stress.burn.wrong", 0]
    assert isinstance(found, Measurement)
    assert "turns of memory between them not counted (by an older engine)" in found.conditions


def test_a_cache_that_was_read_under_some_patterns_only_is_open() -> None:
    """The missing ones are named; an older engine had one of its own."""

    def few(data: dict[str, Any]) -> None:
        next(one for one in each(data, 0, "cache") if one["level"] == "l2")["patterns"] = ["0x00000000", "address"]

    found = answers("memory", then(newer(SEEN), few))
    assert "L2 cache: expected the cache read under 0xffffffff, 0x55555555, 0xaaaaaaaa, seeded too" in says(
        found["stress.cache.l2.wrong", 0]
    )
    l1 = found["stress.cache.l1.wrong", 0]
    assert isinstance(l1, Measurement)
    assert "0x00000000, 0xffffffff, 0x55555555, 0xaaaaaaaa, address, seeded" in l1.conditions


@pytest.mark.parametrize(("number", "when"), [(-1, "before the first product"), (812, "after product 812")])
def test_an_input_that_changed_is_told_as_one(number: int, when: str) -> None:
    """Matrix, row, column, bit, what it was filled with, and when it was found."""

    def input_of(data: dict[str, Any]) -> None:
        found = next(one for one in each(data, 0, "gemm") if one["format"] == "bf16")
        found.update(error_count=1, errors=[{**FAULT, "pass_number": number, "matrix": "B", "format": "bf16"}])

    found = answers("gemm", then(newer(SEEN), input_of))["stress.bf16.wrong", 0]
    assert isinstance(found, Measurement)
    assert found.detail.startswith(f"bf16 input 'B' row 1, column 2 {when}: filled with 0x1, found 0x3 (bit 1)")
