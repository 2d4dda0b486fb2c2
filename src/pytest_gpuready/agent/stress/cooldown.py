"""Waiting until GPUs have cooled down: a step with a check and a deadline, and no failure where the deadline passes."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gpuready.agent.stress.plan import longest_s
from pytest_gpuready.model.stress_doc import CoolResult, Phase


class CoolDown:
    """Fed with temperatures by bus address, None where there is none; moments are CLOCK_MONOTONIC."""

    def __init__(self, phase: Phase, temperatures: Mapping[str, float | None], now: float) -> None:
        self._below_c = phase.below_c
        self._began = now
        self._give_up = now + (phase.seconds or longest_s(phase))
        self._from = dict(temperatures)
        self._reached: dict[str, float] = {}

    def over(self, temperatures: Mapping[str, float | None], now: float) -> bool:
        """True where every one of these GPUs is cool enough, or the time is over. One that warms up again is not."""
        for bdf, warm in temperatures.items():
            if warm is not None and warm <= self._below_c:
                self._reached.setdefault(bdf, now)
            else:
                self._reached.pop(bdf, None)
        return now >= self._give_up or all(bdf in self._reached for bdf in temperatures)

    def result(self, bdf: str, warm: float | None, now: float) -> CoolResult:
        """How it went on one GPU, as warm as it is now."""
        reached = bdf in self._reached
        note = f"not down to {self._below_c:g} °C within {now - self._began:.0f} s"
        return CoolResult(
            seconds=round(self._reached.get(bdf, now) - self._began, 3),
            notes=[] if reached else [note],
            from_c=self._from.get(bdf),
            to_c=warm,
            below_c=self._below_c,
            reached=reached,
        )
