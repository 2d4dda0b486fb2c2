"""One document of `dcgmi diag -j`, versions 2.4 to 4.6 -> a pass.

Kinds: one result document; a `runtime_error` document (no results); an `iterations` document. A key that is neither
one of DCGM's nor a word for errors is a doubt: what it says is not known, so no pass beside it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_documents import BODIES, body_of, doubt
from pytest_gpuready.parse.dcgm_messages import error_id, gpus_of
from pytest_gpuready.parse.dcgm_run import (
    DiagError,
    DiagPass,
    Entity,
    EntityResult,
    Status,
    TestRun,
    status_of,
    suppressed_in,
)

TEXT_AT_MOST = 4000
ENTITIES_AT_MOST = 1024
_NESTED_AT_MOST = 6

_ERROR_KEYS = frozenset(("warning", "warnings", "error", "errors"))
_HEAD = (
    "version",
    "Driver Version Detected",
    "GPU Device IDs",
    "GPU Device Serials",
    "EUD Test Version",
    "EUD Package Version",
)
_ROOT = frozenset((*BODIES, *_HEAD, "entity_groups", "metadata", "runtime_error"))
_ROOT_OF_ITERATIONS = frozenset((*_ROOT, "iterations", "Overall Result", "warning"))
_BODY = frozenset((*_HEAD, "test_categories", "runtime_error"))
_CATEGORY = frozenset(("category", "tests"))
_TEST = frozenset(("name", "results", "test_summary"))
_SUMMARY = frozenset(("status", "warnings", "info"))
_ROW = frozenset(
    ("entity_group", "entity_group_id", "entity_id", "gpu_id", "gpu_ids", "cpu_id", "status", "warnings", "info")
)


def runtime_error_of(document: dict[str, Any]) -> str:
    """Why the run has no results or broke off, from the body or beside it; "" where nothing is said."""
    for place in (body_of(document) or {}, document):
        if place.get("runtime_error") is not None:
            return " ".join(str(place["runtime_error"])[:4000].split())[:2000] or "an error without words"
    return ""


def check_iterations(document: dict[str, Any], doubts: list[str]) -> None:
    """Doubt what stands beside the passes of an iterations document and is not known."""
    _unknown(document, _ROOT_OF_ITERATIONS, "beside the iterations", doubts)
    if body_of(document) is not None:
        doubt(doubts, "results stand beside the iterations")
    if document.get("warning") and document.get("Overall Result") != "Fail":
        doubt(doubts, f"a warning beside the iterations: {_text(document['warning'])[:200]!r}")


def pass_of(document: dict[str, Any], doubts: list[str]) -> DiagPass | None:
    """One pass from a result document, None where there are no tests in it; what is lost goes to `doubts`.

    Raises:
        ParseError: more GPUs and other entities are listed than any machine has.
    """
    body = body_of(document)
    categories = body.get("test_categories") if body is not None else None
    if body is None or not isinstance(categories, list):
        return None
    _unknown(document, _ROOT, "beside the results", doubts)
    _unknown(body, _BODY, "beside the test categories", doubts)
    if len([key for key in BODIES if key in document]) > 1:
        doubt(doubts, "two bodies in one document")
    tests: list[TestRun] = []
    for category in categories:
        listed = category.get("tests") if isinstance(category, dict) else None
        if not isinstance(listed, list) or not listed:
            doubt(doubts, "a category without tests")
            continue
        _unknown(category, _CATEGORY, "in a category", doubts)
        name = category.get("category")
        for test in listed:
            if not isinstance(test, dict):
                doubt(doubts, "a test that is no object")
            else:
                tests.append(_test(test, name if isinstance(name, str) else "", BODIES[0] in document, doubts))
    metadata = document.get("metadata")
    head = metadata if isinstance(metadata, dict) else document
    return DiagPass(
        tests=tuple(tests),
        entities=_entities(document),
        version=_text(head.get("version")),
        driver=_text(head.get("Driver Version Detected")),
    )


def _unknown(mapping: Mapping[str, Any], known: frozenset[str], where: str, doubts: list[str]) -> None:
    for key in mapping:
        if key not in known:
            doubt(doubts, f"a key {key[:40]!r} {where}, which is none of DCGM's")


def _entities(document: dict[str, Any]) -> tuple[Entity, ...] | None:
    groups = document.get("entity_groups")
    if isinstance(groups, list):
        found: list[Entity] = []
        for group in groups:
            entities = group.get("entities") if isinstance(group, dict) else None
            if not isinstance(entities, list):
                return None
            _bounded(len(found) + len(entities))
            for entity in entities:
                if not isinstance(entity, dict) or (number := _integer(entity.get("entity_id"))) is None:
                    return None
                found.append(
                    Entity(
                        kind=_text(group.get("entity_group")) or "entity",
                        number=number,
                        device_id=_text(entity.get("device_id")),
                        serial=_text(entity.get("serial_num")),
                    )
                )
        return tuple(found)
    devices, serials = document.get("GPU Device IDs"), document.get("GPU Device Serials")
    if not isinstance(devices, list):
        return None
    _bounded(len(devices))
    by_number = serials if isinstance(serials, dict) else {}
    numbers = sorted(n for key in by_number if (n := _integer(key)) is not None)
    # Without a serial for each of them, the list gives their count and not their numbers.
    known: list[int | None] = list(numbers) if len(numbers) == len(devices) else [None] * len(devices)
    return tuple(
        Entity(kind="GPU", number=number, device_id=_text(device), serial=_text(by_number.get(str(number))))
        for number, device in zip(known, devices, strict=True)
    )


def _bounded(entities: int) -> None:
    if entities > ENTITIES_AT_MOST:
        raise ParseError(
            f"dcgmi diag: expected at most {ENTITIES_AT_MOST} GPUs and other entities, found {entities}; "
            "give the output of one machine"
        )


def _test(test: dict[str, Any], category: str, has_summary: bool, doubts: list[str]) -> TestRun:
    name = _text(test.get("name")) or "unnamed"
    where = f"in the test {name[:40]!r}"
    entries = test.get("results")
    if entries is not None and not isinstance(entries, list):
        doubt(doubts, f"results {where} that are no list")
    rows = entries if isinstance(entries, list) else []
    results: list[EntityResult] = []
    for row in rows:
        if isinstance(row, dict):
            results += _results(row, where, doubts)
        elif row is not None:
            doubt(doubts, f"a result {where} that is no object")
    said = _said(test, _TEST, where, doubts)
    summary = test.get("test_summary")
    info: tuple[str, ...] = ()
    # 4.x leaves the summary out of a test that did not run; where there are results, it was lost.
    status = Status.UNREADABLE if has_summary and rows else None
    if isinstance(summary, dict):
        status = status_of(summary.get("status"))
        said += _said(summary, _SUMMARY, f"in the summary of {name[:40]!r}", doubts)
        info = _info(summary.get("info"), f"in the summary of {name[:40]!r}", doubts)
    said, notes = _real(said)
    # The summary repeats every entity's errors; what is left belongs to none of them.
    told = {(error.id, error.text) for result in results for error in result.errors}
    return TestRun(
        name=name,
        category=category,
        results=tuple(results),
        summary=status,
        errors=tuple(error for error in said if (error.id, error.text) not in told),
        info=(*info, *notes),
        nulls=sum(row is None for row in rows),
    )


def _results(row: dict[str, Any], where: str, doubts: list[str]) -> tuple[EntityResult, ...]:
    """One entry: an entity (4.x), a GPU or CPU by number or a list of GPUs (3.x), or none (level 1 of 3.x)."""
    errors, notes = _real(_said(row, _ROW, f"beside a result {where}", doubts))
    status, info = status_of(row.get("status")), (*_info(row.get("info"), where, doubts), *notes)
    entity: str | None = None
    numbers: list[int | None] = [None]
    lost = (EntityResult(entity="entity", number=None, status=Status.UNREADABLE, errors=errors, info=info),)
    if "entity_id" in row or "entity_group" in row:
        entity, numbers = _text(row.get("entity_group")), [_integer(row.get("entity_id"))]
        if numbers == [None] or not entity:
            return lost
    elif row.get("gpu_id") == -1:
        pass  # 3.x: an error that is of no GPU
    elif "gpu_id" in row or "gpu_ids" in row:
        value = row.get("gpu_id", row.get("gpu_ids"))
        listed = value.split(",") if isinstance(value, str) else [value]
        entity, numbers = "GPU", [_integer(one) for one in listed]
        if None in numbers:
            return lost
        _bounded(len(numbers))
    elif "cpu_id" in row:
        entity, numbers = "CPU", [_integer(row.get("cpu_id"))]
    if "gpu_id" in row and entity == "GPU" and len(numbers) == 1:
        return _by_words(numbers[0] or 0, status, errors, info)
    return tuple(EntityResult(entity=entity, number=n, status=status, errors=errors, info=info) for n in numbers)


def _by_words(
    row: int, status: Status, errors: tuple[DiagError, ...], info: tuple[str, ...]
) -> tuple[EntityResult, ...]:
    """3.x prints one gpu_id beside errors that may be of other GPUs: each goes to the GPU that its words name.

    A row none of whose errors is its own says nothing of its GPU.
    """
    owners = [row if row in (named := gpus_of(error.text)) or not named else named[0] for error in errors]
    own = tuple(error for error, owner in zip(errors, owners, strict=True) if owner == row)
    mine = Status.UNREADABLE if errors and not own and status is Status.PASS else status
    found = [EntityResult(entity="GPU", number=row, status=mine, errors=own, info=info)]
    for other in sorted(set(owners) - {row}):
        theirs = tuple(error for error, owner in zip(errors, owners, strict=True) if owner == other)
        found.append(EntityResult(entity="GPU", number=other, status=status, errors=theirs))
    return tuple(found)


def _said(mapping: dict[str, Any], known: frozenset[str], where: str, doubts: list[str]) -> tuple[DiagError, ...]:
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
        text = next((_text(value[k]) for k in ("warning", "warnings", "error") if isinstance(value.get(k), str)), "")
        number = _integer(value.get("error_id"))
        if text or number is not None:
            found.append(
                DiagError(
                    text=text,
                    id=number,
                    category=_integer(value.get("error_category")),
                    severity=_integer(value.get("error_severity")),
                )
            )
            return
        inner = list(value.values()) if value and all(isinstance(v, (dict, list)) for v in value.values()) else []
    if (inner and depth < _NESTED_AT_MOST) or value == []:
        for one in inner:
            _read_errors(one, found, where, doubts, depth + 1)
        return
    doubt(doubts, f"an error {where} that cannot be read")


def _real(errors: tuple[DiagError, ...]) -> tuple[tuple[DiagError, ...], tuple[str, ...]]:
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


def _info(value: Any, where: str, doubts: list[str]) -> tuple[str, ...]:
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


def _text(value: Any) -> str:
    return value[:TEXT_AT_MOST] if isinstance(value, str) else ""


def _integer(value: Any) -> int | None:
    """A number that is printed as a number or as a text of digits; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return value if 0 <= value < 2**31 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()) else None
