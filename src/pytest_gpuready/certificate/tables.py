"""The tables of the certificate: a clause as a row, the numbers behind it, the GPUs of a node."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import ClauseEntry, GpuEntry, NodeEntry, PartEntry, SuiteEntry
from pytest_gpuready.certificate.folded import folded, natural
from pytest_gpuready.certificate.plots import has_bullet, has_strip

COLUMNS = 8
"""Parts side by side in a table; more parts make further tables, so that paper holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One clause in a table: its worst cell, how the words are spread, and which figure fits.

    `same` is True where every part has one word and one value: then the row itself says it for all of them.
    `figure` is "bullet", "strip", "boxes" or "" (one part).
    """

    clause: ClauseEntry
    outcome: str
    others: tuple[tuple[str, int], ...]
    worst: PartEntry | None
    same: bool
    value: str
    unit: str
    note: str
    margin: str
    figure: str
    places: int
    """Decimals of the clause's values."""

    @property
    def count(self) -> int:
        return len(self.clause.parts)


def row(clause: ClauseEntry, many: bool, *, headline: bool = False) -> Row:
    """The view of one clause; `headline` for page one, where a clause with a ceiling gets a bullet."""
    parts = clause.parts
    counts = Counter(map(words.said, parts))
    outcome = min(counts, key=words.rank, default="NOT TESTED")
    # Of several nodes a reason names the node: what the table of numbers would show is the word and the value.
    same = len({(words.said(p), p.shown, *(() if many else (p.detail, p.reason))) for p in parts}) <= 1
    worst = _worst(clause, outcome)
    figure = "" if len(parts) < 2 else "boxes"
    if headline and has_bullet(clause):
        figure = "bullet"
    elif not headline and has_strip(clause):
        figure = "strip"
    value, unit, note = _measured(clause, worst, figure, many)
    if headline and outcome == "PASS" and len(parts) == 1:
        note = ""
    return Row(
        clause=clause,
        outcome=outcome,
        others=tuple((o, counts[o]) for o in words.WORST_FIRST if counts[o] and o != outcome),
        worst=worst,
        same=same and figure != "strip",
        value=value,
        unit=unit,
        note=note,
        margin=words.margin_text(clause, worst),
        figure=figure,
        places=words.decimals(clause),
    )


def _worst(clause: ClauseEntry, outcome: str) -> PartEntry | None:
    """The part to show: of those with the worst word the one nearest to the wrong side."""
    among = [part for part in clause.parts if words.said(part) == outcome]
    measured = words.worst_number(clause)
    if measured is not None and (words.said(measured[0]) == outcome or outcome in words.OPEN):
        return measured[0] if outcome not in words.OPEN else among[0]
    return among[0] if among else None


def _measured(clause: ClauseEntry, worst: PartEntry | None, figure: str, many: bool) -> tuple[str, str, str]:
    """Value, unit and the note under it."""
    parts = clause.parts
    with_value = [part for part in parts if part.shown]
    if worst is None or not with_value:
        return "", "", ""
    equal = len({part.shown for part in with_value}) == 1 and len(with_value) == len(parts)
    value, unit = words.value_text(clause, worst, 80), words.unit_text(clause.unit)
    who = words.part_text(worst.part, many)
    if not worst.shown or len(parts) == 1:
        alone = value, unit, words.typo(words.clean(worst.detail or worst.conditions, 120))
        none = f"none on {_lacking(parts)}" if many else f"{who}: no value"
        return alone if worst.shown else (f"{len(with_value)} of {len(parts)}", "", none)
    if equal:
        return value, unit, f"on {len(parts)} of {len(parts)}"
    if words.number(worst.value) is None and worst.outcome == "FAIL":
        inside = sum(part.outcome in ("PASS", "MARGINAL") for part in parts)
        return f"{inside} of {len(parts)}", "", f"{who}: {value}"
    if figure == "bullet":
        return value, unit, f"worst: {who}"
    found = [number for _, number in words.numbers(clause)]
    if words.bound_of(clause) is None and len(found) > 1:
        places = words.decimals(clause)
        value = f"{words.grouped(min(found), places)} to {words.grouped(max(found), places)}"
        who = "lowest to highest"
    median = words.grouped(statistics.median(found), words.decimals(clause)) if len(found) > 1 else ""
    return value, unit, f"{who}, median {median}" if median else f"{who}; others differ"


def _lacking(parts: Sequence[PartEntry]) -> str:
    """The parts without a value: whole nodes folded, others by their names."""
    have = {part.node for part in parts if part.shown}
    whole = list(dict.fromkeys(part.node for part in parts if part.node not in have))
    single = [part.part for part in parts if not part.shown and part.node in have]
    told = [words.clean(folded(whole, 6), 200)] if whole else []
    return words.listed([*told, *([words.parts_text(single, True, 3)] if single else [])])


def ids_text(ids: Sequence[str], at_most: int = 0) -> str:
    """Clause ids in few words, runs folded: GPU-1 to GPU-4, PCIE-7; all of them, or `at_most` runs and a count.

    Those of one suite stand in the order of their numbers, the suites in the order in which they come.
    """
    runs: list[list[str]] = []
    suites = {stem: place for place, stem in enumerate(dict.fromkeys(one.rpartition("-")[0] for one in ids))}
    for one in sorted(ids, key=lambda one: (suites[one.rpartition("-")[0]], natural(one))):
        stem, dash, tail = one.rpartition("-")
        last = runs[-1][-1].rpartition("-") if runs else ("", "", "")
        follows = dash and tail.isdigit() and last[2].isdigit() and last[0] == stem and int(tail) == int(last[2]) + 1
        if runs and follows:
            runs[-1].append(one)
        else:
            runs.append([one])
    told = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs]
    if not at_most or len(runs) <= at_most:
        return words.clean(", ".join(told), 4000)
    left = sum(len(run) for run in runs[at_most:])
    return words.clean(", ".join(told[:at_most]), 4000) + f" and {left} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A table of clauses by parts, at most COLUMNS parts wide.

    `alike` are the clauses that end in one word with one value on all parts of this very table, by outcome: they
    need a line, not a row. (outcome, rows) pairs.
    """

    parts: tuple[str, ...]
    rows: tuple[tuple[Row, tuple[PartEntry, ...]], ...]
    alike: tuple[tuple[str, tuple[tuple[Row, PartEntry], ...]], ...]


def matrices(rows: list[Row]) -> list[Matrix]:
    """The numbers behind the rows whose parts differ, in tables that fit on paper."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for one in rows:
        if not one.same and one.count > 1:
            groups.setdefault(tuple(part.part for part in one.clause.parts), []).append(one)
    return [
        _matrix(names, members, slice(first, first + COLUMNS))
        for names, members in groups.items()
        for first in range(0, len(names), COLUMNS)
    ]


def _matrix(names: tuple[str, ...], members: list[Row], stretch: slice) -> Matrix:
    full: list[tuple[Row, tuple[PartEntry, ...]]] = []
    alike: dict[str, list[tuple[Row, PartEntry]]] = {}
    for one in members:
        parts = tuple(one.clause.parts[stretch])
        if len(parts) > 1 and one.figure != "strip" and len({(words.said(p), p.shown, p.reason) for p in parts}) == 1:
            alike.setdefault(words.said(parts[0]), []).append((one, parts[0]))
        else:
            full.append((one, parts))
    folded = tuple((outcome, tuple(found)) for outcome, found in alike.items())
    return Matrix(parts=names[stretch], rows=tuple(full), alike=folded)


def word_counts(parts: Sequence[PartEntry]) -> list[tuple[str, int]]:
    """How many parts have which word, worst first."""
    counts = Counter(map(words.said, parts))
    return [(o, counts[o]) for o in words.WORST_FIRST if counts[o]]


def suite_counts(suite: SuiteEntry) -> list[tuple[str, int]]:
    """How many clauses of a suite have which worst word, worst first."""
    outcomes = [min(map(words.said, c.parts), key=words.rank, default="NOT TESTED") for c in suite.clauses]
    return [(o, outcomes.count(o)) for o in words.WORST_FIRST if o in outcomes]


def levels_text(suite: SuiteEntry) -> str:
    """ "level 2", or "levels 2 to 4" where its clauses are of several."""
    levels = sorted({clause.level for clause in suite.clauses})
    return f"level {suite.level}" if len(levels) < 2 else f"levels {levels[0]} to {levels[-1]}"


_FOLDABLE = (
    ("name", "Model"),
    ("pci_id", "PCI id"),
    ("part_number", "Board part number"),
    ("vbios", "VBIOS"),
    ("inforom", "InfoROM"),
    ("memory_mib", "Memory"),
    ("pcie", "PCIe"),
    ("nvlinks", "NVLinks"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTable:
    """The GPUs of a node: what all that are there share as (name, value) pairs, what differs as columns."""

    node: NodeEntry
    present: int
    shared: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[GpuEntry, tuple[str, ...]], ...]


def gpu_table(node: NodeEntry) -> GpuTable:
    """Columns that say the same on all GPUs become one sentence, so those of a single GPU always do."""
    present = [gpu for gpu in node.gpus if gpu.present]
    shared, columns = [], []
    for field, title in _FOLDABLE:
        texts = [_field(gpu, field) for gpu in present]
        if len(set(texts)) == 1:
            shared += [(title, texts[0])] if texts[0] else []
        elif any(texts):
            columns.append((field, title))
    rows = tuple((gpu, tuple(_field(gpu, field) for field, _ in columns)) for gpu in node.gpus)
    return GpuTable(
        node=node, present=len(present), shared=tuple(shared), columns=tuple(title for _, title in columns), rows=rows
    )


def _field(gpu: GpuEntry, field: str) -> str:
    value = getattr(gpu, field)
    if field == "memory_mib":
        return words.with_unit(words.grouped(value), "MiB") if value else ""
    return words.typo(value) if field == "pcie" else str(value)
