"""One finding, one line: what was expected and by whom, what was found and where, what to do next."""

from __future__ import annotations

from pytest_gpuready.campaign.store import NOT_AGAIN
from pytest_gpuready.judge import Found
from pytest_gpuready.model import Clause, Inventory, Measurement, Outcome, Part, Problem, Verdict
from pytest_gpuready.model.units import show

MAX_LINE = 1000
"""Longer lines are cut: they hold text that comes from tools."""


def finding_line(inventory: Inventory, clause: Clause, part: Part, found: Found | None, verdict: Verdict) -> str:
    """The line of a verdict that is not simply good; plain ASCII punctuation, at most 1,000 characters.

    Form: `CLAUSE metric: [OUTCOME, ]expected LIMIT (source), found VALUE on WHERE; what to do`.
    """
    limit = clause.limit
    expected = f"{limit} ({limit.source})" if limit else "a measurement (the profile gives no limit)"
    if verdict.against and clause.peers:
        expected = f"{verdict.against} ({clause.peers.source})"
    word = "" if verdict.outcome is Outcome.FAIL else f"{verdict.outcome.value}, "
    found_text = _found(clause, found, verdict)
    place = "" if isinstance(found, Problem) and part.label in found_text else f" on {where(inventory, part)}"
    action = action_text(inventory, clause, part, verdict.outcome, found)
    if isinstance(found, Problem) and found.advice:
        found_text = found_text.removesuffix(f"; {found.advice}")
        action = found.advice
    line = f"{clause.id} {clause.metric}: {word}expected {expected}, found {found_text}{place}"
    return one_line(f"{line}; {action}" if action else line)


def where(inventory: Inventory, part: Part) -> str:
    """Node, GPU, first block of the UUID, address, module and serial: enough to lay a hand on it."""
    slot = inventory.slot(part)
    return slot.where if slot else part.label


def action_text(inventory: Inventory, clause: Clause, part: Part, outcome: Outcome, found: Found | None = None) -> str:
    """What to do about this outcome, with the part's own names filled in; the problem's own advice where it has one."""
    if outcome is not Outcome.FAIL:
        again = f"run level {clause.level} again"
        general = {
            Outcome.NOT_MEASURED: f"{again}; if it stays unmeasured, treat that as a finding about {part.label}",
            Outcome.UNSTABLE: f"look for other users of {part.node}, then {again}",
            Outcome.OBSERVED: "agree a limit with its source in the profile",
        }.get(outcome, "")
        own = (
            found.advice.removesuffix(NOT_AGAIN)
            if outcome is Outcome.NOT_MEASURED and isinstance(found, Problem)
            else ""
        )
        return own or (general if clause.required else "")
    slot = inventory.slot(part)
    gpu = slot.gpu if slot else None
    names = {
        "node": part.node,
        "gpu": str(part.index),
        "module": str(gpu.module) if gpu and gpu.module >= 0 else f"of GPU {part.index}",
        "bdf": (slot.bdf if slot else "") or "its address",
        "upstream": (gpu.upstream if gpu else "") or "the port above",
    }
    text = clause.action
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def one_line(text: str) -> str:
    """Text without line breaks and control characters, cut to a length that a terminal and a page can bear."""
    clean = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= MAX_LINE else clean[: MAX_LINE - 3] + "..."


def _found(clause: Clause, found: Found | None, verdict: Verdict) -> str:
    if isinstance(found, Problem):
        return found.says
    if not isinstance(found, Measurement):
        return verdict.reason or "nothing"
    said = show(found.value, clause.unit)
    if found.repeats:
        said += ", again " + ", ".join(show(v, clause.unit) for v in found.repeats)
    if found.conditions:
        said += f" in {found.conditions}"
    if found.detail:
        said += f" ({found.detail})"
    return f"{said}, {verdict.reason}" if verdict.reason else said
