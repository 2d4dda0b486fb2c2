"""The words behind "stress" and "collectives" on a command line: a plan as JSON, then bus addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from pytest_gpuready.agent.pci import BDF
from pytest_gpuready.agent.stress.answers import plain

MOST_GPUS = 64

Plan = TypeVar("Plan", bound=msgspec.Struct)


class PlanError(ValueError):
    """The plan, or a word beside it, is not what it has to be: one line."""


def read_words(words: Sequence[str], kind: type[Plan], *, most_bytes: int) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the first word, and the bus addresses of the others; what the plan says is not checked here.

    Raises:
        PlanError: what is wrong, in one line.
    """
    text, *bdfs = words
    wrong = next((bdf for bdf in bdfs if not BDF.fullmatch(bdf)), None)
    if wrong is not None:
        raise PlanError(f"expected bus addresses such as 0000:19:00.0 behind the plan, found {plain(wrong)!r}")
    if len(set(bdfs)) != len(bdfs) or len(bdfs) > MOST_GPUS:
        raise PlanError(f"expected at most {MOST_GPUS} different bus addresses, found {len(bdfs)}")
    if len(text) > most_bytes:
        raise PlanError(f"expected a plan of at most {most_bytes} bytes, found {len(text)}")
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"), type=kind), tuple(bdfs)
    except (msgspec.DecodeError, RecursionError, UnicodeError, OverflowError) as error:
        raise PlanError(f"expected a plan as JSON, found {plain(str(error))}") from error
