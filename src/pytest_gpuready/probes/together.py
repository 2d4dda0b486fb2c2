"""Host-to-device copies of all GPUs of a node at the same time ("copies-together").

They ended well only where every GPU that was asked for has a rate that a link can have: a document without rates, or
with rates of others, tells of no copies, however quiet the kernel log is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, Profile, Watch
from pytest_gpuready.model.agent_doc import TogetherDoc
from pytest_gpuready.parse.agent import together_doc
from pytest_gpuready.parse.kernel_log import xids
from pytest_gpuready.probes.answers import agent_command, evidence, not_measured
from pytest_gpuready.probes.kernel_events import doubt, short
from pytest_gpuready.probes.watched import log_alarms

METRIC = "pcie.h2d.concurrent"
ALONE = "pcie.h2d.bandwidth"
GENERATION = "pcie.link.generation"
ENDED = "copies.together.ended"
WELL = "ended, kernel log quiet"
TIMEOUT_S = 180.0
MOST_GB_PER_S = 130.0
"""No PCIe link is faster: Gen6 x16 carries 126 GB/s in one direction."""
MOST_OF_ANY_LINK = 460.0
"""NVLink-C2C of a Grace CPU carries 450 GB/s in one direction."""


class TogetherProbe:
    """`python -m pytest_gpuready.agent copies-together BDF...`, once a node that has at least two GPUs."""

    name = "copies-together"
    metrics: tuple[str, ...] = (METRIC, ENDED)

    def __init__(self, profile: Profile | None = None) -> None:
        """The profile knows what one GPU can copy at most; else it is a PCIe link where the profile promises one."""
        alone = [clause.limit for clause in profile.of_metric(ALONE)] if profile else []
        ceilings = [limit.ceiling for limit in alone if limit and limit.ceiling]
        pcie = profile is None or any(clause.limit for clause in profile.of_metric(GENERATION))
        self._most = min(ceilings, default=MOST_GB_PER_S if pcie else MOST_OF_ANY_LINK)

    def scopes(self, node: Node) -> tuple[Part, ...]:
        return (node.part,) if len(_found(node)) > 1 else ()

    def command(self, node: Node, scope: Part) -> Command:
        return agent_command(
            node, "copies-together", *_found(node).values(), timeout_s=TIMEOUT_S, says="copies of all GPUs at once"
        )

    def read(
        self, inventory: Inventory, node: Node, scope: Part, results: Sequence[CommandResult]
    ) -> tuple[Measurement | Problem, ...]:
        seen = tuple(digest for result in results for digest in evidence(result))
        found = _found(node)
        asked = set(found.values())
        runs = [_document(result, asked, self._most) for result in results] or ["no run of the copies"]
        ended = [_ended(result) for result in results] or ["no run of the copies"]
        return (
            *(_answer(slot.part, found.get(slot.part), runs, seen) for slot in node.slots),
            *(_end(slot.part, found, ended, seen, self._most) for slot in node.slots),
        )


def _found(node: Node) -> dict[Part, str]:
    """Part -> address of the GPUs that were found."""
    return {slot.part: slot.gpu.bdf for slot in node.slots if slot.gpu and slot.gpu.bdf}


def _document(result: CommandResult, asked: Collection[str], most: float) -> TogetherDoc | str:
    try:
        doc = together_doc(result)
    except (ToolError, ParseError) as error:
        return str(error)
    if not doc.problem and doc.log_after is None:
        return "expected the kernel log after the copies, found none in the document; record the node again"
    return doc.problem or _unmoved(doc, asked, most) or doc


def _unmoved(doc: TogetherDoc, asked: Collection[str], most: float) -> str:
    """Why these are no copies to all GPUs that were asked for; "" where they are."""
    others = sorted(doc.gb_per_s.keys() - asked)
    if others:
        return f"expected rates of {', '.join(sorted(asked))[:120]}, found one of {others[0][:40]!r}"
    for bdf in sorted(asked):
        if bdf not in doc.gb_per_s:
            return f"expected a rate of {bdf}, found none among {len(doc.gb_per_s)} GPUs"
        rate = doc.gb_per_s[bdf]
        if not (math.isfinite(rate) and 0 < rate <= most):
            return f"expected a rate of {bdf} above 0 and up to {most:g} GB/s, found {rate:g}"
    return ""


def _answer(
    part: Part, bdf: str | None, runs: Sequence[TogetherDoc | str], seen: tuple[str, ...]
) -> Measurement | Problem:
    if bdf is None:
        return not_measured(METRIC, part, f"{part.label} was not found, so nothing was copied to it", seen)
    rates: list[float] = []
    for run in runs:
        if isinstance(run, str):
            return not_measured(METRIC, part, run, seen)
        rates.append(run.gb_per_s[bdf])
    docs = [run for run in runs if isinstance(run, TogetherDoc)]
    at_once = len(docs[0].gb_per_s) if docs else 0
    return Measurement(
        metric=METRIC,
        part=part.name,
        value=rates[0],
        unit="GB/s",
        conditions=f"{at_once} GPUs at the same time",
        repeats=tuple(rates[1:]),
        evidence=seen,
        watch=_watch(docs, bdf),
    )


def _ended(result: CommandResult) -> TogetherDoc | str:
    """The document, also one that reports a problem: its kernel log counts all the same."""
    try:
        return together_doc(result)
    except (ToolError, ParseError) as error:
        return str(error)


def _end(
    part: Part, found: dict[Part, str], runs: Sequence[TogetherDoc | str], seen: tuple[str, ...], most: float
) -> Measurement | Problem:
    """How the heaviest load of the level ended: what the kernel log says counts first, then a problem, then a doubt."""
    bdf = found.get(part, "")
    if not bdf:
        return not_measured(ENDED, part, f"{part.label} was not found, so nothing was copied to it", seen)
    docs = [run for run in runs if isinstance(run, TogetherDoc)]
    logs = [doc.log_after for doc in docs if doc.log_after]
    said = [
        f"{short(xid)} of {xid.bdf or 'an unknown address'}" for log in logs for xid in xids(log.lines) if xid.hardware
    ]
    said += [alarm for log in logs for alarm in log_alarms(log.lines, bdf)]
    if said:
        value = "; ".join(dict.fromkeys(said))
        return Measurement(metric=ENDED, part=part.name, value=value, evidence=seen)
    for run in runs:
        if isinstance(run, str):
            return not_measured(ENDED, part, run, seen)
        if run.problem or run.log_after is None:
            return not_measured(
                ENDED, part, run.problem or "no kernel log stands in the document; record it again", seen
            )
        unread = _unmoved(run, set(found.values()), most) or doubt(run.log_after)
        if unread:
            return not_measured(ENDED, part, unread, seen)
    return Measurement(metric=ENDED, part=part.name, value=WELL, evidence=seen)


def _watch(docs: Sequence[TogetherDoc], bdf: str) -> Watch:
    """Hardware Xids and fatal SXids of any part of the node in the log since boot are an alarm: all GPUs copied."""
    logs = [doc.log_after for doc in docs if doc.log_after]
    unread = next(filter(None, map(doubt, logs)), "")
    return Watch(
        hardware_xids=tuple(xid.number for log in logs for xid in xids(log.lines) if xid.hardware),
        log_alarms=tuple(dict.fromkeys(said for log in logs for said in log_alarms(log.lines, bdf))),
        facts={"kernel log": f"not read: {unread}"} if unread else {},
    )
