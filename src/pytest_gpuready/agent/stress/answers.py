"""What a worker says, checked: whatever is not what it was asked for, when it was asked, is named in one line.

Nothing of a worker is believed because it came: not its address, not its clock, not a rate that no number can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from pytest_gpuready.model.stress_checks import LASTING, doubts, impossible
from pytest_gpuready.model.stress_doc import RESULTS, Phase, Ready, Result, decode_result

LATE_S = 5.0
"""So much later than told may a load begin: what is prepared may take longer than it was given."""

DRIFT_S, DRIFT = 0.05, 1e-4
"""So far ahead of our clock may a worker's be: it is the same. It may be behind by more: its lines wait for us. The
second is a part of the time that has passed: how long a load lasted, the GPU's own clock may say."""

BEHIND_S = 10.0

SHOWN = 80
MOST = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The phase that a worker is at: its number for the worker, and when it begins."""

    number: int
    phase: Phase
    at: float
    enough: bool = False
    """It was told that it may end."""


class WrongError(Exception):
    """What came is no answer to what was asked; the worker that said it is not believed any further."""


class LateError(Exception):
    """This one result does not count; the worker may go on."""


def decoded(text: bytes) -> dict[str, Any]:
    """One line of a worker. Raises WrongError where it is no JSON object."""
    try:
        line = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise WrongError(f"expected lines of JSON, found {shown(text)}")
    return line


def ready(said: Any, bdf: str) -> Ready:
    """A worker that is ready on the GPU it was given. Raises WrongError."""
    try:
        found = msgspec.json.decode(msgspec.json.encode(said), type=Ready)
    except (msgspec.DecodeError, RecursionError, UnicodeError, OverflowError) as error:
        raise WrongError(f"expected to hear that it is ready, found {plain(str(error))}") from error
    if found.bdf != bdf:
        raise WrongError(f"expected GPU {bdf}, found that it took {plain(found.bdf)}")
    _numbers(said, "ready")
    return found


def lasts(phase: Phase) -> bool:
    """True for a phase that goes on for its seconds, unless it was told that it may end."""
    return phase.kind in LASTING or phase.within > 0


def progress(line: dict[str, Any], asked: Asked | None, now: float) -> bool:
    """Something that is said while a phase runs; True where it says that this GPU knows enough. Raises WrongError."""
    if asked is None or line["said"] != asked.number:
        raise WrongError(f"expected words about {_told(asked)}, found some about phase {plain(repr(line['said']))}")
    t = line.get("t")
    if t is None or not _is_number(t):
        raise WrongError(f"expected seconds since the beginning, found {plain(repr(t)[:SHOWN])}")
    if not now - asked.at - BEHIND_S <= t <= now - asked.at + DRIFT_S:
        raise WrongError(f"expected its clock at {now - asked.at:.1f} s of {_told(asked)}, found {t:.1f} s")
    _numbers({name: value for name, value in line.items() if name != "t"}, "what it said")
    if "enough" not in line:
        return False
    if line["enough"] is not True or not asked.phase.within or t < asked.phase.least_s:
        raise WrongError(f"expected {_told(asked)} to go on, found that it knows enough after {t:.1f} s")
    return True


def result(line: dict[str, Any], asked: Asked | None, now: float) -> Result:
    """The result of the phase that was asked for. One that says where the GPU was wrong is never lost: whoever judges
    it may doubt the rest of it.

    Raises:
        WrongError: it is the result of another one, or cannot be one.
        LateError: the load began too late to count.
    """
    if asked is None or line["done"] != asked.number or type(line["done"]) is not int:
        raise WrongError(f"expected the end of {_told(asked)}, found that of phase {plain(repr(line['done']))}")
    phase, since = asked.phase, now - asked.at
    if phase.kind not in RESULTS:
        raise WrongError(f"expected no answer to a phase of kind {phase.kind!r}, found one")
    if since < 0:
        raise WrongError(f"expected the end of {_told(asked)} after its beginning, found it {-since:.1f} s before")
    _numbers(line.get("result"), "result")
    try:
        found = decode_result(phase.kind, msgspec.json.encode(line.get("result")))
    except (msgspec.DecodeError, RecursionError, UnicodeError, OverflowError) as error:
        raise WrongError(f"expected the result of {_told(asked)}, found {plain(str(error))}") from error
    if found.late_s + found.seconds > since + DRIFT_S + DRIFT * since:
        told = f"{found.seconds:.1f} s, {found.late_s:.1f} s late"
        raise WrongError(f"expected at most {since:.1f} s of load by now, found {told}")
    if found.enough and not asked.enough:
        raise WrongError(f"expected {phase.seconds:g} s of load, found its end as if it had been told to")
    if proves_wrong(found):
        return found
    if doubt := next(doubts(phase, found), ""):
        raise WrongError(f"{_told(asked)}: {plain(doubt)}")
    if found.late_s > LATE_S:
        raise LateError(late(found.late_s))
    return found


def proves_wrong(found: Result) -> bool:
    """True where it counts errors and says where they are: what the GPU did then, it did."""
    return getattr(found, "error_count", 0) > 0 and not any(impossible(found))


def late(seconds: float, first_s: float = 0.0) -> str:
    """Why a load that began so late does not count; `first_s`: how late the first of them was."""
    return f"expected the load to begin with the others, found it {seconds - first_s:.1f} s late"


def plain(text: str, most: int = 2 * SHOWN) -> str:
    """Text of a worker as it may stand in one line of ours."""
    one = " ".join(text[: 4 * most].split())
    return "".join(sign if sign.isprintable() else "?" for sign in one[:most])


def shown(text: bytes) -> str:
    """The beginning of what it printed, in quotes."""
    return repr(plain(text[:SHOWN].decode("utf-8", "replace")))


def _told(asked: Asked | None) -> str:
    return f"phase {asked.number} ({asked.phase.kind})" if asked else "no phase"


def _numbers(value: Any, where: str) -> None:
    """Raises WrongError where a number in it is negative or none at all; but a pass before the first is -1."""
    waiting = [(where, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(name, inner) for inner in value]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            least = -1 if name == "pass_number" else 0
            if not _is_number(value) or value < least:
                raise WrongError(f"expected numbers from 0 on, found {plain(name)} {plain(repr(value)[:SHOWN])}")


def _is_number(value: Any) -> bool:
    """True for what a machine can count or measure: finite, and an integer of 64 bits."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < MOST
    return isinstance(value, float) and math.isfinite(value)
