"""CSV of nvidia-smi: columns by name, rows that fit, names of both generations."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.smi_csv import csv_header, csv_row, key, queried


def test_units_are_no_part_of_a_name() -> None:
    """A unit in brackets belongs to the column, and old names are new ones."""
    assert csv_header("index, power.draw [W], clocks_throttle_reasons.active") == (
        "index",
        "power.draw",
        "clocks_event_reasons.active",
    )


@pytest.mark.parametrize("line", ["hello, world", "a b, c", "index", "0, NVIDIA H100, 31", "", "time,value"])
def test_what_is_no_header(line: str) -> None:
    """Text and rows are no header."""
    assert csv_header(line) == ()


def test_names_from_the_command() -> None:
    """The command's list counts where it is whole; one cut by dots does not."""
    assert queried("nvidia-smi --query-gpu=index,gpu_name --format=csv,noheader") == ("index", "name")
    assert queried("nvidia-smi --query-gpu=index,... --format=csv") == ()
    assert queried("nvidia-smi -q") == ()


def test_a_row_that_does_not_fit_is_refused() -> None:
    """Fewer or more values than names, or an index that is none: refused, not shifted."""
    names = ("index", "name", "pstate")
    assert csv_row("3, NVIDIA H100 80GB HBM3, P0", names).index == 3
    for row in ("3, NVIDIA H100 80GB HBM3", "3, a, b, c", "x, NVIDIA H100 80GB HBM3, P0", ""):
        with pytest.raises(ParseError, match="nvidia-smi CSV: expected"):
            csv_row(row, names)


def test_the_same_gpu_has_the_same_key() -> None:
    """Rows of one GPU share a key; rows without any identity are each their own."""
    assert key(csv_row("1, P0", ("index", "pstate")), 0) == key(csv_row("1, P8", ("index", "pstate")), 5)
    assert key(csv_row("P0, 3", ("pstate", "fan.speed")), 0) != key(csv_row("P0, 3", ("pstate", "fan.speed")), 1)


@given(st.text(max_size=80))
def test_any_row_is_read_or_refused(text: str) -> None:
    """No text makes a row anything but read or refused."""
    with contextlib.suppress(ParseError):
        assert len(csv_row(text, ("index", "name")).cells) == 2
    csv_header(text)
    queried(text)
