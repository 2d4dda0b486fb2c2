"""What the memory patterns do, played on a few words of ordinary memory."""

from __future__ import annotations

import struct

import pytest

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress.check import fault
from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.agent.stress.gemm import PLANTS, planted
from pytest_gpuready.agent.stress.memory import CHECK, ONES, TURN, WRITE, memory_fault, sweeps
from pytest_gpuready.agent.stress.report import ENTRY, HEAD, REPORT, Report, lowest_bit
from pytest_gpuready.model.stress_doc import Phase, Plant

PATTERNS = ("walking", "inversions", "address", "random", "modulo20", "fade")
WORDS = 40


def word(kernel: str, i: int, argument: int) -> int:
    """The pattern as the kernels have it; "random" is any function of the place."""
    if kernel == "walking":
        return 1 << ((i + argument) & 31)
    if kernel == "same":
        return argument & ONES
    if kernel == "address":
        return ((argument + i // 2 * 8) >> (32 * (i & 1))) & ONES
    if kernel == "modulo":
        return 0x5A5AA5A5 if i % 20 == argument else 0xA5A55A5A
    return (i * 2654435761 ^ argument * 40503) & ONES


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_nothing_in_good_memory_and_every_stuck_bit(pattern: str) -> None:
    """Good memory passes all sweeps; a bit that is stuck at 0 or at 1, in any of 32 places, is found by some sweep."""
    for stuck, value in [(None, 0), *[(bit, value) for bit in range(32) for value in (0, 1)]]:
        memory, wrong = [0xDEADBEEF] * WORDS, 0

        def store(i: int, w: int, memory: list[int] = memory, stuck: int | None = stuck, value: int = value) -> None:
            if stuck is not None and i == 37:
                w = w | 1 << stuck if value else w & ~(1 << stuck)
            memory[i] = w

        for sweep in sweeps(pattern, 0x7F0000000000, 3, 0.0):
            for i in reversed(range(WORDS)) if sweep.down else range(WORDS):
                expected = word(sweep.kernel, i, sweep.argument) ^ sweep.inverse
                if sweep.mode in (CHECK, TURN) and memory[i] != expected:
                    wrong += 1
                if sweep.mode == WRITE:
                    store(i, expected)
                if sweep.mode == TURN:
                    store(i, expected ^ ONES)
        assert (wrong > 0) == (stuck is not None), (stuck, value)


def test_bit_fade_waits_before_it_looks() -> None:
    """The pause stands before each check, and nowhere else."""
    assert [(s.mode, s.pause_s) for s in sweeps("fade", 0, 1, 2.5)] == [(WRITE, 0), (CHECK, 2.5)] * 2


def test_an_unknown_pattern_is_named() -> None:
    """One line says which there are."""
    with pytest.raises(CudaError, match="walking, inversions"):
        sweeps("sideways", 0, 1, 0.0)


def test_a_report_is_read_as_the_kernels_write_it() -> None:
    """Count, worst residual and entries; of many errors 32 are kept, all are counted."""
    data = HEAD.pack(1000, 900, 0.25, 0) + b"".join(ENTRY.pack(i, 6, 2, 4) for i in range(32))
    assert len(data) == REPORT
    report = Report(data)
    assert (report.count, report.worst, len(report.entries)) == (1000, 0.25, 32)
    one = memory_fault(report.entries[5])
    assert (one.address, one.expected, one.found, one.bit) == (5, "0x00000006", "0x00000002", 2)


def test_an_error_is_placed_in_its_tile() -> None:
    """Results lie column by column; tiles of 128 are counted down the first column of tiles, then the next."""
    m = 512
    seen = fault(m, (130 * m + 300, 0x3F80, 0x3F81, 9), FORMATS["bf16"])
    assert (seen.row, seen.col, seen.tile, seen.bit, seen.pass_number) == (300, 130, 2 + 4, 0, 9)
    assert (seen.expected, seen.found) == ("0x3f80", "0x3f81")
    assert lowest_bit(*struct.unpack("<II", struct.pack("<ii", -1, 0x7FFFFFFF))) == 31


def test_faults_are_planted_in_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the environment variable a phase that asks for a fault is refused."""
    phase = Phase(kind="gemm", plant=Plant(what="tile"))
    monkeypatch.delenv(PLANTS, raising=False)
    with pytest.raises(CudaError, match="no planted fault"):
        planted(phase)
    monkeypatch.setenv(PLANTS, "1")
    assert planted(phase) == phase.plant
    assert planted(Phase(kind="gemm")) is None
