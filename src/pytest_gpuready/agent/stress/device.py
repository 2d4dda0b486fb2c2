"""One GPU for the engine: kernels from source, plain device memory, one stream, events; every answer of CUDA checked.

The driver is called through `agent.cuda_driver.Cuda`, so whatever goes wrong is one line with CUDA's own name of the
error. `cuda.core` compiles (NVRTC, for the architecture of this device, no driver needed for it). Phases see only the
methods of `Gpu` and `Kernel`, so tests put another object in its place.

Nothing waits without an end: `drain` polls an event and raises after `PATIENCE_S` without progress.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError, install, visible_devices

PATIENCE_S = 30.0
"""Longest wait for one piece of queued work; the largest lasts under a second on any card."""
POLL_S = 0.0005
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
ATTRIBUTE_SMS, ATTRIBUTE_L2, ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR = 16, 38, 75, 76
ATTRIBUTE_MEMORY_KHZ, ATTRIBUTE_MEMORY_BITS = 36, 37
"""CUdevice_attribute."""
EVENT_WITH_TIME, STREAM_NON_BLOCKING = 0, 1
HOST_MAPPED = 2


def is_absent(error: Exception) -> bool:
    """True where a library of CUDA is not installed, as the package cuda-pathfinder says it."""
    return type(error).__name__ == "DynamicLibNotFoundError"


def compile_source(source: str, arch: str) -> bytes:
    """Machine code of CUDA C++ for an architecture such as "sm_90".

    Raises: CudaError where cuda.core or NVRTC are missing or refuse.
    """
    try:
        core = importlib.import_module("cuda.core")
        options = core.ProgramOptions(std="c++17", arch=arch)
        return bytes(core.Program(source, "c++", options).compile("cubin").code)
    except ImportError as error:
        raise CudaError(f"expected the package cuda-core, found: {error}; {install()}") from error
    except Exception as error:  # cuda.core and NVRTC have error types of their own, which change between versions
        said = " ".join(str(error).split())[:300]
        if is_absent(error):
            raise CudaError(f"expected NVRTC to compile with, found: {said[:160]}; {install()}") from error
        raise CudaError(f"NVRTC for {arch}: expected machine code, found {type(error).__name__}: {said}") from error


class Kernel:
    """One kernel with its launch: grid, block and arguments, packed once and launched often."""

    def __init__(self, gpu: Gpu, function: Any, grid: Sequence[int], block: int, arguments: Sequence[Any]) -> None:
        self._gpu = gpu
        self._function = function
        self._grid = (*grid, 1, 1)[:3]
        self._block = block
        self.arguments = [a if isinstance(a, ctypes._SimpleCData) else ctypes.c_uint64(a) for a in arguments]
        self._pointers = (ctypes.c_void_p * len(self.arguments))(*(ctypes.addressof(a) for a in self.arguments))

    def launch(self) -> None:
        self._gpu.launch_function(self._function, self._grid, self._block, ctypes.addressof(self._pointers))


class Gpu:
    """A GPU with its context current in this thread."""

    def __init__(self, cuda: Any, bdf: str) -> None:
        self._cuda = cuda
        self.bdf = bdf
        code, values = cuda.ask("cuDeviceGetByPCIBusId", bdf.encode("ascii"))
        if code:
            hidden = visible_devices()
            why = f"; it is hidden by {hidden}" if hidden else "; compare with `nvidia-smi -L` and /dev/nvidia*"
            raise CudaError(f"expected GPU {bdf} in CUDA, found {cuda.error_name(code)} ({code}){why}")
        self.device = values[0]
        name = cuda.call("cuDeviceGetName", 256, self.device)
        self.name = name.split(b"\0")[0].decode("ascii", "replace") if isinstance(name, bytes) else str(name)
        self.compute = (self._attribute(ATTRIBUTE_MAJOR), self._attribute(ATTRIBUTE_MINOR))
        self.sms = self._attribute(ATTRIBUTE_SMS)
        self.l2_bytes = self._attribute(ATTRIBUTE_L2)
        # Both edges of the memory clock carry data.
        bits_per_s = 2e3 * self._attribute(ATTRIBUTE_MEMORY_KHZ) * self._attribute(ATTRIBUTE_MEMORY_BITS)
        self.memory_gb_per_s = bits_per_s / 8e9
        self.memory_bytes = int(cuda.call("cuDeviceTotalMem", self.device))
        self._code: dict[str, Future[bytes]] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._modules: dict[str, Any] = {}
        self._compilers = ThreadPoolExecutor(2, "nvrtc")
        self._spare_events: list[Any] = []

    def open(self) -> None:
        """Take the context and a stream; apart from the constructor, so that sources compile meanwhile."""
        self._cuda.call("cuCtxSetCurrent", self._cuda.call("cuDevicePrimaryCtxRetain", self.device))
        self._stream = self._cuda.call("cuStreamCreate", STREAM_NON_BLOCKING)
        self.stream = int(self._stream)

    def _attribute(self, which: int) -> int:
        enum = importlib.import_module("cuda.bindings.driver").CUdevice_attribute
        return int(self._cuda.call("cuDeviceGetAttribute", enum(which), self.device))

    @property
    def arch(self) -> str:
        return f"sm_{self.compute[0]}{self.compute[1]}"

    # --- kernels

    def prepare(self, source: str) -> None:
        """Begin to compile a source in another thread; what went wrong shows at its first use."""
        if source not in self._code:
            self._code[source] = self._compilers.submit(compile_source, source, self.arch)

    def kernel(self, source: str, name: str, grid: Sequence[int], block: int, *arguments: Any) -> Kernel:
        """A kernel with its launch. Plain numbers are 64-bit arguments; others come as ctypes objects."""
        if (source, name) not in self._functions:
            if source not in self._modules:
                self.prepare(source)
                self._modules[source] = self._cuda.call("cuModuleLoadData", self._code[source].result())
            function = self._cuda.call("cuModuleGetFunction", self._modules[source], name.encode("ascii"))
            self._functions[source, name] = function
        return Kernel(self, self._functions[source, name], grid, block, arguments)

    def launch_function(self, function: Any, grid: Sequence[int], block: int, pointers: int) -> None:
        self._cuda.call("cuLaunchKernel", function, *grid, block, 1, 1, 0, self._stream, pointers, 0)

    # --- memory

    def free_bytes(self) -> int:
        return int(self._cuda.call("cuMemGetInfo")[0])

    def allocate(self, size_bytes: int) -> int:
        return int(self._cuda.call("cuMemAlloc", size_bytes))

    def release(self, address: int) -> None:
        self._cuda.call("cuMemFree", address)

    @contextlib.contextmanager
    def buffers(self, *sizes: int) -> Iterator[list[int]]:
        """Several pieces of memory, given back at the end; after a broken context giving back says nothing new."""
        held: list[int] = []
        try:
            for size in sizes:
                held.append(self.allocate(size))
            yield held
        finally:
            for address in held:
                with contextlib.suppress(CudaError):
                    self.release(address)

    @contextlib.contextmanager
    def host_buffer(self, size_bytes: int) -> Iterator[int]:
        """Pinned host memory that kernels reach by the same address; it lies near the CPU that this thread is on."""
        address = int(self._cuda.call("cuMemHostAlloc", size_bytes, HOST_MAPPED))
        try:
            yield address
        finally:
            with contextlib.suppress(CudaError):
                self._cuda.call("cuMemFreeHost", address)

    def zero(self, address: int, size_bytes: int) -> None:
        self._cuda.call("cuMemsetD8Async", address, 0, size_bytes, self._stream)

    def set_bytes(self, address: int, byte: int, size_bytes: int) -> None:
        self._cuda.call("cuMemsetD8Async", address, byte, size_bytes, self._stream)

    def copy(self, to: int, source: int, size_bytes: int) -> None:
        self._cuda.call("cuMemcpyDtoDAsync", to, source, size_bytes, self._stream)

    def read(self, address: int, size_bytes: int) -> bytes:
        """Bytes of device memory, when everything queued so far is done."""
        self.drain()
        host = ctypes.create_string_buffer(size_bytes)
        self._cuda.call("cuMemcpyDtoH", ctypes.addressof(host), address, size_bytes)
        return host.raw

    # --- time

    def mark(self) -> Any:
        """An event at the end of what is queued now."""
        event = self._spare_events.pop() if self._spare_events else self._cuda.call("cuEventCreate", EVENT_WITH_TIME)
        self._cuda.call("cuEventRecord", event, self._stream)
        return event

    def forget(self, event: Any) -> None:
        """The event may be used again."""
        self._spare_events.append(event)

    def passed(self, event: Any) -> bool:
        code, _ = self._cuda.ask("cuEventQuery", event)
        if self._cuda.error_name(code) == "CUDA_ERROR_NOT_READY":
            return False
        self._cuda.check("a kernel", code)
        return True

    def seconds_between(self, first: Any, second: Any) -> float:
        return float(self._cuda.call("cuEventElapsedTime", first, second)) / 1e3

    def drain(self) -> None:
        """Wait for everything queued.

        Raises: CudaError after PATIENCE_S.
        """
        event = self.mark()
        give_up = time.monotonic() + PATIENCE_S
        while not self.passed(event):
            if time.monotonic() > give_up:
                raise CudaError(f"expected queued work to end within {PATIENCE_S:g} s, found it still under way")
            time.sleep(POLL_S)
        self.forget(event)

    def seconds_of(self, work: Any, times: int = 1) -> float:
        """How long the GPU takes for a piece of work, queued `times` times, on the average."""
        first = self.mark()
        for _ in range(times):
            work()
        last = self.mark()
        self.drain()
        seconds = self.seconds_between(first, last) / times
        self.forget(first)
        self.forget(last)
        return seconds


def is_out_of_memory(error: Exception) -> bool:
    return OUT_OF_MEMORY in str(error)
