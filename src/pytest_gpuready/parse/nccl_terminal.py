"""A terminal with nccl-tests, NCCL messages and a launcher in it -> each part read by its own parser, in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.launcher import EVENTS_AT_MOST, Event, Launcher
from pytest_gpuready.parse.nccl_lines import Message, split
from pytest_gpuready.parse.nccl_log import NcclLog
from pytest_gpuready.parse.nccl_tests import RUNS_AT_MOST, Run, Tables

ERRORS_AT_MOST = 100
WORDS_AT_MOST = 10_000

_ERROR = re.compile(
    r"(?P<host>\S+): Test (?:NCCL|CUDA) failure .*|\.\. (?P<host2>\S+) pid (?P<pid>\d+): Test failure \S+"
    r"|(?P<host3>\S+): Test timeout \((?P<seconds>\d+)s\)"
    r"|(?P<setup>Invalid number of GPUs|Incompatible NCCL versions|invalid sizes? specified|invalid sizes for|"
    r"Device implementation \d+ is not supported|error while loading shared libraries|command not found|"
    r"No such file or directory|Segmentation fault|Bus error|core dumped|CUDA error|out of memory).*"
)
_ERROR_WORDS = (
    "ailure", "timeout", "nvalid", "ncompatible", "not supported", "loading shared", "not found", "No such", "fault",
    "Bus error", "dumped", "CUDA error", "out of memory",
)  # fmt: skip
_LOOSE_ROW = re.compile(r"\d+\s+\d+\s+[a-z]\w*\s+\w+\s+(?:-?\d+\s+)?[\d.]+\s")
_TEST_SOURCE = re.compile(r"\b(\w+)\.cu:\d+")
_HOST_ALONE = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramError:
    """A line in which the test program says that it failed."""

    text: str
    host: str = ""
    pid: int | None = None


@dataclass(slots=True)
class Terminal:
    """All that was found. `loose_rows`: lines like result rows without a header; `words`: lines of one word."""

    runs: list[Run] = field(default_factory=list)
    log: NcclLog = field(default_factory=NcclLog)
    events: list[Event] = field(default_factory=list)
    errors: list[ProgramError] = field(default_factory=list)
    loose_rows: int = 0
    words: list[str] = field(default_factory=list)
    collective: str = ""
    launcher_lines: int = 0
    left_out: list[str] = field(default_factory=list)
    """What there was more of than is kept, in words."""

    @property
    def empty(self) -> bool:
        """True where nothing of a NCCL program or a launcher was found."""
        return not (self.runs or self.log.messages or self.events or self.errors or self.loose_rows)


def terminal(lines: Iterable[str], *, silent: bool = False) -> Terminal:
    """Read a terminal in one pass; runs, warnings and events are kept up to a bound, messages are counted.

    `silent`: lone words are an answer too, as of a launcher to which nothing happened.

    Raises:
        ParseError: nothing of a NCCL program or a launcher is in it.
    """
    seen, tables, launcher = Terminal(), Tables(), Launcher()
    for line in split(lines):
        if isinstance(line, Message):
            seen.log.take(line)
        elif not tables.take(line):
            _plain(line.text.strip(), seen, launcher)
    seen.events = launcher.close()
    for more, kept in ((tables.left_out, f"{RUNS_AT_MOST} runs"), (launcher.left_out, f"{EVENTS_AT_MOST} events")):
        if more:
            seen.left_out.append(f"{more} more than the first {kept}, which alone were read")
    seen.runs = [run for run in tables.close() if run.columns or run.ranks or run.config]
    if seen.empty and not seen.launcher_lines and not (silent and seen.words):
        raise ParseError(
            "expected output of nccl-tests, NCCL or a launcher, found none of them; name the tool with --tool"
        )
    return seen


def _plain(text: str, seen: Terminal, launcher: Launcher) -> None:
    if not text:
        return
    if text.startswith("NCCL version "):
        seen.log.version_line(text)
    elif launcher.take(text):
        seen.launcher_lines += 1
    elif any(word in text for word in _ERROR_WORDS) and (found := _ERROR.search(text)):
        if source := _TEST_SOURCE.search(text):
            seen.collective = source[1] if source[1] not in ("common", "util") else seen.collective
        if len(seen.errors) < ERRORS_AT_MOST:
            host = found["host"] or found["host2"] or found["host3"] or ""
            pid = int(found["pid"][:12]) if found["pid"] else None
            seen.errors.append(ProgramError(text=text[:500], host=host, pid=pid))
    elif _LOOSE_ROW.match(text):
        seen.loose_rows += 1
    elif len(text) < 256 and len(seen.words) < WORDS_AT_MOST and _HOST_ALONE.fullmatch(text):
        seen.words.append(text)
