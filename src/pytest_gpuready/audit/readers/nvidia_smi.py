"""nvidia-smi in all its layouts: table, list, `-q` text and XML, CSV, `nvlink`, `topo`, and what it says when it fails.

A terminal log often holds several of them one after the other, and any command may end in an error sentence, so one
scan finds the sections of a text and one engine reads them under the three names nvidia-smi, nvidia-smi-nvlink and
nvidia-smi-topo; what was asked for and is nowhere in the text is not measured.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_gpuready.audit.reader import Given, Reader, Reading
from pytest_gpuready.audit.smi_sections import kind_of
from pytest_gpuready.parse.smi_messages import message

_HEAD_LINES = 400
_SURE = {"xml": 95, "q": 95, "table": 90, "csv": 85, "listed": 70}


def _kinds(head: str) -> dict[str, int]:
    """Kind of section -> line of its first appearance, among the first lines."""
    found: dict[str, int] = {}
    for number, line in enumerate(head.split("\n", _HEAD_LINES)[:_HEAD_LINES]):
        kind = kind_of(line)
        if kind:
            found.setdefault(kind, number)
    return found


def _recognise_smi(head: str) -> int:
    kinds = _kinds(head)
    lines = [line for line in head.split("\n", 12)[:12] if line.strip()]
    first = next((m for line in lines[:3] if (m := message(line))), None)
    sure = max((_SURE[kind] for kind in kinds if kind in _SURE), default=0)
    late = min(kinds.values(), default=0) > 60
    return max(sure - 50 if late else sure, 75 if first and len(lines) < 12 else 60 if first else 0)


def _recognise_nvlink(head: str) -> int:
    kinds = _kinds(head)
    return 88 if "nvlink" in kinds and not {"table", "q", "xml"} & set(kinds) else 0


def _recognise_topo(head: str) -> int:
    kinds = _kinds(head)
    return 88 if "topo" in kinds and not {"table", "q", "xml", "nvlink"} & set(kinds) else 0


def _read(tool: str) -> Callable[[Given], Reading]:
    def read(given: Given) -> Reading:
        from pytest_gpuready.audit.smi_read import SmiReading  # noqa: PLC0415 - loaded when needed

        return SmiReading(given).reading(tool)

    return read


READERS: tuple[Reader, ...] = (
    Reader(tool="nvidia-smi", recognise=_recognise_smi, read=_read("nvidia-smi")),
    Reader(tool="nvidia-smi-nvlink", recognise=_recognise_nvlink, read=_read("nvidia-smi-nvlink")),
    Reader(tool="nvidia-smi-topo", recognise=_recognise_topo, read=_read("nvidia-smi-topo")),
)
