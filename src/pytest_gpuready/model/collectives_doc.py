"""The document of the built-in sweep of collectives (probe "collectives"): every GPU of a node is a rank of NCCL.

Names and sizes are those of nccl-tests (`model.busbw`, `model.collectives_shape`); GB/s are 10^9 bytes per second. A
rank is a process; ranks, their number and the rank of the first GPU here are data, so that the ranks of several nodes
may be one communicator.
"""

# ruff: noqa: RUF012 - msgspec copies the empty defaults of its structs; the rule does not see that these are structs

from __future__ import annotations

from pytest_gpuready.model.agent_doc import LogLine, Wire
from pytest_gpuready.model.stress_doc import XidSeen

COLLECTIVES_GRACE_S = 20.0
"""How long "collectives" has to end its ranks and to print what is known, once it was told to end."""

MOST_WRONG = 64
"""Wrong results that a rank keeps; all are counted in the rows."""


class Plan(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What is run: every size of every collective, in this order."""

    ops: list[str]
    sizes_bytes: list[int]
    """Ascending."""
    datatype: str = "float32"
    iterations: int = 20
    small_iterations: int = 100
    """The same for sizes up to `small_bytes`: there one iteration lasts some microseconds."""
    small_bytes: int = 2**20
    warmup: int = 5
    check: bool = True
    """Compare every element of every size with what it has to be, outside the timing."""
    seed: int = 1
    size_s: float = 5.0
    """About so long may the iterations of one size last: on a slow wire there are fewer of them, but two at least.
    Only inside a node; several have to run the same."""
    op_s: float = 60.0
    """Longest time of all sizes of one collective."""
    limit_s: float = 300.0
    """Longest time of everything behind the start."""
    ready_s: float = 60.0
    """Longest time until all ranks are in the communicator."""
    comm: str = ""
    """host:port of rank 0 where the ranks are on several nodes (NCCL_COMM_ID)."""
    first_rank: int = 0
    """Of the first GPU here; the others follow."""
    nranks: int = 0
    """Of all nodes; 0: as many as there are GPUs here."""
    environment: dict[str, str] = {}
    """NCCL_* that the ranks get; those of the surroundings they do not get (but see `CollectivesDoc.kept`)."""
    debug: str = "INIT,NET,GRAPH,ENV,TUNING"
    """NCCL_DEBUG_SUBSYS of the log that is kept; "" for none."""
    margin_c: float = 3.0
    """So far below its slowdown temperature a GPU is stopped."""
    sample_s: float = 0.5
    """Between two looks at the temperature."""


class RankWork(Wire, frozen=True, kw_only=True):
    """What one rank has to know before its first step."""

    rank: int
    nranks: int
    datatype: str
    check: bool
    seed: int
    makes_id: bool
    """It makes the unique id that all ranks here join with."""


class Step(Wire, frozen=True, kw_only=True):
    """One size of one collective, as a rank is told to run it."""

    number: int
    op: str
    asked_bytes: int
    iterations: int
    warmup: int
    patience_s: float
    """How long NCCL may take for anything in it."""


class WrongSeen(Wire, frozen=True, kw_only=True):
    """A result of one rank that is not what it has to be: how many elements, and the first of them."""

    op: str
    size_bytes: int
    in_place: bool
    count: int
    first_index: int
    """Element of the output of this rank."""
    expected: str
    found: str


class StepHalf(Wire, frozen=True, kw_only=True):
    """What one rank measured out of place, or in place: the mean of its iterations; `wrong` None where unchecked."""

    time_us: float
    wrong: int | None = None


class StepResult(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one rank. `times_us`: single iterations out of place, in their order."""

    size_bytes: int
    out_of_place: StepHalf
    in_place: StepHalf | None = None
    times_us: list[float] = []
    wrong: list[WrongSeen] = []


class Half(Wire, frozen=True, kw_only=True):
    """One half of a row of nccl-tests. `time_us` is the mean over iterations and ranks, `slowest_us` that of the
    slowest rank; algbw and busbw follow from `time_us`. `wrong` counts over all ranks here, None where unchecked."""

    time_us: float
    slowest_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int | None


class Row(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One size of one collective as it was run, never as it was only asked for."""

    op: str
    asked_bytes: int
    size_bytes: int
    count: int
    datatype: str
    redop: str
    iterations: int
    out_of_place: Half
    in_place: Half | None = None
    """None where the collective has no such form (alltoall, sendrecv)."""
    min_us: float
    p50_us: float
    p99_us: float
    max_us: float
    """Of single iterations out of place, each as long as its slowest rank; measured apart from `out_of_place`. p99 is
    the nearest rank: of fewer than 100 iterations the longest."""
    slowest_rank: int
    algorithms: list[str] = []
    """ "RING SIMPLE", as NCCL's log says it of this size; empty where it says nothing (alltoall, sendrecv)."""


class LeftOut(Wire, frozen=True, kw_only=True):
    """A size that was asked for and not run."""

    op: str
    asked_bytes: int
    why: str


class LinkCounted(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """Counters of one NVLink. Name -> (before, after); a counter that NVML does not give stands in `errors`.

    data_tx, data_rx, raw_tx, raw_rx in KiB; sent, received in bytes (from Blackwell on); replay, recovery, crc: errors.
    """

    link: int
    counters: dict[str, tuple[int, int]] = {}
    errors: dict[str, str] = {}


class Traffic(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What the NVLinks of one GPU counted over the largest size of a collective, its check and warm-up included."""

    op: str
    size_bytes: int
    links: list[LinkCounted] = []
    problem: str = ""
    """Why there are no counters."""


class RankSaid(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One rank: who it is, what it said, and what was counted at its GPU."""

    rank: int
    bdf: str
    pid: int = 0
    host: str = ""
    name: str = ""
    nccl_version: str = ""
    packages: dict[str, str] = {}
    start_s: float | None = None
    """From the start of its process until NCCL was loaded and its GPU open."""
    init_s: float | None = None
    """How long NCCL took to make the communicator."""
    free_bytes: int | None = None
    problem: str = ""
    """Why it ended before its time."""
    note: str = ""
    """Why it did not end in order when all was done."""
    wrong: list[WrongSeen] = []
    log: list[str] = []
    """Lines of NCCL: the first, then warnings and whatever tells of paths and algorithms, each once."""
    log_left_out: int = 0
    log_problem: str = ""
    traffic: list[Traffic] = []
    before: dict[str, int] = {}
    """Counters as in `WatchDoc`."""
    after: dict[str, int] = {}
    errors: dict[str, str] = {}
    stderr: str = ""
    """The end of what it printed there, where something went wrong."""


class CollectivesDoc(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """All ranks of this node under a plan. `problem`: why the plan was not run to its end; rows before that stand."""

    plan: Plan | None = None
    problem: str = ""
    failed_rank: int | None = None
    """The rank that `problem` is about, where it is one."""
    failed_op: str = ""
    failed_bytes: int = 0
    nranks: int = 0
    ranks: list[RankSaid] = []
    rows: list[Row] = []
    left_out: list[LeftOut] = []
    largest_bytes: int | None = None
    """The largest size for which there was memory on all GPUs."""
    dropped: list[str] = []
    """Names of the NCCL_* variables of the surroundings, which the ranks did not get."""
    kept: dict[str, str] = {}
    """Those that they got all the same: NCCL_NVLS_ENABLE=0, which protects a host."""
    ready_s: float | None = None
    """From the beginning until all ranks were in the communicator."""
    seconds: float = 0.0
    ended_early: bool = False
    """It was told to end before its time."""
    xids: list[XidSeen] = []
    watch_problem: str = ""
    log: list[LogLine] = []
    """Kernel-log lines of the run, filtered as in `KernelLog`."""
    log_problem: str = ""
