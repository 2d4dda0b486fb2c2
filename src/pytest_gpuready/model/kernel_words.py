"""The words by which a kernel-log line reports something: one rule for whoever keeps lines and whoever judges them.

A line that the agent drops cannot be judged, and one that it keeps for nothing crowds another one out: so both sides
read the same patterns.
"""

from __future__ import annotations

import re

DRIVER = "NVRM"
"""How the GPU driver marks its lines."""

XID_IN_BRACKETS = re.compile(r"(?<![A-Za-z0-9_])Xid(?=\s*[(\[]\s*(?:PCI|[0-9a-f]{4,8}:[0-9a-f]{2}:))", re.IGNORECASE)
"""Outside the driver's own lines only with a PCI address in the brackets: RPC and file systems have xids too."""
XID_BEGINS = re.compile(r"(?<![A-Za-z0-9_])Xid(?=\s*[(\[]|[\s:]+\d)", re.IGNORECASE)
"""Without brackets only in a line of the driver: other parts of the kernel have an xid of their own."""
SXID_BEGINS = re.compile(r"(?<![A-Za-z0-9_])SXid(?=\s*[(\[:]|\s+\d)", re.IGNORECASE)
OFF_THE_BUS = re.compile(r"fallen off the bus", re.IGNORECASE)
NO_START = re.compile(r"\b(?:RmInitAdapter|rm_init_adapter) failed", re.IGNORECASE)
UNCORRECTED = re.compile(r"\bUncorrect(?:ed|able)\b|\bDPC: containment", re.IGNORECASE)


def xid_begins(text: str) -> re.Pattern[str]:
    """How an Xid begins in this line: a line of the driver needs no address for it."""
    return XID_BEGINS if DRIVER in text else XID_IN_BRACKETS


def events(text: str) -> list[int]:
    """Where in a line something is reported: errors by number, lost or unstarted GPUs, uncorrected PCIe errors."""
    low = text.lower()
    words = [
        *((xid_begins(text), SXID_BEGINS) if "xid" in low else ()),  # most lines have none of them: looked up fast
        *((OFF_THE_BUS,) if "off the bus" in low else ()),
        *((NO_START,) if "adapter failed" in low else ()),
        *((UNCORRECTED,) if "uncorrect" in low or "containment" in low else ()),
    ]
    return sorted({match.start() for word in words for match in word.finditer(text)})
