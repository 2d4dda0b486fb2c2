"""The table of `dcgmi diag` without -j, versions 2.4 to 4.6 -> passes.

Two columns; a message is cut after 45 characters in mid-word and goes on in rows without a name. Up to 3.x a test's
row says "Pass - All" or lists GPUs by status, in further rows without a name; from 4.0 each entity has a row of its
own ("GPU0: Pass"). A cell that is too long ends in "...": what it lists is then not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pytest_gpuready.parse.dcgm_messages import gpu_of
from pytest_gpuready.parse.dcgm_run import (
    DiagError,
    DiagPass,
    Entity,
    EntityResult,
    Status,
    TestRun,
    is_software_check,
    status_of,
)

CHUNK = 45
"""Characters of a message in one row."""

_RULE = re.compile(r"\+-+\+-+\+$")
_HEAD_RULE = re.compile(r"\+=+\+=+\+$")
HEADER = re.compile(r"^[ \t]*\|[ \t]*Diagnostic[ \t]*\|[ \t]*Result[ \t]*\|[ \t]*$", re.MULTILINE)
"""The row that begins a table."""
_CATEGORY = re.compile(r"[|+]-{3,}\s+(\S.*?)\s+-+\+-+[|+]$")
_ENTITY = re.compile(r"([A-Za-z][A-Za-z ]*?)(\d{1,4}): (Pass|Fail|Skip|Warn|Not Run)$")
_LISTED = re.compile(r"(Pass|Fail|Skip|Warn) - GPUs?: ([\d, ]+)$")
_MESSAGE = re.compile(r"(Warning|Error|Info)(?:: ([A-Za-z]+)(\d{1,4}))?$")
_ITERATION = re.compile(r"Running iteration (\d{1,6}) of (\d{1,6})")
_DEVICES = re.compile(r"(.+) Device IDs Detected$")


@dataclass
class _Test:
    name: str
    category: str
    said: str
    results: list[EntityResult] = field(default_factory=list)
    messages: list[tuple[str, tuple[str, int] | None, list[str]]] = field(default_factory=list)


@dataclass
class _Table:
    tests: list[_Test] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRun:
    """What the text holds: passes, iterations asked for, lines outside of the tables, and doubts."""

    passes: tuple[DiagPass, ...]
    iterations_asked: int | None
    overall: str
    around: str
    doubts: tuple[str, ...]


def tables(text: str) -> TextRun:
    """Every table of the text, one a pass."""
    found: list[_Table] = []
    around: list[str] = []
    doubts: list[str] = []
    asked: int | None = None
    overall = ""
    table: _Table | None = None
    category = ""
    for raw in text.splitlines():
        line = raw.strip()
        if HEADER.match(line):
            table, category = _Table(), ""
            found.append(table)
        elif table is not None and not table.ended and line.startswith(("|", "+")):
            if _RULE.match(line):
                table.ended = True
            elif _HEAD_RULE.match(line):
                continue
            elif (named := _CATEGORY.match(line)) is not None:
                category = named[1]
            elif not _row(table, category, line):
                doubts.append(f"a row that cannot be read: {line[:60]!r}")
        else:
            if (iteration := _ITERATION.search(line)) is not None:
                asked = int(iteration[2])
            if line.startswith("Passed all "):
                overall = "Pass"
            if line.startswith("Aborting the iterative runs"):
                overall = "Fail"
            around.append(raw)
    doubts += ["the table has no end" for table in found if not table.ended]
    if asked is not None and asked > 1 and not overall:
        doubts.append("the end of the iterations is missing")
    passes = tuple(_pass(table, doubts) for table in found)
    return TextRun(
        passes=passes,
        iterations_asked=asked,
        overall=overall,
        around="\n".join(around),
        doubts=tuple(dict.fromkeys(doubts)),
    )


def _row(table: _Table, category: str, line: str) -> bool:  # noqa: PLR0911 - one return per kind of row
    """Take in one row; False where it is none."""
    if not line.startswith("|") or not line.endswith("|"):
        return False
    name_cell, bar, cell = line[1:-1].partition("|")
    if not bar:
        return False
    name, chunk = name_cell.strip(), cell[1 : 1 + CHUNK]
    said = cell.strip()
    if category == "Metadata":
        if not name:
            return False
        table.metadata[name] = said
        return True
    test = table.tests[-1] if table.tests else None
    if not name:
        return test is not None and _goes_on(test, said, chunk)
    message = _MESSAGE.match(name)
    if message is None:
        table.tests.append(_Test(name=name, category=category, said=said))
        return _listed(table.tests[-1], said) or True
    if test is None:
        return False
    entity = (message[2], int(message[3])) if message[2] else None
    test.messages.append((message[1], entity, [chunk]))
    return True


def _goes_on(test: _Test, said: str, chunk: str) -> bool:
    """A row without a name: an entity's result, GPUs by status, or more of the message before."""
    if (entity := _ENTITY.match(said)) is not None:
        test.results.append(EntityResult(entity=entity[1].strip(), number=int(entity[2]), status=status_of(entity[3])))
        return True
    if not test.messages and _listed(test, said):
        return True
    if test.messages:
        test.messages[-1][2].append(chunk)
        return True
    return False


def _listed(test: _Test, said: str) -> bool:
    """ "Fail - GPUs: 4, 5" and "Pass - All" of 2.x and 3.x."""
    listed = _LISTED.match(said)
    if listed is not None:
        numbers = [int(one) for one in listed[2].replace(" ", "").split(",") if one]
        test.results += [EntityResult(entity="GPU", number=n, status=status_of(listed[1])) for n in numbers]
        return bool(numbers)
    if said.endswith(" - All"):
        test.results.append(EntityResult(entity="GPU", number=None, status=status_of(said)))
        return True
    return False


def _pass(table: _Table, doubts: list[str]) -> DiagPass:
    entities: list[Entity] | None = None
    for name, said in table.metadata.items():
        kind = _DEVICES.match(name)
        if kind is None:
            continue
        if said.endswith("..."):
            doubts.append(f"{name}: the list is cut")
            entities = None
            break
        ids = [one.strip() for one in said.split(",") if one.strip()]
        entities = [*(entities or []), *(Entity(kind=kind[1], number=None, device_id=one) for one in ids)]
    return DiagPass(
        tests=tuple(_test(test, doubts) for test in table.tests),
        entities=None if entities is None else tuple(entities),
        version=table.metadata.get("DCGM Version", ""),
        driver=table.metadata.get("Driver Version Detected", ""),
    )


def _test(test: _Test, doubts: list[str]) -> TestRun:
    if test.said.endswith("..."):
        doubts.append(f"{test.name}: the list of GPUs is cut")
    results = list(test.results)
    errors: list[DiagError] = []
    info: list[str] = []
    bad = [r for r in results if r.status not in (Status.PASS, Status.NOT_RUN)]
    for kind, named, chunks in test.messages:
        text = "".join(chunks).strip()
        number = named[1] if named else gpu_of(text)
        place = next(
            (i for i, r in enumerate(results) if r.number == number and (not named or r.entity == named[0])), None
        )
        if place is None and not named and len(bad) == 1 and bad[0].number is not None and number is None:
            place = results.index(bad[0])
        if place is None:
            errors += [DiagError(text=text)] if kind != "Info" else []
            info += [text] if kind == "Info" else []
            continue
        old = results[place]
        results[place] = EntityResult(
            entity=old.entity,
            number=old.number,
            status=old.status,
            errors=(*old.errors, DiagError(text=text)) if kind != "Info" else old.errors,
            info=(*old.info, text) if kind == "Info" else old.info,
        )
    # From 4.0 the test's own row is a summary beside the entities; before, the row is the result itself.
    own = status_of(test.said)
    by_entity = (bool(test.results) or not is_software_check(test.name)) and " - " not in test.said
    if not test.results and not by_entity:
        results = [EntityResult(entity=None, number=None, status=own, errors=tuple(errors), info=tuple(info))]
        errors, info = [], []
    return TestRun(
        name=test.name,
        category=test.category,
        results=tuple(results),
        summary=own if by_entity else None,
        errors=tuple(errors),
        info=tuple(info),
    )
