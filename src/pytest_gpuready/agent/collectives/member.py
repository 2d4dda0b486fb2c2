"""One rank of the crew: its process, NCCL's log of it, what its GPU's links counted, and its part of the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_gpuready.agent.collectives.hand import Hand
from pytest_gpuready.agent.collectives.links import COUNTERS, Reading
from pytest_gpuready.agent.collectives.log import NcclLog
from pytest_gpuready.agent.machine import hostname
from pytest_gpuready.agent.stress.guard import Guard
from pytest_gpuready.model.collectives_doc import MOST_WRONG, LinkCounted, RankSaid, Traffic, WrongSeen


class Member:
    """One GPU and its rank. `problem`: why it is not loaded at all."""

    def __init__(self, bdf: str, rank: int) -> None:
        self.bdf = bdf
        self.rank = rank
        self.problem = ""
        self.log: NcclLog | None = None
        self._hand: Hand | None = None
        self._wrong: list[WrongSeen] = []
        self._traffic: list[Traffic] = []

    @property
    def hand(self) -> Hand:
        """Its process; only behind `hire`."""
        assert self._hand is not None
        return self._hand

    def hire(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Hand:
        """Start its process."""
        self._hand = Hand(self.rank, self.bdf, command, environment)
        if "NCCL_DEBUG_FILE" in environment:
            self.log = NcclLog(log)
        return self._hand

    def took(self) -> None:
        """Keep what was wrong in the step that has ended."""
        result = self.hand.result
        if result and len(self._wrong) < MOST_WRONG:
            self._wrong += result.wrong

    def carried(self, op: str, size_bytes: int, before: Reading, after: Reading) -> None:
        """Keep what the links counted over the step that has ended."""
        self._traffic.append(traffic(op, size_bytes, before, after))

    def look(self) -> None:
        if self._hand:
            self._hand.look()

    def kill(self) -> None:
        if self._hand:
            self._hand.kill()

    def close(self, patience_s: float) -> None:
        """Kill its process, wait a moment for its end, and read its log to the end."""
        if self._hand:
            self._hand.close(patience_s)
        if self.log:
            self.log.close()

    def document(self, guard: Guard, marks: tuple[int, int]) -> RankSaid:
        """Everything about this rank."""
        hand, log = self._hand, self.log
        here, joined = (hand.here, hand.joined) if hand else (None, None)
        before, after = (guard.counted.get((self.bdf, mark)) for mark in marks)
        return RankSaid(
            rank=self.rank,
            bdf=self.bdf,
            pid=hand.process.pid if hand and hand.process else 0,
            host=hostname(),
            name=here.name if here else "",
            nccl_version=here.nccl_version if here else "",
            packages=here.packages if here else {},
            start_s=here.start_s if here else None,
            init_s=joined.init_s if joined else None,
            free_bytes=joined.free_bytes if joined else None,
            problem=hand.problem if hand else self.problem,
            note=hand.note if hand else "",
            wrong=self._wrong,
            log=log.lines if log else [],
            log_left_out=log.left_out if log else 0,
            log_problem=log.problem if log else "",
            traffic=self._traffic,
            before=before.counters if before else {},
            after=after.counters if after else {},
            errors=after.errors if after else before.errors if before else {},
            stderr=hand.stderr if hand and (hand.problem or hand.note) else "",
        )


def traffic(op: str, size_bytes: int, before: Reading, after: Reading) -> Traffic:
    """Two readings of all links of a GPU; a counter that is in one of them only is none."""
    problem = str(before.get("problem") or after.get("problem") or "")
    pairs = list(zip(before.get("links", ()), after.get("links", ()), strict=False))
    if not problem and len(before.get("links", ())) != len(after.get("links", ())):
        problem = "expected as many NVLinks after as before, found others"
    if problem:
        return Traffic(op=op, size_bytes=size_bytes, problem=problem[:200])
    links = []
    for link, (first, last) in enumerate(pairs):
        failed: dict[str, Any] = {**before["errors"][link], **after["errors"][link]}
        counters = {name: (first[name], last[name]) for name in COUNTERS if name in first and name in last}
        links.append(LinkCounted(link=link, counters=counters, errors={n: str(e) for n, e in failed.items()}))
    if not any(link.counters for link in links):
        why = ", ".join(sorted({name for link in links for name in link.errors.values()}))
        return Traffic(op=op, size_bytes=size_bytes, problem=f"NVML gives no counter of any NVLink: {why}"[:200])
    return Traffic(op=op, size_bytes=size_bytes, links=links)
