"""`mlxlink`, text or JSON, one or many dumps in a file -> links. The rate is lane rate times width.

Colours are taken away. A line `-E- ...` is a message about an option or a device and does not undo the dump before it.
A value that the tool calls N/A is not there. `15E-255` is the tool's word for "no error seen".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.errors import ParseError

LINKS_AT_MOST = 4096
TEXT_AT_MOST = 8 * 2**20

LANE_GBIT: dict[str, float] = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""InfiniBand lane rates, as names of rates count them (4x HDR = 200)."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BANNER = re.compile(r"^={3,}\s*(?P<name>[^=\s][^=]{0,100}?)\s*={3,}\s*$")
_FIELD = re.compile(r"^(?P<key>[A-Za-z][^:]{0,60}?)\s*:\s*(?P<value>.*?)\s*$")
_COMMAND = re.compile(r"mlxlink\s.{0,200}?(?:-d|--device)[ =]\s*(\S+)")
_MESSAGE = re.compile(r"^-(?P<level>[EW])-\s*(?P<text>.+)$")
_SPEED = re.compile(r"(?:IB-)?(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)")
_ETHERNET = re.compile(r"(\d{1,4}(?:\.\d)?)G(?:bE|E|_\dX|bps)?", re.I)
_WIDTH = re.compile(r"(\d{1,2})x", re.I)
_COUNT = re.compile(r"\d{1,20}")
_BER = re.compile(r"\d{1,3}(?:\.\d{1,6})?[eE]-\d{1,3}|0(?:\.0+)?")
_NOT_BLANK = re.compile(r"\S")
_NONE = {"", "N/A", "n/a", "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One dump. `fields` is as printed, without N/A; `twice` names fields that were printed with two values."""

    device: str
    fields: dict[str, str]
    twice: tuple[str, ...]

    def text(self, key: str) -> str | None:
        """A field as printed, or None."""
        return self.fields.get(key)

    def count(self, key: str) -> int | None:
        """A counter, or None where it is not there or not a number."""
        text = self.fields.get(key, "")
        return int(text) if _COUNT.fullmatch(text) else None

    def ber(self, key: str) -> float | None:
        """A bit error rate, or None; 15E-255 is 1.5e-254."""
        text = self.fields.get(key, "")
        return float(text) if _BER.fullmatch(text) else None

    def minutes(self) -> float | None:
        """Minutes since the counters were cleared."""
        text = self.fields.get("Time Since Last Clear [Min]", "")
        return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,3})?", text) else None

    @property
    def width(self) -> int | None:
        """Lanes."""
        found = _WIDTH.fullmatch(self.fields.get("Width", ""))
        return int(found[1]) if found else None

    @property
    def lane_gbit(self) -> float | None:
        """Rate of one lane where the speed is an InfiniBand one."""
        found = _SPEED.fullmatch(self.fields.get("Speed", ""))
        return LANE_GBIT[found[1]] if found else None

    @property
    def gbit(self) -> float | None:
        """Rate of the link: of an Ethernet speed as it says, else lane rate times width."""
        ethernet = _ETHERNET.fullmatch(self.fields.get("Speed", ""))
        if ethernet:
            return float(ethernet[1])
        lane, width = self.lane_gbit, self.width
        return lane * width if lane is not None and width is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumps:
    """All links of an output, its messages, and whether the text ends in the middle of a line or a section."""

    links: tuple[Link, ...]
    errors: tuple[str, ...]
    cut: bool


def parse_mlxlink(lines: Iterable[str], command: str = "") -> Dumps:
    """Every dump, in order. `command` names the device where the text does not.

    Raises:
        ParseError: no dump and no message is there, or its JSON cannot be read.
    """
    named = _COMMAND.search(command)
    device = named[1] if named and "$" not in named[1] else ""
    clean = (_COLOUR.sub("", line) for line in lines)
    first: list[str] = []
    for line in clean:
        if line.strip():
            first = [line]
            break
    if first and first[0].lstrip().startswith("{"):
        return _json(first, clean, device)
    return _text([*first], clean, device)


def _text(first: list[str], rest: Iterable[str], device: str) -> Dumps:
    links: list[tuple[str, dict[str, str], set[str]]] = []
    errors: list[str] = []
    open_section = ""
    for lines in (first, rest):
        for line in lines:
            if found := _BANNER.match(line):
                device = found["name"]
            elif (found := _COMMAND.search(line)) and not _FIELD.match(line):
                device = found[1]
            elif found := _MESSAGE.match(line.strip()):
                errors += [found["text"][:300]] if found["level"] == "E" and len(errors) < 100 else []
            elif line.strip() == "Operational Info":
                links.append((device, {}, set()))
                open_section = line.strip()
            elif links and (found := _FIELD.match(line.strip())):
                open_section = ""
                _put(links[-1], found["key"].strip(), found["value"])
            elif line.strip() and not set(line.strip()) <= {"-", "="}:
                open_section = line.strip()
            if len(links) > LINKS_AT_MOST:
                raise ParseError(f"mlxlink: expected at most {LINKS_AT_MOST} dumps, found more; audit fewer at once")
    if not links and not errors:
        raise ParseError("mlxlink: expected 'Operational Info', found none; run mlxlink again")
    return Dumps(
        links=tuple(Link(device=d, fields=f, twice=tuple(sorted(t))) for d, f, t in links),
        errors=tuple(errors),
        cut=bool(open_section),
    )


def _put(link: tuple[str, dict[str, str], set[str]], key: str, value: str) -> None:
    _, fields, twice = link
    if value in _NONE:
        return
    if fields.setdefault(key, value) != value:
        twice.add(key)


def _json(first: list[str], rest: Iterable[str], device: str) -> Dumps:
    kept, size = [*first], 0
    for line in rest:
        kept.append(line)
        size += len(line) + 1
        if size > TEXT_AT_MOST:
            raise ParseError("mlxlink: expected JSON of at most 8 MiB, found more; audit fewer at once")
    text = "\n".join(kept)
    links: list[Link] = []
    errors: list[str] = []
    decoder = json.JSONDecoder()
    at = 0
    while (found := _NOT_BLANK.search(text, at)) and found[0] == "{":
        start = found.start()
        try:
            document, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"mlxlink: expected JSON, found {error}; take the output again") from error
        link, error_text = _document(document, device)
        links += [link] if link else []
        errors += [error_text] if error_text else []
    if not links and not errors:
        raise ParseError("mlxlink: expected result.output with 'Operational Info', found none; run mlxlink again")
    return Dumps(links=tuple(links), errors=tuple(errors), cut=_NOT_BLANK.search(text, at) is not None)


def _document(document: Any, device: str) -> tuple[Link | None, str]:
    result = document.get("result") if isinstance(document, dict) else None
    output = result.get("output") if isinstance(result, dict) else None
    status = document.get("status") if isinstance(document, dict) else None
    message = str(status.get("message", "")) if isinstance(status, dict) and status.get("code") not in (0, "0") else ""
    if not isinstance(output, dict) or not isinstance(output.get("Operational Info"), dict):
        return None, message
    fields: dict[str, str] = {}
    for section in output.values():
        for key, value in section.items() if isinstance(section, dict) else ():
            text = _flat(value)
            if text not in _NONE:
                fields.setdefault(str(key), text)
    return Link(device=device, fields=fields, twice=()), message


def _flat(value: Any) -> str:
    """A value as the text form prints it: lists joined by commas, an object by its `values` or `val`."""
    if isinstance(value, dict):
        value = value.get("values", value.get("val", ""))
    if isinstance(value, list):
        return ",".join(_flat(v) for v in value[:64])
    return str(value).strip() if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
