"""STAND-IN for `cuda.bindings.driver`: no hardware. Copies move real bytes at once, time is that of a made-up link.

Every stream has a clock of its own; a copy moves it on by size over rate. Events hold the clock of their stream.
Faults are attributes: `results` (call -> error code), `spoil` (a direction in which one byte turns), `lose` (a
direction in which nothing arrives), `stuck` (events never pass).
"""

# ruff: noqa: N802 - these are the driver's own names
from __future__ import annotations

import ctypes
import enum
import threading


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_ECC_UNCORRECTABLE = 214
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_SYSTEM_NOT_READY = 802


class StandInDriver:
    """A driver with GPUs at the given bus addresses, each with GB/s to the device and to the host."""

    CUresult = CUresult

    def __init__(self, gpus: dict[str, tuple[float, float]], both: float = 1.0) -> None:
        self.gpus = gpus
        self.both = both
        """Share of its rate that a direction keeps while the other one runs."""
        self.results: dict[str, int] = {}
        self.spoil = ""
        self.lose = ""
        self.stuck = False
        self.calls: list[str] = []
        self._keep: list[ctypes.Array[ctypes.c_char]] = []
        self._here = threading.local()
        self._streams = 0

    def __getattribute__(self, name: str):  # every call of the driver can be made to fail by name
        if name.startswith("cu"):
            self.calls.append(name)
            code = self.results.get(name)
            if code is not None:
                return lambda *_: (code, None)
        return object.__getattribute__(self, name)

    def cuInit(self, _flags):
        return (CUresult.CUDA_SUCCESS,)

    def cuDeviceGetByPCIBusId(self, bdf):
        return (0, bdf.decode()) if bdf.decode() in self.gpus else (CUresult.CUDA_ERROR_INVALID_DEVICE, None)

    def cuDeviceGetCount(self):
        return (0, len(self.gpus))

    def cuDeviceGetName(self, length, _device):
        return (0, b"stand-in GPU".ljust(length, b"\0"))

    def cuDevicePrimaryCtxRetain(self, device):
        return (0, device)

    def cuCtxSetCurrent(self, context):
        self._here.bdf = context
        return (0,)

    def cuMemHostAlloc(self, size, _flags):
        return (0, self._take(size))

    def cuMemAlloc(self, size):
        return (0, self._take(size))

    def cuMemFree(self, _memory):
        return (0,)

    def cuMemFreeHost(self, _address):
        return (0,)

    def cuDevicePrimaryCtxRelease(self, _device):
        return (0,)

    def cuStreamCreate(self, _flags):
        return (0, {"clock": 0.0, "way": ""})

    def cuMemcpyHtoDAsync(self, to, origin, size, stream):
        return self._copy(to, origin, size, stream, "h2d")

    def cuMemcpyDtoHAsync(self, to, origin, size, stream):
        return self._copy(to, origin, size, stream, "d2h")

    def cuMemsetD8Async(self, memory, byte, size, _stream):
        ctypes.memset(memory, byte, size)
        return (0,)

    def cuEventCreate(self, _flags):
        return (0, {})

    def cuEventRecord(self, event, stream):
        event["at"] = stream["clock"]
        return (0,)

    def cuStreamWaitEvent(self, stream, event, _flags):
        stream["clock"] = max(stream["clock"], event["at"])
        return (0,)

    def cuEventQuery(self, event):
        return (CUresult.CUDA_ERROR_NOT_READY if self.stuck else CUresult.CUDA_SUCCESS,)

    def cuEventElapsedTime(self, first, second):
        return (0, 1e3 * (second["at"] - first["at"]))

    def _take(self, size):
        memory = ctypes.create_string_buffer(size)
        self._keep.append(memory)
        return ctypes.addressof(memory)

    def _copy(self, to, origin, size, stream, way):
        if self.lose != way:
            ctypes.memmove(to, origin, size)
        if self.spoil == way:
            spoilt = ctypes.c_ubyte.from_address(to + size // 2)
            spoilt.value ^= 1
        rate = self.gpus[self._here.bdf][way == "d2h"]
        stream["clock"] += size / (rate * 1e9)
        return (0,)
