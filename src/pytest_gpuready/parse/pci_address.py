"""PCI addresses as tools print them -> one spelling, "0000:1b:00.0".

Four-digit domain, lower case; domain 0000 and function 0 where the text has none.
"""

from __future__ import annotations

import re

from pytest_gpuready.errors import ParseError

PATTERN = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
"""An address with or without domain and function; no anchors."""

_ADDRESS = re.compile(r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


def pci_address(text: str) -> str:
    """The address in the one spelling.

    Raises:
        ParseError: the text is no PCI address.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if not match:
        raise ParseError(f"expected a PCI address like 0000:1b:00.0, found {text[:40]!r}")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{device.lower()}.{function or '0'}"
