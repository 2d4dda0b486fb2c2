"""JSON of `dcgmi diag -j`, versions 3.0 to 4.6 -> passes. Documents are decoded one after the other.

Kinds: one result document; a `runtime_error` document (no results); an `iterations` document. Text may stand before,
between and after. A document that breaks off is closed where its last complete object ends: a Fail that was printed
is not lost, and everything else in it is in doubt.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_messages import gpu_of
from pytest_gpuready.parse.dcgm_run import DiagError, DiagPass, Entity, EntityResult, Status, TestRun, status_of

_BODIES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_BROKEN = "the JSON breaks off or is damaged"
TEXT_AT_MOST = 4000
DOCUMENTS_AT_MOST = 100
MEND_AT_MOST = 4 * 2**20
MARK_WITHIN = 400
FAILURES_AT_MOST = 20


def documents(text: str) -> tuple[list[dict[str, Any]], str, list[str]]:
    """Every JSON object of the text, the text around them, and doubts about what was read."""
    found: list[dict[str, Any]] = []
    around: list[str] = []
    doubts: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in items:
            if key in made:
                doubts.append(f"{key!r} stands twice in one object")
                if key == "status" and status_of(made[key]) is Status.FAIL:
                    continue
            made[key] = value
        return made

    decoder = json.JSONDecoder(object_pairs_hook=pairs)
    at = failures = 0
    broken = False
    while len(found) < DOCUMENTS_AT_MOST and (start := text.find("{", at)) >= 0:
        around.append(text[at:start])
        try:
            document, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            document, at = None, start + 1
            failures += 1
            if any(f'"{key}"' in text[start : start + MARK_WITHIN] for key in (*_BODIES, "iterations")):
                broken = True
                document = _mended(text[start:], decoder)
                if isinstance(document, dict) and is_diag(document):
                    doubts.append(_BROKEN)
                    at = len(text)
            if failures > FAILURES_AT_MOST:
                break
        if isinstance(document, dict):
            found.append(document)
    around.append(text[at:])
    if broken and not any(is_diag(document) for document in found):
        doubts.append(_BROKEN)
    return found, "\n".join(around), doubts


def _mended(text: str, decoder: json.JSONDecoder) -> Any:
    """What stands before the break, closed after its last complete object; None where nothing does."""
    stack: list[str] = []
    in_string = escaped = False
    safe: tuple[int, tuple[str, ...]] | None = None
    for index, char in enumerate(text[:MEND_AT_MOST]):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char in '"\n':  # a string does not go over a line's end: a quote is missing
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "{[":
            stack.append("}" if char == "{" else "]")
        elif char in "}]":
            if not stack or stack.pop() != char:
                break
            safe = (index + 1, tuple(stack))
            if not stack:
                break
    if safe is None:
        return None
    end, closers = safe
    try:
        return decoder.decode(text[:end] + "".join(reversed(closers)))
    except (ValueError, RecursionError):
        return None


def body_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The part under "DCGM Diagnostic" or "DCGM GPU Diagnostic", None where there is none."""
    return next((document[key] for key in _BODIES if isinstance(document.get(key), dict)), None)


def is_diag(document: dict[str, Any]) -> bool:
    """Whether this object is one of dcgmi diag's."""
    return body_of(document) is not None or isinstance(document.get("iterations"), list)


def pass_of(document: dict[str, Any], doubts: list[str]) -> DiagPass:
    """One pass from a result document; what is lost in it goes to `doubts`.

    Raises:
        ParseError: there are no tests in it.
    """
    body = body_of(document)
    categories = body.get("test_categories") if body is not None else None
    if not isinstance(categories, list):
        raise ParseError("dcgmi diag JSON: expected test_categories, found none; see the text around it")
    tests: list[TestRun] = []
    for category in categories:
        listed = category.get("tests") if isinstance(category, dict) else None
        if not isinstance(listed, list) or not listed:
            doubts.append("a category without tests")
            continue
        name = category.get("category")
        for test in listed:
            if not isinstance(test, dict):
                doubts.append("a test that is no object")
            else:
                tests.append(_test(test, name if isinstance(name, str) else "", _BODIES[0] in document))
    metadata = document.get("metadata")
    head = metadata if isinstance(metadata, dict) else document
    return DiagPass(
        tests=tuple(tests),
        entities=_entities(document),
        version=_text(head.get("version")),
        driver=_text(head.get("Driver Version Detected")),
    )


def _entities(document: dict[str, Any]) -> tuple[Entity, ...] | None:
    groups = document.get("entity_groups")
    if isinstance(groups, list):
        found: list[Entity] = []
        for group in groups:
            entities = group.get("entities") if isinstance(group, dict) else None
            if not isinstance(entities, list):
                return None
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
    by_number = serials if isinstance(serials, dict) else {}
    numbers = sorted(n for key in by_number if (n := _integer(key)) is not None)
    # Without a serial for each of them, the list gives their count and not their numbers.
    known: list[int | None] = list(numbers) if len(numbers) == len(devices) else [None] * len(devices)
    return tuple(
        Entity(kind="GPU", number=number, device_id=_text(device), serial=_text(by_number.get(str(number))))
        for number, device in zip(known, devices, strict=True)
    )


def _test(test: dict[str, Any], category: str, has_summary: bool) -> TestRun:
    entries = test.get("results")
    rows = entries if isinstance(entries, list) else []
    results = tuple(result for row in rows if isinstance(row, dict) for result in _results(row))
    summary = test.get("test_summary")
    errors: tuple[DiagError, ...] = ()
    info: tuple[str, ...] = ()
    if isinstance(summary, dict):
        # The summary repeats every entity's errors; what is left belongs to none of them.
        told = {(error.id, error.text) for result in results for error in result.errors}
        errors = tuple(error for error in _errors(summary.get("warnings")) if (error.id, error.text) not in told)
        info = _info(summary.get("info"))
    # 4.x leaves the summary out of a test that did not run; where there are results, it was lost.
    lost = Status.UNREADABLE if has_summary and rows else None
    return TestRun(
        name=_text(test.get("name")) or "unnamed",
        category=category,
        results=results,
        summary=status_of(summary.get("status")) if isinstance(summary, dict) else lost,
        errors=errors,
        info=info,
        nulls=sum(row is None for row in rows),
    )


def _results(row: dict[str, Any]) -> tuple[EntityResult, ...]:
    """One entry: an entity (4.x), a GPU or CPU by number or a list of GPUs (3.x), or none (level 1 of 3.x)."""
    status, errors, info = status_of(row.get("status")), _errors(row.get("warnings")), _info(row.get("info"))
    entity: str | None = None
    numbers: list[int | None] = [None]
    if "entity_id" in row or "entity_group" in row:
        entity, numbers = _text(row.get("entity_group")), [_integer(row.get("entity_id"))]
        if numbers == [None] or not entity:
            return (EntityResult(entity="entity", number=None, status=Status.UNREADABLE, errors=errors, info=info),)
    elif "gpu_id" in row or "gpu_ids" in row:
        value = row.get("gpu_id", row.get("gpu_ids"))
        listed = value.split(",") if isinstance(value, str) else [value]
        entity, numbers = "GPU", [_integer(one) for one in listed]
        if None in numbers:
            return (EntityResult(entity="entity", number=None, status=Status.UNREADABLE, errors=errors, info=info),)
    elif "cpu_id" in row:
        entity, numbers = "CPU", [_integer(row.get("cpu_id"))]
    # 3.x level 1 prints one gpu_id beside errors of several GPUs: each error goes to the GPU that it names.
    others = {gpu for error in errors if (gpu := gpu_of(error.text)) is not None and gpu not in numbers}
    if "gpu_id" in row and len(errors) > 1 and others:
        return tuple(
            EntityResult(
                entity="GPU",
                number=number,
                status=status,
                errors=tuple(e for e in errors if gpu_of(e.text) == number or (gpu_of(e.text) is None and i == 0)),
                info=info if i == 0 else (),
            )
            for i, number in enumerate([*numbers, *sorted(others)])
        )
    return tuple(EntityResult(entity=entity, number=n, status=status, errors=errors, info=info) for n in numbers)


def _errors(value: Any) -> tuple[DiagError, ...]:
    """`warnings`: a text (3.1 and before), or a list of objects whose text is under `warning` or `warnings`."""
    entries = value if isinstance(value, list) else [value]
    found: list[DiagError] = []
    for entry in entries:
        if isinstance(entry, str) and entry.strip():
            found.append(DiagError(text=entry[:TEXT_AT_MOST]))
        elif isinstance(entry, dict):
            error = DiagError(
                text=_text(entry.get("warning", entry.get("warnings"))),
                id=_integer(entry.get("error_id")),
                category=_integer(entry.get("error_category")),
                severity=_integer(entry.get("error_severity")),
            )
            found.append(error)
    return tuple(dict.fromkeys(found))


def _info(value: Any) -> tuple[str, ...]:
    entries = value if isinstance(value, list) else [value]
    return tuple(entry[:TEXT_AT_MOST] for entry in entries if isinstance(entry, str) and entry.strip())


def _text(value: Any) -> str:
    return value[:TEXT_AT_MOST] if isinstance(value, str) else ""


def _integer(value: Any) -> int | None:
    """A number that is printed as a number or as a text of digits; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 2**31 else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()) else None
