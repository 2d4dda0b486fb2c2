"""PCI addresses of every spelling come to one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.pci_address import pci_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("PCI:0000:4d:00", "0000:4d:00.0"),
        ("0009:01:1d.2", "0009:01:1d.2"),
        ("10000:e0:01.0", "10000:e0:01.0"),
    ],
)
def test_spellings(text: str, address: str) -> None:
    """Domain of four digits or more, lower case, function 0 where none is printed."""
    assert pci_address(text) == address


@given(st.text(max_size=30))
def test_anything_else_is_refused(text: str) -> None:
    """A text is an address in the one spelling, or refused."""
    with suppress(ParseError):
        assert pci_address(pci_address(text)) == pci_address(text)
