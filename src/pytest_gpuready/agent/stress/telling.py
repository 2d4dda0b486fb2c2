"""Progress of a run on stderr: how long it has run, which phase, and the readings of the GPUs under load."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import msgspec

from pytest_gpuready.model.agent_words import PROGRESS

EVERY_S = 5.0
AT_LEAST_S = 1.0
"""A new phase is said at once, but lines do not come faster than that."""

SAID = ("power_w", "temperature_c")


class Telling:
    """Says a line now and then. Where nobody hears it, that is no reason to end."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._last = began
        self._due = began + EVERY_S
        self._phase = ""

    def phase(self, name: str) -> None:
        """From now on it is this phase."""
        self._phase = name
        self._due = min(self._due, self._last + AT_LEAST_S)

    def turn(self, span: Callable[[str], tuple[float, float] | None]) -> None:
        """Say a line where it is time for one; `span` gives lowest and highest of a reading."""
        now = time.monotonic()
        if now < self._due:
            return
        self._last, self._due = now, now + EVERY_S
        said: dict[str, object] = {"s": round(now - self._began, 1)}
        if self._phase:
            said["phase"] = self._phase
        for name in SAID:
            if (read := span(name)) is not None:
                said[name] = [round(value) for value in read]
        with contextlib.suppress(OSError):
            os.write(2, PROGRESS.encode() + msgspec.json.encode(said) + b"\n")
