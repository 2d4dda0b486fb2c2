"""One metric on all GPUs of a site: which part stands out, and which larger thing explains it.

Every GPU is seen among the GPUs of its node and among those of its rail, every node among nodes, every rail among
rails (`judge.peers`). What peers could not tell on any level is said, not passed.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_gpuready.judge.peers import Place, Policy, Sense, Standing, compare, compare_groups, grouped, spread_of
from pytest_gpuready.model.hardware import Part

G = TypeVar("G", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """The smallest part that explains what stands out: a GPU, a whole node or, with `part` None, a rail.

    `gpus` are all GPUs that it explains; `seen` has the levels on which it stands out, with the numbers.
    """

    part: Part | None
    name: str
    gpus: tuple[Part, ...]
    seen: tuple[tuple[str, Standing], ...]

    def says(self, unit: str = "") -> str:
        """One line of ASCII: "GPU 3 of node07 stands out among the GPUs of its node and on rail 3: 41.20 GB/s, .."."""
        levels = " and ".join(level for level, _ in self.seen)
        return f"{self.name} stands out {levels}: {self.seen[0][1].says(unit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One metric on all GPUs of a site. A rail is all GPUs of one index; node and rail count by their median.

    `open` has a line for all that peers could not tell on any level: there, no outlier proves nothing. What is AHEAD
    stands in the levels alone.
    """

    in_node: Mapping[Part, Standing]
    on_rail: Mapping[Part, Standing]
    nodes: Mapping[str, Standing]
    rails: Mapping[int, Standing]
    outliers: tuple[Outlier, ...]
    open: tuple[str, ...]


def survey(values: Mapping[Part, float], sense: Sense, policy: Policy | None = None) -> Survey:
    """Every GPU among the GPUs of its node and among those of its rail, every node among nodes, rail among rails.

    A node that stands out explains its GPUs on their rails, a rail its GPUs within their nodes. Where a group falls
    apart and only some of its GPUs stand out on the other level, these GPUs are named and not the group.

    Raises:
        ValueError: a value is not a finite number, or a part is not a GPU.
    """
    policy = policy or Policy()
    values = {part: values[part] for part in sorted(values, key=lambda p: (p.node, p.index))}
    for part in values:
        if part.index < 0:
            raise ValueError(f"{part.name}: expected a GPU, found a whole node")
    node_of, rail_of = {p: p.node for p in values}, {p: p.index for p in values}
    in_node = compare_groups(values, node_of, sense, policy)
    on_rail = compare_groups(values, rail_of, sense, policy)
    nodes = _wholes(values, node_of, rail_of, sense, policy)
    rails = _wholes(values, rail_of, node_of, sense, policy)

    outliers = []
    for node, group in grouped(values, node_of).items():
        if _explains(nodes.get(node), group, in_node, on_rail):
            name = f"{_ascii(node)} as a whole ({len(group)} GPUs)"
            seen = (("among the nodes", nodes[node]),)
            outliers.append(Outlier(part=Part(node=node), name=name, gpus=tuple(group), seen=seen))
    for rail, group in grouped(values, rail_of).items():
        if _explains(rails.get(rail), group, on_rail, in_node):
            name = f"rail {rail} as a whole (GPU {rail} of {len(group)} nodes)"
            outliers.append(Outlier(part=None, name=name, gpus=tuple(group), seen=(("among the rails", rails[rail]),)))
    by_node = {gpu for outlier in outliers if outlier.part for gpu in outlier.gpus}
    by_rail = {gpu for outlier in outliers if not outlier.part for gpu in outlier.gpus}
    for part in values:
        levels = []
        if in_node[part].place is Place.FAR and part not in by_rail:
            levels.append(("among the GPUs of its node", in_node[part]))
        if on_rail[part].place is Place.FAR and part not in by_node:
            levels.append((f"on rail {part.index}", on_rail[part]))
        if levels:
            name = f"GPU {part.index} of {_ascii(part.node)}"
            outliers.append(Outlier(part=part, name=name, gpus=(part,), seen=tuple(levels)))
    found = Survey(in_node=in_node, on_rail=on_rail, nodes=nodes, rails=rails, outliers=tuple(outliers), open=())
    return replace(found, open=tuple(_open(found)))


def _wholes(
    values: Mapping[Part, float], of: Mapping[Part, G], across: Mapping[Part, Hashable], sense: Sense, policy: Policy
) -> dict[G, Standing]:
    """Groups of two GPUs or more, each by its median, among each other.

    Too few to know how much they differ, they are taken to differ as single GPUs do in the direction `across`.
    """
    medians = {g: statistics.median(v.values()) for g, v in grouped(values, of).items() if len(v) > 1}
    usual = None
    if len(medians) < 2 * policy.alone:
        groups = [g.values() for g in grouped(values, across).values() if len(g) >= policy.smallest]
        if sum(map(len, groups)) >= policy.alone:
            usual = statistics.median(map(spread_of, groups))
    return compare(medians, sense, policy, usual=usual)


def _explains(
    whole: Standing | None, gpus: Iterable[Part], own: Mapping[Part, Standing], other: Mapping[Part, Standing]
) -> bool:
    """True where a group stands out as a whole: its GPUs are alike, or the other level does not tell them apart."""
    far = [other[gpu].place is Place.FAR for gpu in gpus]
    alike = all(own[gpu].place.judged for gpu in gpus)
    if whole is None or whole.place is not Place.FAR:
        return whole is not None and whole.place is Place.INSIDE and alike and sum(far) * 2 >= len(far)
    return alike or all(far) or not any(far)


def _open(found: Survey) -> Iterator[str]:
    """A line for what no level could tell."""
    for kind, wholes in (("nodes", found.nodes), ("rails", found.rails)):
        reasons = {standing.why for standing in wholes.values() if not standing.place.judged}
        yield from (f"the {kind} as wholes: {why}" for why in sorted(reasons))
    for gpu, standing in found.in_node.items():
        if not standing.place.judged and not found.on_rail[gpu].place.judged:
            why = f"in its node {standing.why}; on its rail {found.on_rail[gpu].why}"
            yield f"GPU {gpu.index} of {_ascii(gpu.node)}: {why}"


def _ascii(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text[:64])
