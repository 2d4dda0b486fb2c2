"""`inventory.identity` and `nodeset`: who answered, and what a set of names is."""

from __future__ import annotations

import pytest

from pytest_gpuready.errors import InventoryError
from pytest_gpuready.inventory.found import models
from pytest_gpuready.inventory.identity import impostors, same_host, shared
from pytest_gpuready.inventory.nodeset import expand, fold
from tests.inventory.hand_made import gpu_doc, node_found, pci_gpu


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("node01", "node01", True),
        ("NODE01", "node01.", True),
        ("node01.hall.example", "node01", True),
        ("gpu1.hall-a", "gpu1.hall-a.example", True),
        ("gpu1.hall-a", "gpu1.hall-b", False),
        ("node01", "node011", False),
        ("", "node01", False),
    ],
)
def test_hosts_are_compared_label_by_label(one: str, other: str, same: bool) -> None:
    """A domain that one of them lacks makes no difference, one that differs does."""
    assert same_host(one, other) is same


def test_one_machine_is_one_node() -> None:
    """One boot, one host without a boot id, and one GPU behind two names are told of both; an impostor costs nobody."""
    answers = {"a": ("a", "b1"), "b": ("b", "b2"), "c": ("a", "b1"), "d": ("d", "b2"), "e": ("e", ""), "f": ("f", "")}
    wrong = impostors(answers, None)
    assert set(wrong) == {"b", "c", "d"}
    assert "calls itself 'a'" in wrong["c"]
    assert "found boot 'b2' behind d as well" in wrong["b"]
    assert set(impostors({"n": ("n", ""), "N": ("n", "")}, None)) == {"n", "N"}
    assert set(shared({("GPU", "u1"): ["a", "b"], ("GPU", "u2"): ["c", "c"]})) == {"a", "b"}


def test_every_node_has_one_vote_for_the_profile() -> None:
    """However many GPUs a node lists, it counts once; one that has none does not count."""
    many = node_found([pci_gpu(i % 8, "10de:2330") for i in range(8)], [gpu_doc(0)])
    one = node_found([pci_gpu(0)], [gpu_doc(0)])
    assert sorted(models({"a": many, "b": one, "c": one, "d": node_found([], [])})) == ["10de:2330", *["10de:2335"] * 2]


def test_names_are_unfolded_and_folded() -> None:
    """Sets come in the order of their numbers, each name once, and back."""
    assert expand("node[008-010,009]") == ("node008", "node009", "node010")
    assert fold(expand("rack[1-2]n[1-2]")) == "rack[1-2]n[1-2]"
    assert fold(("a",)) == "a"


def test_sets_beside_each_other_are_counted_together() -> None:
    """Two ranges are as many nodes as both have, however large; only within one name ranges multiply."""
    assert len(expand("a[1-150],b[1-150],c[1-2]d[1-2]")) == 304
    for text in ("a[1-20000],b[1-2]", "a[1-200]b[1-200]", "a[1-9,10-30000]"):
        with pytest.raises(InventoryError, match="more than 20000 nodes"):
            expand(text)
