"""The GEMM stress of one format: prepared, its first result checked, kept busy, every pass compared.

`Prepared` holds one format's buffers: A, B, D, the first result and a workspace. Preparing fills A and B from the seed,
chooses the algorithm, computes the first result and looks at it with the reference; then nothing but products and
their comparison is queued. Where memory does not suffice the shape is halved, which is noted.

Before each product one of `SLICES` slices of D, another one after each comparison, is overwritten, so that elements
that no product writes any more differ within so many comparisons: what lies there from the product before is right,
and would pass. After the load the comparison has to find a bit that is flipped on purpose (`control`), and A and B are
looked at once more (`inputs`).

The digest of the first result is comparable between GPUs that chose the same algorithm. So that any two equal GPUs can
be compared, one product by the first algorithm that the library offers is digested, too: `golden`.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import check, figures
from pytest_gpuready.agent.stress.cublas import WORKSPACE, Cublas, Multiplication
from pytest_gpuready.agent.stress.device import is_out_of_memory
from pytest_gpuready.agent.stress.flow import Beat, Flow, keep_busy, knows_enough
from pytest_gpuready.agent.stress.formats import FORMATS, Format, supported
from pytest_gpuready.agent.stress.inputs import Inputs
from pytest_gpuready.agent.stress.report import REPORT
from pytest_gpuready.model.stress_doc import MOST_ERRORS, GemmResult, Phase, Plant, Reference, ResultFault

LEAST = 512
GRAIN = 256
SLICES, UNWRITTEN = 16, 0xA5
"""D is overwritten with this byte in so many parts; they stay aligned, for D has a multiple of 128 KiB."""
PLANTS = "GPUREADY_STRESS_PLANTS"
"""Environment variable: "1" lets a phase plant the faults that it asks for. For tests alone."""


def format_of(name: str, compute: tuple[int, int]) -> Format:
    """Raises: CudaError where there is no such format, or not on this chip."""
    if name not in FORMATS:
        raise CudaError(f"expected a format among {', '.join(FORMATS)}, found {name[:40]!r}")
    _, cannot = supported(compute)
    if name in cannot:
        raise CudaError(f"{name} {cannot[name]}")
    return FORMATS[name]


def planted(phase: Phase) -> Plant | None:
    """The fault that a phase asks for.

    Raises: CudaError unless the environment allows faults.
    """
    if phase.plant is not None and os.environ.get(PLANTS) != "1":
        raise CudaError(f"expected no planted fault outside of tests ({PLANTS}=1), found {phase.plant.what[:20]!r}")
    return phase.plant


class Prepared:
    """One format on its buffers, ready to be queued. Use as a context manager."""

    def __init__(
        self,
        gpu: Any,
        lt: Cublas,
        form: Format,
        shape: tuple[int, int, int],
        *,
        seed: int,
        plant: Plant | None = None,
    ) -> None:
        for size in shape:
            if size < LEAST or size % GRAIN:
                raise CudaError(f"expected m, n, k from {LEAST} on in steps of {GRAIN}, found {shape}")
        self.gpu, self.form, self.seed, self.plant = gpu, form, seed, plant
        self._last = self._compared = 0
        self.notes: list[str] = []
        self.count = 0
        self.errors: list[ResultFault] = []
        self.reference: Reference | None = None
        self.digest = ""
        self.golden, self.golden_algorithm = "", ""
        self.first_product_s = 0.0
        self._held = contextlib.ExitStack()
        self.shape = shape
        while True:
            try:
                self._take(lt)
                break
            except CudaError as error:
                self._held.close()
                smaller = tuple(max(LEAST, size // 2 // GRAIN * GRAIN) for size in self.shape)
                if not is_out_of_memory(error) or smaller == self.shape:
                    raise
                self.notes.append(f"memory for {self.shape} was not to be had, took {smaller}")
                self.shape = (smaller[0], smaller[1], smaller[2])

    def _take(self, lt: Cublas) -> None:
        (m, n, k), form, gpu = self.shape, self.form, self.gpu
        self._held = contextlib.ExitStack()
        a_bytes, b_bytes = form.bytes_of(form.a, m * k), form.bytes_of(form.b, n * k)
        d_bytes = form.bytes_of(form.d, m * n)
        scale_bytes = [-(-size // 128) * 128 * (-(-k // form.block) + 4) if form.block else 0 for size in (m, n)]
        scratch_bytes = check.Check.scratch_bytes(d_bytes)
        sizes = [a_bytes, b_bytes, d_bytes, d_bytes, WORKSPACE, scratch_bytes + REPORT]
        sizes += [size for size in scale_bytes if size]
        self.a, self.b, self.d, first, space, scratch, *scales = self._held.enter_context(gpu.buffers(*sizes))
        source = check.products_source(form)
        self._inputs = Inputs(gpu, form, self.shape, a=self.a, b=self.b, seed=self.seed, report=scratch + scratch_bytes)
        self._inputs.fill()
        self.product = Multiplication(lt, gpu, form, self.shape, a=self.a, b=self.b, d=self.d, space=space)
        self._held.callback(self.product.close)
        if scales:
            one = 127 if form.block == 32 else 0x38  # 1 as UE8M0 and as UE4M3
            for address, size in zip(scales, scale_bytes, strict=True):
                gpu.set_bytes(address, one, size)
            self.product.scales(*scales)
        self._check = check.Check(gpu, form, self.shape, d=self.d, first=first, scratch=scratch)
        stain = min(4, n // 128 - 1) * 128
        self._stain = gpu.kernel(source, "stain", (128,), 128, self.d, m, 128, stain, 0)
        self._unwrite = gpu.kernel(source, "unwrite", (128,), 128, self.d, m, 0, 0, 0, 0)
        self._flip = gpu.kernel(source, "flip_bit", (1,), 1, self.d, 0, 0)
        self.product.choose(gpu.seconds_of)

    @property
    def flop(self) -> float:
        """Operations of one product."""
        m, n, k = self.shape
        return 2.0 * m * n * k

    def look(self, beat: Beat) -> None:
        """Look at A and B, compute the golden digest and the first result, and check that with the reference."""
        spoilt, inputs = self._inputs.look(-1)
        if self.plant is not None and self.plant.what == "input":
            self._inputs.spoil(self.plant)
        same = self.product.took_first
        with self.product.first_offer():
            self.golden_algorithm = self.product.algorithm
            if not same:
                begun = time.monotonic()
                self._fresh()
                self._check.take_first()
                self.golden = self._check.digest()
                self.notes.append(f"golden product by another algorithm in {time.monotonic() - begun:.3f} s")
        self._fresh()
        self.gpu.drain()
        self.first_product_s = beat.process_s
        self._check.take_first()
        self.reference, count, errors, note = check.look_at_first(
            self.gpu, self.form, self.shape, (self.a, self.b, self.d), self.seed, stopped=lambda: beat.stopped
        )
        self.count, self.errors = spoilt + count, inputs + errors
        self.notes.append(note)
        self.digest = self._check.digest()
        self.golden = self.golden or self.digest

    def _fresh(self) -> None:
        """Queue one product into a D in which whatever nobody writes is wrong."""
        self.gpu.set_bytes(self.d, UNWRITTEN, self._check.size)
        self.multiply(0)

    def multiply(self, number: int) -> None:
        """Queue one product; the first result has number 0."""
        self._last = number
        if number:
            begin, end = self._slice()
            self.gpu.set_bytes(self.d + begin, UNWRITTEN, end - begin)
        self.product.run()
        if self.plant is not None:
            self._spoil(self.plant, number)

    def _slice(self) -> tuple[int, int]:
        """The bytes of D that are overwritten before a product is compared for the next time."""
        size, place = self._check.size // SLICES, self._compared % SLICES
        return place * size, (place + 1) * size

    def _spoil(self, plant: Plant, number: int) -> None:
        if plant.what == "tile":
            self._stain.launch()
        elif plant.what == "nan":
            m, n, _ = self.shape
            self.gpu.set_bytes(self.d, 0xFF, self.form.bytes_of(self.form.d, m * n))
        elif plant.what == "result" and number == plant.pass_number and number:
            width = self.form.bytes_of(self.form.d, 1)
            self._flip.arguments[1].value = plant.element * width + plant.bit // 8
            self._flip.arguments[2].value = plant.bit % 8
            self._flip.launch()
        elif plant.what == "unwritten" and number and number >= plant.pass_number:
            m, width = self.shape[0], self.form.bytes_of(self.form.d, 1)
            row, col = plant.element % m // 128 * 128, plant.element // m // 128 * 128
            for argument, value in zip(
                self._unwrite.arguments[2:], (row, col, *(byte // width for byte in self._slice())), strict=True
            ):
                argument.value = value
            self._unwrite.launch()

    def compare(self, number: int) -> None:
        """Queue the comparison of the product that was queued last."""
        self._check.queue(number)
        self._compared += 1

    def queue(self, number: int) -> None:
        """Queue one product and its comparison."""
        self.multiply(number)
        self.compare(number)

    def result(self, flow: Flow, **more: Any) -> GemmResult:
        """What the passes in `flow` came to, with the errors of inputs and of the first result before the others.

        Called once, at the end of the load: the control ends the comparison.
        """
        count, errors = self._check.errors()
        spoilt, inputs = self._inputs.look(self._last)
        control = self._check.control(self._flip, self.seed, self._last)
        m, n, k = self.shape
        rates = [rate / 1e12 for rate in flow.windows(self.flop)]
        return GemmResult(
            seconds=flow.seconds,
            cut=flow.cut,
            enough=flow.dismissed,
            notes=list(self.notes),
            format=self.form.name,
            m=m,
            n=n,
            k=k,
            burst_tflops=flow.burst(self.flop) / 1e12,
            tflops=rates,
            window_s=flow.window_s,
            sustained_tflops=figures.sustained(rates) or 0.0,
            cv=figures.cv(figures.second_half(rates)) or 0.0,
            half_width=figures.half_width(figures.second_half(rates)),
            flop=flow.passes * self.flop,
            passes=flow.passes,
            checked=flow.passes * m * n,
            error_count=self.count + spoilt + count,
            errors=(self.errors + inputs + errors)[:MOST_ERRORS],
            digest=self.digest,
            golden=self.golden,
            golden_algorithm=self.golden_algorithm,
            reference=self.reference,
            algorithm=self.product.algorithm,
            control=control,
            **more,
        )

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def gemm(gpu: Any, lt: Cublas, phase: Phase, seed: int, beat: Beat) -> GemmResult:
    """One phase of kind "gemm"."""
    form = format_of(phase.format or "bf16", gpu.compute)
    shape = (phase.m or form.shape[0], phase.n or form.shape[1], phase.k or form.shape[2])
    with Prepared(gpu, lt, form, shape, seed=seed, plant=planted(phase)) as prepared:
        prepared.look(beat)
        prepared.notes.append(f"first product {prepared.first_product_s:.2f} s after the start of the process")
        late_s = beat.start()
        flow = keep_busy(
            gpu,
            prepared.queue,
            seconds=phase.seconds,
            pass_s=prepared.product.pass_s,
            beat=beat,
            first=1,
            enough=lambda flow: knows_enough(phase, flow.seconds, flow.windows(1.0)),
        )
        return prepared.result(flow, late_s=late_s, cublas=lt.version)
