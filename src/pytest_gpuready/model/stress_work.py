"""What the built-in engine is asked, and what its workers say (probe "stress"; the document: `model.stress_doc`).

A worker is one process that drives one GPU; the crew is the process that starts a worker for every GPU of the node and
prints the `StressDoc`. Both speak in lines of JSON:

    to a worker     {"work": Work}                  first line
                    {"begin": i, "at": seconds}     phase i begins at this moment of CLOCK_MONOTONIC, on all GPUs
                    {"enough": i}                   phase i may end now: the rates of all GPUs are known well enough
                    {"stop": true}                  or the end of its stdin: end within a second, report how far it came
    from a worker   {"ready": Ready} or {"problem": one line}
                    {"said": i, "t": s, ...}        at most once a second; t is seconds since the beginning of the phase
                    {"said": i, "t": s, "enough": true}   once, of a phase with `within`: it goes on all the same
                    {"done": i, "result": {...}}    of the type that RESULTS has for the kind of the phase
                    {"failed": i, "problem": one line}

Units stand in the names; GB is 10^9 bytes, TFLOPS 10^12 operations a second (INT8 too). Times called `t` are seconds
since the beginning of the run. Bit patterns are hexadecimal text ("0x3f80"): JSON has no 64-bit integers for everybody.
A list of errors is bounded by `MOST_ERRORS`, its count is not.
"""

# ruff: noqa: RUF012 - msgspec copies the empty defaults of its structs; the rule does not see that these are structs

from __future__ import annotations

import msgspec

from pytest_gpuready.model.agent_doc import Wire

MOST_ERRORS = 32
"""Errors that are kept with their place; all are counted."""

SEEN = "seen"
"""A control that was passed: the bit that the engine flipped on purpose was reported, and nothing else."""

CACHE_PATTERNS = ("0x00000000", "0xffffffff", "0x55555555", "0xaaaaaaaa", "address", "seeded")
"""What a cache is filled with, one after the other."""

COOL = "cool"
"""The phase kind in which the crew waits for the GPUs to cool down; no worker hears of it."""


# --- what is asked ----------------------------------------------------------------------------------------------------


class Plant(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """A fault that a test wants found; a worker refuses it unless the environment allows it."""

    what: str
    """ "result" (one bit of one element in one pass), "tile" (one wrong tile in every pass), "nan" (results that are no
    numbers, in every pass), "unwritten" (the tile of an element is written in no pass from that one on), "input" (one
    bit of A, after it was filled and looked at and before the first product) or "memory" (one bit)."""
    pass_number: int = 1
    element: int = 0
    bit: int = 0


class Phase(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of load, the same on all GPUs. 0, "" and [] leave the choice to the worker.

    Kinds: alloc, cache, hbm, latency, pattern, gemm, pulse, burn, idle, and the crew's own: cool.
    """

    kind: str
    seconds: float = 0.0
    """How long it lasts (gemm, burn, pulse, idle), or lasts at most (cool, and the others; 0: until it is done)."""
    format: str = ""
    """fp64, tf32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8, fp4, mxfp8: what a gemm multiplies."""
    formats: list[str] = []
    """The same for burn and pulse, in turns."""
    m: int = 0
    n: int = 0
    k: int = 0
    level: str = ""
    """Of a cache: l1 or l2."""
    kernel: str = ""
    """Of hbm: read, write, copy or triad. With `seconds` it lasts at least that, with `within` too at most."""
    pattern: str = ""
    """Of memory: walking, inversions, address, random, modulo20 or fade."""
    pause_s: float = 0.0
    """Between writing and reading of "fade"."""
    size_bytes: int = 0
    repeats: int = 0
    share: float = 0.0
    """Of the memory, for this phase; 0: the share of the plan."""
    period_s: float = 0.0
    """Of a pulse: load and idle together."""
    duty: float = 0.0
    """Of a pulse: part of the period under load."""
    stagger_s: float = 0.0
    """Of a pulse: each GPU begins so much later than the one before it."""
    within: float = 0.0
    """Of gemm and hbm: the phase ends early, on all GPUs at once, when each of them knows the mean of its rates to
    within so much of itself (half the 95 % interval, over the second half of the phase); 0: never."""
    least_s: float = 0.0
    """But not before so many seconds."""
    below_c: float = 0.0
    """Of cool: until every GPU is at most so warm, degrees Celsius."""
    grace_s: float = 20.0
    """What a worker may need beyond `seconds` before it counts as hung; without `seconds`, see `limit_s`."""
    limit_s: float = 600.0
    """What a phase without `seconds` may last at all."""
    plant: Plant | None = None


class Work(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What one worker is told: its phases, numbered from 0, and what holds for all of them."""

    seed: int = 1
    share: float = 0.9
    """Of the GPU's memory that phases may use in all."""
    place: int = 0
    """Which GPU of the node this is, from 0: a staggered pulse begins `place` times later."""
    phases: list[Phase] = []


class Plan(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent is told: the phases for all GPUs, one after the other, and when to stop."""

    phases: list[Phase]
    seed: int = 1
    share: float = 0.9
    margin_c: float = 3.0
    """Below its slowdown temperature by so much, a GPU is not loaded, or no longer."""
    ready_s: float = 60.0
    """How long a worker may take to be ready."""
    lead_s: float = 0.5
    """Between telling the workers to begin and the beginning: what is not prepared by then delays it."""
    sample_s: float = 0.1
    """Between two samples of the watch."""


# --- what a worker says -----------------------------------------------------------------------------------------------


class Ready(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """A worker on its GPU, before the first phase."""

    bdf: str
    name: str = ""
    compute: str = ""
    """Compute capability, "9.0"."""
    sms: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    memory_gb_per_s: float = 0.0
    """What clock and width of the memory allow; 0 where CUDA does not say."""
    free_bytes: int = 0
    packages: dict[str, str] = {}
    """Package or library -> version."""
    start_s: float = 0.0
    """From the start of the process to here."""
    formats: list[str] = []
    """What a gemm can multiply here."""
    not_supported: dict[str, str] = {}
    """Format -> why it cannot."""


class MemoryFault(Wire, frozen=True, kw_only=True):
    """A word of memory that was not read as it had been written."""

    address: int
    """Bytes from the beginning of the memory under test."""
    expected: str
    found: str
    bit: int
    """The lowest bit that differs."""


class ResultFault(Wire, frozen=True, kw_only=True):
    """An element of a product that is not what it was before, or not what the reference says."""

    pass_number: int
    """From 0; -1: in the first result, found by the reference. Of an input: the last product before it was found."""
    row: int
    col: int
    tile: int
    bit: int
    expected: str
    found: str
    format: str = ""
    """Of a burn with several."""
    t: float | None = None
    """Seconds since the beginning of the phase, where known."""
    matrix: str = ""
    """ "A" or "B": an element of this input is not what it was filled with; "": of the product."""


class Reference(Wire, frozen=True, kw_only=True):
    """How the first result was checked another way, and how far from it it was."""

    kind: str
    """ "freivalds", "recomputed" or "freivalds+recomputed"."""
    max_residual: float
    """1e300 where a result was infinite or no number."""
    limit: float
    """What rounding alone can make of it."""


class Result(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What every result says. `cut`: the phase was ended before it was over. `enough`: so was its load, because all
    GPUs knew their rates (`Phase.within`)."""

    seconds: float = 0.0
    """How long the load lasted."""
    late_s: float = 0.0
    """How long after the moment that was given it began."""
    cut: bool = False
    enough: bool = False
    notes: list[str] = []
    """What is worth knowing and no error: less memory than asked for, another algorithm."""


class AllocResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Memory that was given, and written once all over. `share` is its part of the GPU's memory."""

    bytes: int = 0
    share: float = 0.0


class CacheResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Patterns in a cache."""

    level: str = ""
    gb_per_s: float = 0.0
    checked_bytes: int
    error_count: int
    errors: list[MemoryFault] = []
    patterns: list[str] = []
    """Of `CACHE_PATTERNS`, those that were read; older engines had one of their own and do not say."""
    control: str = ""
    """See `GemmResult.control`."""


class HbmResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Bandwidth of the GPU's own memory; copy and triad count what is read and what is written."""

    kernel: str = ""
    gb_per_s: list[float] = []
    """Per repeat."""
    cv: float = 0.0
    """Standard deviation over mean."""
    half_width: float | None = None
    """Half the 95 % interval of the mean over the second half of the repeats, as a part of it; None: too few."""
    size_bytes: int = 0


class LatencyResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """How long one thread waits for a word that lies in no cache of the GPU: nanoseconds of one step, per repeat."""

    host_ns: list[float] = []
    """Pinned memory of the host."""
    device_ns: list[float] = []
    """The GPU's own memory."""
    cv: float = 0.0
    """Standard deviation over mean; of the two series the larger one."""
    steps: int = 0
    """Of each repeat."""
    host_bytes: int = 0
    device_bytes: int = 0
    cpus: str = ""
    """CPUs beside which the host's memory was taken, "0-15": those near the GPU; "" where that was not to be had."""


class PatternResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """A memory pattern over all memory that could be had."""

    pattern: str = ""
    checked_bytes: int
    gb_per_s: float = 0.0
    error_count: int
    errors: list[MemoryFault] = []
    control: str = ""
    """See `GemmResult.control`."""


class GemmResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Products of one format, each checked."""

    format: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    burst_tflops: float = 0.0
    """Of the first products, before power or temperature limit them."""
    tflops: list[float] = []
    """Per window of `window_s`."""
    window_s: float = 0.25
    sustained_tflops: float = 0.0
    """Median of the second half of `tflops`."""
    cv: float = 0.0
    """Of the second half."""
    half_width: float | None = None
    """Half the 95 % interval of its mean, as a part of it; None: too few windows."""
    flop: float = 0.0
    """Operations in all; a float, for a day of them has more than 64 bits."""
    passes: int
    checked: int
    """Elements of results that were compared."""
    error_count: int
    errors: list[ResultFault] = []
    digest: str = ""
    """Of the first result, in hexadecimal: equal on equal GPUs with the same library, shape, algorithm and seed."""
    reference: Reference | None = None
    algorithm: str = ""
    golden: str = ""
    """Digest of one product by the first algorithm that the library offers: equal on equal GPUs with the same library,
    shape and seed, whatever `algorithm` each of them chose."""
    golden_algorithm: str = ""
    cublas: str = ""
    control: str = ""
    """What the comparison said of a bit that was flipped on purpose after the load: `SEEN`, or what was found instead;
    "": no such control was made, as in engines before `ENGINE` 2."""


class PulseResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Full load and idle in turns."""

    period_s: float = 0.0
    duty: float = 0.0
    cycles: int
    late_max_s: float = 0.0
    """How much later than due a beginning or an end was, at most."""
    checked: int
    error_count: int
    errors: list[ResultFault] = []
    control: str = ""
    """See `GemmResult.control`; of its formats together."""


class BurnWindow(Wire, frozen=True, kw_only=True):
    """One window of a burn: seconds since its beginning, what ran, how fast."""

    t: float
    format: str
    tflops: float
    gb_per_s: float = 0.0


class BurnResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Products of several formats in turns, with memory traffic; `each` has one result a format."""

    windows: list[BurnWindow] = []
    """Thinned to a number that a plot can show."""
    each: list[GemmResult] = []
    passes: int
    checked: int
    error_count: int
    errors: list[ResultFault] = []
    memory_turns: int = 0
    """Turns of memory that were compared to their end; older engines did not count them."""
    memory_bytes: int = 0
    """What was compared in them."""
    control: str = ""
    """See `GemmResult.control`; of its formats and its turns of memory together."""


class IdleResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """Nothing, for a while."""


class CoolResult(Result, frozen=True, kw_only=True, omit_defaults=True):
    """How warm the GPU was before and after it was left alone. `reached`: it fell to the limit within the time."""

    from_c: float | None = None
    to_c: float | None = None
    below_c: float = 0.0
    reached: bool = False


RESULTS: dict[str, type[Result]] = {
    "alloc": AllocResult,
    "cache": CacheResult,
    "hbm": HbmResult,
    "latency": LatencyResult,
    "pattern": PatternResult,
    "gemm": GemmResult,
    "pulse": PulseResult,
    "burn": BurnResult,
    "idle": IdleResult,
}
"""Kind of phase -> what a worker answers to it."""


def decode_result(kind: str, text: bytes) -> Result:
    """The result of a phase of this kind, from its JSON.

    Raises:
        msgspec.DecodeError: it is not what a worker answers to this kind.
    """
    result: Result = msgspec.json.decode(text, type=RESULTS[kind])
    return result
