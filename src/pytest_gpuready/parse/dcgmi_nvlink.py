"""`dcgmi nvlink -s` (state of every link) and `dcgmi nvlink -e` (error counters), table or JSON.

The place in a row is the link's number. `_` is no link of this chip: neither up nor down. The state list ends with
its key line, the counter table with a rule; a list without its end may lack GPUs.
"""

from __future__ import annotations

import json
import re
from collections import Counter as Counts
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

UP, DOWN, DISABLED, NONE = "U", "D", "X", "_"
LINKS_AT_MOST = 1024
PARTS_AT_MOST = 10_000
_GPU = re.compile(r"gpuId (\d{1,4}):$")
_SWITCH = re.compile(r"physicalId (\d{1,9}):$")
_STATES = re.compile(r"[UDX_](?: [UDX_])*$")
_KEY = re.compile(r"Key: Up=U, Down=D, Disabled=X, Not Supported=_$")
_COUNTERS = "NVLINK Error Counts"
_RULE = re.compile(r"\+-+\+-+\+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """States of one GPU's or NVSwitch's links by link number, one letter each."""

    kind: str
    number: int
    states: tuple[str, ...]

    def numbers(self, state: str) -> tuple[int, ...]:
        """Link numbers in this state."""
        return tuple(number for number, one in enumerate(self.states) if one == state)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStates:
    """All rows, and whether the list's end was there. `errors`: lines that say why something is missing."""

    rows: tuple[Links, ...]
    complete: bool
    errors: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[Links, ...]:
        """Rows of GPUs."""
        return tuple(row for row in self.rows if row.kind == "GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One error counter of one GPU; `link` None where the counter is of the GPU as a whole (Blackwell and newer)."""

    gpu: int
    link: int | None
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """Counters of all tables of the text. `errors`: counters that DCGM could not read."""

    counters: tuple[Counter, ...]
    complete: bool
    errors: tuple[str, ...] = ()


def link_states(lines: Iterable[str]) -> LinkStates:
    """States of all links.

    Raises:
        ParseError: no row of any GPU or switch, and no word of why.
    """
    rows: list[Links] = []
    errors: list[str] = []
    complete = none_found = False
    at: tuple[str, int] | None = None
    for line in (raw.strip() for raw in lines):
        if (gpu := _GPU.match(line)) is not None:
            _without_states(at, errors)
            at = ("GPU", int(gpu[1]))
        elif (switch := _SWITCH.match(line)) is not None:
            _without_states(at, errors)
            at = ("NVSwitch", int(switch[1]))
        elif at is not None:
            if _STATES.match(line) and len(line) < 2 * LINKS_AT_MOST:
                rows.append(Links(kind=at[0], number=at[1], states=tuple(line.split())))
            else:
                errors.append(f"{at[0]} {at[1]}: its states cannot be read: {line[:60]!r}")
            at = None
        elif _KEY.match(line):
            complete = True
        elif line == "No GPUs found.":
            none_found = True
        elif line.startswith("Error"):
            errors.append(line[:300])
        elif _STATES.match(line) or line.startswith(("gpuId", "physicalId")):
            errors.append(f"a row that belongs to no part: {line[:60]!r}")
        if len(rows) + len(errors) > PARTS_AT_MOST:
            raise ParseError(f"dcgmi nvlink -s: expected at most {PARTS_AT_MOST} rows, found more; give one run")
    _without_states(at, errors)
    if not rows and not errors and not none_found:
        raise ParseError("dcgmi nvlink -s: expected rows of U, D, X and _, found none; keep all of its output")
    names = Counts((row.kind, row.number) for row in rows)
    errors += [f"{kind} {number} stands twice" for (kind, number), count in sorted(names.items()) if count > 1]
    return LinkStates(rows=tuple(rows), complete=complete and not errors, errors=tuple(errors))


def _without_states(at: tuple[str, int] | None, errors: list[str]) -> None:
    if at is not None:
        errors.append(f"{at[0]} {at[1]}: no states")


def link_counters(text: str) -> LinkCounters:
    """Error counters of one or more GPUs.

    Raises:
        ParseError: no counter and no word of why.
    """
    errors = [line.strip()[:300] for line in text.splitlines() if line.strip().startswith(("Warning:", "Error"))]
    start = text.find("{")
    counters, complete = _json_counters(text[start:]) if start >= 0 else _table_counters(text)
    if not counters and not errors:
        raise ParseError(f"dcgmi nvlink -e: expected counters under {_COUNTERS!r}, found none; keep all of its output")
    return LinkCounters(counters=tuple(counters), complete=complete and not errors, errors=tuple(errors))


def _table_counters(text: str) -> tuple[list[Counter], bool]:
    found: list[Counter] = []
    gpu: int | None = None
    link: int | None = None
    complete = True
    for line in (raw.strip() for raw in text.splitlines()):
        if (name := re.match(r"\|\s*GPU (\d{1,4})\s*\|$", line)) is not None:
            gpu, link, complete = int(name[1]), None, False
        elif (name := re.match(r"\|\s*Link (\d{1,4})\s*\|\s*\|$", line)) is not None:
            link = int(name[1])
        elif (row := re.match(r"\|\s*-> (.+?)\s*\|\s*(\d[\d.e+-]*)\s*\|$", line)) is not None and gpu is not None:
            if (value := _value(row[2])) is not None:
                found.append(Counter(gpu=gpu, link=link, name=row[1], value=value))
        elif _RULE.match(line) and gpu is not None and found:
            complete = True
    return found, complete


def _json_counters(text: str) -> tuple[list[Counter], bool]:
    found: list[Counter] = []
    decoder = json.JSONDecoder()
    at = 0
    while (start := text.find("{", at)) >= 0:
        try:
            document, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return found, False
        header = document.get("header") if isinstance(document, dict) else None
        body = document.get("body") if isinstance(document, dict) else None
        gpu = next((int(h[4:]) for h in header or () if isinstance(h, str) and re.fullmatch(r"GPU \d{1,4}", h)), None)
        if gpu is None or not isinstance(body, dict):
            return found, False
        for section, node in body.items():
            link = re.fullmatch(r"Link (\d{1,4})", section)
            children = node.get("children") if isinstance(node, dict) else None
            for name, child in children.items() if isinstance(children, dict) else ():
                value = _value(child.get("value") if isinstance(child, dict) else None)
                if value is None:
                    return found, False
                found.append(Counter(gpu=gpu, link=int(link[1]) if link else None, name=name, value=value))
    return found, True


def _value(printed: object) -> float | None:
    try:
        return float(printed) if isinstance(printed, (int, float, str)) and not isinstance(printed, bool) else None
    except (ValueError, OverflowError):
        return None
