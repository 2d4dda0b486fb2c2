"""Copies of all GPUs of a node at the same time ("copies-together"): all to the device, then all to the host.

They ended well only where every GPU that was asked for has a rate that a link can have: a document without rates, or
with rates of others, tells of no copies, however quiet the kernel log is. A document of an older agent knows one way
only: of the other one nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from pytest_gpuready.errors import ParseError, ToolError
from pytest_gpuready.model import Command, CommandResult, Inventory, Measurement, Node, Part, Problem, Profile, Watch
from pytest_gpuready.model.agent_doc import TogetherDoc
from pytest_gpuready.parse.agent import together_doc
from pytest_gpuready.parse.kernel_log import xids
from pytest_gpuready.probes.answers import agent_command, evidence, not_measured
from pytest_gpuready.probes.kernel_events import doubt, short
from pytest_gpuready.probes.watched import log_alarms

DOWN, UP = "pcie.h2d.concurrent", "pcie.d2h.concurrent"
ALONE = {DOWN: "pcie.h2d.bandwidth", UP: "pcie.d2h.bandwidth"}
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
    metrics: tuple[str, ...] = (DOWN, UP, ENDED)

    def __init__(self, profile: Profile | None = None) -> None:
        """The profile knows what one GPU can copy at most; else it is a PCIe link where the profile promises one."""
        pcie = profile is None or any(clause.limit for clause in profile.of_metric(GENERATION))
        self._most: dict[str, float] = {}
        for way, metric in ALONE.items():
            alone = [clause.limit for clause in profile.of_metric(metric)] if profile else []
            ceilings = [limit.ceiling for limit in alone if limit and limit.ceiling]
            self._most[way] = min(ceilings, default=MOST_GB_PER_S if pcie else MOST_OF_ANY_LINK)

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
        ended = [_ended(result) for result in results] or ["no run of the copies"]
        ways = {way: [_moved(run, way, asked, self._most[way]) for run in ended] for way in ALONE}
        return (
            *(_answer(way, slot.part, found.get(slot.part), ways[way], seen) for way in ALONE for slot in node.slots),
            *(_end(slot.part, found, ended, seen, self._most) for slot in node.slots),
        )


def _found(node: Node) -> dict[Part, str]:
    """Part -> address of the GPUs that were found."""
    return {slot.part: slot.gpu.bdf for slot in node.slots if slot.gpu and slot.gpu.bdf}


def _rates(doc: TogetherDoc, way: str) -> dict[str, float]:
    return doc.gb_per_s if way == DOWN else doc.d2h_gb_per_s


def _moved(run: TogetherDoc | str, way: str, asked: Collection[str], most: float) -> TogetherDoc | str:
    """The document where it has rates of this way, else why it has none."""
    if isinstance(run, str):
        return run
    if not run.problem and run.log_after is None:
        return "expected the kernel log after the copies, found none in the document; record the node again"
    if not run.problem and way == UP and run.gb_per_s and not run.d2h_gb_per_s:
        return "expected copies to the host at once, found a document of an older agent without them; record it again"
    return run.problem or _unmoved(_rates(run, way), asked, most) or run


def _unmoved(rates: Mapping[str, float], asked: Collection[str], most: float) -> str:
    """Why these are no copies of all GPUs that were asked for; "" where they are."""
    others = sorted(rates.keys() - asked)
    if others:
        return f"expected rates of {', '.join(sorted(asked))[:120]}, found one of {others[0][:40]!r}"
    for bdf in sorted(asked):
        if bdf not in rates:
            return f"expected a rate of {bdf}, found none among {len(rates)} GPUs"
        rate = rates[bdf]
        if not (math.isfinite(rate) and 0 < rate <= most):
            return f"expected a rate of {bdf} above 0 and up to {most:g} GB/s, found {rate:g}"
    return ""


def _answer(
    way: str, part: Part, bdf: str | None, runs: Sequence[TogetherDoc | str], seen: tuple[str, ...]
) -> Measurement | Problem:
    if bdf is None:
        return not_measured(way, part, f"{part.label} was not found, so nothing was copied to it", seen)
    rates: list[float] = []
    for run in runs:
        if isinstance(run, str):
            return not_measured(way, part, run, seen)
        rates.append(_rates(run, way)[bdf])
    docs = [run for run in runs if isinstance(run, TogetherDoc)]
    at_once = len(_rates(docs[0], way)) if docs else 0
    return Measurement(
        metric=way,
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
    part: Part,
    found: dict[Part, str],
    runs: Sequence[TogetherDoc | str],
    seen: tuple[str, ...],
    most: Mapping[str, float],
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
        told = [DOWN, UP] if run.d2h_gb_per_s else [DOWN]
        odd = (_unmoved(_rates(run, way), set(found.values()), most[way]) for way in told)
        unread = next(filter(None, odd), "") or doubt(run.log_after)
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
