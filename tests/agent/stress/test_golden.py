"""The golden digest: on a GPU that computes nothing, with a library that says which algorithm wrote D."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_gpuready.agent.stress import check, gemm
from pytest_gpuready.agent.stress.flow import Flow
from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.agent.stress.gemm import Prepared
from pytest_gpuready.agent.stress.report import REPORT
from pytest_gpuready.model.stress_doc import Reference

SHAPE = (512, 512, 512)


class Slot:
    """An argument of a kernel."""

    value = 0


class Gpu:
    """Memory is one word, D, which holds who wrote it last; a digest is that word."""

    compute, sms = (9, 0), 132

    def __init__(self) -> None:
        self.d = b"nobody"

    @contextlib.contextmanager
    def buffers(self, *sizes: int) -> Iterator[list[int]]:
        yield list(range(len(sizes)))

    def kernel(self, *_: Any) -> Any:
        return type("Kernel", (), {"launch": lambda _: None, "arguments": [Slot() for _ in range(6)]})()

    def set_bytes(self, *_: int) -> None:
        self.d = b"nobody"

    def zero(self, *_: int) -> None:
        pass

    def copy(self, *_: int) -> None:
        pass

    def drain(self) -> None:
        pass

    def seconds_of(self, *_: Any) -> float:
        return 0.001

    def read(self, _: int, size: int) -> bytes:
        return self.d if size != REPORT else bytes(size)


class Product:
    """Products of which each writes the name of its algorithm."""

    pass_s = 0.001

    def __init__(self, lt: str, gpu: Gpu, *_: Any, **__: Any) -> None:
        self._gpu, self.algorithm = gpu, lt

    def choose(self, _: Any) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def took_first(self) -> bool:
        return self.algorithm == "first"

    @contextlib.contextmanager
    def first_offer(self) -> Iterator[None]:
        own, self.algorithm = self.algorithm, "first"
        yield
        self.algorithm = own

    def run(self) -> None:
        self._gpu.d = self.algorithm.encode()


@pytest.mark.parametrize("chosen", ["first", "another"])
def test_equal_gpus_agree_whatever_they_chose(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`golden` is the first offer's, `digest` that of the algorithm that was chosen; both are named."""
    monkeypatch.setattr(gemm, "Multiplication", Product)
    reference = Reference(kind="recomputed", max_residual=0.1, limit=1.0)
    monkeypatch.setattr(check, "look_at_first", lambda *_, **__: (reference, 0, [], "looked"))
    beat: Any = type("Beat", (), {"process_s": 1.0, "stopped": False})()
    lt: Any = chosen
    with Prepared(Gpu(), lt, FORMATS["bf16"], SHAPE, seed=1) as one:
        one.look(beat)
        found = one.result(Flow())
    assert (found.golden, found.golden_algorithm) == (hashlib.sha256(b"first").hexdigest(), "first")
    assert (found.digest, found.algorithm) == (hashlib.sha256(chosen.encode()).hexdigest(), chosen)
