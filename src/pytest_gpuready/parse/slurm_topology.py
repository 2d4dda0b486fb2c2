"""`scontrol show topology`: which switches or which block a node hangs on. Pure.

Tree (SwitchName=s0 Level=0 LinkSpeed=1 Nodes=.. Switches=..): level 0 are the leaf switches, a switch of a higher level
lists its switches, and its nodes too. Block (BlockName=b1 BlockIndex=0 Nodes=.. BlockSize=18): blocks have no overlap;
an AggregatedBlock is made of several. Ring (RingName=.. Nodes=..). A cluster without any says "No topology
information available" on stderr and nothing else, so that empty text is none. Source: Slurm 22.05 to 26.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.hostlist import expand

Kind = Literal["tree", "block", "ring", "none"]

_KINDS: Mapping[str, Kind] = {
    "SwitchName": "tree",
    "BlockName": "block",
    "AggregatedBlock": "block",
    "RingName": "ring",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTopology:
    """`paths` is node -> names from the nearest on: leaf switch, spine, core; or block, aggregated block."""

    kind: Kind
    paths: Mapping[str, tuple[str, ...]]


def slurm_topology(text: str) -> SlurmTopology:
    """Read it; "none" where Slurm knows no topology.

    Raises:
        ParseError: a line is none of those above, or two kinds are mixed.
    """
    kinds: set[Kind] = set()
    found: dict[str, list[tuple[int, str]]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        words = dict(word.partition("=")[::2] for word in line.split())
        name = next(iter(words))
        if name not in _KINDS or not words[name] or not words.get("Level", "0").isdigit():
            raise ParseError(f"scontrol show topology: expected SwitchName= or BlockName=, found {line[:80]!a}")
        kinds.add(_KINDS[name])
        level = 1 if name == "AggregatedBlock" else int(words.get("Level", "0"))
        for node in expand(words.get("Nodes", "")):
            found.setdefault(node, []).append((level, words[name]))
    if len(kinds) > 1:
        raise ParseError(f"scontrol show topology: expected one kind, found {' and '.join(sorted(kinds))}")
    # Stable: of several aggregated blocks that hold a node the order of Slurm stays.
    paths = {node: tuple(name for _, name in sorted(names, key=lambda one: one[0])) for node, names in found.items()}
    return SlurmTopology(kind=next(iter(kinds), "none"), paths=paths)
