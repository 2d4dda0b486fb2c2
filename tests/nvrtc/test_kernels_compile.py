"""The engine's CUDA C++ compiles for the chips it is meant for, without a driver."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_gpuready.agent.collectives import kernels as collectives
from pytest_gpuready.agent.cuda_driver import CudaError
from pytest_gpuready.agent.stress import check, kernels_latency, kernels_memory
from pytest_gpuready.agent.stress.device import compile_source
from pytest_gpuready.agent.stress.formats import FORMATS
from pytest_gpuready.model.collectives_shape import WIDTHS

ARCHITECTURES = {"sm_80": (8, 0), "sm_89": (8, 9), "sm_90": (9, 0), "sm_100": (10, 0)}
KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\(\d+\))?\s+(\w+)\(')


def sources(compute: tuple[int, int]) -> list[str]:
    forms = [form for form in FORMATS.values() if compute >= form.least_compute]
    found = [source(form) for form in forms for source in (check.products_source, check.reference_source)]
    memory = (kernels_memory.patterns, kernels_memory.bandwidth, kernels_memory.caches, kernels_latency.chains)
    checks = [collectives.source(datatype) for datatype in WIDTHS]
    return [*found, *(source() for source in memory), *checks]


@pytest.mark.parametrize("arch", list(ARCHITECTURES))
def test_every_source_compiles(arch: str) -> None:
    """Each source becomes machine code in which each of its kernels can be found by name."""
    todo = sources(ARCHITECTURES[arch])
    compile_source("", arch)  # loads NVRTC once, before there are threads
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(lambda source: compile_source(source, arch), todo))
    for source, code in zip(todo, codes, strict=True):
        names = [name for name in KERNEL.findall(source) if name != "name"]
        assert code[:4] == b"\x7fELF"
        assert all(name.encode() in code for name in names)


def test_what_does_not_compile_is_one_line() -> None:
    """NVRTC's own words stand in the error."""
    with pytest.raises(CudaError, match="NVRTC for sm_90: expected machine code") as error:
        compile_source("this is no C++", "sm_90")
    assert "\n" not in str(error.value)
