"""Every product checked on the GPU: each pass against the first, and the first against an independent reference.

Against the first (`Check.queue`): bit for bit, by a digest of each 64 KiB and word for word where one differs; see
`kernels`. That finds whatever changes from pass to pass. What is wrong in all of them alike is found by the reference.

The reference (`Reference`) looks at the first result in two ways, neither of which uses a tensor core or cuBLAS:

- Freivalds' products, all of the result: C·x against A·(B·x) for four vectors x of random signs, in FP64. If element
  errors are e_n, row sums of x_n e_n stay under 8 sqrt(sum of e_n^2) (Hoeffding: beyond that with probability 3e-14 a
  row), whatever the errors are, because x is independent of them. The sum of squares is bounded by `Format.spread`.
  A wrong tile of 128 columns puts about sqrt(128) S sqrt(2) into each of its rows, with S the size of a result.
- Recomputed tiles of 64 x 64 in FP64, in a seeded order, each element within `Format.limit` of the true sum. As many as
  `RECOMPUTE_S` allows, which on GPUs with FP64 units is all of them.

Both limits come from the error analysis in `formats`. `max_residual` is the largest error as a part of its own limit,
so the limit is 1; INT8 has the limit 0 and no error. An element that is infinite or no number at all is an error with
the residual `BOUNDLESS`. What lies below the limits cannot be seen by any reference: one
element of a BF16 product that is always wrong by less than 4 % of S, of an FP8 product by less than half of S. On one
H200 healthy first results came to 0.04 to 0.48 of the limit of a row and to 0 to 0.22 of that of an element.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import struct
from collections.abc import Callable
from typing import Any

from pytest_gpuready.agent.stress import kernels
from pytest_gpuready.agent.stress.control import chosen, control
from pytest_gpuready.agent.stress.formats import SIZE_BITS, Format
from pytest_gpuready.agent.stress.report import REPORT, Report, lowest_bit
from pytest_gpuready.model.stress_doc import MOST_ERRORS, Reference, ResultFault

CHUNK = 65536
VECTORS = 4
SIGMAS = 8.0
RECOMPUTE_S = 0.4
TILE = 64
TILE_SHOWN = 128
"""Tiles in the errors are 128 x 128, row by row: about what one multiprocessor computes."""
COLUMNS = 64
"""Columns that one thread of a Freivalds product adds up."""


def fault(m: int, entry: tuple[int, int, int, int], form: Format, width: int | None = None) -> ResultFault:
    """An entry of `compare` as an error; the result lies column by column."""
    position, expected, found, number = entry
    row, col = position % m, position // m
    digits = (width or SIZE_BITS[form.d]) // 4
    return ResultFault(
        pass_number=number,
        row=row,
        col=col,
        tile=row // TILE_SHOWN + col // TILE_SHOWN * -(-m // TILE_SHOWN),
        bit=lowest_bit(expected, found),
        expected=f"0x{expected:0{digits}x}",
        found=f"0x{found:0{digits}x}",
        format=form.name,
    )


class Check:
    """The first result of a product, kept, and every later one compared with it."""

    def __init__(
        self, gpu: Any, form: Format, shape: tuple[int, int, int], *, d: int, first: int, scratch: int
    ) -> None:
        m, n, _ = shape
        self._gpu, self._form, self._shape = gpu, form, shape
        self._d, self._first = d, first
        self.size = form.bytes_of(form.d, m * n)
        self._golden, self._report = scratch, scratch + self.size // CHUNK * 8
        source = products_source(form)
        chunks = (self.size // CHUNK,)
        self._digest = gpu.kernel(source, "digest", chunks, 256, first, self._golden)
        self._compare = gpu.kernel(source, "compare", chunks, 256, d, first, self._golden, 0, self._report)

    @staticmethod
    def scratch_bytes(size: int) -> int:
        return size // CHUNK * 8 + REPORT

    def take_first(self) -> None:
        """Keep what lies in D now as the first result."""
        self._gpu.copy(self._first, self._d, self.size)
        self._digest.launch()
        self._gpu.zero(self._report, REPORT)

    def queue(self, number: int) -> None:
        """Compare what lies in D when the queue gets here."""
        self._compare.arguments[3].value = number
        self._compare.launch()

    def control(self, flip: Any, seed: int, number: int) -> str:
        """What the comparison says of the first result with one bit flipped by `flip`; see `stress.control`."""
        width = SIZE_BITS[self._form.d]
        one = chosen(seed, number, self.size * 8 // width, width)
        self._gpu.copy(self._d, self._first, self.size)
        return control(self._gpu, one, data=self._d, flip=flip, compare=lambda: self.queue(number), report=self._report)

    def digest(self) -> str:
        """SHA-256 of the chunks' digests, so of the first result."""
        return hashlib.sha256(self._gpu.read(self._golden, self.size // CHUNK * 8)).hexdigest()

    def errors(self) -> tuple[int, list[ResultFault]]:
        report = Report(self._gpu.read(self._report, REPORT))
        return report.count, [fault(self._shape[0], entry, self._form) for entry in report.entries]


def products_source(form: Format) -> str:
    return kernels.products(form.a, form.b, form.d, SIZE_BITS[form.d] // 8)


def reference_source(form: Format) -> str:
    return kernels.reference(form.a, form.b, form.d, SIZE_BITS[form.d] // 8)


def look_at_first(
    gpu: Any,
    form: Format,
    shape: tuple[int, int, int],
    buffers: tuple[int, int, int],
    seed: int,
    *,
    stopped: Callable[[], bool] = lambda: False,
    budget_s: float = RECOMPUTE_S,
) -> tuple[Reference, int, list[ResultFault], str]:
    """The first result (A, B, D in `buffers`) against the reference: what was found, the errors, and how much of it.

    Errors of Freivalds' products name a row; their column is that of no element and stands as 0.
    """
    (m, n, k), (a, b, d) = shape, buffers
    source = reference_source(form)
    sizes = (VECTORS * k * 8, VECTORS * m * 8, (VECTORS + 1) * m * 8, REPORT, REPORT)
    with gpu.buffers(sum(sizes)) as (base,):
        y, z, w, rows, elements = (base + sum(sizes[:i]) for i in range(len(sizes)))
        gpu.zero(base, sum(sizes))
        gpu.kernel(source, "signs_of_b", (k // 256, -(-n // COLUMNS)), 256, b, n, k, COLUMNS, seed, y).launch()
        gpu.kernel(source, "rows_of_a", (m,), 256, a, m, k, y, z).launch()
        gpu.kernel(source, "signs_of_d", (m // 256, -(-n // COLUMNS)), 256, d, m, n, COLUMNS, seed, w).launch()
        absolute, relative = (ctypes.c_double(part) for part in form.spread(k))
        gpu.kernel(
            source, "residual", (m // 256,), 256, z, w, m, n, absolute, relative, ctypes.c_double(SIGMAS), rows
        ).launch()
        done = _recompute(gpu, form, shape, buffers, seed=seed, report=elements, stopped=stopped, budget_s=budget_s)
        by_row, by_element = Report(gpu.read(rows, REPORT)), Report(gpu.read(elements, REPORT))
    # Where a row is meant, the position is the row: column 0 of it.
    errors = [fault(m, entry, form, 64) for entry in by_element.entries + by_row.entries]
    errors = [_of_first(one) for one in errors][:MOST_ERRORS]
    tiles = (m // TILE) * (n // TILE)
    part = "all" if done == tiles else f"{done} of {tiles}"
    note = (
        f"reference: rows {by_row.worst:.3g} of their limit (Freivalds, {VECTORS} vectors), elements "
        f"{by_element.worst:.3g} of theirs ({part} tiles of {TILE} x {TILE} recomputed in FP64)"
    )
    kind = "freivalds+recomputed" if done else "freivalds"
    worst = max(by_row.worst, by_element.worst)
    looked = Reference(kind=kind, max_residual=worst, limit=0.0 if form.exact else 1.0)
    return looked, by_row.count + by_element.count, errors, note


def _of_first(one: ResultFault) -> ResultFault:
    """An error of the first result: expected and found are FP64 values, so they are written as numbers."""
    values = [struct.unpack(">d", int(text, 16).to_bytes(8, "big"))[0] for text in (one.expected, one.found)]
    return ResultFault(
        pass_number=-1,
        row=one.row,
        col=one.col,
        tile=one.tile,
        bit=0,
        expected=f"{values[0]:.9g}",
        found=f"{values[1]:.9g}",
        format=one.format,
    )


def _recompute(
    gpu: Any,
    form: Format,
    shape: tuple[int, int, int],
    buffers: tuple[int, int, int],
    *,
    seed: int,
    report: int,
    stopped: Callable[[], bool],
    budget_s: float,
) -> int:
    """Recompute tiles in a seeded order until the time is up; how many were."""
    m, n, k = shape
    total = (m // TILE) * (n // TILE)
    step = next(s for s in range((seed * 7919 + total * 5 // 8) | 1, 2**63, 2) if math.gcd(s, total) == 1) % total or 1
    limits = [ctypes.c_double(part) for part in form.limit(k)]
    done, spent, count = 0, 0.0, min(total, 2 * gpu.sms)
    while done < total and spent < budget_s and not stopped():
        count = min(count, total - done)
        kernel = gpu.kernel(
            reference_source(form), "tiles", (count,), 256, *buffers, m, n, k, done, step, total, *limits, report
        )
        took = gpu.seconds_of(kernel.launch)
        done, spent = done + count, spent + took
        per_tile = max(took / count, 1e-9)
        count = max(2 * gpu.sms, int(min(0.1, max(budget_s - spent, 0.0)) / per_tile))
    return done
