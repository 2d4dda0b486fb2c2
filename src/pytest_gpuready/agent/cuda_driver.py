"""The few calls of the CUDA driver that copies need, each checked; one GPU, found by its PCI bus address.

Goes through `cuda.bindings.driver` alone (package cuda-bindings, 12 or 13): no runtime, no compiler, no numpy. Whatever
CUDA answers but success becomes a `CudaError` of one line with the CUDA error's name and what to do. Memory is plain
device memory and pinned host memory, never managed memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from typing import Any

from pytest_gpuready.errors import ToolError

ACTIONS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory of the GPU and of the host, and look at `ulimit -l`",
    "CUDA_ERROR_NO_DEVICE": "look at `nvidia-smi -L`, /dev/nvidia* and CUDA_VISIBLE_DEVICES in this place",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "end the process that holds the GPU, or set compute mode default",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "read the Xids in the kernel log; reset the GPU",
    "CUDA_ERROR_SYSTEM_NOT_READY": "start nvidia-fabricmanager and wait until NVML's fabric state is completed",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "reboot: libcuda and the loaded kernel module are of two versions",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "take the cuda-compat package out of the library path",
    "CUDA_ERROR_UNKNOWN": "read the kernel log; reload nvidia_uvm",
}
"""CUDA error -> what to do first."""

SUCCESS, NOT_READY = 0, 600
HOST_PORTABLE = 1
STREAM_NON_BLOCKING = 1
EVENT_DEFAULT = 0


class CudaError(ToolError):
    """CUDA did not do what was asked; one line."""


class Cuda:
    """The driver interface, loaded and initialised."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        code, _ = self.ask("cuInit", 0)
        hidden_by = visible_devices()
        if self.error_name(code) == "CUDA_ERROR_NO_DEVICE" and hidden_by is not None:
            raise CudaError(f"cuInit: expected GPUs in CUDA, found all hidden by {hidden_by}; unset it on the node")
        self.check("cuInit", code)

    def call(self, name: str, *arguments: Any) -> Any:
        """The one value, or the tuple of values, that a call gives back.

        Raises: CudaError for every answer but success.
        """
        code, values = self.ask(name, *arguments)
        self.check(name, code)
        return values[0] if len(values) == 1 else tuple(values)

    def ask(self, name: str, *arguments: Any) -> tuple[int, list[Any]]:
        """The raw answer of a call: CUDA's code and the values."""
        try:
            code, *values = getattr(self._driver, name)(*arguments)
        except RuntimeError as error:  # what cuda-bindings raises without libcuda, or where a driver lacks a function
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CudaError(
                f"{name}: expected libcuda.so.1, found: {said[:160]}; install the NVIDIA driver, "
                "in a container ask for the driver capability 'compute'"
            ) from error
        return int(code), values

    def check(self, name: str, code: int) -> None:
        """Raises: CudaError unless the code is CUDA_SUCCESS."""
        if code != SUCCESS:
            error = self.error_name(code)
            advice = f"; {ACTIONS[error]}" if error in ACTIONS else ""
            raise CudaError(f"{name}: expected CUDA_SUCCESS, found {error} ({code}){advice}")

    def error_name(self, code: int) -> str:
        """CUDA's own name of an error: CUDA_ERROR_SYSTEM_NOT_READY."""
        try:
            return str(self._driver.CUresult(code).name)
        except ValueError:  # younger than the binding
            return f"CUDA error {code}"


def load() -> Cuda:
    """The CUDA driver of this machine.

    Raises: CudaError where package or library are missing or CUDA does not start.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise CudaError(f"expected the package cuda-bindings, found: {error}; {install()}") from error
    return Cuda(driver)


def install() -> str:
    """What brings the CUDA packages that fit the driver of this machine."""
    version = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):  # no driver, or none that we know: both extras are named
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    if not version.value:
        return "pip install 'pytest-gpuready[cuda13]' on the node (driver 580 or newer, else [cuda12])"
    speaks = f"the driver here speaks CUDA {version.value // 1000}.{version.value // 10 % 100}"
    if version.value < 12000:
        return f"install driver 525 or newer on the node, then the extra cuda12 ({speaks})"
    return f"pip install 'pytest-gpuready[cuda{min(version.value // 1000, 13)}]' on the node ({speaks})"


class CudaGpu:
    """One GPU with its primary context, current in the thread that made this object."""

    def __init__(self, cuda: Cuda, bdf: str) -> None:
        self._cuda = cuda
        self.bdf = bdf
        self._device = _device(cuda, bdf)
        name = cuda.call("cuDeviceGetName", 256, self._device)
        self.name = name.split(b"\0")[0].decode("ascii", "replace") if isinstance(name, bytes) else str(name)
        cuda.call("cuCtxSetCurrent", cuda.call("cuDevicePrimaryCtxRetain", self._device))
        self._host: list[int] = []
        self._memory: list[Any] = []

    def host_buffer(self, size_bytes: int) -> int:
        """Address of pinned host memory; its pages are taken by the calling thread, so on that thread's NUMA node."""
        address = int(self._cuda.call("cuMemHostAlloc", size_bytes, HOST_PORTABLE))
        self._host.append(address)
        return address

    def device_buffer(self, size_bytes: int) -> Any:
        memory = self._cuda.call("cuMemAlloc", size_bytes)
        self._memory.append(memory)
        return memory

    def stream(self) -> Any:
        return self._cuda.call("cuStreamCreate", STREAM_NON_BLOCKING)

    def copy_to_device(self, device: Any, host: int, size_bytes: int, stream: Any) -> None:
        self._cuda.call("cuMemcpyHtoDAsync", device, host, size_bytes, stream)

    def copy_to_host(self, host: int, device: Any, size_bytes: int, stream: Any) -> None:
        self._cuda.call("cuMemcpyDtoHAsync", host, device, size_bytes, stream)

    def poison(self, device: Any, size_bytes: int, stream: Any) -> None:
        """Fill device memory with a byte, so that what was not copied shows."""
        self._cuda.call("cuMemsetD8Async", device, 0xA5, size_bytes, stream)

    def mark(self, stream: Any) -> Any:
        """An event at the end of what the stream holds now."""
        event = self._cuda.call("cuEventCreate", EVENT_DEFAULT)
        self._cuda.call("cuEventRecord", event, stream)
        return event

    def wait_for(self, stream: Any, event: Any) -> None:
        """Hold a stream until an event of another one has passed."""
        self._cuda.call("cuStreamWaitEvent", stream, event, 0)

    def passed(self, event: Any) -> bool:
        """True where the GPU has got past the event."""
        code, _ = self._cuda.ask("cuEventQuery", event)
        if code != NOT_READY:
            self._cuda.check("a copy", code)
        return code == SUCCESS

    def seconds_between(self, first: Any, second: Any) -> float:
        return float(self._cuda.call("cuEventElapsedTime", first, second)) / 1e3

    def close(self) -> None:
        """Give memory and context back. Not for use after a CudaError: a broken context refuses or blocks."""
        for memory in self._memory:
            self._cuda.call("cuMemFree", memory)
        for address in self._host:
            self._cuda.call("cuMemFreeHost", address)
        self._cuda.call("cuDevicePrimaryCtxRelease", self._device)


def _device(cuda: Cuda, bdf: str) -> Any:
    """CUDA's handle of the GPU at a bus address.

    Raises: CudaError that names CUDA_VISIBLE_DEVICES where that is what hides the GPU.
    """
    code, values = cuda.ask("cuDeviceGetByPCIBusId", bdf.encode("ascii"))
    if code == SUCCESS:
        return values[0]
    hidden_by = visible_devices()
    if hidden_by is not None:
        raise CudaError(f"expected GPU {bdf} in CUDA, found it hidden by {hidden_by}; unset it on the node")
    count = cuda.call("cuDeviceGetCount")
    raise CudaError(
        f"expected GPU {bdf} in CUDA, found {cuda.error_name(code)} ({code}) among {count} GPUs that CUDA sees; "
        "compare with `nvidia-smi -L`, /dev/nvidia* and MIG mode"
    )


def visible_devices() -> str | None:
    """ "CUDA_VISIBLE_DEVICES='1'" where that variable is set in this process, else None."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if value is None else f"CUDA_VISIBLE_DEVICES={value[:80]!r}"
