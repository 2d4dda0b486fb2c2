"""The integers of a check: exact in every sum, and such that no sum but the right one is right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.agent.collectives.pattern import EXACT, PatternError, element, mix, seed_of, weights

NRANKS = st.integers(1, 1024)


@given(NRANKS, st.integers(0, 2**63), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_the_closed_form_is_the_sum(nranks: int, seed: int, index: int) -> None:
    """n·a + b·Σw is what adding every rank's element gives, and it is exact in float32."""
    known = weights(nranks, "float32", summed=True)
    each = [element(seed, index, known, many=1, weight=known.of(rank)) for rank in range(nranks)]
    assert sum(each) == element(seed, index, known, many=nranks, weight=known.total)
    assert sum(each) <= EXACT["float32"]
    assert min(each) > 0


@pytest.mark.parametrize("datatype", ["float32", "bfloat16"])
def test_the_highest_are_exact(datatype: str) -> None:
    """Whatever the hash gives, sums stay where every integer is one of the datatype; neighbouring ranks differ."""
    for nranks in (1, 2, 3, 4, 7, 8, 16, 23, 64, 71, 72, 127, 128):
        for summed in (True, False):
            known = weights(nranks, datatype, summed=summed)
            if summed:
                assert nranks * known.high_a + known.high_b * known.total <= EXACT[datatype]
            assert known.high_a + known.high_b * (known.cycle - 1) <= EXACT[datatype]
            assert sum(map(known.of, range(nranks))) == known.total
            if nranks > 1:
                assert known.of(0) != known.of(1)
            assert known.high_a & (known.high_a - 1) == known.high_b & (known.high_b - 1) == 0


def test_no_element_of_any_rank_is_nothing() -> None:
    """What a rank that is left out would have added is 1 at least, also where the hash gives its least."""
    known = weights(2, "bfloat16", summed=True)
    own = [element(3, index, known, many=1, weight=known.of(0)) for index in range(1000)]
    assert (min(own), max(own)) == (1, known.high_a)


def test_too_many_ranks_are_refused() -> None:
    """Where ranks could not be told apart, the datatype is not taken."""
    with pytest.raises(PatternError, match="found 256: take float32"):
        weights(256, "bfloat16", summed=True)


def test_the_hash_is_splitmix64() -> None:
    """The published first outputs for seed 0."""
    golden = 0x9E3779B97F4A7C15
    assert [mix(0), mix(golden), mix(2 * golden % 2**64)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_every_check_has_data_of_its_own() -> None:
    """Steps, halves and seeds do not share it."""
    seeds = {seed_of(seed, number, half) for seed in range(4) for number in range(50) for half in (False, True)}
    assert len(seeds) == 400
