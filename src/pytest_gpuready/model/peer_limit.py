"""What is promised against peers: a part is not far from what the others of its kind do.

Peers can condemn and never pass: eight GPUs that are slow alike are eight slow GPUs, so only the clause's own limit
passes. Where there are too few peers to judge, that limit alone decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_gpuready.model.source import Source
from pytest_gpuready.model.units import show

AMONG = ("node", "rail", "rack", "all")
"""Whose peers a part has, from the narrowest on: the GPUs of its node, those of the same index on all nodes, the parts
of its rack, of all nodes."""
WORSE = ("lower", "higher", "both")
LEAST = 4
"""Fewer parts cannot tell who of them is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimit:
    """How far from the median of the others is far: by more than `percent` of it and by more than `sigmas` of them.

    `worse` is the side that is bad. `least` parts, the judged one included, are needed to judge. The spread of the
    peers counts as at least `resolution`, in the unit of the clause; where `percent` is 0 (degrees have no zero), that
    says what a difference is that matters.
    """

    source: Source
    among: tuple[str, ...]
    worse: str
    percent: float
    sigmas: float = 6.0
    least: int = LEAST
    resolution: float = 0.0
    unit: str = ""

    def __post_init__(self) -> None:
        for among in self.among:
            if among not in AMONG:
                raise ValueError(f"peers.among: expected one of {', '.join(AMONG)}, found {among!r}")
        if not self.among or len(set(self.among)) < len(self.among):
            raise ValueError("peers.among: expected each of whose peers once, and one at least")
        if self.worse not in WORSE:
            raise ValueError(f"peers.worse: expected one of {', '.join(WORSE)}, found {self.worse!r}")
        for name, low in (("percent", 0.0), ("sigmas", 1.0), ("resolution", 0.0)):
            value = getattr(self, name)
            if not low <= value < math.inf:
                raise ValueError(f"peers.{name}: expected {low:g} or more, found {value!r}")
        if not self.percent and not self.resolution:
            raise ValueError("peers: expected percent or resolution above 0: else any difference is far")
        if self.least < LEAST:
            raise ValueError(f"peers.least: expected {LEAST} or more, found {self.least}")

    def applied(self, median: str, where: str) -> str:
        """The limit about a median, "the median 55.40 of 7 peers", and where these are: "in the node"."""
        side = {"lower": "below", "higher": "above", "both": "away from"}[self.worse]
        sigmas = f"{self.sigmas:g} robust sigmas"
        if self.resolution:
            sigmas += f", one of them {show(self.resolution, self.unit)} at least"
        if not self.percent:
            return f"not {side} {median} {where} by more than {sigmas}"
        return f"at most {self.percent:g} % {side} {median} {where} (or {sigmas})"

    def __str__(self) -> str:
        """ASCII: "at most 15 % below the median of its peers in the node and in all nodes (or 6 robust sigmas)"."""
        return self.applied("the median of its peers", " and ".join(WHERE[among] for among in self.among))


WHERE = {"node": "in the node", "rail": "on the rail", "rack": "in the rack", "all": "in all nodes"}
"""As people say it."""
