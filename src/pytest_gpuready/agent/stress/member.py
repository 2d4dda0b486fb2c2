"""One GPU of the crew: its worker, what was seen of it, and its part of the document."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.agent.stress.answers import late, proves_wrong
from pytest_gpuready.agent.stress.gate import Gate
from pytest_gpuready.agent.stress.guard import NOBODY, Guard
from pytest_gpuready.agent.stress.hand import Hand
from pytest_gpuready.agent.stress.seen import Kept, with_counters
from pytest_gpuready.agent.stress.watch import Row
from pytest_gpuready.model.stress_doc import (
    COOL,
    CoolResult,
    Phase,
    Plan,
    Result,
    Stopped,
    StressGpu,
    StressPhase,
    WindowSeen,
)

TOLD = "told to end"
NEVER = "expected its turn, found that the run had ended before"


@dataclass(slots=True, kw_only=True)
class _Past:
    """A phase that is over: its result or why there is none, what was seen, and the marks of its counters."""

    result: Result | None
    problem: str
    seen: WindowSeen | None = None
    marks: tuple[int, int] = (0, 0)


@dataclass(slots=True, kw_only=True)
class _Now:
    """The phase that runs; `number` is that of the worker, None where it has nothing to do."""

    at: int
    kind: str
    number: int | None
    begin: float
    kept: Kept
    cooled: CoolResult | None = None


class Member:
    """One GPU from the gate to the document. `refused` says why it is not loaded at all."""

    def __init__(self, bdf: str, *, place: int, refused: str, gate: Gate | None, plan: Plan, zero: float) -> None:
        """`place` is its number among the GPUs of the run, `zero` the moment from which times count."""
        self.bdf = bdf
        self.place = place
        self.refused = refused
        self._gate = gate
        self._plan = plan
        self._zero = zero
        self._hand: Hand | None = None
        self._stopped: Stopped | None = None
        self._told = False
        self._now: _Now | None = None
        self._past: dict[int, _Past] = {}
        self._counters: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._errors: dict[str, str] = {}

    # --- its worker -------------------------------------------------------------------------------------------------

    def hire(self, hand: Hand) -> Hand:
        """Its worker from now on."""
        self._hand = hand
        return hand

    @property
    def pid(self) -> int:
        """Of its worker; 0 where there is none."""
        return self._hand.process.pid if self._hand and self._hand.process else 0

    @property
    def usable(self) -> bool:
        return self._hand is not None and self._hand.usable

    @property
    def busy(self) -> bool:
        return self._hand is not None and self._hand.busy

    @property
    def lost(self) -> str:
        """Why its worker answers no more; "" where it does, or where it has none."""
        return self._hand.problem if self._hand else ""

    @property
    def knows(self) -> bool:
        """True where its worker has said that it knows enough in this phase."""
        return self._hand is not None and self._hand.knows

    @property
    def over(self) -> bool:
        return self._hand is None or self._hand.over

    @property
    def late_s(self) -> float | None:
        """By how much later than told the load of this phase began; None where there was none."""
        number = self._now.number if self._now else None
        result = self._hand.results.get(number) if self._hand and number is not None else None
        return result.late_s if result else None

    def fell_behind(self, first_s: float) -> None:
        """Its load was not under way with the others: the phase is lost for it, unless it proved the GPU wrong."""
        number, late_s = self._now.number if self._now else None, self.late_s
        if self._hand and number is not None and late_s is not None and not proves_wrong(self._hand.results[number]):
            self._hand.disown(number, late(late_s, first_s))

    @property
    def done_at(self) -> float:
        """When its worker reported last, CLOCK_MONOTONIC; 0 where it never did."""
        return self._hand.done_at if self._hand else 0.0

    def look(self, guard: Guard, at: int, *, told: bool) -> None:
        """End its work where it must not go on: by what the watch saw, or because everybody was told to end."""
        hand = self._hand
        if hand is None:
            return
        if not hand.over and not hand.stopping:
            if (why := guard.stop(self.bdf)) or not guard.watching:
                now = round(time.monotonic() - self._zero, 3)
                self._stopped = Stopped(t=now, phase=at, why=why or NOBODY, gpu=bool(why))
                hand.stop()
            elif told:
                self._told = True
                hand.stop()
        hand.look()

    def enough(self) -> None:
        """Have its worker end the phase: all of them know enough."""
        if self._hand:
            self._hand.enough()

    def dismiss(self) -> None:
        """Have its worker end."""
        if self._hand:
            self._hand.stop()

    def kill(self) -> None:
        """SIGKILL for whatever is left of its worker."""
        if self._hand:
            self._hand.kill()

    def close(self, patience_s: float) -> None:
        """Kill its worker and wait a moment for its end."""
        if self._hand:
            self._hand.close(patience_s)

    # --- a phase ----------------------------------------------------------------------------------------------------

    def begin(self, at: int, phase: Phase, number: int | None, begin: float) -> None:
        """The phase begins for everybody at that moment; its worker is told if it can be."""
        told = self.usable and number is not None
        kept = Kept(slowdown_c=self._gate.slowdown_c if self._gate else None)
        self._now = _Now(at=at, kind=phase.kind, number=number if told else None, begin=begin, kept=kept)
        if self._hand and told and number is not None:
            self._hand.begin(number, phase, begin)

    def sampled(self, row: Row) -> None:
        """One sample of the watch."""
        now = self._now
        if now and row.t >= now.begin:
            now.kept.add(row.t, row.values)

    def cooled(self, result: CoolResult) -> None:
        """How warm it is after a phase without load."""
        if self._now:
            self._now.cooled = result

    def end(self, begin: float, end: float, marks: tuple[int, int], *, told: bool) -> None:
        """The phase is over for everybody; what it was for this GPU is kept."""
        now, hand = self._now, self._hand
        self._now = None
        if now is None:
            return
        result: Result | None = now.cooled
        problem = self._why()
        if now.number is not None and hand is not None:
            result = hand.results.get(now.number)
            problem = hand.failed.get(now.number, "") or problem
        if result is not None and not result.cut and now.kind != COOL:
            problem = ""
        if result is None and not problem:
            problem = TOLD if told else NEVER
        seen = now.kept.seen(begin, end, self._zero)
        self._past[now.at] = _Past(result=result, problem=problem, seen=seen if seen.taken else None, marks=marks)

    # --- the document -----------------------------------------------------------------------------------------------

    def count(self, guard: Guard, first: int, last: int) -> None:
        """Take the counters of the whole run and of every phase from the watch."""
        before, after = guard.counted.get((self.bdf, first)), guard.counted.get((self.bdf, last))
        self._counters = (before.counters if before else {}, after.counters if after else {})
        self._errors = after.errors if after else before.errors if before else {}
        for past in self._past.values():
            begun, ended = (guard.counted.get((self.bdf, mark)) for mark in past.marks)
            if past.seen and begun and ended:
                past.seen = with_counters(past.seen, begun.counters, ended.counters)

    def document(self) -> StressGpu:
        """Everything about this GPU; a phase that never came has the reason for it."""
        hand = self._hand
        phases = []
        for at, phase in enumerate(self._plan.phases):
            past = self._past.get(at) or _Past(result=None, problem=self._why() or NEVER)
            found: dict[str, Any] = {phase.kind: past.result} if past.result else {}
            phases.append(StressPhase(phase=at, kind=phase.kind, problem=past.problem, seen=past.seen, **found))
        trouble = hand is not None and bool(hand.problem or hand.failed)
        return StressGpu(
            bdf=self.bdf,
            refused=self.refused,
            problem=hand.problem if hand else "",
            stopped=self._stopped,
            ready=hand.ready if hand else None,
            slowdown_c=self._gate.slowdown_c if self._gate else None,
            phases=phases,
            before=self._counters[0],
            after=self._counters[1],
            errors=self._errors,
            stderr=hand.stderr if hand and trouble else "",
        )

    def _why(self) -> str:
        """Why its worker does not go on; "" where it does."""
        if self.refused:
            return self.refused
        if self._stopped and not self._stopped.gpu:
            return self._stopped.why
        if self._stopped:
            return f"stopped at {self._stopped.t:.1f} s: {self._stopped.why}"
        if self._hand and self._hand.problem:
            return self._hand.problem
        return TOLD if self._told else ""
