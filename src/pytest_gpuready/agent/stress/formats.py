"""The number formats of the GEMM stress: what cuBLASLt calls them, which shapes fill a chip, and how far rounding goes.

A result of K products a·b (both exact in their format, mean 0, variance 1, independent) is a random walk: its standard
deviation is S = sqrt(K). Three things move a healthy result away from the exact sum:

1. The accumulator. A tensor core adds `step` products at once to an accumulator, aligned to the largest of them, and
   cuts what lies below `unit` times that largest one. Partial sums of one result stay under 8 S (a normal variable
   passes 8 standard deviations with probability 1e-15, a walk at most twice as often), whatever order of contiguous
   parts a kernel adds in. With `unit` = 2^-23 (FP32 accumulators, cut not rounded) and K (1 + 1/4) cuts, the
   worst case for TF32, BF16 and FP16 is 1.25 K 2^-23 8 S: no error can be larger. FP64 fuses and rounds: unit 2^-53.
2. FP8 on Hopper keeps 13 bits behind the point in its fast accumulation, and its worst case would be larger than the
   result. What holds instead: the accumulator is cut towards zero once in a step of 32 and loses half a unit of its
   size on the average, which itself is at most (|C| + 2 S) / 2 on the average over a walk that ends at C; counted
   twice: K/64 units of |C| + 2 S. The cuts of the products have random signs, their sum stays under 6 standard
   deviations sqrt(K (1 + 1/32) / 3) units of 4 S.
3. Rounding to the format of the result: at most `last` of its size (one unit in the last place for BF16 and FP16).

INT8 has no error at all: sums stay under 2^31.

`limit` is 1 to 3 for one element (absolute part, part of |C|). `spread` is the root mean square over many elements,
which is what a Freivalds product sees. A cut is half a unit on the average, and a walk's own size on the average S/2:
K/step quarters of a unit times S (for the FP32 accumulators twice that, at no cost), and the random part, in quadrature
with the rounding to the format of the result.

K is large so that reading each result once costs little beside computing it: under 1 % of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3, R_8F_E5M2, R_4F_E2M1 = 0, 1, 2, 3, 10, 14, 28, 29, 33
"""cudaDataType."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 68, 70, 72, 77
"""cublasComputeType_t."""
VEC16_UE4M3, VEC32_UE8M0 = 1, 2
"""cublasLtMatmulMatrixScale_t."""

FP64, TF32, BF16, FP16, E4M3, E5M2, INT8, INT32, E2M1, FP32 = range(10)
"""How the kernels call an element (`kernels.HEADER`)."""

SIZE_BITS = {FP64: 64, TF32: 32, BF16: 16, FP16: 16, E4M3: 8, E5M2: 8, INT8: 8, INT32: 32, E2M1: 4, FP32: 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format. `shape` is m, n, k; multiples of 256 keep every chunk of 64 KiB whole."""

    name: str
    a: int
    b: int
    d: int
    types: tuple[int, int, int]
    """cudaDataType of A, B and D."""
    compute: int
    scale: int
    shape: tuple[int, int, int]
    least_compute: tuple[int, int]
    step: int = 4
    unit: float = 2.0**-23
    last: float = 0.0
    fast_accumulation: bool = False
    block_scale: int = 0
    """cublasLtMatmulMatrixScale_t; 0 for none."""
    block: int = 0
    """Elements along K that share a scale; all scales are 1 here, so that their layout does not matter."""

    @property
    def exact(self) -> bool:
        return self.name == "int8"

    def bytes_of(self, element: int, count: int) -> int:
        return count * SIZE_BITS[element] // 8

    def limit(self, k: int) -> tuple[float, float]:
        """How far one element may be from the exact sum: absolute, and as part of its size."""
        if self.exact:
            return 0.0, 0.0
        s = math.sqrt(k)
        if self.unit < 2.0**-20:
            return 1.25 * k * self.unit * 8 * s + 2 * k * 2.0**-53 * 8 * s, self.last
        steps = k / self.step
        walk = 6 * math.sqrt(k * (1 + 1 / self.step) / 3)
        return self.unit * (steps + walk * 4) * s, self.unit * steps / 2 + self.last

    def spread(self, k: int) -> tuple[float, float]:
        """Root mean square of that over many elements: absolute, and as part of their size."""
        if self.exact:
            return 0.0, 0.0
        s = math.sqrt(k)
        cuts = k / self.step / (4 if self.unit > 2.0**-20 else 2) if self.unit > 2.0**-50 else 0.0
        own = 4 * 2.0**-53 * s * s  # the reference's own rounding, in FP64
        return self.unit * (cuts + math.sqrt(1.25 * k)) * s + own, self.last / 2


def _table() -> dict[str, Format]:
    deep = (8192, 8192, 32768)
    found = (
        Format(
            name="fp64",
            a=FP64,
            b=FP64,
            d=FP64,
            types=(R_64F, R_64F, R_64F),
            compute=COMPUTE_64F,
            scale=R_64F,
            shape=(4096, 4096, 8192),
            least_compute=(8, 0),
            step=1,
            unit=2.0**-53,
        ),
        Format(
            name="tf32",
            a=TF32,
            b=TF32,
            d=FP32,
            types=(R_32F, R_32F, R_32F),
            compute=COMPUTE_32F_FAST_TF32,
            scale=R_32F,
            shape=deep,
            least_compute=(8, 0),
            last=2.0**-23,
        ),
        Format(
            name="bf16",
            a=BF16,
            b=BF16,
            d=BF16,
            types=(R_16BF, R_16BF, R_16BF),
            compute=COMPUTE_32F,
            scale=R_32F,
            shape=deep,
            least_compute=(8, 0),
            last=2.0**-8,
        ),
        Format(
            name="fp16",
            a=FP16,
            b=FP16,
            d=FP16,
            types=(R_16F, R_16F, R_16F),
            compute=COMPUTE_32F,
            scale=R_32F,
            shape=deep,
            least_compute=(8, 0),
            last=2.0**-11,
        ),
        _eight("fp8_e4m3", E4M3, R_8F_E4M3),
        _eight("fp8_e5m2", E5M2, R_8F_E5M2),
        Format(
            name="int8",
            a=INT8,
            b=INT8,
            d=INT32,
            types=(R_8I, R_8I, R_32I),
            compute=COMPUTE_32I,
            scale=R_32I,
            shape=deep,
            least_compute=(8, 0),
        ),
        _scaled("mxfp8", E4M3, R_8F_E4M3, VEC32_UE8M0, 32),
        _scaled("fp4", E2M1, R_4F_E2M1, VEC16_UE4M3, 16),
    )
    return {f.name: f for f in found}


def _eight(name: str, a: int, a_type: int) -> Format:
    """FP8 with the fast accumulation that everybody uses; B is E4M3, as cuBLASLt wants it beside E5M2."""
    return Format(
        name=name,
        a=a,
        b=E4M3,
        d=BF16,
        types=(a_type, R_8F_E4M3, R_16BF),
        compute=COMPUTE_32F,
        scale=R_32F,
        shape=(8192, 8192, 32768),
        least_compute=(8, 9),
        step=32,
        unit=2.0**-13,
        last=2.0**-8,
        fast_accumulation=True,
    )


def _scaled(name: str, element: int, data_type: int, mode: int, block: int) -> Format:
    """Block-scaled formats of Blackwell, which accumulate in FP32."""
    return Format(
        name=name,
        a=element,
        b=element,
        d=BF16,
        types=(data_type, data_type, R_16BF),
        compute=COMPUTE_32F,
        scale=R_32F,
        shape=(8192, 8192, 32768),
        least_compute=(10, 0),
        last=2.0**-8,
        block_scale=mode,
        block=block,
    )


FORMATS = _table()


def supported(compute: tuple[int, int]) -> tuple[list[str], dict[str, str]]:
    """Formats that a chip of this compute capability multiplies, and why not the others."""
    can, cannot = [], {}
    for name, one in FORMATS.items():
        if compute >= one.least_compute:
            can.append(name)
        else:
            need = ".".join(map(str, one.least_compute))
            cannot[name] = f"needs compute capability {need}, this GPU has {compute[0]}.{compute[1]}"
    return can, cannot
