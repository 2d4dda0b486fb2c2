"""perfquery: tables by port, narrow and wide counters of the same port together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.perfquery import parse_perfquery
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

TEXT = (CASES / "068" / "perfquery.txt").read_text()
PLAIN = (
    "# Port counters: Lid 5 port 1 (CapMask: 0x1200)\nPortSelect:......................1\n"
    "SymbolErrorCounter:..............65535\nPortXmitData:....................4294967295\n"
)
WIDE = (
    "# Port extended counters: Lid 5 port 1 (CapMask: 0x1200 CapMask2: 0x0000000)\n"
    "PortSelect:......................1\nPortXmitData:....................99000000000\n"
)


def test_tables_of_one_port_are_read_together() -> None:
    """The wide counter replaces the narrow one; what only the narrow table has and is full says so."""
    (port,) = parse_perfquery((PLAIN + WIDE).splitlines())
    assert port.name == "Lid 5 port 1"
    assert port.counters == {"SymbolErrorCounter": 65535, "PortXmitData": 99000000000}
    assert port.saturated == ("SymbolErrorCounter",)


def test_details_of_errors_are_a_table_too() -> None:
    """`perfquery -E` prints another heading; all ports of a node are port 255."""
    text = "# PortRcvErrorDetails counters: Lid 7 port 255\nPortSelect:...255\nPortLocalPhysicalErrors:.........3\n"
    (port,) = parse_perfquery(text.splitlines())
    assert (port.name, port.counters) == ("Lid 7 port 255 (all ports)", {"PortLocalPhysicalErrors": 3})


@pytest.mark.parametrize(
    "text", ["", "perfquery: iberror: failed\n", PLAIN.replace("Select:......................1", "Select:...2")]
)
def test_what_is_no_table_is_refused(text: str) -> None:
    """Nothing, an error, and a table that names another port than its heading are refused."""
    with pytest.raises(ParseError, match="found"):
        parse_perfquery(text.splitlines())


@settings(max_examples=150, deadline=None)
@given(damages(TEXT))
def test_damage_gives_counters_or_a_refusal(text: str) -> None:
    """Never another error, and never a counter that is both read and unreadable."""
    for port in read_or_refused(lambda: parse_perfquery(text.split("\n"))) or ():
        assert not set(port.counters) & set(port.unreadable)
