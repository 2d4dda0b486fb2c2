"""The limits of the reference, against accumulators emulated in exact arithmetic.

A tensor core is emulated as the analysis describes it: `step` products are added at once to the accumulator, each cut
towards zero at `unit` of the largest of them all. The data are normal and rounded to the format as the kernels do.
"""

from __future__ import annotations

import itertools
import math
import random

import pytest

from pytest_gpuready.agent.stress.formats import FORMATS, Format, supported

K = 2048
RESULTS = 12


def rounded(x: float, mantissa: int, least: int = -126) -> float:
    """To so many bits behind the point, ties to even; what is smaller than 2^least keeps that unit."""
    if x == 0:
        return 0.0
    exponent = max(math.frexp(x)[1] - 1, least)
    unit = 2.0 ** (exponent - mantissa)
    return round(x / unit) * unit


INPUTS: dict[str, tuple[int, int]] = {
    "tf32": (10, -126),
    "bf16": (7, -126),
    "fp16": (10, -14),
    "fp8_e4m3": (3, -6),
    "fp8_e5m2": (2, -14),
}
OUTPUTS = {"tf32": 23, "bf16": 7, "fp16": 10, "fp8_e4m3": 7, "fp8_e5m2": 7}


def products(form: Format, seed: int) -> list[float]:
    """K products of rounded normal numbers; B of FP8 is always E4M3."""
    draw = random.Random(seed)
    a = INPUTS[form.name]
    b = INPUTS["fp8_e4m3"] if form.name == "fp8_e5m2" else a
    return [rounded(draw.gauss(0, 1), *a) * rounded(draw.gauss(0, 1), *b) for _ in range(K)]


def accumulated(values: list[float], step: int, unit: float) -> float:
    """As a tensor core adds them."""
    total = 0.0
    for start in range(0, len(values), step):
        terms = [total, *values[start : start + step]]
        largest = max(map(abs, terms))
        cut = 2.0 ** (math.frexp(largest)[1] - 1) * unit if largest else 1.0
        total = math.fsum(int(term / cut) * cut for term in terms)
    return total


@pytest.mark.parametrize("name", list(INPUTS))
def test_a_healthy_accumulator_stays_inside_and_a_wrong_tile_does_not(name: str) -> None:
    """All emulated results lie inside the limit of an element, their root mean square inside the spread; results that
    belong elsewhere do not."""
    form = FORMATS[name]
    absolute, relative = form.limit(K)
    spread, last = form.spread(K)
    errors, outside, exact = [], 0, []
    for seed in range(RESULTS):
        values = products(form, seed)
        true = math.fsum(values)
        found = rounded(accumulated(values, form.step, form.unit), OUTPUTS[name])
        assert abs(found - true) <= absolute + relative * abs(true)
        errors.append(found - true)
        exact.append(true)
    for true, other in itertools.pairwise(exact):
        outside += abs(other - true) > absolute + relative * abs(true)
    assert outside >= len(exact) // 2
    mean_square = math.fsum(error**2 for error in errors) / len(errors)
    allowed = spread**2 + last**2 * math.fsum(true**2 for true in exact) / len(exact)
    assert mean_square <= 2 * allowed


def test_the_limits_are_sharp_enough_to_mean_something() -> None:
    """At the shapes that are run, an element may be off by a part of a result's size that is named in the docstring."""
    parts = {name: form.limit(form.shape[2])[0] / math.sqrt(form.shape[2]) for name, form in FORMATS.items()}
    assert parts["int8"] == 0
    assert parts["fp64"] < 1e-10
    assert all(parts[name] < 0.04 for name in ("tf32", "bf16", "fp16"))
    assert all(parts[name] < 0.45 for name in ("fp8_e4m3", "fp8_e5m2"))


def test_freivalds_sees_a_wrong_tile_and_no_rounding() -> None:
    """Sums of a row with random signs: rounding stays under the limit, 128 wrong columns are over it in some row."""
    draw = random.Random(5)
    form = FORMATS["bf16"]
    n, k = 8192, form.shape[2]
    s = math.sqrt(k)
    absolute, relative = form.spread(k)
    row = [draw.gauss(0, s) for _ in range(n)]
    limit = 8 * math.sqrt(n * absolute**2 + relative**2 * math.fsum(c * c for c in row))
    healthy = math.fsum(draw.choice((-1, 1)) * (rounded(c, 7) - c) for c in row)
    assert abs(healthy) < limit
    wrong = [math.fsum(draw.gauss(0, s * math.sqrt(2)) for _ in range(128)) for _ in range(16)]
    assert max(map(abs, wrong)) > limit


def test_shapes_keep_chunks_whole_and_integers_exact() -> None:
    """m, n and k are multiples of 256; INT8 sums stay under 2^31."""
    for form in FORMATS.values():
        assert all(size % 256 == 0 for size in form.shape)
        assert form.bytes_of(form.d, form.shape[0] * form.shape[1]) % 65536 == 0
    assert FORMATS["int8"].shape[2] * 128 * 128 < 2**31


@pytest.mark.parametrize(
    ("compute", "missing"),
    [
        ((8, 0), {"fp8_e4m3", "fp8_e5m2", "mxfp8", "fp4"}),
        ((9, 0), {"mxfp8", "fp4"}),
        ((10, 0), set()),
    ],
)
def test_what_a_chip_cannot_multiply_is_said(compute: tuple[int, int], missing: set[str]) -> None:
    """Formats by compute capability; each one that is missing has a reason."""
    can, cannot = supported(compute)
    assert set(cannot) == missing
    assert set(can) | set(cannot) == set(FORMATS)
    assert all("needs compute capability" in why for why in cannot.values())
