"""Values of nvidia-smi: numbers, words, nothing, trouble; never one for the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.smi_values import cell


@pytest.mark.parametrize(
    ("text", "kind", "number", "unit"),
    [
        ("0", "number", 0.0, ""),
        (" 41.07 W ", "number", 41.07, "W"),
        ("16x", "number", 16.0, "x"),
        ("3072 bank(s)", "number", 3072.0, "bank(s)"),
        ("-8 C", "number", -8.0, "C"),
        ("0x0000000000000044", "number", 68.0, ""),
        ("NVIDIA H100 80GB HBM3", "word", None, ""),
        ("None", "word", None, ""),
        ("Not Active", "word", None, ""),
        (" N/A ", "absent", None, ""),
        ("[N/A]", "absent", None, ""),
        ("[Not Supported]", "absent", None, ""),
        ("[Insufficient Permissions]", "absent", None, ""),
        ("Requested functionality has been deprecated", "absent", None, ""),
        ("", "absent", None, ""),
        ("[GPU requires reset]", "fault", None, ""),
        ("[GPU is lost]", "fault", None, ""),
        ("[Unknown Error]", "fault", None, ""),
        ("ERR!", "fault", None, ""),
        ("[Something new]", "unreadable", None, ""),
    ],
)
def test_kinds_of_values(text: str, kind: str, number: float | None, unit: str) -> None:
    """Each printed value is of one kind, with its number and unit where it has one."""
    found = cell(text)
    assert (found.kind, found.number, found.unit) == (kind, number, unit)


@given(st.text(max_size=40))
def test_only_numbers_have_a_number(text: str) -> None:
    """Whatever is printed: a number is there exactly where the value is one."""
    found = cell(text)
    assert (found.number is not None) == (found.kind == "number")
    if text.strip().startswith("["):
        assert found.number is None
