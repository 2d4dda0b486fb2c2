"""Readers of what `dcgmi` prints: diag (JSON, table), nvlink, health, discovery, version.

A recogniser wants the tool's own title at the start of a line, so that a log which quotes one is not taken for it.
What reads is loaded when it is first needed: most runs of an audit meet one or two tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from pytest_gpuready.audit.reader import WHOLE_AT_MOST, Given, Reader, Reading

# Tool -> (pattern, how sure) in order; patterns are looked for at the start of lines.
_SIGNS: dict[str, tuple[tuple[str, int], ...]] = {
    "dcgmi-diag-json": (
        (r"^(?:\{.{0,200})?\s*\"DCGM (?:GPU )?Diagnostic\"\s*:", 95),
        (r"^\{\s*\"Overall Result\"\s*:.{0,200}\"iterations\"", 90),
    ),
    "dcgmi-diag-text": (
        (r"^\s*\|\s*Diagnostic\s+\|\s*Result\s+\|", 95),
        (r"^\s*Error: Unable to complete diagnostic for ", 80),
        (r"^\s*Successfully ran diagnostic for group", 60),
    ),
    "dcgmi-nvlink": (
        (r"^\s*\|\s+NvLink Link Status\s+\|", 95),
        (r"^\s*(?:\|\s+|\")NVLINK Error Counts\b", 90),
    ),
    "dcgmi-health": ((r"^\s*[|\"]?\s*Health (?:Monitor Report|monitor systems)", 90),),
    # The error of a missing host engine alone could be of any command of dcgmi.
    "dcgmi-discovery": ((r"^\s*\d{1,5} GPUs? found\b", 90), (r"^\s*Error: Unable to connect to host engine", 50)),
    "dcgmi-version": ((r"^\s*dcgmi\s+version:\s*\d", 90),),
}


def _sure(tool: str) -> Callable[[str], int]:
    def recognise(head: str) -> int:
        """How sure the first sign that is found makes us, 0 where none is."""
        found = (sure for sign, sure in _SIGNS[tool] if re.search(sign, head, re.MULTILINE | re.DOTALL))
        return next(found, 0)

    return recognise


def _later(module: str, function: str) -> Callable[[Given], Reading]:
    def read(given: Given) -> Reading:
        """The reading, by a module that is loaded now."""
        reading: Reading = getattr(import_module(f"pytest_gpuready.audit.readers.{module}"), function)(given)
        return reading

    return read


# A run of dcgmi diag on a node with many GPUs is far below a megabyte; its parser takes no more than this.
_AT_MOST = {"read_diag": 16 * 2**20, "read_health": WHOLE_AT_MOST}

READERS: tuple[Reader, ...] = tuple(
    Reader(tool=tool, recognise=_sure(tool), read=_later(module, function), at_most=_AT_MOST.get(function, 0))
    for tool, module, function in (
        ("dcgmi-diag-json", "dcgm_diag", "read_diag"),
        ("dcgmi-diag-text", "dcgm_diag", "read_diag"),
        ("dcgmi-nvlink", "dcgm_nvlink", "read"),
        ("dcgmi-health", "dcgm_state", "read_health"),
        ("dcgmi-discovery", "dcgm_state", "read_discovery"),
        ("dcgmi-version", "dcgm_state", "read_version"),
    )
)
