"""Sentences that nvidia-smi and CUDA programs print instead of, before or after a result.

Each is one of a closed set of kinds; a sentence that nobody knows is no message. The address in "Unable to determine
the device handle for GPU0000:9B:00.0" is part of the sentence, with or without a blank, an index or nothing at all
before it, depending on the driver's version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pytest_gpuready.parse.pci_address import pci_address

What = Literal[
    "lost gpu", "driver mismatch", "library version", "driver not loaded", "nvml refused", "no devices", "bad query",
    "no tool", "inforom", "kernel module", "cuda error", "cuda passed", "cuda devices", "persistence",
]  # fmt: skip

_BDF = r"(?:[0-9a-fA-F]{4,8}:)[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_WITH_BDF: tuple[tuple[What, re.Pattern[str]], ...] = (
    (
        "lost gpu",
        re.compile(
            r"Unable to determine the device handle for (?:gpu)? ?(?:(?P<index>\d{1,3})(?=: ))?(?:: )?"
            rf"(?P<bdf>{_BDF})?(?:: ?)?(?P<why>.*)",
            re.IGNORECASE,
        ),
    ),
    (
        "lost gpu",
        re.compile(rf"(?:GPU ?(?P<index>\d{{1,3}}): ?)?(?P<bdf>{_BDF}): (?P<why>GPU is lost.*)", re.IGNORECASE),
    ),
    ("inforom", re.compile(rf"WARNING: infoROM is corrupted at gpu (?P<bdf>{_BDF})", re.IGNORECASE)),
)
_PLAIN: tuple[tuple[What, re.Pattern[str]], ...] = (
    ("driver mismatch", re.compile(r"Failed to initialize NVML: Driver/library version mismatch(?P<why>)")),
    ("library version", re.compile(r"NVML library version: (?P<why>\d+(?:\.\d+)+)")),
    (
        "driver not loaded",
        re.compile(r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA(?P<why>)"),
    ),
    ("driver not loaded", re.compile(r"Failed to initialize NVML: (?P<why>Driver Not Loaded)")),
    ("nvml refused", re.compile(r"Failed to initialize NVML: (?P<why>.+)")),
    ("nvml refused", re.compile(r"(?P<why>NVIDIA-SMI couldn't find libnvidia-ml\.so.*)")),
    ("nvml refused", re.compile(r"(?P<why>NVIDIA-SMI has failed.*)")),
    ("no devices", re.compile(r"No devices were found(?P<why>)")),
    (
        "bad query",
        re.compile(r"(?P<why>Field \"[^\"]*\" is not a valid field to query\.?|Invalid combination of input.*)"),
    ),
    ("no tool", re.compile(r"(?:\S+ ){0,4}nvidia-smi: (?P<why>(?:command )?not found|No such file or directory)")),
    (
        "kernel module",
        re.compile(r"NVRM version: .*?(?:Kernel Module|UNIX \S+)[^0-9]*(?:for \S+ +)?(?P<why>\d+\.\d+(?:\.\d+)*)\b"),
    ),
    ("cuda passed", re.compile(r"Result = PASS(?P<why>)")),
    ("cuda error", re.compile(r"Result = (?P<why>FAIL)")),
    ("cuda devices", re.compile(r"Detected (?P<why>\d{1,4}) CUDA Capable device")),
)
_CUDA_NUMBER = re.compile(r"\b(?:returned|CUDA error|cuda error|error code|cudaError_t|Error) ?[:=(]? ?(\d{1,4})\b")
_CUDA_WORDS: tuple[tuple[int, str], ...] = (
    (802, "system not yet initialized"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (802, "cudaErrorSystemNotReady"),
    (803, "system has unsupported display driver / cuda driver combination"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (804, "forward compatibility was attempted on non supported HW"),
    (100, "no CUDA-capable device is detected"),
    (35, "CUDA driver version is insufficient for CUDA runtime version"),
    (214, "uncorrectable ECC error encountered"),
    (46, "all CUDA-capable devices are busy or unavailable"),
    (999, "CUDA_ERROR_UNKNOWN"),
)
_CUDA_CONTEXT = re.compile(r"cuda|^->", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One sentence. `why`: version, reason or number in it; `bdf` and `index` ("" and -1) where a GPU is named."""

    what: What
    why: str = ""
    bdf: str = ""
    index: int = -1


def message(line: str) -> Message | None:
    """The message that a line is, or None."""
    text = line.strip()
    if not text or len(text) > 500:
        return None
    for what, pattern in _WITH_BDF:
        match = pattern.match(text)
        if match:
            found = match.groupdict()
            return Message(
                what=what,
                why=(found.get("why") or "").strip(),
                bdf=pci_address(found["bdf"]) if found.get("bdf") else "",
                index=int(found["index"]) if found.get("index") else -1,
            )
    for what, pattern in _PLAIN:
        match = pattern.match(text)
        if match:
            return Message(what=what, why=match["why"].strip())
    code = cuda_code(text)
    return Message(what="cuda error", why=str(code)) if code else None


def cuda_code(text: str) -> int:
    """The number of a CUDA error that a line reports, 0 where it reports none."""
    for code, words in _CUDA_WORDS:
        if words.lower() in text.lower():
            return code
    match = _CUDA_NUMBER.search(text) if _CUDA_CONTEXT.search(text) else None
    return int(match[1]) if match else 0
