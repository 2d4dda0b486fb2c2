"""The plan of a sweep as it comes from the command line, checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_gpuready.agent.collectives.pattern import PatternError, weights
from pytest_gpuready.agent.plan_words import PlanError, read_words
from pytest_gpuready.agent.stress.answers import plain
from pytest_gpuready.model.busbw import COLLECTIVES
from pytest_gpuready.model.collectives_doc import Plan
from pytest_gpuready.model.collectives_shape import REDUCING, WIDTHS

MOST_SIZES = 64
MOST_RANKS = 2**16
MOST_ITERATIONS = 1000
MOST_BYTES = 2**16
LEAST_SIZE, LARGEST_SIZE = 8, 2**40
"""The barrier before each size moves four bytes: NCCL's log tells it by that from what is measured."""

SPARE_BYTES = 2**30
"""Memory that is left free: NCCL takes more when it first uses a path."""

OURS = ("NCCL_DEBUG", "NCCL_COMM_ID")
"""Beginnings of names that the crew sets."""

KEPT = {"NCCL_NVLS_ENABLE": "0"}
"""Who has switched NVLink multicast off may have done it for the health of the host: that is not for us to undo."""

_VARIABLE = re.compile(r"NCCL_[A-Z0-9_]{1,60}")
_PRINTABLE = re.compile(r"[ -~]{0,400}")
_COMM = re.compile(r"[A-Za-z0-9._:\[\]%-]{1,255}:\d{1,5}")
_DEBUG = re.compile(r"(?:[A-Z]{1,20}(?:,[A-Z]{1,20}){0,19})?")


def read(words: Sequence[str]) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the first word, and the bus addresses of the others; none of them means all GPUs.

    Raises:
        PlanError: what is wrong, in one line.
    """
    plan, bdfs = read_words(words, Plan, most_bytes=MOST_BYTES)
    _work(plan)
    _numbers(plan)
    _surroundings(plan)
    if bdfs:
        ranks(plan, len(bdfs))
    return plan, bdfs


def ranks(plan: Plan, gpus: int) -> int:
    """How many ranks there are when so many GPUs are here.

    Raises:
        PlanError: those here cannot be ranks of the plan.
    """
    nranks = plan.nranks or gpus
    if plan.first_rank + gpus > nranks:
        last = plan.first_rank + gpus - 1
        raise PlanError(f"expected ranks {plan.first_rank} to {last} for {gpus} GPUs among nranks, found {nranks}")
    if nranks > gpus and not plan.comm:
        raise PlanError(f"expected the address of rank 0 (comm) for {nranks} ranks with {gpus} GPUs here, found none")
    try:
        for op in plan.ops:
            weights(nranks, plan.datatype, summed=op in REDUCING)
    except PatternError as error:
        raise PlanError(str(error)) from error
    return nranks


def largest(plan: Plan, free_bytes: int) -> int:
    """The largest size for which there is memory, where the fullest GPU has so much.

    Raises:
        PlanError: there is none; or others than the plan's would be run, and ranks elsewhere wait for what is not.
    """
    fitting = [size for size in plan.sizes_bytes if 2 * size + SPARE_BYTES <= free_bytes]
    needed = plan.sizes_bytes[-1 if plan.comm else 0]
    if not fitting or (plan.comm and fitting != plan.sizes_bytes):
        raise PlanError(f"expected memory for two buffers of {needed} bytes, found {free_bytes} bytes free")
    return fitting[-1]


def kept(plan: Plan, surroundings: Mapping[str, str]) -> dict[str, str]:
    """Those NCCL_* of the surroundings that the ranks get all the same.

    Raises:
        PlanError: the plan wants it otherwise.
    """
    found = {name: value for name, value in KEPT.items() if surroundings.get(name) == value}
    for name, value in found.items():
        wanted = plan.environment.get(name, value)
        if wanted != value:
            raise PlanError(
                f"expected {name}={value}, as whoever runs this node has set it, found {wanted!r} in the plan"
            )
    return found


def environment(plan: Plan, surroundings: Mapping[str, str], log: Path) -> dict[str, str]:
    """What a rank gets: no NCCL_* of the surroundings but those `kept`, those of the plan, and where its log goes."""
    found = {name: value for name, value in surroundings.items() if not name.startswith("NCCL_")}
    found |= kept(plan, surroundings) | plan.environment
    if plan.debug:
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": plan.debug, "NCCL_DEBUG_FILE": str(log)}
    if plan.comm:
        found["NCCL_COMM_ID"] = plan.comm
    return found


def _work(plan: Plan) -> None:
    known = ", ".join(COLLECTIVES)
    wrong = next((op for op in plan.ops if op not in COLLECTIVES), None)
    if wrong is not None or not plan.ops or len(set(plan.ops)) != len(plan.ops):
        raise PlanError(f"expected ops, each once, among {known}, found {plain(repr(wrong or plan.ops))}")
    sizes = plan.sizes_bytes
    if not 0 < len(sizes) <= MOST_SIZES or sorted(set(sizes)) != sizes:
        raise PlanError(f"expected 1 to {MOST_SIZES} sizes_bytes that ascend, found {plain(str(sizes))}")
    if sizes[0] < LEAST_SIZE or sizes[-1] > LARGEST_SIZE:
        raise PlanError(f"expected sizes of {LEAST_SIZE} to {LARGEST_SIZE} bytes, found {sizes[0]} to {sizes[-1]}")
    if plan.datatype not in WIDTHS:
        raise PlanError(f"expected a datatype among {', '.join(WIDTHS)}, found {plain(plan.datatype)!r}")


def _numbers(plan: Plan) -> None:
    for what, least in (("iterations", 2), ("small_iterations", 2), ("warmup", 1)):
        if not least <= getattr(plan, what) <= MOST_ITERATIONS:
            raise PlanError(f"expected {what} from {least} to {MOST_ITERATIONS}, found {getattr(plan, what)}")
    for what in ("size_s", "op_s", "limit_s", "ready_s"):
        if not 0.1 <= getattr(plan, what) <= 86400:
            raise PlanError(f"expected {what} from 0.1 to 86400, found {getattr(plan, what):g}")
    if not 0.01 <= plan.sample_s <= 60:
        raise PlanError(f"expected a sample_s from 0.01 to 60, found {plan.sample_s:g}")
    for what in ("small_bytes", "seed", "margin_c"):
        if not 0 <= getattr(plan, what) < 2**63:
            raise PlanError(f"expected {what} from 0 on, found {getattr(plan, what)}")
    for what in ("first_rank", "nranks"):
        if not 0 <= getattr(plan, what) <= MOST_RANKS:
            raise PlanError(f"expected {what} from 0 to {MOST_RANKS}, found {getattr(plan, what)}")


def _surroundings(plan: Plan) -> None:
    for name, value in plan.environment.items():
        if not _VARIABLE.fullmatch(name) or name.startswith(OURS):
            raise PlanError(
                f"expected NCCL_* in environment, none of them {' or '.join(OURS)}*, found {plain(name)[:80]!r}"
            )
        if not _PRINTABLE.fullmatch(value):
            raise PlanError(f"expected a printable value of {name}, found {plain(value)[:80]!r}")
    if plan.comm and not _COMM.fullmatch(plan.comm):
        raise PlanError(f"expected comm as host:port, found {plain(plan.comm)[:80]!r}")
    if not _DEBUG.fullmatch(plan.debug):
        raise PlanError(f"expected debug as names of NCCL_DEBUG_SUBSYS, found {plain(plan.debug)[:80]!r}")
