"""All ranks of a node under one plan: `python -m pytest_gpuready.agent collectives PLAN [BDF...]`.

A process for each GPU, a watch over all of them, and one loop that tells every rank the next size when all have ended
the one before. A collective needs all its ranks: the first that dies, hangs or lies ends the run, the others are killed
(NCCL's own abort is not for another process to call), and the rows up to there stand. Whoever tells us to end (SIGTERM,
Ctrl-C) gets the document of what is known by then; if we are killed, the kernel ends our children.
Nothing on a GPU is set or reset.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from pytest_gpuready.agent.collectives import figures, leftovers
from pytest_gpuready.agent.collectives import plan as plans
from pytest_gpuready.agent.collectives.blame import EndedError, blame
from pytest_gpuready.agent.collectives.hand import STOP_S
from pytest_gpuready.agent.collectives.links import WORDS, Links
from pytest_gpuready.agent.collectives.member import Member
from pytest_gpuready.agent.plan_words import PlanError
from pytest_gpuready.agent.stress import children
from pytest_gpuready.agent.stress.children import KILL_S
from pytest_gpuready.agent.stress.gate import refusal
from pytest_gpuready.agent.stress.guard import NOBODY, Guard
from pytest_gpuready.agent.stress.telling import Telling
from pytest_gpuready.model.collectives_doc import CollectivesDoc, LeftOut, Plan, RankWork, Row, Step
from pytest_gpuready.model.collectives_shape import shape
from pytest_gpuready.model.stress_doc import XidSeen

RANK = (sys.executable, "-m", "pytest_gpuready.agent.collectives.rank")

GATE_S = 30.0
"""How long NVML has to say whether the GPUs may be loaded: without persistence mode each of them starts first."""

END_S, TOLD_END_S = 25.0, 4.0
"""How long the watch has for its end: the kernel log may come from a journal of many days. Less when told to end."""

COUNTERS_S = 1.0
SETTLE_S = 1.0
"""After the first trouble so long for the others to say theirs: who died, or who is silent, is told from who waits."""

AHEAD_S = 2.0
"""So long before the crew's deadline a rank says that NCCL does not go on: who then is silent hangs itself."""

TOLD = "told to end"


def collectives(words: Sequence[str]) -> CollectivesDoc:
    """Run the plan on these GPUs, all where none is named."""
    try:
        plan, bdfs = plans.read(words)
    except PlanError as error:
        return CollectivesDoc(problem=str(error))
    crew = Crew(plan, bdfs)
    # Nothing ends us any more but SIGKILL: the document has to be printed.
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: crew.tell())
    return crew.run()


class Crew:
    """One run. `tell` ends it early, from a signal handler or another thread."""

    def __init__(
        self,
        plan: Plan,
        bdfs: Sequence[str],
        *,
        rank: Sequence[str] = RANK,
        watch: Sequence[str] | None = None,
        links: Sequence[str] = WORDS,
    ) -> None:
        self._plan = plan
        self._bdfs = tuple(bdfs)
        self._command, self._links_command = rank, links
        self._began = time.monotonic()
        self._told = False
        self._selector = selectors.DefaultSelector()
        self._members: list[Member] = []
        self._nranks = 0
        self._folder: Path | None = None
        self._links: Links | None = None
        self._rows: list[Row] = []
        self._left_out: list[LeftOut] = []
        self._largest: int | None = None
        self._ready_s: float | None = None
        self._at = ("", 0)
        """Collective and size that run."""
        self._telling = Telling(self._began)
        self._known: set[int] = set()
        self._kept: dict[str, str] = {}
        self._guard = Guard(bdfs, plan.sample_s, margin_c=plan.margin_c, sampled=lambda _: None, command=watch)

    def tell(self) -> None:
        """End as soon as that is possible in order."""
        self._told = True

    def run(self) -> CollectivesDoc:
        """The whole of it."""
        self._known = children.ours()
        children.adopt(True)
        segments = leftovers.there()
        ended = EndedError("")
        marks = (0, 0)
        try:
            try:
                self._open_gate()
                marks = (self._guard.mark(), 0)
                self._muster()
                self._sweep()
            except EndedError as error:
                ended = error
            self._dismiss(in_order=not str(ended))
            if marks[0]:
                marks = (marks[0], self._guard.mark())
                self._turn_until(
                    lambda: all((m.bdf, marks[1]) in self._guard.counted for m in self._members), COUNTERS_S
                )
            return self._document(ended, marks)
        finally:
            self._close()
            leftovers.sweep_out(segments)
            self._guard.close()
            self._selector.close()
            children.adopt(False)

    # --- before -----------------------------------------------------------------------------------------------------

    def _open_gate(self) -> None:
        """Ask whether the GPUs may be loaded: all of them, or none is."""
        if self._guard.process and self._guard.process.stdout:
            self._read(self._guard.process.stdout, self._guard.feed)
        self._turn_until(lambda: self._guard.known or self._told, GATE_S)
        bdfs = self._bdfs or tuple(self._guard.gpus or ())
        if not bdfs:
            raise EndedError(self._guard.problem or "expected GPUs on this node, found that NVML names none")
        self._members = [Member(bdf, self._plan.first_rank + at) for at, bdf in enumerate(bdfs)]
        try:
            self._kept = plans.kept(self._plan, os.environ)
            self._nranks = plans.ranks(self._plan, len(bdfs))
        except PlanError as error:
            raise EndedError(str(error)) from error
        if self._told:
            raise EndedError(TOLD)
        why = self._guard.problem or f"expected NVML to answer within {GATE_S:g} s, found no answer"
        for member in self._members:
            gate = self._guard.gates.get(member.bdf)
            member.problem = refusal(gate, self._plan.margin_c) if gate else why
        refused = next((member for member in self._members if member.problem), None)
        if refused:
            raise EndedError(f"GPU {refused.bdf}: {refused.problem}", refused.rank)

    def _muster(self) -> None:
        """Start all ranks, have one make the unique id, and all of them join with it."""
        plan = self._plan
        give_up = time.monotonic() + plan.ready_s
        self._guard.guarding()
        self._telling.phase("start")
        self._folder = Path(tempfile.mkdtemp(prefix="gpuready-nccl-"))
        for at, member in enumerate(self._members):
            path = self._folder / f"{member.rank}.log"
            hand = member.hire(self._command, plans.environment(self._plan, os.environ, path), path)
            for pipe, take in (
                (hand.process and hand.process.stdout, hand.hear),
                (hand.process and hand.process.stderr, hand.hear_error),
            ):
                if pipe:
                    self._read(pipe, take)
            work = RankWork(
                rank=member.rank,
                nranks=self._nranks,
                datatype=plan.datatype,
                check=plan.check,
                seed=plan.seed,
                makes_id=at == 0,
            )
            hand.ask({"work": work}, "here")
        self._links = Links([member.bdf for member in self._members], self._links_command)
        self._answers(give_up, "the start")
        here = self._members[0].hand.here
        if here is None or not here.id:
            raise EndedError("expected the unique id of NCCL, found none", self._members[0].rank)
        versions = {member.hand.here.nccl_version for member in self._members if member.hand.here}
        if len(versions) > 1:
            raise EndedError(f"expected one version of NCCL, found {', '.join(sorted(versions))}")
        self._ask({"join": here.id}, "joined", give_up, "joining the communicator")
        self._unlink()
        free = min(member.hand.joined.free_bytes for member in self._members if member.hand.joined)
        try:
            self._largest = plans.largest(plan, free)
        except PlanError as error:
            raise EndedError(str(error)) from error
        self._ask({"largest": self._largest}, "allocated", give_up, "taking memory")
        self._ready_s = round(time.monotonic() - self._began, 3)

    def _unlink(self) -> None:
        """The logs are open on both sides: their names are not needed any more."""
        for member in self._members:
            if self._plan.debug and member.log:
                member.log.open()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- the sweep --------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Every size of every collective, in the order of the plan."""
        limit = time.monotonic() + self._plan.limit_s
        number = 0
        for op in self._plan.ops:
            op_limit = min(limit, time.monotonic() + self._plan.op_s)
            before: Row | None = None
            runs = [size for size in self._plan.sizes_bytes if self._runs(op, size)]
            for size in runs:
                before = self._step(number, op, size, before, op_limit, counts=size == runs[-1])
                number += 1

    def _runs(self, op: str, size: int) -> bool:
        """Whether it can be run; it is noted where not."""
        why = ""
        if size > (self._largest or 0):
            why = f"no memory for two buffers of it: {self._largest} bytes are the largest size that fits"
        elif not shape(op, size, self._nranks, self._plan.datatype).size_bytes:
            why = f"less than 16 bytes for each of {self._nranks} ranks"
        if why:
            self._left_out.append(LeftOut(op=op, asked_bytes=size, why=why))
        return not why

    def _step(self, number: int, op: str, size: int, before: Row | None, give_up: float, *, counts: bool) -> Row:
        plan = self._plan
        self._at = (op, size)
        self._telling.phase(f"{op} {size}")
        times = plan.small_iterations if size <= plan.small_bytes else plan.iterations
        if not plan.comm:  # ranks elsewhere have to run the same, and know nothing of our clock
            times = figures.iterations(times, plan.size_s, size, before)
        step = Step(
            number=number,
            op=op,
            asked_bytes=size,
            iterations=times,
            warmup=min(plan.warmup, max(1, times // 4)),
            patience_s=max(0.1, give_up - time.monotonic() - AHEAD_S),
        )
        counted = self._links.read() if counts and self._links else {}
        self._ask({"step": step}, "done", give_up, f"{op} of {size} bytes")
        calls = [call for member in self._members if member.log for call in member.log.take()]
        results = {member.rank: member.hand.result for member in self._members if member.hand.result}
        row = figures.row(step, results, self._nranks, plan.datatype, figures.algorithms(op, calls))
        self._rows.append(row)
        for member in self._members:
            member.took()
        if counts and self._links:
            after = self._links.read()
            for member in self._members:
                member.carried(op, row.size_bytes, counted[member.bdf], after[member.bdf])
        self._at = ("", 0)
        return row

    # --- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, line: Mapping[str, object], answer: str, give_up: float, what: str) -> None:
        for member in self._members:
            member.hand.ask(line, answer)
        self._answers(give_up, what)

    def _answers(self, give_up: float, what: str) -> None:
        """Wait until all ranks have answered.

        Raises:
            EndedError: one of them did not, or the run has to end.
        """
        hands = [member.hand for member in self._members]

        def settled() -> bool:
            return (
                self._told
                or bool(self._stopped())
                or any(hand.problem for hand in hands)
                or not any(hand.busy for hand in hands)
            )

        begun = time.monotonic()
        self._turn_until(settled, give_up - begun)
        if self._told:
            raise EndedError(TOLD)
        if stopped := self._stopped():
            raise EndedError(*stopped)
        if any(hand.problem for hand in hands):
            self._turn_until(lambda: not any(hand.busy for hand in hands), SETTLE_S)
        if all(hand.waits for hand in hands if hand.problem):  # then for one that may say nothing at all
            self._turn_until(lambda: not any(hand.busy for hand in hands), give_up - time.monotonic())
            for hand in hands:
                hand.late(give_up - begun)
        if ended := blame(self._members, what):
            raise ended

    def _stopped(self) -> tuple[str, int | None] | None:
        """Why no GPU may be loaded any longer, and the rank whose GPU it is about."""
        for member in self._members:
            if why := self._guard.stop(member.bdf):
                return f"rank {member.rank} ({member.bdf}): stopped: {why}", member.rank
        return None if self._guard.watching else (NOBODY, None)

    # --- after ------------------------------------------------------------------------------------------------------

    def _dismiss(self, *, in_order: bool) -> None:
        """Have every rank end; those that do not, or all where something went wrong, are killed."""
        if in_order:
            for member in self._members:
                member.hand.stop()
            self._turn_until(lambda: all(member.hand.over for member in self._members), STOP_S)
            for member in self._members:
                if not member.hand.over:
                    member.hand.note = f"expected its end within {STOP_S:g} s of being told, found none"
        self._close()

    def _close(self) -> None:
        """End what is left of the ranks: all are killed, then waited for together."""
        for member in self._members:
            member.kill()
        give_up = time.monotonic() + KILL_S
        for member in self._members:
            member.close(max(0.0, give_up - time.monotonic()))
        if self._links:
            self._links.close()
            self._links = None
        watch = {self._guard.process.pid} if self._guard.process else set()
        children.end_adopted(self._known | watch)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _document(self, ended: EndedError, marks: tuple[int, int]) -> CollectivesDoc:
        patience_s = 0.0 if not self._guard.watching else TOLD_END_S if self._told else END_S
        self._guard.tell_end(0.9 * patience_s)
        self._turn_until(lambda: self._guard.ended, patience_s)
        watch_problem, end = self._guard.close(), self._guard.end
        op, size = self._at
        return CollectivesDoc(
            plan=self._plan,
            problem=str(ended),
            failed_rank=ended.rank,
            failed_op=op,
            failed_bytes=size,
            nranks=self._nranks,
            ranks=[member.document(self._guard, marks) for member in self._members],
            rows=self._rows,
            left_out=self._left_out,
            largest_bytes=self._largest,
            dropped=sorted(name for name in os.environ if name.startswith("NCCL_") and name not in self._kept),
            kept=self._kept,
            ready_s=self._ready_s,
            seconds=round(time.monotonic() - self._began, 3),
            ended_early=self._told,
            xids=[XidSeen(t=round(xid.t - self._began, 3), bdf=xid.bdf, xid=xid.xid) for xid in self._guard.xids],
            watch_problem=watch_problem,
            log=end.log if end else [],
            log_problem=end.log_problem if end else watch_problem,
        )

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _read(self, pipe: IO[bytes], take: Callable[[bytes], None]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, take)

    def _turn(self) -> None:
        """Hand on what was printed, see who has ended."""
        for key, _ in self._selector.select(timeout=0.02):
            try:
                piece = os.read(key.fd, 65536)
            except OSError:
                piece = b""
            if not piece:
                self._selector.unregister(key.fileobj)
            key.data(piece)
        if not self._selector.get_map():
            time.sleep(0.01)
        for member in self._members:
            member.look()
        self._telling.turn(lambda name: self._guard.span(name, [member.bdf for member in self._members]))

    def _turn_until(self, done: Callable[[], bool], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while not done() and time.monotonic() < give_up:
            self._turn()
