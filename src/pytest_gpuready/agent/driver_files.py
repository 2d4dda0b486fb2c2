"""Versions of the driver's parts as they are on disk and in memory: kernel module, libnvidia-ml, libcuda.

A library's version stands in the name of the file that was really mapped ("libcuda.so.580.159.04"), whatever link led
there. A file without a version in its name has none here: nobody guesses.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from pytest_gpuready.agent.pci import SYS, word

PROC = Path("/proc")
LIBRARIES = ("libnvidia-ml", "libcuda")
VERSION = re.compile(r"(?<![\w.])(\d{3,}\.\d+(?:\.\d+)?)(?![\w.])")


def module_version(proc: Path = PROC, sys: Path = SYS) -> str:
    """Version of the loaded nvidia kernel module; "" where none is loaded."""
    banner = word(proc / "driver/nvidia/version").partition("\n")[0]
    match = VERSION.search(banner)
    return match[1] if match else word(sys / "module/nvidia/version")[:40]


def mapped_versions(maps: str) -> dict[str, str]:
    """Library -> version in the mapped file's name, from the text of /proc/self/maps."""
    found = {}
    for library in LIBRARIES:
        match = re.search(
            rf"/{re.escape(library)}\.so\.(\d{{3,}}\.\d+(?:\.\d+)?)(?: \(deleted\))?$", maps, re.MULTILINE
        )
        if match:
            found[library] = match[1]
    return found


def loaded_versions(proc: Path = PROC) -> dict[str, str]:
    """Versions of the libraries that this process has loaded, libcuda loaded for the purpose (CUDA is not started)."""
    import ctypes  # noqa: PLC0415 - only the nvml probe pays for it

    with suppress(OSError):  # not installed: the missing key says so
        ctypes.CDLL("libcuda.so.1")
    return mapped_versions((proc / "self/maps").read_text(encoding="utf-8", errors="replace"))
