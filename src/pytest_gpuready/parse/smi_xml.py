"""`nvidia-smi -q -x` -> GPUs by the names that `--query-gpu` has for the same values.

Read with expat event by event, so that a hostile file costs nothing: a document that declares an entity is refused
before any is expanded, no DTD is fetched, depth and number of values are bounded. A document that ends early gives what
it said until then, and is not complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.parsers import expat

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.pci_address import pci_address
from pytest_gpuready.parse.smi_tree import Node, SmiLog, gpus_of

_ROOT = "nvidia_smi_log"
_DEPTH_AT_MOST = 16
_FIELDS_AT_MOST = 2000
_GPUS_AT_MOST = 4096
_TEXT_AT_MOST = 4096
_LEFT_OUT = ("supported_clocks", "processes", "accounted_processes", "mig_devices")
_ENTITY = re.compile(r"<!ENTITY", re.IGNORECASE)


class _Document:
    """Collects values by path while expat reads."""

    def __init__(self) -> None:
        self.head: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.closed = False
        self._path: list[str] = []
        self._text: list[str] = []
        self._leaf = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name != _ROOT:
            raise ParseError(f"nvidia-smi XML: expected <{_ROOT}>, found <{name[:40]}>")
        if len(self._path) >= _DEPTH_AT_MOST:
            raise ParseError(f"nvidia-smi XML: expected at most {_DEPTH_AT_MOST} levels, found more")
        self._path.append(name)
        self._text, self._leaf = [], True
        if self._path == [_ROOT, "gpu"]:
            if len(self.nodes) >= _GPUS_AT_MOST:
                raise ParseError(f"nvidia-smi XML: expected at most {_GPUS_AT_MOST} GPUs, found more")
            self.nodes.append(Node(bdf=pci_address(attributes.get("id", "")), fields={}))

    def data(self, text: str) -> None:
        if self._leaf and len(self._text) < 64:
            self._text.append(text[:_TEXT_AT_MOST])

    def end(self, name: str) -> None:
        text = " ".join("".join(self._text).split())
        if self._leaf and len(self._path) == 2:
            self.head.setdefault(name, text)
        elif self._leaf and len(self._path) > 2 and self._path[1] == "gpu" and self._path[2] not in _LEFT_OUT:
            fields = self.nodes[-1].fields
            if len(fields) < _FIELDS_AT_MOST:
                fields.setdefault("/".join(self._path[2:]), []).append(text)
        self._leaf = False
        self._path.pop()
        self.closed = self.closed or (not self._path and name == _ROOT)


def smi_xml(lines: Iterable[str]) -> SmiLog:
    """What the document says; `complete` is False where it ends before its end or breaks off.

    Raises:
        ParseError: it declares an entity, is no nvidia-smi document, or as `gpus_of`.
    """
    document = _Document()
    parser = expat.ParserCreate()
    parser.StartElementHandler = document.start
    parser.CharacterDataHandler = document.data
    parser.EndElementHandler = document.end
    parser.EntityDeclHandler = _no_entity
    parser.ExternalEntityRefHandler = _no_outside
    broken = ""
    try:
        for line in lines:
            if _ENTITY.search(line):
                _no_entity()
            if document.closed:
                break
            parser.Parse(line + "\n", False)
        else:
            if not document.closed:
                parser.Parse("", True)
    except expat.ExpatError as error:
        broken = f"line {error.lineno}: {expat.errors.messages.get(error.code, 'not well-formed')}"
    if not document.closed and not document.nodes and not document.head:
        raise ParseError(f"nvidia-smi XML: expected <{_ROOT}>, found nothing of it{f' ({broken})' if broken else ''}")
    attached = document.head.get("attached_gpus", "")
    return SmiLog(
        driver=document.head.get("driver_version", ""),
        attached=int(attached) if attached.isdecimal() and len(attached) < 6 else None,
        gpus=gpus_of(document.nodes),
        complete=document.closed and not broken,
    )


def _no_entity(*_: object) -> None:
    raise ParseError("nvidia-smi XML: expected a document without entities, found one that declares some; not read")


def _no_outside(*_: object) -> int:
    return 0
