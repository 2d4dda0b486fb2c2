"""mlxlink: many dumps in a text, colours, messages, JSON, and rates by lanes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.mlxlink import parse_mlxlink
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

TEXT = (CASES / "072" / "mlxlink.txt").read_text()


def test_dumps_are_named_and_messages_kept() -> None:
    """A heading names a dump; the line -E- is a message and no end of the dump."""
    dumps = parse_mlxlink(TEXT.splitlines())
    assert [(link.device, link.gbit) for link in dumps.links] == [("mt4123_pciconf0", 200), ("mt4123_pciconf1", 100)]
    assert dumps.errors == ('"--show_ber_monitor" option is not supported for HCA',)


@pytest.mark.parametrize(
    ("speed", "width", "gbit"),
    [
        ("IB-NDR", "4x", 400),
        ("IB-XDR", "4x", 800),
        ("IB-EDR", "1x", 25),
        ("200G", "4x", 200),
        ("400G_4X", "4x", 400),
        ("N/A", "4x", None),
    ],
)
def test_the_rate_is_lane_rate_times_width(speed: str, width: str, gbit: float | None) -> None:
    """InfiniBand by lanes, Ethernet as it says, nothing where nothing is said; colours are taken away."""
    text = (
        f"Operational Info\n--\nState: \x1b[32mActive\x1b[0m\nSpeed : {speed}\nWidth : {width}\nSymbol BER: 15E-255\n"
    )
    (link,) = parse_mlxlink(text.splitlines(), "mlxlink -d mlx5_1").links
    assert (link.device, link.text("State"), link.gbit, link.ber("Symbol BER")) == ("mlx5_1", "Active", gbit, 1.5e-254)


def test_json_documents_follow_each_other() -> None:
    """Several JSON documents in one file are several links; a failed one is a message."""
    good = {"result": {"output": {"Operational Info": {"State": "Active"}}}, "status": {"code": 0}}
    bad = {"result": None, "status": {"code": 1, "message": "device is not there"}}
    dumps = parse_mlxlink((json.dumps(good, indent=1) + "\n" + json.dumps(bad)).splitlines())
    assert (len(dumps.links), dumps.errors) == (1, ("device is not there",))


@pytest.mark.parametrize("text", ["", "{", "{}", "State : Active\n", "[1]\n"])
def test_what_is_no_dump_is_refused(text: str) -> None:
    """Nothing, broken or foreign JSON, and fields without their heading are refused."""
    with pytest.raises(ParseError, match="found"):
        parse_mlxlink(text.splitlines())


@settings(max_examples=150, deadline=None)
@given(damages(TEXT))
def test_damage_gives_links_or_a_refusal(text: str) -> None:
    """Never another error; a rate only where speed and width are there."""
    dumps = read_or_refused(lambda: parse_mlxlink(text.split("\n")))
    for link in dumps.links if dumps else ():
        assert link.gbit is None or "Speed" in link.fields
