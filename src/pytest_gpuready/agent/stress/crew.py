"""All GPUs of a node under one plan: `python -m pytest_gpuready.agent stress PLAN [BDF...]`.

A worker for each GPU, a watch over all of them, and one loop that reads what they print. Workers begin every phase at
the same moment. What goes wrong on one GPU costs that GPU: the others go on. Whoever tells us to end (SIGTERM, Ctrl-C)
gets the document of what is known by then, within `STRESS_GRACE_S`; if we are killed the kernel ends our children.
Nothing on a GPU is set or reset.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

from pytest_gpuready.agent.plan_words import PlanError
from pytest_gpuready.agent.stress import children
from pytest_gpuready.agent.stress import plan as plans
from pytest_gpuready.agent.stress.answers import lasts
from pytest_gpuready.agent.stress.children import KILL_S
from pytest_gpuready.agent.stress.cooldown import CoolDown
from pytest_gpuready.agent.stress.gate import refusal
from pytest_gpuready.agent.stress.guard import Guard
from pytest_gpuready.agent.stress.hand import STOP_S, Hand
from pytest_gpuready.agent.stress.member import Member
from pytest_gpuready.agent.stress.telling import Telling
from pytest_gpuready.agent.stress.watch import Row
from pytest_gpuready.model.stress_doc import COOL, ENGINE, Phase, Plan, StressDoc, StressWindow, Work, XidSeen

WORKER = (sys.executable, "-m", "pytest_gpuready.agent.stress.worker")

GATE_S = 30.0
"""How long NVML has to say whether the GPUs may be loaded: without persistence mode each of them starts first."""

END_S, TOLD_END_S = 25.0, 4.0
"""How long the watch has for its end: the kernel log may come from a journal of many days. Less when told to end."""

COUNTERS_S = 1.0

TOGETHER_S, BEHIND_S = 0.5, 1.0
"""GPUs whose load began within so much of each other began together; one that was further behind the first than the
second lost the phase: the others are not to be judged by the moments in which it too was under load."""


def stress(words: Sequence[str]) -> StressDoc:
    """Run the plan on these GPUs, all where none is named."""
    try:
        plan, bdfs = plans.read(words)
    except PlanError as error:
        return StressDoc(engine=ENGINE, problem=str(error))
    crew = Crew(plan, bdfs)
    # Nothing ends us any more but SIGKILL: the document has to be printed.
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: crew.tell())
    return crew.run()


class Crew:
    """One run. `tell` ends it early, from a signal handler or another thread."""

    def __init__(
        self, plan: Plan, bdfs: Sequence[str], *, worker: Sequence[str] = WORKER, watch: Sequence[str] | None = None
    ) -> None:
        self._plan = plan
        self._bdfs = tuple(bdfs)
        self._worker = worker
        self._began = time.monotonic()
        self._told = False
        self._at = -1
        """The phase that runs."""
        self._selector = selectors.DefaultSelector()
        self._members: dict[str, Member] = {}
        self._windows: list[StressWindow] = []
        self._first_load: float | None = None
        self._telling = Telling(self._began)
        self._known: set[int] = set()
        """Children that are none of our workers."""
        self._guard = Guard(bdfs, plan.sample_s, margin_c=plan.margin_c, sampled=self._sampled, command=watch)

    def tell(self) -> None:
        """End as soon as that is possible in order."""
        self._told = True

    def run(self) -> StressDoc:
        """The whole of it."""
        self._known = children.ours()
        children.adopt(True)
        try:
            problem = self._open_gate()
            if not problem:
                first = self._guard.mark()
                self._muster()
                problem = self._nobody()
                for at, phase in enumerate(self._plan.phases):
                    if self._told or not any(member.usable for member in self._members.values()):
                        break
                    self._at = at
                    (self._cool if phase.kind == COOL else self._load)(at, phase)
                    self._at = -1
                self._dismiss()
                last = self._guard.mark()
                self._turn_until(lambda: all((bdf, last) in self._guard.counted for bdf in self._members), COUNTERS_S)
                for member in self._members.values():
                    member.count(self._guard, first, last)
            return self._document(problem)
        finally:
            self._close()
            self._guard.close()
            self._selector.close()
            children.adopt(False)

    # --- before -----------------------------------------------------------------------------------------------------

    def _open_gate(self) -> str:
        """Ask which GPUs may be loaded. Returns why none of them can be, or ""."""
        if self._guard.process and self._guard.process.stdout:
            self._read(self._guard.process.stdout, self._guard.feed)
        self._turn_until(lambda: self._guard.known, GATE_S)
        bdfs = self._bdfs or tuple(self._guard.gpus or ())
        for place, bdf in enumerate(bdfs):
            gate = self._guard.gates.get(bdf)
            why = self._guard.problem or f"expected NVML to answer within {GATE_S:g} s, found no answer"
            refused = refusal(gate, self._plan.margin_c) if gate else why
            self._members[bdf] = Member(bdf, place=place, refused=refused, gate=gate, plan=self._plan, zero=self._began)
        if not bdfs:
            return self._guard.problem or "expected GPUs on this node, found that NVML names none"
        if self._told:
            return "told to end before anything was started"
        return ""

    def _muster(self) -> None:
        """Start a worker for every GPU that may be loaded, all of them at once, and wait until they are ready."""
        work = [phase for phase in self._plan.phases if phase.kind != COOL]
        self._guard.guarding()
        for member in self._members.values():
            if member.refused:
                continue
            hand = member.hire(Hand(member.bdf, self._worker))
            if hand.process and hand.process.stdout and hand.process.stderr:
                self._read(hand.process.stdout, hand.hear)
                self._read(hand.process.stderr, hand.hear_error)
            place = Work(seed=self._plan.seed, share=self._plan.share, place=member.place, phases=work)
            hand.give(place, self._plan.ready_s)
        self._turn_until(self._idle, self._plan.ready_s + 1)

    def _nobody(self) -> str:
        """Why no worker could be made ready, where it is the same for all of them; else ""."""
        whys = {"" if member.usable else member.lost for member in self._members.values()}
        return whys.pop() if len(whys) == 1 else ""

    # --- phases -----------------------------------------------------------------------------------------------------

    def _load(self, at: int, phase: Phase) -> None:
        """One phase of the workers."""
        number = sum(other.kind != COOL for other in self._plan.phases[:at])
        mark = self._guard.mark()
        begin = time.monotonic() + self._plan.lead_s
        if self._first_load is None:
            self._first_load = begin - self._began
        self._telling.phase(plans.name(phase))
        for member in self._members.values():
            member.begin(at, phase, number, begin)
        patience_s = self._plan.lead_s + plans.longest_s(phase) + STOP_S + 1
        self._turn_until(lambda: self._idle() or self._all_know(), patience_s)
        now = time.monotonic()
        if self._all_know() and not self._idle():
            # They were under load together until now, also those that had known enough before.
            for member in self._members.values():
                member.enough()
            self._turn_until(self._idle, phase.grace_s + STOP_S + 1)
        late = {bdf: late for bdf, member in self._members.items() if (late := member.late_s) is not None}
        first = min(late.values(), default=0.0)
        lost = [bdf for bdf, one in late.items() if one > first + BEHIND_S]
        for bdf in lost:
            self._members[bdf].fell_behind(first)
        in_step = {bdf: one for bdf, one in late.items() if bdf not in lost}
        if lasts(phase):
            end = min(now, begin + first + phase.seconds)
        else:
            done = max(self._members[bdf].done_at for bdf in in_step or self._members)
            end = done if done > begin else now
        # The window is the time in which all of those were under load.
        begin += max(in_step.values(), default=0.0)
        behind = [bdf for bdf, one in in_step.items() if one > first + TOGETHER_S]
        notes = [f"more than {TOGETHER_S:g} s behind the first: {', '.join(behind)}" if behind else ""]
        notes += [f"more than {BEHIND_S:g} s behind the first, not in step: {', '.join(lost)}" if lost else ""]
        self._close_window(at, begin, max(begin, end), mark, "; ".join(filter(None, notes)))

    def _cool(self, at: int, phase: Phase) -> None:
        """Leave the GPUs alone until they are cool."""
        mark, begin = self._guard.mark(), time.monotonic()
        cooling = CoolDown(phase, self._temperatures(), begin)
        self._telling.phase(plans.name(phase))
        for member in self._members.values():
            member.begin(at, phase, None, begin)
        self._turn_until(
            lambda: cooling.over(self._temperatures(), time.monotonic()), phase.seconds or plans.longest_s(phase)
        )
        end = time.monotonic()
        for bdf, warm in self._temperatures().items():
            self._members[bdf].cooled(cooling.result(bdf, warm, end))
        late = [bdf for bdf, warm in self._temperatures().items() if not cooling.result(bdf, warm, end).reached]
        note = f"not down to {phase.below_c:g} °C: {', '.join(late)}" if late else ""
        self._close_window(at, begin, end, mark, note)

    def _close_window(self, at: int, begin: float, end: float, mark: int, note: str = "") -> None:
        since = self._began
        self._windows.append(
            StressWindow(phase=at, begin=round(begin - since, 3), end=round(end - since, 3), note=note)
        )
        last = self._guard.mark()
        for member in self._members.values():
            member.end(begin, end, (mark, last), told=self._told)

    def _temperatures(self) -> dict[str, float | None]:
        return {bdf: self._guard.temperature(bdf) for bdf, member in self._members.items() if member.usable}

    # --- after ------------------------------------------------------------------------------------------------------

    def _dismiss(self) -> None:
        """Have every worker end, and end those that do not."""
        for member in self._members.values():
            member.dismiss()
        self._turn_until(lambda: all(m.over for m in self._members.values()), STOP_S + 1, whatever=True)
        self._close()

    def _close(self) -> None:
        """End what is left of the workers: all are killed, then waited for together."""
        for member in self._members.values():
            member.kill()
        give_up = time.monotonic() + KILL_S
        for member in self._members.values():
            member.close(max(0.0, give_up - time.monotonic()))
        children.end_adopted(self._known | {member.pid for member in self._members.values()})

    def _document(self, problem: str) -> StressDoc:
        patience_s = 0.0 if not self._guard.watching else TOLD_END_S if self._told else END_S
        self._guard.tell_end(0.9 * patience_s)
        self._turn_until(lambda: self._guard.ended, patience_s, whatever=True)
        watch_problem, end = self._guard.close(), self._guard.end
        return StressDoc(
            plan=self._plan,
            engine=ENGINE,
            problem=problem,
            seconds=round(time.monotonic() - self._began, 3),
            first_load_s=None if self._first_load is None else round(self._first_load, 3),
            windows=self._windows,
            gpus=[member.document() for member in self._members.values()],
            ended_early=self._told,
            xids=[XidSeen(t=round(xid.t - self._began, 3), bdf=xid.bdf, xid=xid.xid) for xid in self._guard.xids],
            watch_problem=watch_problem,
            log=end.log if end else [],
            log_problem=end.log_problem if end else watch_problem,
        )

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _idle(self) -> bool:
        return not any(member.busy for member in self._members.values())

    def _all_know(self) -> bool:
        """True where nobody who is under load needs more of it for the sake of a rate."""
        return all(member.knows for member in self._members.values() if member.busy)

    def _sampled(self, row: Row) -> None:
        if row.bdf in self._members:
            self._members[row.bdf].sampled(row)

    def _read(self, pipe: IO[bytes], take: Callable[[bytes], None]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, take)

    def _turn(self) -> None:
        """Hand on what was printed, end what must not go on."""
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
        for member in self._members.values():
            member.look(self._guard, self._at, told=self._told)
        busy = [bdf for bdf, member in self._members.items() if not member.over]
        self._telling.turn(lambda name: self._guard.span(name, busy))

    def _turn_until(self, done: Callable[[], bool], seconds: float, *, whatever: bool = False) -> None:
        """Turn until that is so, or the time is over; also when told to end where `whatever`, or somebody is busy."""
        give_up = time.monotonic() + seconds
        while not done() and time.monotonic() < give_up:
            if self._told and not whatever and self._idle():
                return
            self._turn()
