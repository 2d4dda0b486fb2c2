"""CUDA begins to start in a thread of its own while Python still imports. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes


def cuda(bdf: str) -> None:
    """Initialise CUDA and take the GPU's primary context; whatever fails here is said by who needs it.

    Nothing is imported: CUDA's packages are not made to be imported by two threads at once.
    """
    with contextlib.suppress(OSError, AttributeError, ctypes.ArgumentError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGetByPCIBusId(ctypes.byref(device), bdf.encode("ascii")) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
