"""The data of a check: integers so small that every sum of them is exact in the datatype, in whatever order.

Element i of a rank is a(i) + b(i)·w(rank): a and b come from a hash of the seed and the element's index in the whole
data, w counts the ranks in a cycle. So the sum over all ranks has a closed form, n·a(i) + b(i)·Σw, and what came from
the wrong rank or from the wrong place differs. The device computes the same (`kernels`); here it is done again to say
what had to be found.
"""

from __future__ import annotations

from dataclasses import dataclass

EXACT = {"float32": 2**24, "bfloat16": 2**8}
"""Datatype -> integers up to this one are exact in it."""

_HIGH = ((4096, 8), (64, 4), (4, 1), (2, 1), (1, 1))
_CYCLES = (1024, 64, 16, 4, 2)
_MASK = 2**64 - 1
_STRIDE = 0xD1342543DE82EF95


class PatternError(ValueError):
    """There are no such integers: one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How high a and b go (powers of two), after how many ranks w begins again, and Σw over all ranks."""

    high_a: int
    high_b: int
    cycle: int
    total: int

    def of(self, rank: int) -> int:
        """w of a rank."""
        return rank % self.cycle


def weights(nranks: int, datatype: str, *, summed: bool) -> Weights:
    """The highest that are exact, in the sum over all ranks where `summed`.

    Raises:
        PatternError: so many ranks cannot be told apart in this datatype.
    """
    limit = EXACT[datatype]
    for cycle in (nranks, *(cycle for cycle in _CYCLES if cycle < nranks)):
        rounds, rest = divmod(nranks, cycle)
        total = rounds * (cycle * (cycle - 1) // 2) + rest * (rest - 1) // 2
        for a, b in _HIGH:
            if (nranks * a + b * total if summed else a + b * (cycle - 1)) <= limit:
                return Weights(high_a=a, high_b=b, cycle=cycle, total=total)
    raise PatternError(f"expected ranks whose sums are exact in {datatype}, found {nranks}: take float32")


def mix(x: int) -> int:
    """A hash of 64 bits (splitmix64)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
    return x ^ x >> 31


def element(seed: int, index: int, known: Weights, *, many: int, weight: int) -> int:
    """many·a + weight·b of one element: many 1 and weight w(rank) for a rank's own, n and Σw for the sum of all."""
    bits = mix((seed * _STRIDE + index) & _MASK)
    return many * (1 + bits % known.high_a) + weight * (1 + (bits >> 32) % known.high_b)


def seed_of(seed: int, number: int, in_place: bool) -> int:
    """Each check has data of its own: what lies there from the one before is wrong."""
    return mix((seed * 0x10001 + 2 * number + in_place) & _MASK)
