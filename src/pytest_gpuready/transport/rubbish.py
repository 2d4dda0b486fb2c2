"""What is kept of an answer that is none: its beginning. A thousand nodes that send rubbish must cost no memory.

An agent answers with one JSON document on stdout, which may be long; whatever else it prints is for people to look at.
"""

from __future__ import annotations

import dataclasses

import msgspec

from pytest_gpuready.model import CommandResult

KEPT_BYTES = 65_536
"""Bytes of such an output that are kept; of stderr the last."""

CUT = f"output that is no answer of an agent: kept are the first {KEPT_BYTES} bytes of it"


def begins_as_answer(output: bytes | bytearray) -> bool:
    """True as long as it can become one JSON document."""
    head = output[:KEPT_BYTES].lstrip()
    return not head or head.startswith(b"{")


def is_answer(output: bytes | bytearray) -> bool:
    """True where it is one JSON document, whatever stands in it."""
    try:
        msgspec.json.decode(output, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return begins_as_answer(output)


def shortened(result: CommandResult) -> CommandResult:
    """The result with the beginning of its stdout, and a word about that on its stderr, where it is longer."""
    raw = result.stdout.encode("utf-8", errors="replace")
    if len(raw) <= KEPT_BYTES:
        return result
    kept = raw[:KEPT_BYTES].decode("utf-8", errors="replace")
    return dataclasses.replace(result, stdout=kept, stderr=f"{result.stderr}\n{CUT}")
