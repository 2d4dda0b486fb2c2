"""Sources that many clauses of a suite share are told once, under their table, and cited by a letter beside a limit."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable

from pytest_gpuready.certificate import words
from pytest_gpuready.certificate.document import ClauseEntry

SHARED_BY = 3
"""So many clauses share a source that becomes a note."""
SHORT = 60
"""A source that is no longer stands beside each of its limits."""


def notes(clauses: Iterable[ClauseEntry]) -> dict[str, str]:
    """Text -> letter, in the order in which the table first cites them; sources of limits and of comparisons alike."""
    counts: Counter[str] = Counter()
    for clause in clauses:
        if told(clause):
            counts.update(text for text in (source(clause), peers(clause)) if len(text) > SHORT)
    shared = [text for text, count in counts.items() if count >= SHARED_BY]
    return dict(zip(shared, string.ascii_lowercase, strict=False))


def told(clause: ClauseEntry) -> bool:
    """False where a clause applies to no part: then nothing is asked of it, and no limit is told."""
    return any(part.outcome != "NOT APPLICABLE" for part in clause.parts)


def source(clause: ClauseEntry) -> str:
    """Where the limit comes from; "" where there is none."""
    return words.source_text(clause) if clause.limit else ""


def peers(clause: ClauseEntry) -> str:
    """What is promised against peers, and why; "" where nothing is."""
    if not clause.peers:
        return ""
    return words.typo(f"{words.clean(clause.peers, 200)}, from {words.clean(clause.peers_source, 400)}")
