"""Xids while they come: from NVML, which has the critical ones, and from the kernel log, which has all it may show."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pynvml

from pytest_gpuready.agent.kernel_log import kmsg_records
from pytest_gpuready.agent.watch_readings import error_name
from pytest_gpuready.model.kernel_words import OFF_THE_BUS

NOT_HARDWARE = frozenset({13, 31, 43, 45, 69, 121, 154})
"""Xids that a program can cause, or that only inform: as `parse.kernel_log` has them; every other one is hardware."""

OFF_BUS = 79
WAIT_MS = 100
LARGEST = 2**20
"""Bytes of the kernel log that one look takes."""

_XID = re.compile(r"Xid\s*[(\[]\s*(?:PCI:)?([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})[^)\]]*[)\]]\s*:?\s*(\d{1,9})", re.I)
_GPU = re.compile(r"GPU (?:at )?(?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})", re.I)

Xid = tuple[str, int]
"""Bus address and number."""


def hardware(xid: int) -> bool:
    """True where this number counts against the GPU."""
    return xid not in NOT_HARDWARE


def in_line(text: str) -> Iterator[Xid]:
    """The Xids of one line of the kernel log; a GPU that fell off the bus is 79 also without a number."""
    found = [(_bdf(*match.groups()[:3]), int(match[4])) for match in _XID.finditer(text)]
    yield from found
    if not found and OFF_THE_BUS.search(text) and (match := _GPU.search(text)):
        yield _bdf(*match.groups()), OFF_BUS


def _bdf(domain: str, bus: str, device: str) -> str:
    return f"{int(domain, 16):04x}:{bus.lower()}:{device.lower()}.0"


class LiveLog:
    """The kernel log from `open` on, look by look. Where it may not be read there is nothing: NVML tells the worst."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._tail = b""

    def open(self) -> None:
        """Stand at the end of the log."""
        try:
            self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._handle, 0, os.SEEK_END)
        except OSError:
            self._handle = None

    def new(self) -> list[Xid]:
        """Xids that were written since the last look."""
        data, lost = self._tail, 0
        while self._handle is not None and len(data) < LARGEST:
            try:
                piece = os.read(self._handle, 65536)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before it was read; goes on with what is there
                lost += 1
                if lost > 100:
                    break
                continue
            except OSError:
                os.close(self._handle)
                self._handle = None
                break
            if not piece:
                break
            data += piece
        whole, newline, self._tail = data.rpartition(b"\n")
        return [xid for record in kmsg_records(whole + newline) for xid in in_line(record.text)]


class NvmlEvents:
    """Critical Xids as NVML reports them. `note` takes a line where it cannot."""

    def __init__(self, bdfs: Sequence[str], heard: Callable[[str, int], None], note: Callable[[str], None]) -> None:
        self._bdfs = bdfs
        self._heard = heard
        self._note = note
        self._by_handle: dict[int, str] = {}

    def run(self) -> None:
        """Wait for events until the process ends; returns where no GPU has any."""
        kind = getattr(pynvml, "nvmlEventTypeXidCriticalError", 8)
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._note(f"no Xid events from NVML: {error_name(error)}")
            return
        for bdf in self._bdfs:
            try:
                handle = pynvml.nvmlDeviceGetHandleByPciBusId(bdf.encode("ascii"))
                pynvml.nvmlDeviceRegisterEvents(handle, kind, events)
                self._by_handle[_address(handle)] = bdf
            except pynvml.NVMLError as error:
                self._note(f"no Xid events from NVML for {bdf}: {error_name(error)}")
        while self._by_handle:
            try:
                event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
            except pynvml.NVMLError as error:
                if error_name(error) == "Timeout":
                    continue
                self._note(f"no more Xid events from NVML: {error_name(error)}")
                return
            if event.eventType == kind:
                # By the handle: a GPU that fell off the bus does not say any more where it was.
                self._heard(self._by_handle.get(_address(event.device), ""), int(event.eventData))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
