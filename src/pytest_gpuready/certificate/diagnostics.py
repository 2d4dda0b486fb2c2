"""The evidence under each finding: where it is, what its neighbours show, what was watched, what the kernel said.

What several findings share (a part's watch, a kernel log) is shown under the first of them only.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import Certificate, PartEntry
from pytest_gpuready.certificate.findings import Finding, cells, led
from pytest_gpuready.certificate.page import FINDINGS_AT_MOST
from pytest_gpuready.certificate.tables import COLUMNS

DIAGNOSED = ("FAIL", "NOT MEASURED", "UNSTABLE")
LOCATED_AT_MOST = 8
LOG_AT_MOST = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Metrics by parts around a finding, at most COLUMNS parts wide: (metric, ((part, shown, bad), ..)) rows.

    `bad` is True for a part of the finding on which the clause of that very metric is FAIL.
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
    told: bool
    """True where the finding under the verdict says all of it: no value, no neighbours, no watch, no log."""


def diagnoses(certificate: Certificate, found: list[Finding]) -> list[Diagnosis]:
    """One for every failure, unstable value and missing measurement, in the order of the findings."""
    failed = frozenset((clause.metric, part.part) for clause, part in cells(certificate) if part.outcome == "FAIL")
    page_one = [lead for lead, _ in led(found)[:FINDINGS_AT_MOST]]
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
        near = tuple(neighbours(finding, failed))
        bare = not near and not watched and not log and finding.outcome == "NOT MEASURED"
        done.append(
            Diagnosis(
                finding=finding,
                located=tuple(located.values())[:LOCATED_AT_MOST],
                neighbours=near,
                told=bare and finding in page_one,
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


def neighbours(finding: Finding, failed: frozenset[tuple[str, str]]) -> list[Neighbours]:
    """The comparison block of the worst part, in tables that fit on paper; `failed` are all FAILs, (metric, part).

    Beside a part that is missing there is nothing to compare.
    """
    rows = {} if finding.cause else finding.worst.neighbours
    names = sorted({name for values in rows.values() for name in values}, key=words.split_part)
    blocks = [tuple(names[first : first + COLUMNS]) for first in range(0, len(names), COLUMNS)]
    bad = set(finding.parts)
    return [
        Neighbours(
            parts=block,
            rows=tuple(
                (
                    metric,
                    tuple((name, values.get(name, ""), name in bad and (metric, name) in failed) for name in block),
                )
                for metric, values in rows.items()
            ),
        )
        for block in blocks
    ]
