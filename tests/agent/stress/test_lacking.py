"""What a node lacks is one line that says what to install, and costs only the phases that need it."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

import pytest

from pytest_gpuready.agent import cuda_driver
from pytest_gpuready.agent.cuda_driver import CudaError, install
from pytest_gpuready.agent.stress import device
from pytest_gpuready.agent.stress.cublas import Cublas
from pytest_gpuready.agent.stress.worker import Engine
from pytest_gpuready.model.stress_doc import Phase, Work


class DynamicLibNotFoundError(RuntimeError):
    """As cuda-pathfinder has it."""


class Driver:
    """libcuda of a driver that speaks this version of CUDA."""

    def __init__(self, version: int) -> None:
        self.version = version

    def cuDriverGetVersion(self, found: Any) -> int:  # noqa: N802 - the driver's own name
        found._obj.value = self.version
        return 0


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (13000, "pip install 'pytest-gpuready[cuda13]' on the node (the driver here speaks CUDA 13.0)"),
        (14020, "pip install 'pytest-gpuready[cuda13]' on the node (the driver here speaks CUDA 14.2)"),
        (12040, "pip install 'pytest-gpuready[cuda12]' on the node (the driver here speaks CUDA 12.4)"),
        (11080, "install driver 525 or newer on the node, then the extra cuda12 (the driver here speaks CUDA 11.8)"),
        (0, "pip install 'pytest-gpuready[cuda13]' on the node (driver 580 or newer, else [cuda12])"),
    ],
)
def test_the_driver_decides_what_to_install(version: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is that of the CUDA which the loaded driver speaks; both are named where nobody knows."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(version))
    assert install() == says


def test_without_a_driver_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No libcuda at all is no error here."""

    def none(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    assert "driver 580 or newer, else [cuda12]" in install()


def lacking(monkeypatch: pytest.MonkeyPatch, name: str, module: Any = None) -> None:
    """That module is not installed, or is this one."""
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda name: Driver(12080))
    for part in {name, name.split(".", maxsplit=1)[0]}:
        monkeypatch.setitem(sys.modules, part, module if part == name else ModuleType(part))


def not_found(*_: Any, **__: Any) -> None:
    raise DynamicLibNotFoundError('Failure finding "libwhatever.so.13":\n No such file')


def test_missing_packages_of_kernels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda-core, or NVRTC which it loads."""
    lacking(monkeypatch, "cuda.core")
    with pytest.raises(CudaError, match=r"expected the package cuda-core, found: .*pip install .*cuda12"):
        device.compile_source("", "sm_90")
    core = ModuleType("cuda.core")
    core.ProgramOptions = core.Program = not_found  # type: ignore[attr-defined]
    lacking(monkeypatch, "cuda.core", core)
    with pytest.raises(
        CudaError, match=r"^expected NVRTC to compile with, found: .*No such file; pip install .*cuda12"
    ):
        device.compile_source("", "sm_90")


def test_missing_packages_of_products_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvmath-python, or cuBLAS which it loads."""
    lacking(monkeypatch, "nvmath.bindings.cublasLt")
    with pytest.raises(CudaError, match=r"expected the package nvmath-python, found: .*pip install .*cuda12"):
        Cublas()
    bindings = ModuleType("nvmath.bindings.cublasLt")
    bindings.create = not_found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvmath.bindings", ModuleType("nvmath.bindings"))
    lacking(monkeypatch, "nvmath.bindings.cublasLt", bindings)
    with pytest.raises(CudaError, match=r"^expected cuBLAS to multiply with, found: .*No such file; pip install .*12"):
        Cublas()


class Gpu:
    """A GPU that is there."""

    bdf, name, compute, sms, l2_bytes, memory_bytes, memory_gb_per_s = "0000:19:00.0", "none", (9, 0), 1, 1, 1, 1.0

    def open(self) -> None:
        pass

    def free_bytes(self) -> int:
        return 1


class Beat:
    stopped = dismissed = False

    def start(self) -> float:
        return 0.0

    def say(self, **_: Any) -> None:
        pass


def test_what_needs_no_products_runs_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without nvmath-python is ready, runs what it can, and each product fails by itself with that line."""
    lacking(monkeypatch, "nvmath.bindings.cublasLt")
    engine = object.__new__(Engine)
    engine.gpu, engine._cublas, engine._lacking = Gpu(), None, None
    engine.open()
    ready = engine.ready()
    assert ready["formats"] == []
    assert "expected the package nvmath-python" in ready["not_supported"]["bf16"]
    assert "compute capability 10.0" in ready["not_supported"]["fp4"]
    beat: Any = Beat()
    assert engine.run(Phase(kind="idle", seconds=0.01), Work(), beat).seconds >= 0.01
    for kind in ("gemm", "pulse", "burn"):
        with pytest.raises(CudaError, match=r"nvmath-python.*pip install 'pytest-gpuready\[cuda12\]'"):
            engine.run(Phase(kind=kind, seconds=1.0), Work(), beat)
