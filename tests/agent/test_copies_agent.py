"""Copies through a stand-in driver: numbers, comparing of bytes, and one line for whatever goes wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from stand_in_cuda import StandInDriver

from pytest_gpuready.agent import copies as module
from pytest_gpuready.agent.copies import copies, together
from pytest_gpuready.agent.copy_flow import Plan
from pytest_gpuready.agent.cuda_driver import Cuda
from pytest_gpuready.model.agent_doc import KernelLog

GPU, OTHER = "0000:19:00.0", "0000:1a:00.0"
PLAN = Plan(size_bytes=2**18 + 3, seconds=0.01, patience_s=10.0)


@pytest.fixture
def driver():
    return StandInDriver({GPU: (55.5, 54.25), OTHER: (27.0, 26.0)})


@pytest.fixture(autouse=True)
def _unhidden(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def take(driver, bdf=GPU, **more):
    return copies(
        bdf, plan=more.pop("plan", PLAN), cuda=lambda: Cuda(driver), sysfs=more.pop("sysfs", Path("/nowhere"))
    )


def test_each_direction_has_the_rate_of_its_link(driver):
    """H2D and D2H are the rates of the made-up link, both at once is their sum with each beside it."""
    doc = take(driver)
    assert doc.problem == ""
    rates = {copy.kind: copy.gb_per_s for copy in doc.copies}
    assert rates == pytest.approx({"h2d": 55.5, "d2h": 54.25, "bidirectional": 109.75}, rel=1e-6)
    assert doc.copies[2].each == pytest.approx({"h2d": 55.5, "d2h": 54.25}, rel=1e-6)
    assert all(copy.verified and copy.size_bytes == PLAN.size_bytes for copy in doc.copies)
    assert all(copy.moved_bytes % PLAN.size_bytes == 0 and copy.moved_bytes > 0 for copy in doc.copies)
    assert [name for name, _, _ in doc.watch.phases] == ["h2d", "d2h", "bidirectional"]
    assert doc.cuda_device == "stand-in GPU"


def test_the_kernel_log_is_read_when_the_copies_have_ended(driver):
    """The log since boot is in the document, read after the last copy, also where the copies came to nothing."""
    copied = []

    def log():
        copied.append(sum(call.startswith("cuMemcpy") for call in driver.calls))
        return KernelLog(source="made up", complete=True, total_lines=5)

    nowhere = {"plan": PLAN, "cuda": lambda: Cuda(driver), "sysfs": Path("/nowhere"), "log": log}
    assert copies(GPU, **nowhere).log_after.source == "made up"
    assert together([GPU, OTHER], **nowhere).log_after.total_lines == 5
    assert 0 < copied[0] < copied[1] == sum(call.startswith("cuMemcpy") for call in driver.calls)
    driver.results["cuInit"] = 802
    assert copies(GPU, **nowhere).log_after.source == "made up"


def test_memory_is_given_back(driver):
    """Every buffer and the context are released when all went well, and memory is never managed memory."""
    take(driver)
    assert driver.calls.count("cuMemFree") == driver.calls.count("cuMemAlloc") == 2
    assert driver.calls.count("cuMemFreeHost") == driver.calls.count("cuMemHostAlloc") == 2
    assert driver.calls.count("cuDevicePrimaryCtxRelease") == 1
    assert "cuMemAllocManaged" not in driver.calls


@pytest.mark.parametrize("way", ["h2d", "d2h"])
def test_a_spoilt_byte_is_found_and_counted(driver, way):
    """One wrong byte in either direction makes the copies unverified and the problem says how many bytes differ."""
    driver.spoil = way
    doc = take(driver)
    assert doc.problem.startswith(f"bytes differ: expected {PLAN.size_bytes} equal bytes")
    assert "found 1 wrong" in doc.problem
    assert [(copy.verified, copy.wrong_bytes) for copy in doc.copies] == [(False, 1), (False, 1)]


def test_bytes_spoilt_in_both_directions_at_once_are_counted(driver, monkeypatch):
    """A link that spoils a byte only after the first comparison: the copy of both directions has the count."""
    refuse = module._refuse

    def then_spoil(wrong, size, where):
        refuse(wrong, size, where)
        driver.spoil = "h2d"

    monkeypatch.setattr(module, "_refuse", then_spoil)
    doc = take(driver)
    assert [(copy.kind, copy.verified) for copy in doc.copies] == [
        ("h2d", True),
        ("d2h", True),
        ("bidirectional", False),
    ]
    assert [copy.wrong_bytes for copy in doc.copies][:2] == [0, 0]
    assert doc.copies[2].wrong_bytes > 0
    assert doc.problem.startswith("bytes differ")


@pytest.mark.parametrize("way", ["h2d", "d2h"])
def test_bytes_that_never_arrive_are_found(driver, way):
    """Copies that report success and move nothing do not count: buffers were wiped before."""
    driver.lose = way
    assert take(driver).problem.startswith("bytes differ")


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("cuInit", 802, "CUDA_ERROR_SYSTEM_NOT_READY (802); start nvidia-fabricmanager"),
        ("cuMemHostAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY (2); free memory"),
        ("cuMemcpyHtoDAsync", 214, "CUDA_ERROR_ECC_UNCORRECTABLE (214); read the Xids"),
        ("cuEventQuery", 214, "a copy: expected CUDA_SUCCESS, found CUDA_ERROR_ECC_UNCORRECTABLE (214)"),
        ("cuStreamCreate", 4711, "found CUDA error 4711 (4711)"),
    ],
)
def test_every_cuda_error_is_one_line_with_its_name(driver, call, code, said):
    """Whatever call fails, the document has a problem of one line with CUDA's name of the error, and no exception."""
    driver.results[call] = code
    doc = take(driver)
    assert said in doc.problem
    assert "\n" not in doc.problem
    assert doc.copies == []


def test_copies_that_never_end_are_given_up(driver):
    """An event that never passes is a problem after the plan's patience, not a wait without end."""
    driver.stuck = True
    doc = take(driver, plan=Plan(size_bytes=4096, patience_s=0.05))
    assert "expected copies to end within 0.05 s, found them still under way" in doc.problem


def test_a_gpu_unknown_to_cuda_is_named(driver):
    """A GPU that CUDA does not have is named with the number of GPUs that it has."""
    assert "expected GPU 0000:99:00.0 in CUDA, found CUDA_ERROR_INVALID_DEVICE (101) among 2 GPUs" in (
        take(driver, "0000:99:00.0").problem
    )


def test_a_hidden_gpu_names_what_hides_it(driver, monkeypatch):
    """CUDA_VISIBLE_DEVICES that hides this GPU, or all of them, stands in the problem."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "found it hidden by CUDA_VISIBLE_DEVICES='1'" in take(driver, "0000:99:00.0").problem
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    driver.results["cuInit"] = 100
    assert "found all hidden by CUDA_VISIBLE_DEVICES=''" in take(driver).problem


def test_a_missing_package_says_what_to_install(monkeypatch):
    """Without cuda-bindings the problem holds the line to install it, and the watch ran all the same."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    doc = copies(GPU, plan=PLAN, sysfs=Path("/nowhere"))
    assert "pip install 'pytest-gpuready[cuda13]'" in doc.problem
    assert doc.watch is not None


def test_a_missing_libcuda_is_said(driver):
    """The binding's own complaint about libcuda is told in one line."""

    def broken(_flags):
        raise RuntimeError("libcuda.so.1: cannot open shared object file\nhint")

    driver.cuInit = broken
    problem = take(driver).problem
    assert "expected libcuda.so.1, found: libcuda.so.1: cannot open shared object file; install" in problem


def test_an_address_that_is_none_is_refused(driver):
    """Nothing but a bus address reaches CUDA or sysfs."""
    assert take(driver, "../../etc").problem.startswith("expected a bus address")
    assert driver.calls == []


def test_path_and_aer_come_from_sysfs(driver, tmp_path):
    """Bridges are read while data moves, AER totals are summed over GPU and bridges before and after."""
    root = tmp_path / "devices/pci0000:15/0000:15:01.0"
    gpu = root / "0000:16:00.0" / GPU
    gpu.mkdir(parents=True)
    for folder, correctable in ((gpu, 2), (root, 5)):
        (folder / "aer_dev_correctable").write_text(f"RxErr 1\nBadTLP 1\nTOTAL_ERR_COR {correctable}\n")
        (folder / "aer_dev_fatal").write_text("Undefined 0\nTOTAL_ERR_FATAL 0\n")
    (root / "current_link_speed").write_text("32.0 GT/s PCIe\n")
    (root / "current_link_width").write_text("16\n")
    (gpu / "numa_node").write_text("1\n")
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices" / GPU).symlink_to(gpu)
    doc = take(driver, sysfs=tmp_path)
    assert [bridge.bdf for bridge in doc.path] == ["0000:16:00.0", "0000:15:01.0"]
    assert doc.path[1].link.speed_gt_per_s == 32.0
    assert (doc.aer.correctable, doc.aer.fatal, doc.aer.nonfatal) == ((7, 7), (0, 0), None)
    assert doc.numa_node == 1


def test_together_gives_every_gpu_its_rate(driver):
    """All GPUs copy at the same time, each way with the rate of its own link, and give their memory back."""
    doc = together([GPU, OTHER], plan=PLAN, cuda=lambda: Cuda(driver), sysfs=Path("/nowhere"))
    assert doc.problem == ""
    assert doc.gb_per_s == pytest.approx({GPU: 55.5, OTHER: 27.0}, rel=1e-6)
    assert doc.d2h_gb_per_s == pytest.approx({GPU: 54.25, OTHER: 26.0}, rel=1e-6)
    for take_it, give_it in (("cuMemAlloc", "cuMemFree"), ("cuMemHostAlloc", "cuMemFreeHost")):
        assert driver.calls.count(take_it) == driver.calls.count(give_it) == 2


def test_nobody_turns_round_while_another_still_copies(driver):
    """Copies to the host begin when the last copy to a device has ended, on all GPUs."""
    together([GPU, OTHER], plan=PLAN, cuda=lambda: Cuda(driver), sysfs=Path("/nowhere"))
    ways = [call for call in driver.calls if call.startswith("cuMemcpy")]
    down = ways.count("cuMemcpyHtoDAsync")
    assert 0 < down < len(ways)
    assert set(ways[down:]) == {"cuMemcpyDtoHAsync"}


def test_a_copy_to_the_host_that_fails_leaves_no_rate_at_all(driver):
    """Where the way back breaks on one GPU, also the rates to the device do not count: the load did not end well."""
    driver.results["cuMemcpyDtoHAsync"] = 214
    doc = together([GPU, OTHER], plan=PLAN, cuda=lambda: Cuda(driver), sysfs=Path("/nowhere"))
    assert (doc.gb_per_s, doc.d2h_gb_per_s) == ({}, {})
    assert "CUDA_ERROR_ECC_UNCORRECTABLE (214)" in doc.problem


def test_together_without_one_is_not_together(driver):
    """One GPU that fails leaves no number for any, and the problem names it."""
    doc = together([GPU, "0000:99:00.0"], plan=PLAN, cuda=lambda: Cuda(driver), sysfs=Path("/nowhere"))
    assert doc.gb_per_s == {}
    assert doc.problem.startswith("0000:99:00.0: expected GPU 0000:99:00.0 in CUDA")


def test_whatever_breaks_in_a_copying_thread_is_the_problem(driver):
    """An exception that nobody thought of, in one thread or alone, is a problem in words and never a quiet end."""

    def unknown(_event):
        raise ValueError("720 is not a valid\nCUresult")

    driver.cuEventQuery = unknown  # an answer that is younger than the binding
    says = "expected copies, found ValueError: 720 is not a valid CUresult"
    doc = together([GPU, OTHER], plan=PLAN, cuda=lambda: Cuda(driver), sysfs=Path("/nowhere"))
    assert says in doc.problem
    assert doc.gb_per_s == {}
    assert take(driver).problem == says


def test_together_needs_addresses(driver):
    """No GPU, or something that is no address, is said in one line."""
    assert together([], cuda=lambda: Cuda(driver)).problem.startswith("expected at least one bus address")
    assert together(["x"], cuda=lambda: Cuda(driver)).problem.startswith("expected bus addresses")


def test_the_plan_is_nvbandwidths():
    """Buffer, warm-up and batch are those of nvbandwidth's copy-engine tests: the numbers can be laid side by side."""
    plan = Plan()
    assert (plan.size_bytes, plan.warm_up, plan.loop) == (512 * 2**20, 4, 16)
    assert module.PACKAGES == ("cuda-bindings", "nvidia-ml-py")
