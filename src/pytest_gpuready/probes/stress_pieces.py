"""The pieces of the built-in engine: which phases each of them loads the GPUs with, and how long that takes.

A piece is one command: it has workers of its own, so one that is refused, hangs or is killed costs only itself, and a
run that was interrupted is continued with the next. Within a piece all GPUs of the node are in the same phase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_gpuready.model import Node
from pytest_gpuready.model.stress_doc import Phase, Plan

SHARE = 0.95
"""Of a GPU's memory, taken and tested."""
SEED = 1
LEAD_S, SHORT_LEAD_S = 0.2, 0.1
"""Between telling the workers to begin and the beginning: what is short must not wait longer than it lasts."""
REPEATS = 5
"""Of a bandwidth, 50 ms each: on H200s they differ by two hundredths of a percent."""

EVERYWHERE = ("fp64", "tf32", "bf16", "fp16", "int8")
FP8 = ("fp8_e4m3", "fp8_e5m2")
FP4 = ("mxfp8", "fp4")
"""Formats that every data-centre GPU multiplies, and those that need "fp8" and "fp4" of the profile."""
FORMATS = (*EVERYWHERE[:4], *FP8, EVERYWHERE[4], *FP4)
"""In the order in which they are run: the wide ones first, then the narrow ones, which draw the most power."""

SHORT_PATTERNS = ("address", "random")
PATTERNS = ("walking", "inversions", "address", "random", "modulo20", "fade")
KERNELS = ("read", "write", "copy", "triad")
LEVELS_OF_CACHE = ("l1", "l2")

GEMM_S, GEMM_LEAST_S, GEMM_WITHIN = 12.0, 5.0, 0.005
"""A product runs so long, or at least so long until its rate is known to within so much of itself: on two H200s what
12 s said was within 0.3 % of what had been known by then."""
PULSES = ((0.02, 0.5), (0.1, 0.5), (0.5, 0.2), (0.5, 0.8), (2.0, 0.5), (4.0, 0.5))
"""Period in seconds and duty. The last one is the one whose swing is judged: every sensor resolves its halves."""
PULSE_S, SLOW_S, STAGGER_S = 6.0, 16.0, 0.25
BURN_S = 240.0
"""How long a burn-in takes where nobody asks for a time; less is no burn-in of level 4."""

BESIDE_S = 130.0
"""What a piece may need beside its phases: gates, the start of the workers, the kernel log, their end."""
OF_A_PHASE_S = 5.0
"""What a phase may take beyond its own limit: lead, and the stop of a worker that hangs."""


def formats_of(node: Node) -> tuple[str, ...]:
    """The formats that the model of this node's GPUs multiplies, as its profile says."""
    return tuple(name for name in FORMATS if (name not in FP8 or node.fp8) and (name not in FP4 or node.fp4))


def _memory(_: Node, __: float) -> tuple[Phase, ...]:
    return (
        Phase(kind="alloc", limit_s=60.0),
        *(Phase(kind="cache", level=level, seconds=0.5) for level in LEVELS_OF_CACHE),
        *(Phase(kind="hbm", kernel=kernel, repeats=REPEATS, limit_s=60.0) for kernel in KERNELS),
        *(Phase(kind="pattern", pattern=name, limit_s=120.0) for name in SHORT_PATTERNS),
        # The last one: a pointer that is read wrong leads out of the memory and breaks the context.
        Phase(kind="latency", limit_s=60.0),
    )


def _gemm(node: Node, _: float) -> tuple[Phase, ...]:
    return tuple(
        Phase(kind="gemm", format=name, seconds=GEMM_S, least_s=GEMM_LEAST_S, within=GEMM_WITHIN)
        for name in formats_of(node)
    )


def _patterns(_: Node, __: float) -> tuple[Phase, ...]:
    return tuple(Phase(kind="pattern", pattern=name, limit_s=300) for name in PATTERNS)


def _pulse(_: Node, __: float) -> tuple[Phase, ...]:
    *fast, (period, duty) = PULSES
    return (
        *(Phase(kind="pulse", format="bf16", period_s=p, duty=d, seconds=PULSE_S) for p, d in fast),
        Phase(kind="pulse", format="bf16", period_s=1.0, duty=0.5, seconds=PULSE_S, stagger_s=STAGGER_S),
        Phase(kind="pulse", format="bf16", period_s=period, duty=duty, seconds=SLOW_S),
    )


def _burn(_: Node, burn_s: float) -> tuple[Phase, ...]:
    return (Phase(kind="burn", seconds=burn_s or BURN_S),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One command of the engine. `says` is what it does, for people."""

    name: str
    level: int
    says: str
    make: Callable[[Node, float], tuple[Phase, ...]]
    start_s: float = 4.0
    """What it usually takes beside its phases."""
    lead_s: float = LEAD_S
    each_s: float = 1.0
    """What a phase usually takes beside its seconds."""

    def plan(self, node: Node, burn_s: float) -> Plan:
        """What the GPUs of this node are loaded with."""
        return Plan(phases=list(self.make(node, burn_s)), seed=SEED, share=SHARE, lead_s=self.lead_s)

    def timeout_s(self, plan: Plan) -> float:
        """When it counts as hung; the engine's own deadlines come first."""
        limits = (phase.seconds + phase.grace_s if phase.seconds else phase.limit_s for phase in plan.phases)
        return BESIDE_S + sum(limit + OF_A_PHASE_S for limit in limits)

    def typical_s(self, plan: Plan) -> float:
        """How long it usually takes."""
        return self.start_s + sum(phase.seconds + self.each_s for phase in plan.phases)


PIECES = (
    Piece(name="memory", level=2, says="memory and caches", make=_memory, start_s=2.0, lead_s=SHORT_LEAD_S, each_s=0.4),
    Piece(name="gemm", level=3, says="matrix products in every format", make=_gemm),
    Piece(name="patterns", level=4, says="memory patterns", make=_patterns, each_s=4.0),
    Piece(name="pulse", level=4, says="load in pulses", make=_pulse),
    Piece(name="burn", level=4, says="burn-in", make=_burn),
)
