"""In which rack a node stands: the site file says it, or Slurm's switches stand for it where somebody compares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from pytest_gpuready import profiles
from pytest_gpuready.errors import InventoryError, TransportError
from pytest_gpuready.inventory import resolve
from pytest_gpuready.inventory.racks import asked_for, with_switches
from pytest_gpuready.model import Inventory, PeerLimit, Profile, Source
from pytest_gpuready.parse.slurm_topology import slurm_topology
from tests.inventory.hand_made import healthy
from tests.inventory.test_site import SiteOf

SHIPPED = profiles.load("h200-sxm")
SITE = 'site: 1\nnodes:\n  "node[1-2]": {gpus: 2, rack: r1}\n  "node[3-5]": {gpus: 2}\n'
TOPOLOGY = """SwitchName=s0 Level=0 LinkSpeed=1 Nodes=node[1-3]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=node4
SwitchName=core Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=s[0-1]
"""


def in_racks() -> Profile:
    """The shipped profile with copies compared within racks."""
    source = Source(kind="rule", cite="made for this test")
    peers = PeerLimit(source=source, among=("rack",), worse="lower", percent=15.0, unit="GB/s")
    clauses = (dataclasses.replace(c, peers=peers) if c.id == "PCIE-5" else c for c in SHIPPED.clauses)
    return dataclasses.replace(SHIPPED, clauses=tuple(clauses))


def found(site_of: SiteOf) -> Inventory:
    docs = {f"node{n}": dataclasses.replace(healthy(2), host=f"node{n}", boot_id=f"b{n}") for n in range(1, 6)}
    return resolve(site_of(SITE), docs, profile=SHIPPED)


def racks(inventory: Inventory) -> dict[str, str]:
    return {node.name: node.rack for node in inventory.nodes}


def test_the_site_file_says_it_for_sets_of_nodes(site_of: SiteOf) -> None:
    """A rack holds for all nodes of an entry; nobody asks Slurm where no clause compares within racks."""
    inventory = found(site_of)
    assert racks(inventory) == {"node1": "r1", "node2": "r1", "node3": "", "node4": "", "node5": ""}
    assert not asked_for(SHIPPED, inventory)
    assert asked_for(in_racks(), inventory)


def test_switches_stand_for_the_racks_that_nobody_declared(site_of: SiteOf) -> None:
    """A declared rack stays, a leaf switch fills the gaps, and the certificate says both who has one and who not."""
    inventory = with_switches(found(site_of), lambda: slurm_topology(TOPOLOGY).paths)
    assert racks(inventory) == {"node1": "r1", "node2": "r1", "node3": "s0", "node4": "s1", "node5": ""}
    assert inventory.assumptions[-2:] == (
        "racks of node[3-4]: taken to be the switches that Slurm knows, s0, s1",
        "no rack is known of node5: neither the site file nor Slurm names one",
    )


def test_a_slurm_that_does_not_answer_is_said(site_of: SiteOf) -> None:
    """Without an answer the racks stay unknown, and the run goes on."""

    def ask() -> Mapping[str, tuple[str, ...]]:
        raise TransportError("scontrol: no answer within 10 s")

    inventory = with_switches(found(site_of), ask)
    assert racks(inventory)["node3"] == ""
    assert "no rack is known of node[3-5], and no switch either: scontrol" in inventory.assumptions[-1]


def test_a_rack_is_a_name(site_of: SiteOf) -> None:
    """Nothing that would break a line of the certificate is one."""
    with pytest.raises(InventoryError, match="rack"):
        site_of('site: 1\nnodes:\n  node1: {gpus: 2, rack: ""}\n')
