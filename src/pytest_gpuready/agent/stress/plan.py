"""The plan as it comes from the command line, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpuready.agent.plan_words import PlanError, read_words
from pytest_gpuready.agent.stress.answers import plain
from pytest_gpuready.model.stress_checks import LASTING
from pytest_gpuready.model.stress_doc import COOL, RESULTS, Phase, Plan

MOST_PHASES = 200
MOST_BYTES = 2**17
ADAPTIVE = ("gemm", "hbm")
"""Kinds that may end when enough is known."""

_ABOUT = ("format", "kernel", "level", "pattern")


def read(words: Sequence[str]) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the first word, and the bus addresses of the others; none of them means all GPUs.

    Raises:
        PlanError: what is wrong, in one line.
    """
    plan, bdfs = read_words(words, Plan, most_bytes=MOST_BYTES)
    _check(plan)
    return plan, bdfs


def name(phase: Phase) -> str:
    """A phase in one or two words: "gemm bf16"."""
    about = next((getattr(phase, field) for field in _ABOUT if getattr(phase, field)), "")
    return plain(f"{phase.kind} {about}")[:60]


def longest_s(phase: Phase) -> float:
    """How long a phase may keep everybody."""
    return phase.seconds + phase.grace_s if phase.seconds else phase.limit_s


def _check(plan: Plan) -> None:
    if not 0 < len(plan.phases) <= MOST_PHASES:
        raise PlanError(f"expected 1 to {MOST_PHASES} phases, found {len(plan.phases)}")
    if not 0 < plan.share < 1:
        raise PlanError(f"expected a share of the memory between 0 and 1, found {plan.share:g}")
    for what in ("margin_c", "ready_s", "lead_s", "sample_s"):
        _number(what, getattr(plan, what))
    if plan.sample_s < 0.01:
        raise PlanError(f"expected a sample_s of at least 0.01, found {plan.sample_s:g}")
    _number("seed", plan.seed)
    for at, phase in enumerate(plan.phases):
        if phase.kind != COOL and phase.kind not in RESULTS:
            raise PlanError(f"expected phase {at} of kind {', '.join([*RESULTS, COOL])}, found {plain(phase.kind)!r}")
        for what in (
            *("seconds", "grace_s", "limit_s", "pause_s", "share", "period_s", "duty", "stagger_s", "below_c"),
            *("within", "least_s"),
        ):
            _number(f"{what} of phase {at}", getattr(phase, what))
        for what in ("m", "n", "k", "size_bytes", "repeats"):
            _number(f"{what} of phase {at}", getattr(phase, what))
        if phase.kind in LASTING and not phase.seconds:
            raise PlanError(f"expected the seconds of phase {at} ({phase.kind}), found none")
        if phase.within and (phase.kind not in ADAPTIVE or not phase.seconds):
            known = " or ".join(ADAPTIVE)
            raise PlanError(f"expected within of a phase of kind {known} that has seconds, found it of phase {at}")
        if phase.kind == COOL and not phase.below_c:
            raise PlanError(f"expected below_c of phase {at} ({COOL}), found none")


def _number(what: str, value: float) -> None:
    if not 0 <= value < 2**63:  # nor is NaN
        raise PlanError(f"expected {what} from 0 on, found {value}")
