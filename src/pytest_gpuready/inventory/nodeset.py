"""Names of many nodes in one word, as ClusterShell and Slurm write them: node[001-512], rack[1-4]n[1-2]."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module

from pytest_gpuready.errors import InventoryError

MOST = 20_000
"""Nodes of one run; a range beyond that is a slip of the pen."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def expand(text: str, *, groups: bool = False) -> tuple[str, ...]:
    """The names in the order of their numbers, each once. `groups` allows ClusterShell's groups (@gpu).

    Raises:
        InventoryError: the text is no set of node names, or one of far too many.
    """
    if NAME.fullmatch(text):
        return (text,)
    says = f"expected node names like node[001-512], found {text[:80]!a}"
    if "@" in text and not groups:
        raise InventoryError(f"{says}; write the names, groups change")
    if _size(text) > MOST:
        raise InventoryError(f"{says}, more than {MOST} nodes; correct it")
    nodeset = import_module("ClusterShell.NodeSet")  # one node needs none of it
    try:
        names = tuple(nodeset.NodeSet(text))
    except nodeset.NodeSetException as error:
        raise InventoryError(f"{says} ({error}); correct it") from error
    wrong = next((name for name in names if not NAME.fullmatch(name)), None)
    if wrong is not None or not names:
        raise InventoryError(f"{says}, {'nobody' if wrong is None else f'{wrong[:70]!a} in it'}; correct it")
    return names


def fold(names: Iterable[str]) -> str:
    """The names in one word; the shortest way to name them."""
    names = tuple(names)
    if len(names) < 2:
        return "".join(names)
    return str(import_module("ClusterShell.NodeSet").NodeSet.fromlist(list(names)))


def _size(text: str) -> int:
    """How many names there are at most, before any of them is made: those of each set, one beside the other."""
    return sum(_size_of_one(one) for one in re.split(r"[,!&^](?![^\[]*\])", text))


def _size_of_one(text: str) -> int:
    size = 1
    for inside in re.findall(r"\[([^\]]*)\]", text):
        ranges = re.findall(r"(\d+)(?:-(\d+))?", inside)
        size *= max(1, sum(max(1, int(last or first) - int(first) + 1) for first, last in ranges))
    return size
