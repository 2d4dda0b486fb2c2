"""The evidence under each finding: where it is, what its neighbours show, what was watched, what the kernel said.

What several findings share (a part's watch, a kernel log) is shown under the first of them only.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, PartEntry
from pytest_gpuready.certificate.findings import Finding
from pytest_gpuready.certificate.tables import COLUMNS

DIAGNOSED = ("FAIL", "NOT MEASURED", "UNSTABLE")
LOCATED_AT_MOST = 8
LOG_AT_MOST = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Metrics by parts around a finding, at most COLUMNS parts wide: (metric, ((part, shown, odd), ..)) rows.

    `odd` is True where a part of the finding shows what none of the others shows.
    """

    parts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, bool], ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One finding with its evidence. `log_under` and `watch_under` name the finding that already shows it."""

    finding: Finding
    located: tuple[PartEntry, ...]
    neighbours: tuple[Neighbours, ...]
    watched: tuple[PartEntry, ...]
    watch_under: str
    log: tuple[str, ...]
    log_under: str


def diagnoses(certificate: Certificate, found: list[Finding]) -> list[Diagnosis]:
    """One for every failure, unstable value and missing measurement, in the order of the findings."""
    logs: dict[tuple[str, ...], str] = {}
    watches: dict[str, str] = {}
    done = []
    for finding in found:
        if finding.outcome not in DIAGNOSED:
            continue
        log = tuple(finding.worst.log[-LOG_AT_MOST:])
        watched = _watched(finding)
        names = "+".join(part.part for part in watched)
        log_under, watch_under = logs.get(log, ""), watches.get(names, "")
        logs.setdefault(log, finding.clause.id)
        watches.setdefault(names, finding.clause.id)
        located: dict[str, PartEntry] = {}
        for _, part in finding.cells:
            located.setdefault(part.part, part)
        done.append(
            Diagnosis(
                finding=finding,
                located=tuple(located.values())[:LOCATED_AT_MOST],
                neighbours=tuple(neighbours(finding)),
                watched=() if watch_under else tuple(watched),
                watch_under=watch_under if watched else "",
                log=() if log_under else log,
                log_under=log_under if log else "",
            )
        )
    return done


def _watched(finding: Finding) -> list[PartEntry]:
    """The worst three parts that were watched, and one that passed to compare them with."""
    bad = [part for _, part in finding.cells if part.watch is not None and part.watch.series][:3]
    good = [p for p in finding.clause.parts if p.outcome == "PASS" and p.watch is not None and p.watch.series][:1]
    return bad + good if bad and finding.outcome != "NOT MEASURED" else bad


def neighbours(finding: Finding) -> list[Neighbours]:
    """The comparison block of the worst part, in tables that fit on paper."""
    rows = finding.worst.neighbours
    names = sorted({name for values in rows.values() for name in values}, key=words.split_part)
    blocks = [tuple(names[first : first + COLUMNS]) for first in range(0, len(names), COLUMNS)]
    bad = set(finding.parts)
    return [
        Neighbours(
            parts=block,
            rows=tuple(
                (metric, tuple((name, values.get(name, ""), name in bad and _odd(values, name, bad)) for name in block))
                for metric, values in rows.items()
            ),
        )
        for block in blocks
    ]


def _odd(values: dict[str, str], name: str, bad: set[str]) -> bool:
    """True where the value lies outside everything that the parts without this finding show."""
    if name not in values:
        return False
    others = [value for other, value in values.items() if other not in bad]
    numbers = [_number(value) for value in others]
    here = _number(values[name])
    known = [number for number in numbers if number is not None]
    if here is not None and known and len(known) == len(others):
        return not min(known) <= here <= max(known)
    return bool(others) and values[name] not in others


def _number(text: str) -> float | None:
    try:
        return words.number(float(text))
    except ValueError:
        return None
