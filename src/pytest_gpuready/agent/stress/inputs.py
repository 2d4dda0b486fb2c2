"""A and B of a product: filled from the seed, and compared with what the filling writes before and after the load.

The reference reads A and B from memory: what was spoilt there before the first product is wrong in both alike. Here
each element is computed again from seed and index, as the filling did. That finds whatever changed in memory, and what
one multiprocessor filled wrong and another one computes right; a chip that computes it wrong everywhere is found by its
peers alone (`GemmResult.golden`).
"""

from __future__ import annotations

from typing import Any

from pytest_gpuready.agent.stress import check
from pytest_gpuready.agent.stress.formats import SIZE_BITS, Format
from pytest_gpuready.agent.stress.report import REPORT, Report, lowest_bit
from pytest_gpuready.model.stress_doc import Plant, ResultFault


class Inputs:
    """A and B of one format at their addresses; `report`: memory of its own for what is found."""

    def __init__(
        self, gpu: Any, form: Format, shape: tuple[int, int, int], *, a: int, b: int, seed: int, report: int
    ) -> None:
        m, n, k = shape
        self._gpu, self._form, self._shape, self._report = gpu, form, shape, report
        source, grid = check.products_source(form), (gpu.sms * 16,)
        both = ((a, m * k, seed * 2), (b, n * k, seed * 2 + 1))
        names = ("a", "b")
        self._fill = [gpu.kernel(source, f"fill_{x}", grid, 256, *one) for x, one in zip(names, both, strict=True)]
        self._inspect = [
            gpu.kernel(source, f"inspect_{x}", grid, 256, *one, first, report)
            for x, one, first in zip(names, both, (0, m * k), strict=True)
        ]
        self._flip = gpu.kernel(source, "flip_bit", (1,), 1, a, 0, 0)

    def fill(self) -> None:
        for kernel in self._fill:
            kernel.launch()

    def look(self, number: int) -> tuple[int, list[ResultFault]]:
        """Elements that are not what the filling writes, after product `number`; -1: before the first."""
        self._gpu.zero(self._report, REPORT)
        for kernel in self._inspect:
            kernel.launch()
        report = Report(self._gpu.read(self._report, REPORT))
        return report.count, [self._fault(entry, number) for entry in report.entries]

    def spoil(self, plant: Plant) -> None:
        """Flip the planted bit of A."""
        width = SIZE_BITS[self._form.a]
        bit = plant.element * width + plant.bit
        self._flip.arguments[1].value, self._flip.arguments[2].value = bit // 8, bit % 8
        self._flip.launch()

    def _fault(self, entry: tuple[int, int, int, int], number: int) -> ResultFault:
        (m, _, k), (position, expected, found, _) = self._shape, entry
        of_a = position < m * k
        line, along = divmod(position if of_a else position - m * k, k)
        digits = -(-SIZE_BITS[self._form.a if of_a else self._form.b] // 4)
        return ResultFault(
            pass_number=number,
            row=line if of_a else along,
            col=along if of_a else line,
            tile=0,
            bit=lowest_bit(expected, found),
            expected=f"0x{expected:0{digits}x}",
            found=f"0x{found:0{digits}x}",
            format=self._form.name,
            matrix="A" if of_a else "B",
        )
