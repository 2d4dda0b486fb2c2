"""Rules of one limit: it has a source, fits its metric, lies below physics, and can both be kept and be broken.

A limit that nothing can break is a pass by omission: it would stand on the certificate as a promise that was kept.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from pytest_gpuready.parse.yaml_file import nearest, says_something, shown
from pytest_gpuready.profiles.metrics import METRICS, MORE_IS_BETTER, UNIFORM, WORDS, Metric

BOUNDS = ("at_least", "at_most", "equals", "uniform")
COUNTS = ("", "per TB")
RATES = ("GB", "MB", "TFLOPS", "TOPS")
MOST_COUNTED = 1e6
"""An agreed number of events that is higher than this agrees to any number."""

NEVER = (
    "xid.hardware",
    "xid.hardware.after",
    "xid.unplaced",
    "sxid.fatal",
    "sxid.fatal.after",
    "ecc.uncorrected.volatile",
    "remap.pending",
    "remap.failure",
    "pcie.copies.corrupted",
    "pcie.errors.fatal",
    "pcie.aer.uncorrectable",
    "pcie.log.uncorrected",
    "nvlink.errors",
    "processes.foreign",
    "environment.foreign",
    "gpu.unexpected",
    *(name for name in METRICS if name.startswith("stress.") and name.endswith(".wrong")),
)
"""Counts of what a good node never shows: a number above 0 needs its reason."""
LEAST = {"": 1.0, "C": -20.0}
"""Unit -> the lowest floor that anything can break: a count is whole, and no idle card is 20 degrees too hot."""
LEAST_OF = {
    "gpu.memory.total": 1024.0,
    "power.limit.default": 50.0,
    "pcie.link.generation": 3.0,
    "pcie.slot.generation": 3.0,
    "pcie.link.width": 4.0,
    "stress.memory.allocated": 50.0,
    "stress.hbm.share": 50.0,
}
"""Metric -> the lowest floor that a part which works at all can break: every data-centre GPU has that much."""
MOST_BELOW_W = 350
"""How far a board lets its power limit be lowered, at most about half of it."""
GEN6_X16 = 126.0
"""GB/s of a PCIe Gen6 x16 link in one direction."""
MOST_CEILING = {
    "pcie.h2d.bandwidth": GEN6_X16,
    "pcie.d2h.bandwidth": GEN6_X16,
    "pcie.h2d.concurrent": GEN6_X16,
    "pcie.d2h.concurrent": GEN6_X16,
    "pcie.bidirectional.bandwidth": 2 * GEN6_X16,
}
"""Metric -> the highest ceiling that PCIe allows; copies over another link need their reason."""

Wrong = Callable[[tuple[str, ...], str], None]
"""Takes where in the limit something is wrong, and what is."""


def limit_rules(limit: dict[str, Any], clause: dict[str, Any], metric: Metric | None, wrong: Wrong) -> None:
    """Call `wrong` for every rule that a limit breaks; `clause` is what it stands in, `metric` None where unknown."""
    source_rules(limit, wrong)
    given = [name for name in BOUNDS if name in limit and limit[name] is not False]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        wrong((), f"expected exactly one of {', '.join(BOUNDS)}, found {found}; keep one")
    if metric:
        name = clause["metric"]
        _kind(limit, metric, name, wrong)
        _words(limit, name, wrong)
        _sense(limit, metric, name, wrong)
        if "uniform" in given and name not in UNIFORM:
            says = f"expected uniform on {', '.join(UNIFORM)} alone, found it on {name}: all wrong alike would pass"
            wrong(("uniform",), f"{says}; say which value")
    if "marginal" in limit:
        _marginal(limit, wrong)
    if "ceiling" in limit:
        _ceiling(limit, MOST_CEILING.get(clause.get("metric", "")), wrong)
    elif metric and metric.unit.partition("/")[0] in RATES:
        wrong((), "expected a ceiling on a limit of a rate, found none; say what physics allows")


def source_rules(limit: dict[str, Any], wrong: Wrong) -> None:
    """Call `wrong` where a limit does not say where it comes from."""
    source = limit.get("source")
    if source is None:
        wrong((), "expected a source, found none; say where this limit comes from (kind and cite)")
        return
    date = source.get("date", "")
    if source["kind"] == "baseline" and not (date and source.get("sample", 0)):
        wrong(
            ("source",), "expected date and sample on a baseline, found not both; say when and on how many it was taken"
        )
    if date:
        try:
            datetime.date.fromisoformat(date if len(date) == 10 else "")
        except ValueError:
            wrong(("source", "date"), f"expected a date like 2026-11-30, found {shown(date)}; correct it")


def _kind(limit: dict[str, Any], metric: Metric, name: str, wrong: Wrong) -> None:
    """Word metrics meet words, numbers meet numbers; anything else could never be judged."""
    for bound in ("at_least", "at_most"):
        if metric.word and bound in limit:
            wrong((bound,), f"expected equals or uniform ({name} is a word), found {bound}; correct it")
    if "equals" in limit and isinstance(limit["equals"], str) is not metric.word:
        wanted = "a word (put it in quotes)" if metric.word else "a number"
        wrong(("equals",), f"expected {wanted} for {name}, found {shown(limit['equals'])}; correct it")


def _words(limit: dict[str, Any], name: str, wrong: Wrong) -> None:
    """A word that is never said can never be kept; a word for something broken must not be promised."""
    asked, known = limit.get("equals"), WORDS.get(name, ())
    if known and isinstance(asked, str) and asked not in known:
        words = f"one of {', '.join(known)}" if len(known) > 1 else known[0]
        wrong(("equals",), f"expected {words} for {name}, found {shown(asked)}{nearest(asked, known)}; correct it")


def _sense(limit: dict[str, Any], metric: Metric, name: str, wrong: Wrong) -> None:
    """Numbers that anything passes or nothing can; temperatures and their margins may lie below zero."""
    if metric.word:
        return
    low, high, same = (limit.get(bound) for bound in ("at_least", "at_most", "equals"))
    reason = says_something(limit.get("ceiling_reason", ""))
    if low is not None and low <= 0 and metric.unit != "C":
        wrong(("at_least",), f"expected more than 0, found {low:g}: it cannot fail; correct it")
    if high is not None and high < 0 and metric.unit != "C":
        wrong(("at_most",), f"expected 0 or more, found {high:g}: it cannot pass; correct it")
    if high is not None and high > MOST_COUNTED and metric.unit in COUNTS and not reason:
        says = f"expected at most {MOST_COUNTED:.0f} on a count, found {high:.10g}: it cannot fail"
        wrong(("at_most",), f"{says}; correct it or say ceiling_reason")
    for bound, asked in (("at_most", high), ("equals", same)):
        if name in NEVER and asked and not reason:
            wrong((bound,), f"expected 0 ({name} is never right), found {asked:g}; correct it or say ceiling_reason")
    if low is not None and name not in MORE_IS_BETTER:
        says = f"expected at_most ({name} is the better the less), found at_least: a good part would not pass"
        wrong(("at_least",), f"{says}; correct it")
    least = LEAST_OF.get(name, LEAST.get(metric.unit, low))
    if low is not None and least is not None and low < least:
        wrong(("at_least",), f"expected {least:g} or more, found {low:g}: it cannot fail; correct it")
    if high is not None and metric.unit == "W" and high > MOST_BELOW_W and not reason:
        says = f"expected at most {MOST_BELOW_W} W, found {high:g}: it cannot fail; correct it or say ceiling_reason"
        wrong(("at_most",), says)
    if name in MORE_IS_BETTER and high is not None and not reason:
        says = f"expected at_least ({name} is the better the more), found at_most: nothing at all would pass"
        wrong(("at_most",), f"{says}; correct it or say ceiling_reason")
    if name in MORE_IS_BETTER and isinstance(same, (int, float)) and same <= 0 and metric.unit != "C":
        wrong(("equals",), f"expected more than 0, found {same:g}: nothing at all would pass; correct it")


def _marginal(limit: dict[str, Any], wrong: Wrong) -> None:
    marginal = limit["marginal"]
    if "at_least" in limit and marginal <= limit["at_least"]:
        wrong(("marginal",), f"expected more than at_least {limit['at_least']:g}, found {marginal:g}; correct one")
    if "at_most" in limit and marginal >= limit["at_most"]:
        wrong(("marginal",), f"expected less than at_most {limit['at_most']:g}, found {marginal:g}; correct one")
    if "at_least" not in limit and "at_most" not in limit:
        wrong(("marginal",), "expected at_least or at_most beside marginal, found neither; drop it")


def _ceiling(limit: dict[str, Any], most: float | None, wrong: Wrong) -> None:
    ceiling = limit["ceiling"]
    if ceiling <= 0:
        wrong(("ceiling",), f"expected a number above 0, found {ceiling:g}; correct it")
        return
    if most and ceiling > most and not says_something(limit.get("ceiling_reason", "")):
        says = f"expected at most {most:g} GB/s (PCIe Gen6 x16), found {ceiling:g}; correct it or say ceiling_reason"
        wrong(("ceiling",), says)
    for name in ("at_least", "at_most", "equals", "marginal"):
        bound = limit.get(name)
        if not isinstance(bound, (int, float)) or says_something(limit.get("ceiling_reason", "")):
            continue
        if not 0.1 * ceiling <= bound <= ceiling:
            wrong(
                (name,),
                f"expected 10 to 100 % of the ceiling {ceiling:g}, found {bound:g}; correct it or say ceiling_reason",
            )
