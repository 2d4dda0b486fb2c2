"""`dcgmi health -c`, table or JSON -> overall health and every incident by entity and system.

Words: Healthy, Warning, Failure. The exit code is 0 for all three. `health -s` only sets watches and says nothing
about health; a check in the same breath finds watches without data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.errors import ParseError

WORDS = ("Healthy", "Warning", "Failure")
_SET = "Health monitor systems set successfully"
_REPORT = "Health Monitor Report"
_ROW = re.compile(r"\|(?P<left>.*?)\|(?P<value>.*)\|$")
_RULE = re.compile(r"\+-+\+-+\+$")
TEXT_AT_MOST = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One system of one entity that is not healthy: "GPU", 1, "Driver", "Failure", what DCGM says of it."""

    entity: str
    number: int
    system: str
    health: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A report. `overall` is DCGM's word, "" where there is no report; `just_set`: watches were set just before it.

    `entities` is the health of each entity that the report names. `complete`: the report's end was there.
    """

    overall: str
    entities: tuple[tuple[str, int, str], ...]
    incidents: tuple[Incident, ...]
    just_set: bool
    complete: bool
    errors: tuple[str, ...] = ()


def health(text: str) -> Health:
    """The last report of the text.

    Raises:
        ParseError: neither a report, nor an error, nor the answer to `health -s`.
    """
    errors = tuple(line.strip()[:300] for line in text.splitlines() if line.strip().startswith("Error"))
    just_set = _SET in text and (_REPORT not in text or text.index(_SET) < text.rindex(_REPORT))
    start = text.find("{")
    if start >= 0:
        body, complete = _json_body(text[start:])
    elif _REPORT in text:
        body, complete = _table_body(text)
    elif errors or just_set:
        body, complete = {}, True
    else:
        raise ParseError(f"dcgmi health: expected {_REPORT!r}, found {text[:60]!r}; keep all of its output")
    overall = body.pop("Overall Health", None)
    word = overall.get("value") if isinstance(overall, Mapping) else ""
    entities: list[tuple[str, int, str]] = []
    incidents: list[Incident] = []
    for kind, group in body.items():
        for name, node in _children(group).items():
            if not re.fullmatch(r"\d{1,9}", name) or not isinstance(node, Mapping):
                complete = False
                continue
            entities.append((kind, int(name), str(node.get("value") or "")))
            for system, said in _children(_children(node).get("Errors")).items():
                words = said.get("overflow") if isinstance(said, Mapping) else None
                incidents.append(
                    Incident(
                        entity=kind,
                        number=int(name),
                        system=system,
                        health=str(said.get("value") or "") if isinstance(said, Mapping) else "",
                        text=" ".join(str(w) for w in words)[:TEXT_AT_MOST] if isinstance(words, list) else "",
                    )
                )
    return Health(
        overall=word if isinstance(word, str) else "",
        entities=tuple(entities),
        incidents=tuple(incidents),
        just_set=just_set,
        complete=complete,
        errors=errors,
    )


def _children(node: Any) -> Mapping[str, Any]:
    children = node.get("children") if isinstance(node, Mapping) else None
    return children if isinstance(children, Mapping) else {}


def _json_body(text: str) -> tuple[dict[str, Any], bool]:
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return _json_failures(text), False
    body = document.get("body") if isinstance(document, dict) else None
    return (dict(body), True) if isinstance(body, dict) else ({}, False)


def _json_failures(text: str) -> dict[str, Any]:
    """Of a report that breaks off, only whether it says Failure or Warning anywhere."""
    said = [word for word in ("Failure", "Warning") if re.search(rf'"value"\s*:\s*"{word}"', text)]
    return {"Overall Health": {"value": said[0]}} if said else {}


def _table_body(text: str) -> tuple[dict[str, Any], bool]:
    """The tree of the table: depth by the place of the arrow, lines without a label go on with the one above."""
    root: dict[str, Any] = {"children": {}}
    path: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    complete = started = False
    for raw in text[text.rindex(_REPORT) :].splitlines()[1:]:
        line = raw.strip()
        if line.startswith("+=") and not started:
            started = True
        elif _RULE.match(line) and started:
            complete = True
            break
        elif started and (row := _ROW.match(line)) is not None:
            left, value = row["left"], row["value"].strip()
            label = left.replace("->", "  ").strip()
            node = path[-1][1]
            if not label:
                node.setdefault("overflow", []).append(value)
                continue
            depth = len(left) - len(left.lstrip()) + (3 if "->" in left else 0)
            while len(path) > 1 and path[-1][0] >= depth:
                path.pop()
            child: dict[str, Any] = {"value": value}
            path[-1][1].setdefault("children", {})[label] = child
            path.append((depth, child))
        elif started:
            break
    return dict(root["children"]), complete
