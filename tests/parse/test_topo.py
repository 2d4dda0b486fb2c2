"""The topology matrix: tabs, blanks, escapes, old names, contradictions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.topo import topo_header, topology

TEXT = [
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m",
    "GPU0\t X \tNV18\tPIX\t0-47,96-143\t0\t\tN/A",
    "GPU1\tNV18\t X \tSYS\t48-95\t1\t\tN/A",
    "NIC0\tPIX\tSYS\t X ",
    "",
    "Legend:",
    "  NV#  = Connection traversing a bonded set of # NVLinks",
    "NIC Legend:",
    "  NIC0: mlx5_0",
]


@pytest.mark.parametrize("blanks", [False, True])
def test_tabs_and_blanks(blanks: bool) -> None:
    """Both come to the same devices, cells, names and NUMA nodes."""
    topo = topology([line.replace("\t", "      ") if blanks else line for line in TEXT])
    assert (topo.gpus, topo.nics, topo.nic_names) == (("GPU0", "GPU1"), ("NIC0",), {"NIC0": "mlx5_0"})
    assert (topo.between("GPU0", "GPU1"), topo.between("GPU1", "NIC0")) == ("NV18", "SYS")
    assert topo.numa == {"GPU0": "0", "GPU1": "1"}
    assert "NV#" in topo.legend
    assert topo.wrong == ()


def test_cards_by_their_own_names() -> None:
    """Older drivers head the columns with mlx5_0 and the like."""
    assert topo_header("\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity") == ("GPU0", "GPU1", "mlx5_0", "mlx5_1")


@pytest.mark.parametrize(
    "lines",
    [
        [TEXT[0], TEXT[1], "GPU1\tSYS\t X \tSYS\t48-95\t1\t\tN/A", TEXT[3]],
        [TEXT[0], TEXT[1], "GPU1\tNV18", TEXT[3]],
        [TEXT[0], TEXT[1], "GPU1\t X \tNV18\tSYS", TEXT[3]],
        [TEXT[0], TEXT[1], "GPU0\t X \tNV12\tPIX", TEXT[2], TEXT[3]],
    ],
)
def test_what_cannot_be_is_said(lines: list[str]) -> None:
    """Halves that differ, rows that are short, an X in the wrong place and rows that come twice are wrong."""
    assert topology(lines).wrong


@pytest.mark.parametrize("lines", [[], ["hello"], [TEXT[0]], ["\tGPU0\tGPU0", "GPU0\t X \t X "]])
def test_no_matrix_is_refused(lines: list[str]) -> None:
    """Without header or rows there is no matrix."""
    with pytest.raises(ParseError, match="nvidia-smi topo: expected"):
        topology(lines)


@given(
    st.lists(st.sampled_from([*TEXT, "GPU0 X", "GPU1\tNV#\tX\tX", "GPU2", "\tGPU0\tGPU1"]), max_size=10),
    st.text(max_size=9),
)
def test_any_mixture(lines: list[str], text: str) -> None:
    """Lines in any order, and any text among them, are read or refused."""
    with contextlib.suppress(ParseError):
        topology([*lines, text])
