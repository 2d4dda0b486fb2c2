"""What stands beside a result in DCGM's JSON: errors under any word for them, notes, numbers, and unknown keys.

What cannot be read is a doubt: nobody knows what it says, so no pass beside it counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pytest_gpuready.parse.dcgm_documents import doubt
from pytest_gpuready.parse.dcgm_messages import error_id
from pytest_gpuready.parse.dcgm_run import DiagError, suppressed_in

TEXT_AT_MOST = 4000
_NESTED_AT_MOST = 6
_ERROR_KEYS = frozenset(("warning", "warnings", "error", "errors"))


def unknown_keys(mapping: Mapping[str, Any], known: frozenset[str], where: str, doubts: list[str]) -> None:
    """Doubt every key that is not known there."""
    for key in mapping:
        if key not in known:
            doubt(doubts, f"a key {key[:40]!r} {where}, which is none of DCGM's")


def errors_of(mapping: dict[str, Any], known: frozenset[str], where: str, doubts: list[str]) -> tuple[DiagError, ...]:
    """Errors under any word for them; a key that is neither known nor such a word is a doubt."""
    found: list[DiagError] = []
    for key, value in mapping.items():
        if key.strip().lower() in _ERROR_KEYS:
            _read_errors(value, found, where, doubts)
        elif key not in known:
            doubt(doubts, f"a key {key[:40]!r} {where}, which is none of DCGM's")
    return tuple(dict.fromkeys(found))


def _read_errors(value: Any, found: list[DiagError], where: str, doubts: list[str], depth: int = 0) -> None:
    """A text (3.1 and before), an object whose text is under `warning` or `warnings`, or a list of either."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return
    if isinstance(value, str):
        found.append(DiagError(text=value[:TEXT_AT_MOST]))
        return
    inner = list(value) if isinstance(value, list) else []
    if isinstance(value, dict):
        text = next((text_of(value[k]) for k in ("warning", "warnings", "error") if isinstance(value.get(k), str)), "")
        number = integer_of(value.get("error_id"))
        if text or number is not None:
            found.append(
                DiagError(
                    text=text,
                    id=number,
                    category=integer_of(value.get("error_category")),
                    severity=integer_of(value.get("error_severity")),
                )
            )
            return
        inner = list(value.values()) if value and all(isinstance(v, (dict, list)) for v in value.values()) else []
    if (inner and depth < _NESTED_AT_MOST) or value == []:
        for one in inner:
            _read_errors(one, found, where, doubts, depth + 1)
        return
    doubt(doubts, f"an error {where} that cannot be read")


def real(errors: tuple[DiagError, ...]) -> tuple[tuple[DiagError, ...], tuple[str, ...]]:
    """Errors that are some, and the texts of those with id 0, which is OK; known words count whatever the id."""
    real: list[DiagError] = []
    notes: list[str] = []
    for error in errors:
        if error.id != 0:
            real.append(error)
        elif error_id(error.text) is not None:
            real.append(DiagError(text=error.text, category=error.category, severity=error.severity))
        elif error.text:
            notes.append(error.text)
    return tuple(real), tuple(notes)


def notes_of(value: Any, where: str, doubts: list[str]) -> tuple[str, ...]:
    """Notes, each cut to what can be shown; a suppressed error behind the cut is kept as a note of its own."""
    found: list[str] = []
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str) and entry.strip():
            found.append(entry[:TEXT_AT_MOST])
            if len(entry) > TEXT_AT_MOST:
                found += [
                    f"Suppressed error: {text}"[:TEXT_AT_MOST] for text in suppressed_in(entry[TEXT_AT_MOST - 40 :])
                ]
        elif entry is not None and not isinstance(entry, str):
            doubt(doubts, f"a note {where} that cannot be read")
    return tuple(found)


def text_of(value: Any) -> str:
    """A text, cut to what can be shown; "" for anything else."""
    return value[:TEXT_AT_MOST] if isinstance(value, str) else ""


def integer_of(value: Any) -> int | None:
    """A number that is printed as a number or as a text of digits; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return value if 0 <= value < 2**31 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()) else None
