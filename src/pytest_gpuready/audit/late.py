"""A reader's reading part, imported when it is used: an audit of one small file loads the parser of one tool."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from pytest_gpuready.audit.reader import Given, Reading


def late(module: str, name: str = "read") -> Callable[[Given], Reading]:
    """The function `name` of `pytest_gpuready.audit.readers.<module>`, looked up at the first call."""

    def read(given: Given) -> Reading:
        found: Callable[[Given], Reading] = getattr(import_module(f"pytest_gpuready.audit.readers.{module}"), name)
        return found(given)

    return read
