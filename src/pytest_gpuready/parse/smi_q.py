"""`nvidia-smi -q` as text -> GPUs by the names that `--query-gpu` has for the same values.

The text is a tree by indentation: sections without a colon, leaves "key : value". What a section is called changed over
the years (Clocks Throttle Reasons, Clocks Event Reasons; Power Readings, GPU Power Readings); both are taken. There is
no end mark: "Attached GPUs" says how many blocks there have to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.parse.pci_address import PATTERN, pci_address
from pytest_gpuready.parse.smi_tree import Node, SmiLog, gpus_of

_GPU = re.compile(rf"GPU ({PATTERN})")
_LEAF = re.compile(r"(\S.*?)\s+:(?:\s(.*))?")
_TIGHT_LEAF = re.compile(r"([^:\s][^:]*):\s+(.*)")
_FIELDS_AT_MOST = 2000
_GPUS_AT_MOST = 4096


@dataclass(slots=True)
class _Open:
    node: Node
    stack: list[tuple[int, str]]


def smi_q(lines: Iterable[str]) -> SmiLog:
    """What the text says: head values, and a GPU for each block.

    Raises:
        ParseError: as `gpus_of`.
    """
    head: dict[str, str] = {}
    nodes: list[Node] = []
    now: _Open | None = None
    for raw in lines:
        line = raw.rstrip().replace("\t", "    ")
        text = line.strip()
        match = _GPU.fullmatch(text)
        if match:
            if len(nodes) >= _GPUS_AT_MOST:
                break
            now = _Open(node=Node(bdf=pci_address(match[1]), fields={}), stack=[])
            nodes.append(now.node)
        elif text and now is None:
            leaf = _LEAF.fullmatch(text) or _TIGHT_LEAF.fullmatch(text)
            if leaf and len(head) < _FIELDS_AT_MOST:
                head.setdefault(leaf[1].lower(), (leaf[2] or "").strip())
        elif text and now is not None:
            _take(now, len(line) - len(line.lstrip()), text)
    attached = head.get("attached gpus", "")
    return SmiLog(
        driver=head.get("driver version", ""),
        attached=int(attached) if attached.isdecimal() and len(attached) < 6 else None,
        gpus=gpus_of(nodes),
        complete=None,
    )


def _take(now: _Open, indent: int, text: str) -> None:
    while now.stack and now.stack[-1][0] >= indent:
        now.stack.pop()
    leaf = _LEAF.fullmatch(text) or _TIGHT_LEAF.fullmatch(text)
    title = (leaf[1] if leaf else text).strip().lower()
    path = (*(name for _, name in now.stack), title)
    if leaf and path[0] != "processes" and len(now.node.fields) < _FIELDS_AT_MOST:
        now.node.fields.setdefault("/".join(path), []).append((leaf[2] or "").strip())
    if len(now.stack) < 12:
        now.stack.append((indent, title))
