"""nccl-tests text, versions 2.0 to 2.19 -> runs with their rank table, rows and footer.

Columns come from the header: before 2.13 there was no root column and an `error` column (rounding noise) where
`#wrong` (a count) stands now; `-I` adds four columns to each half and `-S` a time stamp. A row that contradicts itself
(size / time is not algbw) is damaged and counted, never repaired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.nccl_lines import Plain, without_inner_labels

RUNS_AT_MOST = 1000
ROWS_AT_MOST = 100_000
RANKS_AT_MOST = 200_000

_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?Pid\s+(\d{1,12})\s+on\s+(\S+)\s+device\s+(\d{1,6})"
    r"\s+\[([^\]]+)\]\s*(.*)"
)
_CONFIG = re.compile(r"#\s*nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\)(.*)")
_OPTION = re.compile(r"(warmup iters|agg iters|iters|validation): (\d+)")
_VERSION = re.compile(r"#\s*nccl-tests version (\S+)(?:.*nccl-library=(\d+))?")
_NAME = re.compile(r"#\s*Collective test starting: (?:\S*/)?(\w+?)_perf")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)\s*$")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([-+.\w]+)\s*(OK|FAILED)?\s*$")
_REDUCED = re.compile(r"#\s*Reducing maxBytes to (\d{1,18})(?!\d)")
_ERROR_SAID = re.compile(r"#\s*error: (.+)")
_GOES_ON = re.compile(r"[a-z\d.\[\]/NA-]+(?:\s+(?:[a-z]\w*|-?[\d.]+(?:e[-+]\d+)?|N/A|\[\d+\]))*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Out-of-place or in-place figures of a row. `wrong` is None where it was not checked (N/A) or is not a count."""

    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: float | None
    checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One message size. `kind` is what else the row is about: data type, reduction and root."""

    size_bytes: int
    count: int
    kind: tuple[str, ...]
    halves: tuple[Half, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A line of the rank table."""

    rank: int
    group: int
    pid: int
    host: str
    device: int
    address: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the run was asked for. `validation` is None in versions that do not say."""

    threads: int
    gpus: int
    min_bytes: int
    max_bytes: int
    step: int
    step_is_factor: bool
    iterations: int | None
    validation: int | None


@dataclass(slots=True)
class Run:
    """One table. `tables` and `footers` beyond 1: several programs wrote at once."""

    label: str = ""
    collective: str = ""
    version: str = ""
    nccl_library: str = ""
    config: Config | None = None
    ranks: list[Rank] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    damaged: int = 0
    tables: int = 0
    footers: int = 0
    out_of_bounds: list[tuple[int, str]] = field(default_factory=list)
    averages: list[tuple[float, str]] = field(default_factory=list)
    reduced_to_bytes: int | None = None
    said_error: str = ""
    partial: str = ""

    @property
    def complete(self) -> bool:
        """Both lines of the footer are there, once."""
        return len(self.out_of_bounds) == 1 and len(self.averages) == 1


class Tables:
    """Takes lines one at a time and keeps the runs; lines of different labels are different streams."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.left_out = 0
        """Runs beyond the bound, which are not in `runs`."""
        self._open: dict[str, Run] = {}

    def take(self, line: Plain) -> bool:
        """True where the line belonged to a table."""
        text = line.text.strip()
        if text.startswith("#"):
            return self._comment(line.label, text)
        run = self._open.get(line.label)
        if run is None or not text or not _row_begins(text, run):
            return False
        return self._row(run, line.text)

    def close(self) -> list[Run]:
        """All runs; what was begun and not finished counts as damaged."""
        for run in self.runs:
            _drop_partial(run)
        return self.runs

    def _run(self, label: str, *, starts: bool = False) -> Run:
        run = self._open.get(label)
        if run is None or (starts and (run.rows or run.out_of_bounds)):
            run = Run(label=label)
            self._open[label] = run
            if len(self.runs) < RUNS_AT_MOST:
                self.runs.append(run)
            else:
                self.left_out += 1
        return run

    def _comment(self, label: str, text: str) -> bool:
        if found := _RANK.match(text):
            run = self._run(label)
            if len(run.ranks) < RANKS_AT_MOST:
                number, group, pid, host, device, address, model = found.groups()
                run.ranks.append(
                    Rank(
                        rank=int(number),
                        group=int(group or 0),
                        pid=int(pid),
                        host=host,
                        device=int(device),
                        address=address,
                        model=model.strip(),
                    )
                )
        elif found := _CONFIG.match(text):
            run = self._run(label, starts=True)
            run.tables += 1
            run.config = _config(found)
        elif found := _VERSION.match(text):
            run = self._run(label, starts=True)
            run.version, run.nccl_library = found[1], found[2] or ""
        elif found := _NAME.match(text):
            self._run(label, starts=True).collective = found[1]
        elif found := _REDUCED.match(text):
            self._run(label).reduced_to_bytes = int(found[1])
        elif label in self._open:
            return _rest(self._open[label], text)
        else:
            words = text.split()
            if "size" in words and "busbw" in words:
                return _rest(self._run(label), text)
            return False
        return True

    def _row(self, run: Run, text: str) -> bool:
        wanted = len(run.columns) + ("timestamp" in run.columns)
        clean = without_inner_labels(text)
        joined = run.partial + clean
        words = joined.split()
        if run.partial and len(words) > wanted:
            _drop_partial(run)
            joined, words = clean, clean.split()
        if len(words) < wanted:
            run.partial = joined
            return True
        run.partial = ""
        row = _row_of(words, run.columns) if len(words) == wanted else None
        if row is None or len(run.rows) >= ROWS_AT_MOST:
            run.damaged += 1
        else:
            run.rows.append(row)
        return True


def nccl_tests(lines: Iterable[str]) -> list[Run]:
    """Runs of an nccl-tests text without messages in it.

    Raises:
        ParseError: no table is in the text.
    """
    tables = Tables()
    for text in lines:
        tables.take(Plain(label="", text=text))
    runs = [run for run in tables.close() if run.columns]
    if not runs:
        raise ParseError("nccl-tests text: expected a header with the columns size, time, algbw and busbw, found none")
    return runs


def _rest(run: Run, text: str) -> bool:
    words = text.lstrip("# ").split()
    if "size" in words and "busbw" in words and ("time" in words or "cputime" in words):
        _drop_partial(run)
        run.columns = tuple(words)
    elif found := _OUT_OF_BOUNDS.match(text):
        _drop_partial(run)
        run.footers += 1
        run.out_of_bounds.append((int(found[1][:18]), found[2]))
    elif found := _AVERAGE.match(text):
        try:
            average = float(found[1])
        except ValueError:
            return True
        run.averages.append((average, found[2] or ""))
    elif found := _ERROR_SAID.match(text):
        run.said_error = found[1][:500]
    return True


def _config(found: re.Match[str]) -> Config:
    threads, gpus, low, high, step, kind, rest = found.groups()
    options = {name: int(value[:9]) for name, value in _OPTION.findall(rest)}
    return Config(
        threads=int(threads[:9]),
        gpus=int(gpus[:9]),
        min_bytes=int(low[:18]),
        max_bytes=int(high[:18]),
        step=int(step[:18]),
        step_is_factor=kind == "factor",
        iterations=options.get("iters"),
        validation=options.get("validation"),
    )


def _row_begins(text: str, run: Run) -> bool:
    """A row is numbers; so is what goes on after a message, where it may begin in the middle of one."""
    if not run.columns:
        return False
    head = text.split(None, 1)[0]
    return head[0].isdecimal() or (bool(run.partial) and _GOES_ON.fullmatch(text) is not None)


def _drop_partial(run: Run) -> None:
    if run.partial:
        run.damaged += 1
        run.partial = ""


def _row_of(words: list[str], columns: tuple[str, ...]) -> Row | None:
    """A row by the names of its columns, or None where a value cannot be read or contradicts another."""
    shared: dict[str, str] = {}
    halves: list[dict[str, str]] = []
    for name, word in zip(columns, words, strict=False):
        if name in ("time", "cputime"):
            halves.append({})
        if name != "timestamp":
            (halves[-1] if halves else shared)[name] = word
    size, count = shared.get("size", ""), shared.get("count", "")
    if not (size.isdecimal() and count.isdecimal() and len(size) < 19 and len(count) < 19) or not halves:
        return None
    made = [_half(half, int(size)) for half in halves]
    whole = tuple(half for half in made if half is not None)
    if len(whole) != len(made):
        return None
    kind = tuple(shared.get(name, "") for name in ("type", "redop", "root"))
    return Row(size_bytes=int(size), count=int(count), kind=kind, halves=whole)


def _half(words: dict[str, str], size: int) -> Half | None:
    time = words.get("time") or words.get("cputime") or ""
    values = [time, words.get("algbw", ""), words.get("busbw", "")]
    if not all(_NUMBER.fullmatch(value) for value in values):
        return None
    time_us, algbw, busbw = (float(value) for value in values)
    check = words.get("#wrong", words.get("error", ""))
    checked = check != "N/A"
    if checked and not _NUMBER.fullmatch(check):
        return None
    if not all(math.isfinite(v) for v in (time_us, algbw, busbw)) or (
        "time" in words and not agrees(size=size, time_us=time_us, algbw=algbw)
    ):
        return None
    wrong = float(check) if checked and "#wrong" in words else None
    return Half(time_us=time_us, algbw_gb_per_s=algbw, busbw_gb_per_s=busbw, wrong=wrong, checked=checked)


def agrees(*, size: int, time_us: float, algbw: float) -> bool:
    """True where algbw is size / time, to the digits that are printed. One rank alone may print 0."""
    if algbw == 0 or time_us <= 0:
        return algbw == 0
    return abs(size / time_us / 1000 - algbw) <= 0.02 + 0.03 * algbw
