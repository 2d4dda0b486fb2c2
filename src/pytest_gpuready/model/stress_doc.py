"""The document of the built-in engine (probe "stress"): all GPUs of a node under one plan.

The words of plan and results are those of `model.stress_work`; they can be had from here too. Times called `t` are
seconds since the beginning of the run.
"""

# ruff: noqa: RUF012 - msgspec copies the empty defaults of its structs; the rule does not see that these are structs

from __future__ import annotations

from pytest_gpuready.model.agent_doc import LogLine, Wire
from pytest_gpuready.model.stress_work import (
    CACHE_PATTERNS,
    COOL,
    MOST_ERRORS,
    RESULTS,
    SEEN,
    AllocResult,
    BurnResult,
    BurnWindow,
    CacheResult,
    CoolResult,
    GemmResult,
    HbmResult,
    IdleResult,
    LatencyResult,
    MemoryFault,
    PatternResult,
    Phase,
    Plan,
    Plant,
    PulseResult,
    Ready,
    Reference,
    Result,
    ResultFault,
    Work,
    decode_result,
)

STRESS_GRACE_S = 20.0
"""How long "stress" has to end its workers and to print what is known, once it was told to end."""

ENGINE = 2
"""The engine of this version, as it stands in every document of it. From 2 on every count of errors has a control, the
turns of memory of a burn-in are counted, and a cache is read under all of `CACHE_PATTERNS`."""

NEAR_C = 5.0
"""A GPU within so much of its slowdown temperature is near it."""

__all__ = [
    "CACHE_PATTERNS",
    "COOL",
    "ENGINE",
    "MOST_ERRORS",
    "NEAR_C",
    "RESULTS",
    "SEEN",
    "STRESS_GRACE_S",
    "AllocResult",
    "BurnResult",
    "BurnWindow",
    "CacheResult",
    "CoolResult",
    "GemmResult",
    "HbmResult",
    "IdleResult",
    "LatencyResult",
    "MemoryFault",
    "PatternResult",
    "Phase",
    "Plan",
    "Plant",
    "PulseResult",
    "Ready",
    "Reference",
    "Result",
    "ResultFault",
    "Span",
    "Stopped",
    "StressDoc",
    "StressGpu",
    "StressPhase",
    "StressWindow",
    "WindowSeen",
    "Work",
    "XidSeen",
    "decode_result",
]


class Span(Wire, frozen=True, kw_only=True):
    """One reading over a window: lowest, median and highest."""

    low: float
    median: float
    high: float


class WindowSeen(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What the watch saw of one GPU in the window of one phase; all but `samples` counts every sample."""

    taken: int = 0
    """Samples in the window; `samples` may hold fewer."""
    spans: dict[str, Span] = {}
    """Column of `WatchDoc.samples` (but t and reasons) -> its span; a column without a reading is absent."""
    reasons: dict[str, int] = {}
    """Clock event reason ("0x4") -> samples that showed it."""
    samples: dict[str, list[float | None]] = {}
    """Columns of equal length, thinned for a plot: the extremes of power and the highest temperatures are among them;
    `t` as everywhere."""
    read: dict[str, int] = {}
    """Column -> samples that have a reading of it; a column without any is absent. Empty in older documents."""
    gap_s: dict[str, float] = {}
    """temperature_c and reasons -> the longest time of the window without a reading of it. Empty in older documents."""
    near_slowdown_s: float | None = None
    """Seconds within `NEAR_C` of the slowdown temperature; None where that is not known, and in older documents."""
    counted: dict[str, int] = {}
    """Counter -> by how much it grew over the phase."""


class StressPhase(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One phase on one GPU: the result of its kind, or why there is none."""

    phase: int
    """Place in the plan."""
    kind: str
    problem: str = ""
    alloc: AllocResult | None = None
    cache: CacheResult | None = None
    hbm: HbmResult | None = None
    latency: LatencyResult | None = None
    pattern: PatternResult | None = None
    gemm: GemmResult | None = None
    pulse: PulseResult | None = None
    burn: BurnResult | None = None
    idle: IdleResult | None = None
    cool: CoolResult | None = None
    seen: WindowSeen | None = None

    @property
    def result(self) -> Result | None:
        """Whichever of them there is."""
        found: Result | None = getattr(self, self.kind, None)
        return found


class Stopped(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """The moment at which a GPU was no longer loaded, and why: temperature, Xid, a GPU that does not answer."""

    t: float
    phase: int
    """-1: between phases."""
    why: str
    gpu: bool = True
    """False where nothing was wrong with the GPU: nobody watched it any more (`StressDoc.watch_problem`)."""


class StressGpu(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU through all phases."""

    bdf: str
    refused: str = ""
    """Why it was not loaded at all."""
    problem: str = ""
    """Why its worker ended before its time, or did not end in order when all was done."""
    stopped: Stopped | None = None
    ready: Ready | None = None
    slowdown_c: float | None = None
    """The temperature from which it slows itself down."""
    phases: list[StressPhase] = []
    before: dict[str, int] = {}
    """Counters as in `WatchDoc`."""
    after: dict[str, int] = {}
    errors: dict[str, str] = {}
    """Reading -> error name."""
    stderr: str = ""
    """The end of what the worker printed there, where something went wrong."""


class StressWindow(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """When all GPUs were in a phase; the same for all of them."""

    phase: int
    begin: float
    end: float
    note: str = ""


class XidSeen(Wire, frozen=True, kw_only=True):
    """An error number of the driver that came while the run lasted."""

    t: float
    bdf: str
    """ "" where the driver did not say which GPU it was: then all of them were stopped, if it is one of hardware."""
    xid: int


class StressDoc(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """All GPUs of a node under the phases of a plan. `problem`: why nothing ran at all.

    `ended_early` is True where it was told to end before its time: what was known by then stands here.
    """

    plan: Plan | None = None
    engine: int = 0
    """`ENGINE` of whoever wrote it; 0 in older documents, where nobody said."""
    problem: str = ""
    seconds: float = 0.0
    first_load_s: float | None = None
    """From the start of the agent's work to the beginning of the first phase."""
    windows: list[StressWindow] = []
    gpus: list[StressGpu] = []
    ended_early: bool = False
    xids: list[XidSeen] = []
    watch_problem: str = ""
    """Why not all was watched that should have been."""
    log: list[LogLine] = []
    """Kernel-log lines of the run, filtered as in `KernelLog`."""
    log_problem: str = ""
