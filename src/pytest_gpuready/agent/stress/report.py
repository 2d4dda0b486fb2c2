"""What kernels report of errors: how many there were, and the first of them with their places."""

from __future__ import annotations

import struct

from pytest_gpuready.model.stress_doc import MOST_ERRORS

ENTRY = struct.Struct("<QQQQ")
HEAD = struct.Struct("<QQdQ")
REPORT = HEAD.size + MOST_ERRORS * ENTRY.size
BOUNDLESS = 1e300
"""Stands for a residual that is infinite or no number: JSON has neither. The kernels know it, too."""


class Report:
    """What kernels noted: how many errors, the worst residual, and the first errors with their places."""

    def __init__(self, data: bytes) -> None:
        self.count, kept, worst, _ = HEAD.unpack_from(data)
        self.worst: float = worst if worst < BOUNDLESS else BOUNDLESS  # also where it is no number
        places = range(min(kept, MOST_ERRORS))
        self.entries: list[tuple[int, int, int, int]] = [
            ENTRY.unpack_from(data, HEAD.size + place * ENTRY.size) for place in places
        ]


def lowest_bit(expected: int, found: int) -> int:
    """The lowest bit that differs."""
    differ = expected ^ found
    return (differ & -differ).bit_length() - 1 if differ else 0
