"""How an algorithm is chosen, on a library that offers some and a clock that the test sets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress.cublas import CONFIG, OFFERS, Multiplication, _Heuristic
from pytest_gpuready.agent.stress.formats import FORMATS


class Library:
    """cuBLASLt with so many offers; `ran` is the offer that a product used last."""

    handle = 1

    def __init__(self, offers: int, broken: tuple[int, ...] = ()) -> None:
        self.offers, self.broken = offers, broken
        self.chosen: dict[tuple[str, tuple[int, int, int]], str] = {}
        self.ran = -1
        self.products = 0

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "matmul_algo_get_heuristic":
            found = (_Heuristic * OFFERS).from_address(arguments[-2])
            for place in range(self.offers):
                found[place].algorithm[0] = 100 + place
                found[place].algorithm[7] = self.products  # as if nobody had written it
            ctypes.c_int.from_address(arguments[-1]).value = self.offers
        if name == "matmul":
            self.ran = _Heuristic.from_address(arguments[12]).algorithm[0] - 100
            self.products += 1
            if self.ran in self.broken:
                raise CudaError("cublasLt matmul: expected success, found NOT_SUPPORTED")
        if name == "matmul_algo_config_get_attribute" and arguments[1] == CONFIG["id"]:
            number = _Heuristic.from_address(arguments[0]).algorithm[0]
            ctypes.c_uint32.from_address(arguments[2]).value = number
        return 7


def chosen(library: Library, seconds: Callable[[int, int], float]) -> tuple[int, list[float]]:
    """The offer that is taken where a product of offer p lasts seconds(p, how many products before)."""

    def seconds_of(work: Callable[[], None], times: int) -> float:
        total = 0.0
        for _ in range(times):
            work()
            total += seconds(library.ran, library.products)
        return total / times

    gpu = type("G", (), {"stream": 3})()
    made = Multiplication(library, gpu, FORMATS["bf16"], (512, 512, 512), a=1, b=2, d=3, space=4)  # type: ignore[arg-type]
    made.choose(seconds_of)
    made.run()
    return library.ran, made.timed


def test_a_clearly_faster_one_is_taken_and_stays() -> None:
    """The fastest of eight is used, also by the next phase, which times nothing anew."""
    library = Library(8)
    assert chosen(library, lambda p, n: 0.0025 if p == 5 else 0.003)[0] == 5
    before = library.products
    assert chosen(library, lambda p, n: 0.001 if p == 2 else 0.003)[0] == 5
    assert library.products - before <= 3


def test_a_difference_within_a_percent_leaves_the_first() -> None:
    """The heuristics' own choice stays, so that equal GPUs agree."""
    assert chosen(Library(8), lambda p, n: 0.003 - 0.00002 * (p == 4))[0] == 0


def test_one_slow_moment_does_not_decide() -> None:
    """A clock that is slow while the first is timed does not cost it its place: the shorter of two times counts."""
    assert chosen(Library(8), lambda p, n: 0.004 if 8 < n < 12 and p == 0 else 0.003)[0] == 0


def test_hopeless_and_broken_ones_cost_little() -> None:
    """One that does not run is passed over; one that is ten times slower runs once."""
    library = Library(6, broken=(3,))
    counts = dict.fromkeys(range(6), 0)

    def seconds(p: int, n: int) -> float:
        counts[p] += 1
        return {1: 0.03, 4: 0.0025}.get(p, 0.003)

    taken, timed = chosen(library, seconds)
    assert taken == 4
    assert timed[3] == float("inf")
    assert counts[1] == 1


def test_none_is_an_error() -> None:
    """A library without an algorithm is named, with format and shape."""
    with pytest.raises(CudaError, match="expected an algorithm for bf16"):
        chosen(Library(0), lambda p, n: 0.003)


def test_the_first_offer_is_used_while_it_is_asked_for() -> None:
    """Whatever was chosen: its products and its name are those of the first, and the choice is as it was after it."""
    library = Library(8)
    gpu = type("G", (), {"stream": 3})()
    made = Multiplication(library, gpu, FORMATS["bf16"], (512, 512, 512), a=1, b=2, d=3, space=4)  # type: ignore[arg-type]
    made.choose(lambda work, times: (work(), 0.0025 if library.ran == 5 else 0.003)[1])
    own = made.algorithm
    assert not made.took_first
    with made.first_offer():
        made.run()
        assert library.ran == 0
        assert made.algorithm != own
    made.run()
    assert (library.ran, made.algorithm, made.took_first) == (5, own, False)
