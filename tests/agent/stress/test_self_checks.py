"""What the engine checks of itself and of its inputs, on a GPU that is played in Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_gpuready.agent.stress import bandwidth, burn, check, gemm, memory, pulse
from pytest_gpuready.agent.stress.control import chosen, control, together, verdict
from pytest_gpuready.agent.stress.flow import Flow
from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.agent.stress.gemm import PLANTS, SLICES, Prepared
from pytest_gpuready.agent.stress.kernels_memory import PIECE
from pytest_gpuready.agent.stress.report import ENTRY, HEAD, REPORT, Report
from pytest_gpuready.model.stress_doc import CACHE_PATTERNS, SEEN, GemmResult, Phase, Plant, Reference
from tests.agent.stress.made_up_gpu import Beat, MadeUpGpu, Product

M, N, K = SHAPE = (512, 512, 512)
BEAT: Any = Beat()


@pytest.fixture(autouse=True)
def _no_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products and the reference are made up; faults may be planted."""
    reference = Reference(kind="recomputed", max_residual=0.1, limit=1.0)
    monkeypatch.setattr(gemm, "Multiplication", Product)
    monkeypatch.setattr(burn, "keep_busy", one_product)
    monkeypatch.setattr(check, "look_at_first", lambda *_, **__: (reference, 0, [], "looked"))
    monkeypatch.setenv(PLANTS, "1")


@contextmanager
def ready(gpu: MadeUpGpu, plant: Plant | None = None) -> Iterator[Prepared]:
    """A product whose first result was looked at."""
    lt: Any = None
    with Prepared(gpu, lt, FORMATS["bf16"], SHAPE, seed=3, plant=plant) as one:
        one.look(BEAT)
        yield one


def products(gpu: MadeUpGpu, count: int, plant: Plant | None = None, **product: Any) -> GemmResult:
    """So many products, each compared."""
    with ready(gpu, plant) as one:
        for name, value in product.items():
            setattr(one.product, name, value)
        for number in range(1, count + 1):
            one.queue(number)
        flow = Flow()
        flow.add(0.1, count)
        return one.result(flow)


def test_healthy_products_have_no_errors_and_a_control_that_was_seen() -> None:
    """No slice that was overwritten, no spoilt word and no flipped bit is counted."""
    found = products(MadeUpGpu(), 2 * SLICES + 3)
    assert (found.error_count, found.errors, found.control) == (0, [], SEEN)


# --- unwritten


def test_elements_that_nobody_writes_any_more_are_seen_within_sixteen_products() -> None:
    """Wherever in D they lie: one element alone, which the product before left right there."""
    for element in (0, 100_000, M * N - 1):
        found = products(MadeUpGpu(), SLICES + 1, since=0, every=[element])
        places = {one.col * M + one.row for one in found.errors}
        assert places == {element}
        assert found.errors[0].pass_number <= 1 + SLICES


def test_without_overwriting_they_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same element passes sixteen times where D is left as it is: that is what the slices are for."""
    monkeypatch.setattr(Prepared, "_slice", lambda _: (0, 0))
    assert products(MadeUpGpu(), SLICES + 1, since=0, every=[100_000]).error_count == 0


def test_each_slice_is_overwritten_once_in_sixteen_comparisons() -> None:
    """The slices lie one after the other, are equal, aligned to 8 KiB, and D is full of them."""
    for m, n in ((512, 512), (512, 768), (8192, 8192), (4096, 4096)):
        one = Prepared.__new__(Prepared)
        one._check = type("Check", (), {"size": 2 * m * n})()
        seen = []
        for one._compared in range(SLICES, 2 * SLICES):
            seen.append(one._slice())
        assert [begin for begin, _ in seen] == [0, *(end for _, end in seen[:-1])]
        assert seen[-1][1] == 2 * m * n
        assert all(begin % 8192 == 0 for begin, _ in seen)


def test_a_planted_tile_that_nobody_writes_is_found() -> None:
    """The plant puts 0xA5 back where no product would have written: in the tile of its element, and nowhere else."""
    plant = Plant(what="unwritten", pass_number=3, element=200 * M + 300)
    found = products(MadeUpGpu(), 3 + SLICES, plant)
    assert found.error_count >= 128 * 128
    first = found.errors[0]
    assert (first.row // 128, first.col // 128, first.found) == (2, 1, "0xa5a5")
    assert 3 <= first.pass_number < 3 + SLICES
    assert found.control == SEEN


def test_in_pulses_a_slice_goes_on_with_the_comparison() -> None:
    """Of many products of which only the last is compared, all overwrite one slice; the next pulse takes the next."""
    with ready(MadeUpGpu()) as one:
        before = one._slice()
        one.multiply(1)
        one.multiply(2)
        assert one._slice() == before
        one.compare(2)
        assert one._slice()[0] == before[1]


# --- control


def report(*entries: tuple[int, int, int], count: int | None = None) -> Report:
    data = HEAD.pack(len(entries) if count is None else count, len(entries), 0.0, 0)
    return Report((data + b"".join(ENTRY.pack(*one, 0) for one in entries)).ljust(REPORT, b"\0"))


def test_only_the_flipped_bit_alone_is_seen() -> None:
    """Nothing, another place, another bit, another value, or something besides is told and is no control."""
    one = chosen(1, 2, 4096, 32, 4)
    right = 0x1234
    wrong, place = right ^ 1 << one.bit, one.word * 4
    assert verdict(report((place, right, wrong)), one, right) == SEEN
    for other in (
        report(),
        report((place + 4, right, wrong)),
        report((place, right, right ^ 1 << (one.bit + 1) % 32)),
        report((place, right, wrong), (place + 4, 0, 1)),
        report((place, right, wrong), count=2),
        report((place, right, wrong), (place, right, wrong)),
    ):
        assert verdict(other, one, right).startswith(f"bit {one.bit} of word {one.word} was flipped, found ")
    twice = report((place, right, wrong), (place, right, wrong))
    assert verdict(twice, one, right, repeats=True) == SEEN
    assert verdict(report(), one, right, repeats=True) != SEEN


def test_places_differ_and_lie_inside() -> None:
    """Seed and load choose the word and the bit; all bits are chosen sooner or later."""
    seen = [chosen(seed, number, 1000, 16) for seed in range(20) for number in range(50)]
    assert all(0 <= one.word < 1000 and 0 <= one.bit < 16 for one in seen)
    assert len({one.word for one in seen}) > 500
    assert {one.bit for one in seen} == set(range(16))
    assert chosen(1, 0, 8, 64).bit // 8 == chosen(1, 0, 8, 64).byte % 8


def test_the_bit_is_put_back() -> None:
    """Whatever the comparison says, the memory is as it was."""
    gpu = MadeUpGpu()
    data, at = gpu.allocate(64), gpu.allocate(REPORT)
    one = chosen(5, 6, 16, 32, 4)
    flip = gpu.kernel(" flip_bit(", "flip_bit", (1,), 1, data, 0, 0)
    told = control(gpu, one, data=data, flip=flip, compare=lambda: None, report=at)
    assert gpu.read(data, 64) == bytes(64)
    assert told.endswith("found 0 errors")


def test_of_several_the_first_that_was_not_seen_counts() -> None:
    """All of them have to be seen; of none, and where one was not made, nothing is said."""
    assert together([SEEN, SEEN]) == SEEN
    assert together([SEEN, "", "found 0 errors", "else"]) == "found 0 errors"
    assert together([SEEN, ""]) == ""
    assert together([]) == ""


def test_a_comparison_that_sees_nothing_says_so() -> None:
    """Errors that it misses leave a count of 0, and a control that was not seen."""
    gpu = MadeUpGpu()
    gpu.blind = {"compare"}
    found = products(gpu, 3, Plant(what="result", pass_number=2, element=77, bit=3))
    assert found.error_count == 0
    assert found.control.endswith("found 0 errors")


def test_a_planted_bit_is_counted_beside_the_control() -> None:
    """The control is no error: of a planted one there is one, with its own place."""
    found = products(MadeUpGpu(), 3, Plant(what="result", pass_number=2, element=77, bit=3))
    assert [(one.pass_number, one.row, one.col, one.bit) for one in found.errors] == [(2, 77, 0, 3)]
    assert (found.error_count, found.control) == (1, SEEN)


@pytest.mark.parametrize("name", ["walking", "inversions", "address", "random", "modulo20", "fade"])
def test_every_memory_pattern_ends_with_a_control(name: str) -> None:
    """The check that was last has to see a bit of one word; one that sees nothing says so."""
    phase = Phase(kind="pattern", pattern=name, size_bytes=PIECE, pause_s=0.001)
    assert memory.sweeps(name, 0, 1, 0.0)[-1].mode == memory.CHECK
    gpu = MadeUpGpu()
    found = memory.pattern(gpu, phase, 0.0, 5, BEAT)
    assert (found.error_count, found.control) == (0, SEEN)
    gpu = MadeUpGpu()
    gpu.blind = {"check"}
    assert memory.pattern(gpu, phase, 0.0, 5, BEAT).control.endswith("found 0 errors")


def test_a_pattern_that_was_cut_has_no_control() -> None:
    """Its memory may hold another pattern than the last check expects."""
    beat: Any = type("Stopped", (Beat,), {"stopped": True})()
    found = memory.pattern(MadeUpGpu(), Phase(kind="pattern", pattern="random", size_bytes=PIECE), 0.0, 5, beat)
    assert (found.cut, found.control) == (True, "")


# --- inputs


@pytest.mark.parametrize("matrix", ["A", "B"])
def test_an_input_that_changed_is_found_before_and_after(matrix: str) -> None:
    """Row, column and bit of the element; once before the first product, and once more when the load is over."""
    gpu = MadeUpGpu()
    base, row, col = (2**36, 5, 9) if matrix == "A" else (2 * 2**36, 9, 5)
    gpu.stuck = {base + (5 * K + 9) * 2: (0, 0)}
    found = products(gpu, 4)
    assert [(one.matrix, one.pass_number, one.row, one.col) for one in found.errors] == [
        (matrix, -1, row, col),
        (matrix, 4, row, col),
    ]
    assert (found.error_count, found.errors[0].found[-2:], found.errors[0].format) == (2, "00", "bf16")


def test_a_planted_bit_of_an_input_is_found_at_the_end() -> None:
    """It comes between the look at the inputs and the first product: all products agree with each other."""
    found = products(MadeUpGpu(), 4, Plant(what="input", element=3 * K + 8, bit=11))
    assert [(one.matrix, one.pass_number, one.row, one.col, one.bit) for one in found.errors] == [("A", 4, 3, 8, 11)]
    assert found.error_count == 1


# --- caches


def made(level: str, gpu: MadeUpGpu) -> Any:
    return bandwidth.cache(gpu, Phase(kind="cache", level=level, seconds=0.01), 3, BEAT)


@pytest.mark.parametrize("level", ["l1", "l2"])
def test_a_cache_is_read_under_every_pattern(level: str) -> None:
    """All six, each written before it is read, and then a control."""
    gpu = MadeUpGpu()
    found = made(level, gpu)
    assert (found.patterns, found.error_count, found.control) == (list(CACHE_PATTERNS), 0, SEEN)
    assert gpu.launched.count("cache_write") == 1 + len(CACHE_PATTERNS)
    gpu.blind = {"check"}
    assert made(level, gpu).control.endswith("found 0 errors")


def test_a_bit_of_a_cache_that_is_stuck_is_found() -> None:
    """At 0 or at 1, at both ends of each byte of a word."""
    for bit in (0, 7, 8, 15, 16, 23, 24, 31):
        for value in (0, 1):
            gpu, at = MadeUpGpu(), 2**36 + 4000 + bit // 8
            gpu.stuck = {at: (1 << bit % 8, 255) if value else (0, 255 ^ 1 << bit % 8)}
            found = made("l2", gpu)
            assert found.error_count > 0, (bit, value)
            assert {(one.address, one.bit) for one in found.errors} == {(4000, bit)}


def test_no_two_words_of_an_address_pattern_are_equal() -> None:
    """So a line that answers for another one is found; every word of "address" is its own address."""
    base = 0x7F3C12340000
    for name in ("address", "seeded"):
        by = bandwidth.patterns(9)[name]
        words = [word for i in range(4096) for word in MadeUpGpu.cached(base, i, by)]
        assert len(set(words)) == len(words)
        assert name != "address" or words == [(base + 4 * i) & 0xFFFFFFFF for i in range(len(words))]
    for name in CACHE_PATTERNS[:4]:
        assert set(MadeUpGpu.cached(base, 17, bandwidth.patterns(9)[name])) == {int(name, 16)}


# --- burn and pulse


def one_product(_: Any, enqueue: Any, *, first: int, **__: Any) -> Flow:
    """A turn of a format: one product that lasts 20 ms."""
    enqueue(first)
    time.sleep(0.02)
    flow = Flow()
    flow.add(0.02, 1)
    return flow


def burnt(gpu: MadeUpGpu, seconds: float = 0.2) -> Any:
    lt: Any = type("Lt", (), {"version": "13"})()
    phase = Phase(kind="burn", formats=["bf16"], seconds=seconds, m=M, n=N, k=K)
    return burn.burn(gpu, lt, phase, 3, BEAT)


def test_turns_of_memory_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn that was compared counts, with its bytes; its control and those of the formats are one."""
    monkeypatch.setattr(MadeUpGpu, "memory_bytes", 512 * 2**20)
    monkeypatch.setattr(burn, "MEMORY_SHARE", PIECE / (512 * 2**20))
    found = burnt(MadeUpGpu())
    assert found.memory_turns >= 1
    assert found.memory_bytes == found.memory_turns * 2 * PIECE
    assert (found.error_count, found.control) == (0, SEEN)
    gpu = MadeUpGpu()
    gpu.blind = {"check"}
    assert burnt(gpu).control.endswith("found 0 errors")


def test_a_burn_without_memory_traffic_counts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no turn is made, the count is 0."""
    monkeypatch.setattr(burn, "_memory_turn", lambda *_: None)
    found = burnt(MadeUpGpu())
    assert (found.memory_turns, found.memory_bytes) == (0, 0)


def test_a_pulse_has_the_control_of_all_its_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two formats; where the comparison of one sees nothing, that is what the pulse says."""
    phase = Phase(kind="pulse", formats=["bf16", "fp16"], period_s=0.02, duty=0.5, seconds=0.04, m=M, n=N, k=K)
    lt: Any = None
    found = pulse.pulse(MadeUpGpu(), lt, phase, 3, BEAT)
    assert (found.error_count, found.control) == (0, SEEN)
    seen = iter([SEEN, "found 0 errors"])
    monkeypatch.setattr(check.Check, "control", lambda *_: next(seen))
    assert pulse.pulse(MadeUpGpu(), lt, phase, 3, BEAT).control == "found 0 errors"
