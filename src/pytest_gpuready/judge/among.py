"""What the limit against peers sees: every part of one clause among the others, level by level.

A part far on any level is far. Where a level falls into two camps it tells nobody apart; then the widest level that has
enough parts decides, as more of them know better: half of a node slow is told by all nodes, half of the nodes slow is
told by nobody, and that is not passed. Too few parts on every level tell nothing, which condemns nobody either.

Only what is inside the clause's own limit is a peer: a part known to be wrong is no measure for the others. GPUs are
compared with GPUs of the same PCI id.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from pytest_gpuready.judge.limits import side
from pytest_gpuready.judge.peers import Place, Policy, Sense, Standing, compare_groups
from pytest_gpuready.judge.survey import survey
from pytest_gpuready.model import Clause, Inventory, Measurement, Part, PeerLimit
from pytest_gpuready.model.peer_limit import AMONG, WHERE

_SENSE = {"lower": Sense.MORE, "higher": Sense.LESS, "both": Sense.BOTH}


SURELY_TIMES, SURELY = 2.0, 20.0
"""A part farther away than twice `percent`, and than 20 %, is far however much its peers differ: else some of them that
are slow to a different degree would make room for one that is much slower. Six sigmas reach that far only where one is
above 3.3 %, and healthy parts were never seen to differ so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One part among its peers: (level, standing) from the narrowest level on.

    `whole` is the larger thing that explains it where there is one: "node07 as a whole (8 GPUs)".
    """

    levels: tuple[tuple[str, Standing], ...]
    whole: str = ""

    @property
    def far(self) -> tuple[tuple[str, Standing], ...]:
        """The levels on which the part is far on the bad side."""
        return tuple(level for level in self.levels if level[1].place is Place.FAR)

    @property
    def undecided(self) -> str:
        """Why nobody knows whether the part is right, "" where that is known or there are too few to ask."""
        asked = [level for level in self.levels if level[1].place is not Place.TOO_FEW]
        if not asked or asked[-1][1].place is not Place.NO_MAJORITY:
            return ""
        return f"its peers {WHERE[asked[-1][0]]} cannot tell: {asked[-1][1].why}"

    @property
    def too_few(self) -> str:
        """What says that there are too few peers on every level, "" where some level can judge."""
        if any(standing.place is not Place.TOO_FEW for _, standing in self.levels):
            return ""
        counted = ", ".join(f"{standing.peers + 1} {WHERE[level]}" for level, standing in self.levels)
        return f"too few peers to judge ({counted or 'none known'})"

    @property
    def where(self) -> str:
        """The levels on which the part is far, as people say it."""
        return " and ".join(WHERE[level] for level, _ in self.far)

    def says(self, unit: str) -> str:
        """One line about a part that is far: value, distance, median and number of peers on the narrowest level."""
        return self.far[0][1].says(unit)

    def applied(self, limit: PeerLimit) -> str:
        """The limit as it was applied to a part that is far: with the median and the number of its peers."""
        level, standing = self.far[0]
        median = standing.says(limit.unit).partition("the median ")[2].partition(" (")[0]
        return limit.applied(f"the median {median}", WHERE[level])


Run = Mapping[Part, Seen]


def look(clause: Clause, found: Mapping[Part, Measurement], inventory: Inventory) -> tuple[Run, ...]:
    """Run by run, every part among its peers: the first run, then all with what was measured again in its place.

    A part that no limit of its own lets count stands in none of it.
    """
    limit = clause.peers
    if limit is None:
        return ()
    last = max((len(one.repeats) for one in found.values()), default=0)
    kinds: dict[Part, Hashable] = {part: _kind(inventory, part) for part in found}
    racks = {node.name: node.rack for node in inventory.nodes}
    runs = []
    for run in range(last + 1):
        by_kind: dict[Hashable, dict[Part, float]] = {}
        for part, one in found.items():
            value = _counts(clause, one, run)
            if value is not None:
                by_kind.setdefault(kinds[part], {})[part] = value
        seen: dict[Part, Seen] = {}
        for values in by_kind.values():
            seen |= among(limit, values, racks)
        runs.append(seen)
    return tuple(runs)


def among(limit: PeerLimit, values: Mapping[Part, float], racks: Mapping[str, str]) -> dict[Part, Seen]:
    """Every part among the others of its kind; `racks` is node -> rack, "" where nobody said."""
    policy, sense = policy_of(limit), _SENSE[limit.worse]
    one_node = len({part.node for part in values}) < 2
    levels: dict[str, dict[Part, Standing]] = {}
    for level in sorted(limit.among, key=AMONG.index):
        if one_node and "node" in limit.among and level in ("rack", "all"):
            continue  # the same parts once more
        keys = {part: _group(level, part, racks) for part in values}
        known = {part: value for part, value in values.items() if keys[part] != ""}
        levels[level] = compare_groups(known, keys, sense, policy)
    whole: dict[Part, str] = {}
    anybody = any(standing.place is Place.FAR for told in levels.values() for standing in told.values())
    if anybody and not one_node and all(part.index >= 0 for part in values):
        larger = (one for one in survey(values, sense, policy).outliers if one.part is None or one.part.index < 0)
        whole = {gpu: one.name for one in larger for gpu in one.gpus}
    return {
        part: Seen(
            levels=tuple((level, told[part]) for level, told in levels.items() if part in told),
            whole=whole.get(part, ""),
        )
        for part in values
    }


def policy_of(limit: PeerLimit) -> Policy:
    """How far is far, as `judge.peers` takes it. Where percent mean nothing, the resolution is all there is."""
    alone = max(limit.least, Policy().alone)
    if not limit.percent:
        return Policy(
            sigmas=limit.sigmas,
            percent=0.0,
            floor=0.0,
            assumed=0.0,
            resolution=limit.resolution,
            smallest=limit.least,
            alone=alone,
            widest=math.inf,
        )
    return Policy(
        sigmas=limit.sigmas,
        percent=limit.percent,
        resolution=limit.resolution,
        smallest=limit.least,
        alone=alone,
        widest=max(Policy().widest, limit.percent),
        surely=max(SURELY_TIMES * limit.percent, SURELY),
    )


def _group(level: str, part: Part, racks: Mapping[str, str]) -> Hashable:
    """Which group a part belongs to on a level; "" where nobody knows."""
    if level == "node":
        return part.node
    if level == "rail":
        return part.index
    return racks.get(part.node, "") if level == "rack" else "all nodes"


def _kind(inventory: Inventory, part: Part) -> Hashable:
    node = inventory.node(part.node)
    if part.index < 0:
        return tuple(sorted({slot.gpu.pci_id for slot in node.slots if slot.gpu}))
    return next((slot.gpu.pci_id for slot in node.slots if slot.part == part and slot.gpu), "")


def _counts(clause: Clause, found: Measurement, run: int) -> float | None:
    """The value of this run, or the last before it, where it may stand beside others."""
    value = found.repeats[min(run, len(found.repeats)) - 1] if run and found.repeats else found.value
    limit = clause.limit
    if isinstance(value, str) or not math.isfinite(value) or (found.watch and found.watch.alarm):
        return None
    if limit and ((limit.ceiling is not None and value > limit.ceiling) or not side(limit, value, {}, found.part)):
        return None
    return float(value)
