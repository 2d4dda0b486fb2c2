"""What a reader of one tool's output is given, and what it gives back.

A reader never raises for what the text says or lacks, never invents a value, and gives `pass` only for what is present
in the text: an expectation that the text cannot answer is a finding `not-measured`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.report import Finding

WHOLE_AT_MOST = 32 * 2**20
"""Bytes of an output that is read as a whole; a longer one is refused. Other outputs are read line by line."""
LINE_AT_MOST = 64 * 1024
HEAD = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One input. `command` and `exit_code` are what is known of how it came about ("" and None if nothing)."""

    path: Path
    expect: Expectations
    command: str = ""
    exit_code: int | None = None

    def head(self) -> str:
        """The first 64 KiB as text."""
        with self.path.open("rb") as file:
            return file.read(HEAD).decode("utf-8", errors="replace")

    def lines(self) -> Iterator[str]:
        """All lines without their ends, one at a time; a line beyond 64 KiB is cut. Carriage returns end lines too."""
        with self.path.open("rb") as file:
            while raw := file.readline(LINE_AT_MOST):
                text = raw.decode("utf-8", errors="replace").rstrip("\n")
                yield from text.split("\r") if "\r" in text.rstrip("\r") else (text.rstrip("\r"),)

    def text(self) -> tuple[str, bool]:
        """The text, at most 32 MiB of it, and whether that is all."""
        with self.path.open("rb") as file:
            raw = file.read(WHOLE_AT_MOST + 1)
        return raw[:WHOLE_AT_MOST].decode("utf-8", errors="replace"), len(raw) <= WHOLE_AT_MOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reader made of an input. `not_covered`: sentences on what the text seems to prove and does not.

    `named`: part and product name of GPUs whose name is no finding.
    """

    findings: tuple[Finding, ...]
    tool_version: str = ""
    not_covered: tuple[str, ...] = field(default=())
    named: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How one tool's output is recognised and read.

    `recognise` looks at the first 64 KiB and says how sure it is, 0 to 100 (0: not this tool); it must not be fooled
    by another tool's output quoted in a log. `read` gets the whole input. `at_most`: bytes of an output that is read
    in one piece, so that a longer one is refused before; 0 where it is read line by line.
    """

    tool: str
    recognise: Callable[[str], int]
    read: Callable[[Given], Reading]
    at_most: int = 0
