"""ibstat and ibstatus: the same rows from both, in the layouts that rdma-core prints."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ib_ports import parse_ib_ports
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

IBSTAT = (CASES / "065" / "ibstat.txt").read_text()
IBSTATUS = (CASES / "067" / "ibstatus.txt").read_text()
SIMULATED = (
    "CA 'ibsim0'\n\tCA type: simulator\n\tNumber of ports: 1\n\tFirmware version: 1\n\tPort 1:\n\t\tState: Active\n"
    "\t\tPhysical state: LinkUp\n\t\tRate: 104\n\t\tBase lid: 5\n\t\tSM lid: 1\n\t\tLink layer: IB\n"
)
ALONE = "CA: 'mlx5_0'\nPort 2:\nState: Down\nPhysical state: Disabled\nRate: 2.5\nSM lid: 0\nLink layer: InfiniBand\n"


def test_both_tools_give_the_same_rows() -> None:
    """States by name, rates by number, labels beside them, lids in either base."""
    ports = parse_ib_ports(IBSTAT.splitlines())
    assert [(p.name, p.state, p.physical, p.rate_gbit) for p in ports][3] == ("mlx5_3", "Down", "Polling", 10.0)
    assert ports[0].firmware == "28.41.1000"
    first = parse_ib_ports(IBSTATUS.splitlines())[0]
    assert (first.state, first.physical, first.rate_gbit, first.label, first.sm_lid) == (
        "Active",
        "LinkUp",
        400,
        "4X EDR",
        3,
    )


def test_other_layouts_of_the_tool() -> None:
    """A simulated adapter's layer is "IB"; one port alone is printed without indent."""
    assert parse_ib_ports(SIMULATED.splitlines())[0].layer == "InfiniBand"
    alone = parse_ib_ports(ALONE.splitlines())[0]
    assert (alone.name, alone.physical, alone.rate_gbit, alone.whole) == ("mlx5_0/2", "Disabled", 2.5, True)


@pytest.mark.parametrize(
    "text", ["", "mlx5_0\nmlx5_1\n", "0xa088c20300100000\n", IBSTAT + IBSTAT, IBSTAT.replace("Polling", "Dancing")]
)
def test_what_is_no_ibstat_is_refused(text: str) -> None:
    """Nothing, the short lists, two nodes in one text and a state that does not exist are refused."""
    with pytest.raises(ParseError, match="found"):
        parse_ib_ports(text.splitlines())


@settings(max_examples=150, deadline=None)
@given(st.one_of(damages(IBSTAT), damages(IBSTATUS)))
def test_damage_gives_rows_or_a_refusal(text: str) -> None:
    """Never another error; a row that lacks something says so."""
    for port in read_or_refused(lambda: parse_ib_ports(text.split("\n"))) or ():
        assert port.whole == (None not in (port.state, port.physical, port.rate_gbit, port.layer))
