"""The positive control: a bit is flipped on purpose, and the comparison that found nothing must report just that bit.

Without it "0 errors" may be the word of a comparison that sees nothing. It is made once at the end of a load, outside
of what is timed and counted, at a place that seed and load choose, and put back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.agent.stress.report import REPORT, Report, lowest_bit
from pytest_gpuready.model.stress_doc import SEEN

MASK = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipped:
    """One bit of one word of `width` bits. `step`: what a report counts for each word, bytes or 1."""

    word: int
    bit: int
    width: int
    step: int = 1

    @property
    def byte(self) -> int:
        """Which byte it lies in."""
        return self.word * self.width // 8 + self.bit // 8


def chosen(seed: int, number: int, words: int, width: int, step: int = 1) -> Flipped:
    """The bit that is flipped among so many words: another one for every seed and number."""
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) & MASK
    mixed = (mixed ^ mixed >> 32) * 0xBF58476D1CE4E5B9 & MASK
    return Flipped(word=(mixed >> 8) % words, bit=mixed % 251 % width, width=width, step=step)


def control(gpu: Any, one: Flipped, *, data: int, flip: Any, compare: Any, report: int, repeats: bool = False) -> str:
    """Flip that bit of what lies at `data`, compare, and put it back: `SEEN`, or what the comparison said instead.

    `flip` is the kernel of that name on `data`, `compare` queues the comparison, which writes to `report`; what stood
    there is lost. `repeats`: a comparison that reads everything many times reports it many times.
    """
    size = one.width // 8
    right = int.from_bytes(gpu.read(data + one.word * size, size), "little")
    flip.arguments[1].value, flip.arguments[2].value = one.byte, one.bit % 8
    gpu.zero(report, REPORT)
    flip.launch()
    compare()
    flip.launch()
    return verdict(Report(gpu.read(report, REPORT)), one, right, repeats=repeats)


def verdict(report: Report, one: Flipped, right: int, *, repeats: bool = False) -> str:
    """Whether just this was reported."""
    wanted = (one.word * one.step, right, right ^ 1 << one.bit)
    seen = {entry[:3] for entry in report.entries}
    if seen == {wanted} and (report.count == 1 or (repeats and report.count > 0)):
        return SEEN
    told = f"bit {one.bit} of word {one.word} was flipped, found {report.count} errors"
    for position, expected, found, _ in report.entries[:1]:
        told += f", first bit {lowest_bit(expected, found)} of word {position // one.step}"
    return told


def together(controls: Iterable[str]) -> str:
    """Of several: `SEEN` where all were; else the first that says something else, or "" where one was not made."""
    told = list(controls)
    return next((word for word in told if word not in ("", SEEN)), SEEN if told and all(told) else "")
