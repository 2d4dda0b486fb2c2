"""ethtool -S: counters by card, the name from wherever it stands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ethtool import parse_ethtool
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

TEXT = (CASES / "074" / "ethtool.txt").read_text()


def test_counters_are_by_card() -> None:
    """Two cards in one text are two cards, named by their headings; queue counters keep their number."""
    text = "== eth4 ==\nNIC statistics:\n   a_phy: 1\n   [0]: rx_uc: 7\n== eth5 ==\nNIC statistics:\n     a_phy: 2\n"
    cards = parse_ethtool(text.splitlines())
    assert [(c.card, c.counters) for c in cards] == [("eth4", {"a_phy": 1, "[0]: rx_uc": 7}), ("eth5", {"a_phy": 2})]


def test_a_counter_with_two_values_is_none() -> None:
    """The same name twice is read once; with another value it cannot be read."""
    (card,) = parse_ethtool(["NIC statistics:", "   a: 1", "   a: 1", "   b: 1", "   b: 2", "   b: 2", "   c: x"])
    assert (card.counters, card.unreadable) == ({"a": 1}, ("b", "c"))


def test_what_is_no_statistics_is_refused() -> None:
    """A driver without statistics prints a sentence."""
    with pytest.raises(ParseError, match="found none"):
        parse_ethtool(["no stats available"])


@settings(max_examples=150, deadline=None)
@given(damages(TEXT))
def test_damage_gives_counters_or_a_refusal(text: str) -> None:
    """Never another error, and no counter both read and unreadable."""
    for card in read_or_refused(lambda: parse_ethtool(text.split("\n"))) or ():
        assert not set(card.counters) & set(card.unreadable)
