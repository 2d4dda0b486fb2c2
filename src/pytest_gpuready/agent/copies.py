"""Probes "copies" and "copies-together": host copies of GPUs, with what was seen on them meanwhile.

Three phases of one to two seconds: host to device, device to host, both at once. In between the bytes are compared:
what was written on the host has gone down and up again, buffers were wiped before. Comparing covers the last copy of
each buffer. Nothing here raises for broken hardware: whatever goes wrong is the document's `problem`, one line.
"""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_gpuready.agent import aer, host_memory
from pytest_gpuready.agent.copy_flow import SHARED_PARTS, Flow, Plan, median, rates, run, shared_rates, times_s
from pytest_gpuready.agent.cuda_driver import Cuda, CudaError, CudaGpu, load
from pytest_gpuready.agent.kernel_log import kernel_log
from pytest_gpuready.agent.pci import BDF, upward
from pytest_gpuready.agent.watch import Watch
from pytest_gpuready.model.agent_doc import CopiesDoc, CopyDoc, KernelLog, PciBridge, TogetherDoc

PACKAGES = ("cuda-bindings", "nvidia-ml-py")
START_S = 60.0
"""How long GPUs that copy together wait for the last of them to be ready."""
UP_SHARE = 2 / 3
"""Of the time of copies to all devices at once, for those to the host: in smaller batches, as many of them count."""


@dataclass(slots=True)
class _Seen:
    """What one run gathers on its way."""

    copies: list[CopyDoc] = field(default_factory=list)
    path: list[PciBridge] = field(default_factory=list)
    device: str = ""
    cpus: str = ""
    problem: str = ""


def copies(
    bdf: str,
    *,
    plan: Plan | None = None,
    sysfs: Path = Path("/sys"),
    cuda: Callable[[], Cuda] = load,
    log: Callable[[], KernelLog] = kernel_log,
) -> CopiesDoc:
    """Host copies of the GPU at a bus address, under the watch; last of all the kernel log is read once more."""
    if not BDF.fullmatch(bdf):
        return CopiesDoc(bdf=bdf[:40], problem=f"expected a bus address such as 0000:19:00.0, found {bdf[:40]!r}")
    seen = _Seen()
    aer_before = aer.totals(bdf, sysfs)
    with Watch(bdf) as watch:
        try:
            seen.cpus = host_memory.bind_to(bdf, sysfs)
            _measure(CudaGpu(cuda(), bdf), watch, plan or Plan(), seen, sysfs)
        except Exception as problem:  # whatever it is, a document without it would look like copies
            seen.problem = _said(problem)
    aer_after = aer.totals(bdf, sysfs)
    return CopiesDoc(
        bdf=bdf,
        problem=seen.problem,
        cuda_device=seen.device,
        copies=seen.copies,
        numa_node=host_memory.numa_node(bdf, sysfs),
        cpus=seen.cpus,
        watch=watch.doc(),
        path=seen.path or upward(sysfs / "bus/pci/devices" / bdf),
        aer=aer.growth(aer_before, aer_after),
        log_after=log(),
        pcie_generation_max=watch.generation_max,
        pcie_generation_max_device=watch.generation_max_device,
        packages=_packages(),
    )


def _measure(gpu: CudaGpu, watch: Watch, plan: Plan, seen: _Seen, sysfs: Path) -> None:
    """Take the three phases and compare bytes after the second and the third."""
    seen.device = gpu.name
    size = plan.size_bytes
    source, back = gpu.host_buffer(size), gpu.host_buffer(size)
    first, second = gpu.device_buffer(size), gpu.device_buffer(size)
    host_memory.write_pattern(source, size)
    host_memory.wipe(back, size)

    def down(target: Any) -> Flow:
        return Flow(gpu, lambda stream: gpu.copy_to_device(target, source, size, stream), size)

    def up(origin: Any) -> Flow:
        return Flow(gpu, lambda stream: gpu.copy_to_host(back, origin, size, stream), size)

    def read_path() -> None:
        seen.path = upward(sysfs / "bus/pci/devices" / gpu.bdf)

    h2d, d2h = down(first), up(first)
    gpu.poison(first, size, h2d.stream)
    gpu.poison(second, size, h2d.stream)
    with watch.phase("h2d"):
        run(gpu, [h2d], plan, loop=plan.loop, under_load=read_path)
    with watch.phase("d2h"):
        run(gpu, [d2h], plan, loop=plan.loop)
    wrong = host_memory.bytes_that_differ(source, back, size)
    for kind, flow in (("h2d", h2d), ("d2h", d2h)):
        repeats = rates(times_s(gpu, flow, flow.marks[0]), flow.batch_bytes)
        seen.copies.append(_copy(kind, repeats, size, flow.moved_bytes, wrong=wrong))
    _refuse(wrong, size, "after copies to the device and back")

    host_memory.wipe(back, size)
    both = [down(second), up(first)]
    with watch.phase("bidirectional"):
        run(gpu, both, plan, loop=plan.loop_both)
    parts = shared_rates([(times_s(gpu, f, both[0].marks[0]), f.batch_bytes) for f in both], SHARED_PARTS)
    wrong = host_memory.bytes_that_differ(source, back, size)
    host_memory.wipe(back, size)
    last = up(second)
    last.copies(1)
    last.mark()
    _until_done(last, plan)
    wrong += host_memory.bytes_that_differ(source, back, size)
    moved = sum(f.moved_bytes for f in both) + last.moved_bytes
    each = {"h2d": median([p[0] for p in parts]), "d2h": median([p[1] for p in parts])}
    sums = [sum(p) for p in parts]
    seen.copies.append(_copy("bidirectional", sums, size, moved, wrong=wrong, each=each))
    _refuse(wrong, size, "after copies in both directions at once")
    gpu.close()


def _until_done(flow: Flow, plan: Plan) -> None:
    """Wait for everything queued on a stream.

    Raises: CudaError where it does not end in time.
    """
    give_up = time.monotonic() + plan.patience_s
    while not flow.done:
        flow.look()
        if time.monotonic() > give_up:
            raise CudaError(f"expected one copy to end within {plan.patience_s:g} s, found it still under way")
        time.sleep(0.001)


def _refuse(wrong: int, size: int, where: str) -> None:
    if wrong:
        raise CudaError(
            f"bytes differ: expected {size} equal bytes {where}, found {wrong} wrong; "
            "the GPU, its PCIe path or host memory spoils data: read AER, ECC and Xids, then run again"
        )


def _copy(
    kind: str, repeats: list[float], size: int, moved: int, *, wrong: int, each: dict[str, float] | None = None
) -> CopyDoc:
    return CopyDoc(
        kind=kind,
        gb_per_s=median(repeats),
        repeats=repeats,
        size_bytes=size,
        moved_bytes=moved,
        verified=not wrong,
        wrong_bytes=wrong,
        each=each or {},
    )


def _said(problem: Exception) -> str:
    """One line: what CUDA answered, or what broke that should not have."""
    if isinstance(problem, CudaError):
        return str(problem)
    return f"expected copies, found {type(problem).__name__}: {' '.join(str(problem).split())[:200]}"


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def together(
    bdfs: Sequence[str],
    *,
    plan: Plan | None = None,
    sysfs: Path = Path("/sys"),
    cuda: Callable[[], Cuda] = load,
    log: Callable[[], KernelLog] = kernel_log,
) -> TogetherDoc:
    """Copies of several GPUs at the same time, one thread a GPU: all to the device, then all to the host.

    Both ways begin on a barrier of their own. One GPU that fails leaves no number for any: then they did not copy
    together. Counted are batches that ended while all copied.
    """
    plan = plan or Plan()
    for bdf in bdfs:
        if not BDF.fullmatch(bdf):
            return TogetherDoc(problem=f"expected bus addresses such as 0000:19:00.0, found {bdf[:40]!r}")
    if not bdfs:
        return TogetherDoc(problem="expected at least one bus address, found none")
    try:
        driver = cuda()
    except CudaError as problem:
        return TogetherDoc(problem=str(problem))
    barrier = threading.Barrier(len(bdfs))
    found: dict[str, tuple[float, float]] = {}
    problems: dict[str, str] = {}
    begun = time.monotonic()

    def one(bdf: str) -> None:
        try:
            found[bdf] = _both_ways(driver, bdf, plan, barrier, sysfs)
        except threading.BrokenBarrierError:
            problems.setdefault(bdf, "")
        except Exception as problem:  # a thread that dies without a word would look like one that copied
            problems[bdf] = _said(problem)
            barrier.abort()

    threads = [threading.Thread(target=one, args=(bdf,), daemon=True) for bdf in bdfs]
    for thread in threads:
        thread.start()
    give_up = begun + START_S + 3 * plan.patience_s
    for bdf, thread in zip(bdfs, threads, strict=True):
        thread.join(max(0.0, give_up - time.monotonic()))
        if thread.is_alive():
            problems.setdefault(bdf, f"expected copies to end, found them still under way after {give_up - begun:g} s")
    said = [f"{bdf}: {text}" for bdf, text in sorted(problems.items()) if text]
    if problems:
        why = "; ".join(said) or f"GPUs were not ready at the same time within {START_S:g} s"
        return TogetherDoc(problem=why, log_after=log())
    down, up = ({bdf: rates[way] for bdf, rates in found.items()} for way in (0, 1))
    return TogetherDoc(gb_per_s=down, d2h_gb_per_s=up, seconds=time.monotonic() - begun, log_after=log())


def _both_ways(cuda: Cuda, bdf: str, plan: Plan, barrier: threading.Barrier, sysfs: Path) -> tuple[float, float]:
    """GB/s to one GPU, then from it, while the others copy the same way."""
    host_memory.bind_to(bdf, sysfs)
    gpu = CudaGpu(cuda, bdf)
    size = plan.size_bytes
    host, device = gpu.host_buffer(size), gpu.device_buffer(size)
    host_memory.write_pattern(host, size)
    down = Flow(gpu, lambda stream: gpu.copy_to_device(device, host, size, stream), size)
    up = Flow(gpu, lambda stream: gpu.copy_to_host(host, device, size, stream), size)
    barrier.wait(START_S)
    to_device = _at_once(gpu, down, plan, seconds=plan.seconds, loop=plan.loop)
    barrier.wait(plan.patience_s)  # nobody turns round while another one still copies the first way
    to_host = _at_once(gpu, up, plan, seconds=plan.seconds * UP_SHARE, loop=plan.loop_both)
    barrier.wait(plan.patience_s)  # nobody gives memory back while another one still copies
    gpu.close()
    return to_device, to_host


def _at_once(gpu: CudaGpu, flow: Flow, plan: Plan, *, seconds: float, loop: int) -> float:
    """Median GB/s of the batches that ended within so many seconds from now: as long as that, all copy."""
    until = time.monotonic() + seconds
    run(gpu, [flow], plan, loop=loop, until=until)
    all_rates = rates(times_s(gpu, flow, flow.marks[0]), flow.batch_bytes)
    in_time = [rate for rate, at in zip(all_rates, flow.passed_at[1:], strict=True) if at <= until]
    return median(in_time or all_rates[:1])
