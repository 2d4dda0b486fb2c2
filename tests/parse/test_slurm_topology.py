"""`parse.slurm_topology`: trees, blocks and none. Made by hand in the form that Slurm 22.05 to 26.11 prints."""

from __future__ import annotations

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.slurm_topology import slurm_topology

TREE = """\
SwitchName=core Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=spine[1-2]
SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=spine2 Level=1 LinkSpeed=1 Nodes=n4 Switches=leaf2
"""
BLOCK = """\
BlockName=b1 BlockIndex=0 Nodes=n[01-02] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[03-04] BlockSize=2
BlockName=b3 BlockIndex=2 BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=0 Nodes=n[01-04] BlockSize=4
"""


def test_a_tree_is_read_from_the_leaf_on() -> None:
    """Whatever the order of the lines, a node's switches stand from the nearest to the farthest."""
    found = slurm_topology(TREE)
    assert found.kind == "tree"
    assert found.paths["n1"] == ("leaf1", "spine1", "core")
    assert found.paths["n4"] == ("leaf2", "spine1", "spine2", "core")


def test_blocks_and_what_they_are_part_of() -> None:
    """A node's block comes first, then the blocks that Slurm makes of several; an empty block holds nobody."""
    found = slurm_topology(BLOCK)
    assert (found.kind, found.paths["n03"]) == ("block", ("b2", "b[1-2]"))
    assert sorted(found.paths) == ["n01", "n02", "n03", "n04"]


def test_no_topology_is_said() -> None:
    """Slurm without a topology prints nothing on stdout."""
    found = slurm_topology("")
    assert (found.kind, dict(found.paths)) == ("none", {})


@pytest.mark.parametrize("text", ["hello", "SwitchName= Level=0", "SwitchName=s Level=x", TREE + BLOCK])
def test_another_form_is_refused(text: str) -> None:
    """What is no topology is not read as an empty one."""
    with pytest.raises(ParseError, match="scontrol show topology: expected"):
        slurm_topology(text)
