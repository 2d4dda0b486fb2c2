"""Commands as the page shows them: what was run in a few words, and each long one whole in one place."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_gpuready.certificate.document import EvidenceEntry
from pytest_gpuready.model.shown import shown

PLANS_AT_MOST = 24


def command(entry: EvidenceEntry) -> str:
    """The command line with its plan told by its phases."""
    return shown(entry.command)


def plans(evidence: Iterable[EvidenceEntry]) -> dict[str, str]:
    """Command line as shown -> the whole one, of those that are not shown whole; the first of each, a bounded number.

    The same plan goes to every node, with other addresses: it is told once.
    """
    found: dict[str, str] = {}
    seen = set()
    for entry in evidence:
        short = shown(entry.command)
        head = short.partition("}")[0]
        if short != entry.command and head not in seen and len(found) < PLANS_AT_MOST:
            seen.add(head)
            found[short] = entry.command
    return found
