"""Progress among what a command prints on stderr: lines that an agent writes while it works, taken out of the text.

Such a line is the prefix and one JSON object. Anything else that begins like it (half a line, another form, more than
a person could read) is text like all the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytest_gpuready.model.agent_words import PROGRESS

LONGEST = 4096
"""Bytes of a progress line; a longer one is text."""

_PREFIX = PROGRESS.encode("ascii")


class ProgressLines:
    """Takes a stream piece by piece: `said` gets the progress in it, what is returned is the rest, byte by byte."""

    def __init__(self, said: Callable[[dict[str, object]], None]) -> None:
        self._said = said
        self._tail = b""
        self._in_text = False
        """True in the middle of a line that is no progress."""

    def feed(self, piece: bytes) -> bytes:
        """What of this piece, and of what was held back before it, is text."""
        text = b""
        *lines, tail = (self._tail + piece).split(b"\n")
        for line in lines:
            if self._in_text or not self._is_progress(line):
                text += line + b"\n"
            self._in_text = False
        self._tail = b""
        if self._in_text or len(tail) > LONGEST or not (_PREFIX.startswith(tail) or tail.startswith(_PREFIX)):
            self._in_text = self._in_text or bool(tail)
            return text + tail
        self._tail = tail
        return text

    def rest(self) -> bytes:
        """What was held back when the stream ended: half a line is no progress."""
        tail, self._tail = self._tail, b""
        return tail

    def _is_progress(self, line: bytes) -> bool:
        if not line.startswith(_PREFIX) or len(line) > LONGEST:
            return False
        try:
            said = msgspec.json.decode(line[len(_PREFIX) :], type=dict[str, object])
        except (msgspec.DecodeError, RecursionError):
            return False
        self._said(said)
        return True
