"""A number (or word) with unit, condition and evidence, or the reason why there is none."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

Value = float | int | str

_TELLS = (
    " add agree allow ask begin change check choose clear close compare correct declare drop enable end exclude "
    "fill free give have install keep leave let load look make mount name open pass power-cycle pull put read reboot "
    "record reinstall reload remove repair replace report reseat reset restart restore resume run save see send set "
    "shorten start stop take test treat turn unload unset update upgrade use wait write "
)
"""Verbs with which an advice begins."""


class ProblemKind(enum.Enum):
    """Why there is no value."""

    NOT_MEASURED = "not measured"  # tool missing, crashed, timed out, unreadable
    HIDDEN = "hidden"  # the platform (a virtual machine) does not show it
    NO_SUCH_THING = "no such thing"  # the part itself says that it has no such thing


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What was seen on the part while a measurement ran.

    `hardware_xids` are Xid numbers of the hardware class in the kernel-log window, `log_alarms` these and fatal SXids
    in words with whose they are, `uncorrected_ecc` the growth of the volatile uncorrected counter. Any of them fails
    whatever was measured. `facts` are for people:
    label -> text, e.g. "power" -> "77-412 W". `series` are samples for plots: name -> values, one per `times_s` entry;
    `limits` what a series must not pass, by its name, where somebody said it.
    """

    hardware_xids: tuple[int, ...] = ()
    log_alarms: tuple[str, ...] = ()
    uncorrected_ecc: int = 0
    facts: dict[str, str] = field(default_factory=dict)
    times_s: tuple[float, ...] = ()
    series: dict[str, tuple[float, ...]] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def alarm(self) -> str:
        """The reason why nothing measured in this window counts as good; empty when there is none."""
        said = []
        if self.log_alarms:
            more = f", and {len(self.log_alarms) - 8} more" if len(self.log_alarms) > 8 else ""
            said.append(", ".join(self.log_alarms[:8]) + f"{more} in the kernel log")
        elif self.hardware_xids:
            said.append("Xid " + ", ".join(str(x) for x in self.hardware_xids) + " in the kernel log")
        if self.uncorrected_ecc:
            said.append(f"{self.uncorrected_ecc} uncorrected ECC errors meanwhile")
        return "; ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One metric of one part.

    `value` is judged, `detail` shown beside it. `repeats` are the values of retests, in order, after `value`.
    `conditions` say under what the value holds ("16 samples under load"). `evidence` are sha256 digests of raw outputs.
    """

    metric: str
    part: str
    value: Value
    unit: str = ""
    detail: str = ""
    conditions: str = ""
    repeats: tuple[Value, ...] = ()
    evidence: tuple[str, ...] = ()
    watch: Watch | None = None
    stands: bool = False
    """True where what was found wrong is of a kind that no repetition takes back: nothing is measured again for it."""

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float, str)):
            raise ValueError(f"{self.metric}: a value is a number or a word, got {type(self.value).__name__}")
        if isinstance(self.value, float) and self.value != self.value:
            raise ValueError(f"{self.metric}: NaN is not a measurement")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a metric of a part has no value. `says` is one line: expected, found, what to do."""

    metric: str
    part: str
    kind: ProblemKind
    says: str
    evidence: tuple[str, ...] = ()
    proven: bool = False
    """True where something was seen to be wrong and nobody knows on which part: no later run takes that back."""

    @property
    def advice(self) -> str:
        """What to do, where `says` ends with it: what stands behind its last semicolon if it begins with a verb."""
        tail = self.says.rpartition("; ")[2] if "; " in self.says else ""
        first = tail.partition(" ")[0]
        return tail if first and f" {first} " in _TELLS else ""
