"""Kernel logs of every format: time, text, lines that belong together."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.kernel_text import before, kernel_record, kernel_records, moment


@pytest.mark.parametrize(
    ("line", "text", "boot", "wall"),
    [
        ("[   38.771204] NVRM: x", "NVRM: x", 38.771204, None),
        ("[   38.771204][  T123] NVRM: x", "NVRM: x", 38.771204, None),
        ("<6>[   38.771204] NVRM: x", "NVRM: x", 38.771204, None),
        ("kern  :warn  : [   38.771204] NVRM: x", "NVRM: x", 38.771204, None),
        ("[Wed Mar 12 05:31:40 2025] NVRM: x", "NVRM: x", None, "2025-03-12T05:31:40"),
        ("2025-03-12T05:31:40,123456+00:00 NVRM: x", "NVRM: x", None, "2025-03-12T05:31:40+00:00"),
        ("2025-03-12T05:31:40+0100 node kernel: NVRM: x", "NVRM: x", None, "2025-03-12T05:31:40+01:00"),
        ("Mar 12 05:31:40 node kernel: NVRM: x", "NVRM: x", None, "2025-03-12T05:31:40"),
        ("Mar  2 05:31:40 node kernel: [   12.5] NVRM: x", "NVRM: x", 12.5, "2025-03-02T05:31:40"),
        ("NVRM: x", "NVRM: x", None, None),
    ],
)
def test_formats(line: str, text: str, boot: float | None, wall: str | None) -> None:
    """Time and source are taken off, whatever the format."""
    found = kernel_record(line, datetime(2025, 4, 1))
    assert (found.text, found.boot_s, found.wall) == (text, boot, moment(wall) if wall else None)
    assert found.timed == (boot is not None or wall is not None)


def test_the_nearest_year() -> None:
    """December before a January is last year's."""
    near = moment("2026-01-02T08:00:00")
    assert kernel_record("Dec 31 23:00:00 n kernel: x", near).wall == moment("2025-12-31T23:00:00")


def test_lines_that_belong_together() -> None:
    """Indented lines without a time go to the message above; others are their own."""
    lines = ["[ 1.0] NVRM: The NVIDIA GPU", "           NVRM: has", "           NVRM: fallen off", "[ 2.0] y", "z"]
    assert [r.text for r in kernel_records(lines, None)] == [
        "NVRM: The NVIDIA GPU NVRM: has NVRM: fallen off",
        "y",
        "z",
    ]


def test_zones_are_compared_where_both_are_known() -> None:
    """With two zones the moment counts, with one missing the clock."""
    a, b = moment("2025-11-10T09:00:00+02:00"), moment("2025-11-10T08:00:00Z")
    c = moment("2025-11-10T08:30:00")
    assert a
    assert b
    assert c
    assert before(a, b)
    assert not before(a, c)


@given(st.lists(st.text(max_size=60), max_size=10))
def test_any_text(lines: list[str]) -> None:
    """No text makes the parser raise, and no line is lost but blank ones."""
    for prefix in ("", "[Wed Mar 99 05:31:40 2025] ", "2025-99-12T05:31:40 ", "Feb 30 05:31:40 ", "[ 1.0] "):
        assert len(list(kernel_records([prefix + line for line in lines], moment("2025-01-01T00:00:00")))) <= len(lines)
