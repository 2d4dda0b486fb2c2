"""Names of many nodes in few words, and back."""

from __future__ import annotations

import itertools
import re

import pytest

from pytest_gpuready.certificate.folded import folded, folded_lines


def unfolded(text: str) -> list[str]:
    """The names of a folded text, as ClusterShell reads it."""
    names = []
    for before, ranges, after in re.findall(r"([^,\[]+)(?:\[([^\]]*)\]([^,]*))?,?", text):
        for one in ranges.split(",") if ranges else ():
            first, _, last = one.partition("-")
            names += [f"{before}{n:0{len(first)}d}{after}" for n in range(int(first), int(last or first) + 1)]
        names += [] if ranges else [before]
    return names


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["node01"], "node01"),
        ([f"node{n:03d}" for n in range(1, 513)], "node[001-512]"),
        (["node999", "node1000", "node001"], "node[001,999-1000]"),
        (["node1", "node01", "node2"], "node[1-2],node01"),
        (["b", "a", "b"], "b,a"),
        (["r1n3-ib", "r1n4-ib", "r2n4-ib"], "r1n[3-4]-ib,r2n4-ib"),
        (["<b>1", "<b>2", "a,b[1]"], "<b>[1-2],a,b[1]"),
    ],
)
def test_names_are_folded(names: list[str], said: str) -> None:
    """Ranges of the last number, zeros in front kept apart; the order is that of the first name of each word."""
    assert folded(names) == said


def test_no_name_is_lost_or_made_up() -> None:
    """Whatever the mixture of widths and gaps, unfolding gives the names back."""
    numbers = [1, 2, 3, 7, 8, 9, 10, 11, 98, 99, 100, 101, 1000]
    forms = ("n%d", "n%02d", "n%03d", "m%d-x")
    for chosen in itertools.combinations(forms, 2):
        for step in (1, 2, 3):
            names = [form % n for form in chosen for n in numbers[::step]]
            assert sorted(unfolded(folded(names))) == sorted(set(names))


def test_what_has_no_room_is_counted() -> None:
    """With a bound so many ranges are told, and the number of the other names."""
    assert folded((f"n{n}" for n in range(0, 100, 2)), 3) == "n[0,2,4] and 47 more"
    assert folded(["a", "b", "c"], 2) == "a,b and 1 more"


def test_equal_lines_of_several_nodes_are_one() -> None:
    """A line that many nodes say is told once with their names; with one node nothing is changed."""
    lines = ["n1: no DCGM", "level 1", "n2: no DCGM", "n2: other", "x: not a node"]
    assert folded_lines(lines, ["n1", "n2"]) == ["n[1-2]: no DCGM", "level 1", "n2: other", "x: not a node"]
    assert folded_lines(lines[:2], ["n1"]) == lines[:2]
