"""Host copies on real hardware. By hand, on a machine with an NVIDIA GPU and cuda-bindings: `pytest tests/gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_gpuready.agent.copies import copies, together
from pytest_gpuready.agent.copy_flow import Plan
from pytest_gpuready.agent.cuda_driver import CudaError, CudaGpu, load
from pytest_gpuready.agent.host_memory import bytes_that_differ, wipe, write_pattern
from pytest_gpuready.agent.pci import gpus
from pytest_gpuready.probes.pcie_link import SPEEDS, gb_per_s
from pytest_gpuready.probes.watched import under_load


@pytest.fixture(scope="module")
def bdf():
    found = gpus()
    assert found, "expected an NVIDIA GPU on the PCI bus, found none; these tests need one"
    return found[0].bdf


@pytest.fixture(scope="module")
def doc(bdf):
    return copies(bdf)


def test_all_three_copies_are_measured_and_compared(doc):
    """H2D, D2H and both at once end with a number each, and every byte arrived."""
    assert doc.problem == ""
    assert [copy.kind for copy in doc.copies] == ["h2d", "d2h", "bidirectional"]
    assert all(copy.verified for copy in doc.copies)


def test_no_direction_beats_its_link(doc):
    """Every rate lies under the theory of the link as read under load, and above a third of it."""
    generation = int(min(under_load(doc.watch, "generation", ["h2d", "d2h"])))
    width = int(min(under_load(doc.watch, "width", ["h2d", "d2h"])))
    theory = gb_per_s(SPEEDS[generation], width)
    rates = [doc.copies[0].gb_per_s, doc.copies[1].gb_per_s, *doc.copies[2].each.values()]
    assert all(theory / 3 < rate < theory for rate in rates), (theory, rates)


@pytest.mark.parametrize("kind", ["h2d", "d2h", "bidirectional"])
def test_every_phase_holds_enough_samples(doc, kind):
    """At least 7 samples of power and link lie inside each phase: the shortest lasts about a second."""
    for column in ("power_w", "generation", "width"):
        assert len(under_load(doc.watch, column, [kind])) >= 7


def test_counters_stand_on_both_sides(doc):
    """Replays, NAKs and fatal errors were read before and after, and none of them shrank."""
    for name in ("pcie_replay", "pcie_nak_sent", "pcie_nak_received", "pcie_fatal", "pcie_nonfatal"):
        assert doc.watch.after[name] >= doc.watch.before[name]


def test_one_spoilt_byte_on_the_device_is_found(bdf):
    """A byte that is overwritten on the device differs when the data comes back, and only that one."""
    gpu = CudaGpu(load(), bdf)
    size = 64 * 2**20
    source, back, device, stream = gpu.host_buffer(size), gpu.host_buffer(size), gpu.device_buffer(size), gpu.stream()
    write_pattern(source, size)
    wipe(back, size)
    gpu.copy_to_device(device, source, size, stream)
    gpu.copy_to_device(int(device) + 12_345_678, back, 1, stream)
    gpu.copy_to_host(back, device, size, stream)
    end = gpu.mark(stream)
    while not gpu.passed(end):
        pass
    assert bytes_that_differ(source, back, size) == 1
    gpu.close()


def test_more_memory_than_there_is_is_one_line(bdf):
    """A device buffer of a petabyte is refused with CUDA's name of the error."""
    gpu = CudaGpu(load(), bdf)
    with pytest.raises(CudaError, match=r"^cuMemAlloc: expected CUDA_SUCCESS, found CUDA_ERROR_OUT_OF_MEMORY \(2\); "):
        gpu.device_buffer(2**50)


def test_an_address_without_gpu_is_one_line():
    """CUDA's own answer for an address that holds no GPU is told with the number of GPUs that it sees."""
    problem = copies("0000:ff:1f.7").problem
    assert problem.startswith("expected GPU 0000:ff:1f.7 in CUDA, found CUDA_ERROR_INVALID_DEVICE (101) among")


def test_a_hidden_gpu_is_told(bdf):
    """The agent process under CUDA_VISIBLE_DEVICES="" ends with 0 and names the variable."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest_gpuready.agent", "copies", bdf],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert "hidden by CUDA_VISIBLE_DEVICES=''" in json.loads(ran.stdout)["data"]["problem"]


def test_all_gpus_copy_together():
    """Every GPU of the machine has a rate while all copy."""
    addresses = [gpu.bdf for gpu in gpus()]
    doc = together(addresses, plan=Plan(seconds=0.5))
    assert doc.problem == ""
    assert sorted(doc.gb_per_s) == sorted(addresses)
    assert min(doc.gb_per_s.values()) > 0
