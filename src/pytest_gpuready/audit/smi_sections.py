"""A terminal log cut into what each nvidia-smi command printed, lazily, so that a long log costs no memory.

A section begins at a line that only that layout has and goes on to the next such line. Sentences that stand alone
(errors, warnings) are told apart inside any section but XML.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from pytest_gpuready.parse.nvlink import HEADING, LINK, SENTENCE
from pytest_gpuready.parse.smi_csv import csv_header
from pytest_gpuready.parse.smi_messages import Message, message
from pytest_gpuready.parse.smi_table import TITLE
from pytest_gpuready.parse.topo import topo_header

_XML = re.compile(r"(?:<\?xml|<!DOCTYPE nvidia_smi_log|<nvidia_smi_log\b)")
_HINTS = (
    "NVML", "determine the device", "infoROM", "NVIDIA-SMI", "devices were", "Field", "Invalid", "nvidia-smi:", "NVRM",
    "cuda", "CUDA", "Cuda", "Result =", "Detected", "is lost", "initialized", "driver",
)  # fmt: skip
"""Words of which every message has one: most lines have none and need no closer look."""
_BEGINS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("xml", _XML.match),
    ("q", re.compile(r"=+NVSMI LOG=+").match),
    ("table", TITLE.match),
    ("nvlink", LINK.match),
    ("nvlink", SENTENCE.match),
    ("listed", HEADING.fullmatch),
)


def kind_of(line: str) -> str:
    """The layout that begins at a line: xml, q, table, topo, listed, nvlink, csv; "" where none does."""
    text = line.strip()
    if not text:
        return ""
    for kind, begins in _BEGINS:
        if begins(text):
            return kind
    return "topo" if "GPU" in text and topo_header(line) else "csv" if csv_header(text) else ""


def sections(lines: Iterable[str]) -> Iterator[tuple[str, Iterator[str | Message]]]:
    """Each section's kind ("" for text of no layout) and its lines, messages among them read."""
    for (_, kind), group in itertools.groupby(_tagged(lines), key=lambda tagged: tagged[0]):
        yield kind, (line for _, line in group)


def _tagged(lines: Iterable[str]) -> Iterator[tuple[tuple[int, str], str | Message]]:
    number, kind = 0, ""
    for line in lines:
        if kind == "xml":
            yield (number, kind), line
            if "</nvidia_smi_log>" in line:
                number, kind = number + 1, ""
            continue
        new = kind_of(line)
        if new and not _goes_on(kind, new):
            number, kind = number + 1, new
        inside_q = kind == "q" and line[:1].isspace()
        told = message(line) if any(hint in line for hint in _HINTS) and not inside_q else None
        yield (number, kind), told or line


def _goes_on(kind: str, new: str) -> bool:
    """Whether a line that could begin a layout belongs to the section before it."""
    if new == "nvlink":
        return kind in ("listed", "nvlink")
    if new == "listed":
        return kind in ("listed", "nvlink")
    return new == "csv" and kind in ("q", "table", "topo")
