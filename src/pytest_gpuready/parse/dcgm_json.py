"""One document of `dcgmi diag -j`, versions 2.4 to 4.6 -> a pass.

Kinds: one result document; a `runtime_error` document (no results); an `iterations` document. A key that is neither
one of DCGM's nor a word for errors is a doubt: what it says is not known, so no pass beside it is.
"""

from __future__ import annotations

from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_documents import BODIES, body_of, doubt
from pytest_gpuready.parse.dcgm_messages import gpus_of
from pytest_gpuready.parse.dcgm_run import (
    DiagError,
    DiagPass,
    Entity,
    EntityResult,
    Status,
    TestRun,
    status_of,
)
from pytest_gpuready.parse.dcgm_said import errors_of, integer_of, notes_of, real, text_of, unknown_keys

ENTITIES_AT_MOST = 1024

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
    unknown_keys(document, _ROOT_OF_ITERATIONS, "beside the iterations", doubts)
    if body_of(document) is not None:
        doubt(doubts, "results stand beside the iterations")
    if document.get("warning") and document.get("Overall Result") != "Fail":
        doubt(doubts, f"a warning beside the iterations: {text_of(document['warning'])[:200]!r}")


def pass_of(document: dict[str, Any], doubts: list[str]) -> DiagPass | None:
    """One pass from a result document, None where there are no tests in it; what is lost goes to `doubts`.

    Raises:
        ParseError: more GPUs and other entities are listed than any machine has.
    """
    body = body_of(document)
    categories = body.get("test_categories") if body is not None else None
    if body is None or not isinstance(categories, list):
        return None
    unknown_keys(document, _ROOT, "beside the results", doubts)
    unknown_keys(body, _BODY, "beside the test categories", doubts)
    if len([key for key in BODIES if key in document]) > 1:
        doubt(doubts, "two bodies in one document")
    tests: list[TestRun] = []
    for category in categories:
        listed = category.get("tests") if isinstance(category, dict) else None
        if not isinstance(listed, list) or not listed:
            doubt(doubts, "a category without tests")
            continue
        unknown_keys(category, _CATEGORY, "in a category", doubts)
        name = category.get("category")
        for test in listed:
            if not isinstance(test, dict):
                doubt(doubts, "a test that is no object")
            else:
                tests.append(_test(test, name if isinstance(name, str) else "", BODIES[0] in document, doubts))
    metadata = document.get("metadata")
    head = metadata if isinstance(metadata, dict) else document
    entities = _entities(document)
    listed = {entity.number for entity in entities or () if entity.kind == "GPU"}
    for number in sorted({r.number for t in tests for r in t.results if r.entity == "GPU" and r.number is not None}):
        if listed and None not in listed and number not in listed:
            doubt(doubts, f"GPU {number} has a result and is not in the list of GPUs")
    return DiagPass(
        tests=tuple(tests),
        entities=entities,
        version=text_of(head.get("version")),
        driver=text_of(head.get("Driver Version Detected")),
    )


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
                if not isinstance(entity, dict) or (number := integer_of(entity.get("entity_id"))) is None:
                    return None
                found.append(
                    Entity(
                        kind=text_of(group.get("entity_group")) or "entity",
                        number=number,
                        device_id=text_of(entity.get("device_id")),
                        serial=text_of(entity.get("serial_num")),
                    )
                )
        return tuple(found)
    devices, serials = document.get("GPU Device IDs"), document.get("GPU Device Serials")
    if not isinstance(devices, list):
        return None
    _bounded(len(devices))
    by_number = serials if isinstance(serials, dict) else {}
    numbers = sorted(n for key in by_number if (n := integer_of(key)) is not None)
    # Without a serial for each of them, the list gives their count and not their numbers.
    known: list[int | None] = list(numbers) if len(numbers) == len(devices) else [None] * len(devices)
    return tuple(
        Entity(kind="GPU", number=number, device_id=text_of(device), serial=text_of(by_number.get(str(number))))
        for number, device in zip(known, devices, strict=True)
    )


def _bounded(entities: int) -> None:
    if entities > ENTITIES_AT_MOST:
        raise ParseError(
            f"dcgmi diag: expected at most {ENTITIES_AT_MOST} GPUs and other entities, found {entities}; "
            "give the output of one machine"
        )


def _test(test: dict[str, Any], category: str, has_summary: bool, doubts: list[str]) -> TestRun:
    name = text_of(test.get("name")) or "unnamed"
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
    said = errors_of(test, _TEST, where, doubts)
    summary = test.get("test_summary")
    info: tuple[str, ...] = ()
    # 4.x leaves the summary out of a test that did not run; where there are results, it was lost.
    status = Status.UNREADABLE if has_summary and rows else None
    if isinstance(summary, dict):
        status = status_of(summary.get("status"))
        said += errors_of(summary, _SUMMARY, f"in the summary of {name[:40]!r}", doubts)
        info = notes_of(summary.get("info"), f"in the summary of {name[:40]!r}", doubts)
    said, notes = real(said)
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
    errors, notes = real(errors_of(row, _ROW, f"beside a result {where}", doubts))
    status, info = status_of(row.get("status")), (*notes_of(row.get("info"), where, doubts), *notes)
    entity: str | None = None
    numbers: list[int | None] = [None]
    lost = (EntityResult(entity="entity", number=None, status=Status.UNREADABLE, errors=errors, info=info),)
    if "entity_id" in row or "entity_group" in row:
        entity, numbers = text_of(row.get("entity_group")), [integer_of(row.get("entity_id"))]
        if numbers == [None] or not entity:
            return lost
    elif row.get("gpu_id") == -1:
        pass  # 3.x: an error that is of no GPU
    elif "gpu_id" in row or "gpu_ids" in row:
        value = row.get("gpu_id", row.get("gpu_ids"))
        listed = value.split(",") if isinstance(value, str) else [value]
        entity, numbers = "GPU", [integer_of(one) for one in listed]
        if None in numbers:
            return lost
        _bounded(len(numbers))
    elif "cpu_id" in row:
        entity, numbers = "CPU", [integer_of(row.get("cpu_id"))]
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
