"""The reference's verdict over a first result, from what its kernels report."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pytest_gpuready.agent.stress import answers
from pytest_gpuready.agent.stress.answers import Asked
from pytest_gpuready.agent.stress.check import look_at_first
from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.agent.stress.report import BOUNDLESS, ENTRY, HEAD, REPORT
from pytest_gpuready.model.stress_doc import GemmResult, Phase

M = 512


class Gpu:
    """Kernels that have run; each report that is read is the next of these."""

    sms = 132

    def __init__(self, *reports: bytes) -> None:
        self._reports = list(reports)

    @contextlib.contextmanager
    def buffers(self, *_: int) -> Iterator[list[int]]:
        yield [0]

    def kernel(self, *_: Any) -> Any:
        return type("Kernel", (), {"launch": lambda self: None})()

    def zero(self, *_: int) -> None:
        pass

    def seconds_of(self, *_: Any) -> float:
        return 0.001

    def read(self, *_: int) -> bytes:
        return self._reports.pop(0)


def report(count: int, worst: float, *places: tuple[int, float, float]) -> bytes:
    """As the kernels write it: expected and found are FP64."""
    entries = b"".join(
        ENTRY.pack(place, *(struct.unpack("<Q", struct.pack("<d", value))[0] for value in values), 0)
        for place, *values in places
    )
    return (HEAD.pack(count, len(places), worst, 0) + entries).ljust(REPORT, b"\0")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("worst", [1e300, math.nan, math.inf])
def test_a_product_that_is_no_number_is_counted_with_its_place(value: float, worst: float) -> None:
    """A first result full of NaN is a result with errors, which the crew takes; its residual is a number."""
    gpu = Gpu(report(4 * M, worst, (7, 12.5, value)), report(M * M, worst, (3 * M + 5, -1.25, value)))
    shape = (M, M, M)
    looked, count, errors, note = look_at_first(gpu, FORMATS["bf16"], shape, (0, 0, 0), 1)
    assert (looked.max_residual, looked.limit, count) == (BOUNDLESS, 1.0, 4 * M + M * M)
    assert [(one.pass_number, one.row, one.col, one.expected, one.found) for one in errors] == [
        (-1, 5, 3, "-1.25", f"{value:g}"),
        (-1, 7, 0, "12.5", f"{value:g}"),
    ]
    assert "rows 1e+300 of their limit" in note
    told = GemmResult(
        passes=1, checked=1, format="bf16", seconds=8.0, error_count=count, errors=errors, reference=looked
    )
    asked = Asked(number=0, phase=Phase(kind="gemm", format="bf16", seconds=8.0), at=0.0)
    line = msgspec.json.decode(msgspec.json.encode({"done": 0, "result": told}))
    assert answers.result(line, asked, 8.1) == told


def test_a_healthy_result_has_no_errors() -> None:
    """The larger of both residuals stands."""
    gpu = Gpu(report(0, 0.4), report(0, 0.2))
    looked, count, errors, _ = look_at_first(gpu, FORMATS["fp16"], (M, M, M), (0, 0, 0), 1)
    assert (looked.max_residual, looked.kind, count, errors) == (0.4, "freivalds+recomputed", 0, [])
