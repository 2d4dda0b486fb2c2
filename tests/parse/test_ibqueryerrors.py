"""ibqueryerrors: bad ports with their partner, the summary, and nothing counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.ibqueryerrors import parse_ibqueryerrors
from tests.audit.case_reading import CASES
from tests.parse.damage import damages, read_or_refused

TEXT = (CASES / "070" / "ibqueryerrors.txt").read_text()


def test_the_sum_of_a_switch_is_no_port() -> None:
    """Two ports, not three; a host's node has no GUID in its heading; human forms beside a number are skipped."""
    scan = parse_ibqueryerrors(TEXT.splitlines())
    assert [(p.node, p.port, p.switch) for p in scan.bad] == [
        ("gx-r02-n07 mlx5_2", 1, False),
        ("MF0;leaf-07:MQM9700/U1", 33, True),
    ]
    assert scan.bad[0].counters == {"SymbolErrorCounter": 5120, "LinkDownedCounter": 4}
    assert (scan.nodes_checked, scan.ports_checked, scan.bad_ports) == (66, 130, 2)
    assert scan.thresholds == {"SymbolErrorCounter": 10, "LinkDownedCounter": 1}
    assert scan.ended


@pytest.mark.parametrize(
    "text", ["", "ibwarn: [1] mad_rpc failed\n", TEXT.replace("== 4]", "== x]"), TEXT + TEXT.replace("130", "131")]
)
def test_what_is_no_scan_is_refused(text: str) -> None:
    """Nothing, warnings alone, counters without a number and two scans in one text are refused."""
    with pytest.raises(ParseError, match="found"):
        parse_ibqueryerrors(text.splitlines())


@settings(max_examples=150, deadline=None)
@given(damages(TEXT))
def test_damage_gives_a_scan_or_a_refusal(text: str) -> None:
    """Never another error; without its last line a scan has not ended."""
    scan = read_or_refused(lambda: parse_ibqueryerrors(text.split("\n")))
    if scan is not None and scan.ended:
        assert "## Suppressed:" in text
