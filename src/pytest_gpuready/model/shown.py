"""A command line as a person reads it: the plan of the built-in engine is two thousand characters of JSON, and what it
says is a handful of words.

The whole line keys a recording and stands in the certificate; this is for pages, error lines and dry runs alone.
"""

from __future__ import annotations

import json

LONGEST_WORD = 160
KEPT = 40
KINDS_AT_MOST = 12
OWN_AT_MOST = 12
_TOLD_BY = {"gemm": "format", "cache": "level", "hbm": "kernel", "pattern": "pattern"}
"""Kind of a phase -> the field that tells two phases of this kind apart."""


def shown(line: str) -> str:
    """The line with a plan told by its phases and other long words cut:
    `.. agent stress {alloc, cache l1 l2, hbm read write, latency} 0000:19:00.0`."""
    before, brace, after = line.partition(" {")
    if brace:
        try:
            plan, end = json.JSONDecoder().raw_decode("{" + after)
        except (ValueError, RecursionError):
            pass
        else:
            return f"{_words(before)} {{{_told(plan, end)}}}{_words(('{' + after)[end:])}"
    return _words(line)


def _words(line: str) -> str:
    return " ".join(w if len(w) <= LONGEST_WORD else f"{w[:KEPT]}.. ({len(w)} characters)" for w in line.split(" "))


def _told(plan: object, size: int) -> str:
    """The phases of a plan by kind, in order; of JSON that is no plan how long it is."""
    phases = plan.get("phases") if isinstance(plan, dict) else None
    if not isinstance(phases, list) or not phases or not all(isinstance(phase, dict) for phase in phases):
        return f"{size} characters of JSON"
    kinds: dict[str, list[str]] = {}
    for phase in phases:
        kind = str(phase.get("kind", "?"))[:20]
        kinds.setdefault(kind, []).append(str(phase.get(_TOLD_BY.get(kind, ""), ""))[:20])
    told = [_kind(kind, own, phases) for kind, own in list(kinds.items())[:KINDS_AT_MOST]]
    more = len(kinds) - len(told)
    return ", ".join([*told, *([f"{more} more kinds"] if more else [])])


def _kind(kind: str, own: list[str], phases: list[dict[str, object]]) -> str:
    if all(own) and len(own) <= OWN_AT_MOST:
        return " ".join([kind, *own])
    if len(own) > 1:
        return f"{len(own)} {kind}"
    seconds = next((phase.get("seconds") for phase in phases if phase.get("kind") == kind), None)
    return f"{kind} {seconds:g} s" if isinstance(seconds, int | float) and seconds else kind
