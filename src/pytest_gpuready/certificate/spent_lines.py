"""The time table on a terminal: what the seconds of a run bought, in a few lines of ASCII."""

from __future__ import annotations

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.spent import Bought, Times, spent
from pytest_gpuready.model.units import show

LINES_AT_MOST = 8
IN_SECONDS = 1000.0
"""Longer times are told in minutes and hours."""


def time_lines(certificate: Certificate, room: int, at_most: int = LINES_AT_MOST) -> list[tuple[str, str]]:
    """The sum and that of each level, then the longest measurements in the order of levels, none wider than `room`;
    no line where nothing was taken. As many as `at_most`, which is 2 or more; where these are few, the sums alone."""
    told = spent(certificate)
    if told is None:
        return []
    many = len(certificate.nodes) > 1
    levels = ", ".join(f"{level}: {clock(times.slowest_s)}" for level, times, _ in told.levels)
    recorded = ", as recorded" if certificate.basis == "replay" else ""
    said = [f"{clock(told.whole.slowest_s)} of commands{recorded} (level {levels})"]
    if told.whole.nodes > 1:
        who = f"the slowest of {told.whole.nodes} nodes ({told.whole.slowest})"
        median = clock(told.whole.median_s)
        said = [f"{clock(told.whole.slowest_s)} of commands on {who}, median {median}{recorded}", f"level {levels}"]
    at_most -= len(said) - 1
    rows = list(told.rows)
    kept: list[Bought] = []
    tail: list[str] = []
    if len(rows) < at_most:
        kept = rows
    elif at_most > 2:
        longest = sorted(rows, key=lambda row: -row.times.slowest_s)[: at_most - 2]
        kept = [row for row in rows if row in longest]
        others = [row for row in rows if row not in longest]
        seconds = clock(sum(row.times.slowest_s for row in others))
        clauses = len({clause for row in others for clause in row.clauses})
        names = ", ".join(dict.fromkeys(row.what for row in others))
        tail = [f"others  {seconds:>8}  {_count(clauses)}  {names}"]
    lines = [*said, *(_row(row, many) for row in kept), *tail]
    return [("" if place else "time", _cut(line, room)) for place, line in enumerate(lines)]


def _row(row: Bought, many: bool) -> str:
    example = ""
    if row.example is not None:
        clause, part = row.example
        bad = part.outcome not in ("PASS", "OBSERVED")
        # Where all is well it does not matter which GPU is the example.
        example = (
            f": {clause.id} {part.outcome}, {found_text(clause, part, many)}" if bad else f": {_value(clause, part)}"
        )
    return f"level {row.level} {clock(row.times.slowest_s):>8}  {_count(len(row.clauses))}  {row.what}{example}"


def _count(clauses: int) -> str:
    return f"{clauses:>2} {'clause ' if clauses == 1 else 'clauses'}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 4].rstrip()} ..."


def found_text(clause: ClauseEntry, part: PartEntry, many: bool) -> str:
    """What was found on a part, and its limit: "TF32 sustained 364.1 TFLOPS on GPU 1, limit >= 330"."""
    bound = words.bound_of(clause)
    limit = f", limit {'>=' if clause.at_least is not None else '<='} {bound:g}" if bound else ""
    return f"{_value(clause, part)} on {words.part_text(part.part, many)}{limit}"


def _value(clause: ClauseEntry, part: PartEntry) -> str:
    value = show(part.value, clause.unit) if part.value is not None else part.shown
    return f"{clause.headline or clause.metric} {value}".rstrip()


def clock(seconds: float) -> str:
    """Seconds with one decimal, minutes and hours where there are many."""
    return f"{seconds:.1f} s" if seconds < IN_SECONDS else words.seconds_text(seconds).replace(words.NBSP, " ")


def times_text(times: Times) -> str:
    """The same of several nodes: "7.3 s, slowest node07; median 7.1 s"."""
    if times.nodes == 1:
        return clock(times.slowest_s)
    return f"{clock(times.slowest_s)}, slowest {times.slowest}; median {clock(times.median_s)} of {times.nodes}"
