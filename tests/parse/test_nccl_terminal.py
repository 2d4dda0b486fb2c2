"""Terminals of NCCL programs: labels and messages taken out of tables, layouts of every version, damage of any kind."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.nccl_lines import Message, Plain, split
from pytest_gpuready.parse.nccl_terminal import Terminal, terminal
from pytest_gpuready.parse.nccl_tests import nccl_tests

HEADER = "#   size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
ROW = "  1073741824  268435456  float  sum  -1  3315.45  323.86  323.86  0  3291.13  326.25  326.25  0"
FOOTER = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 325.055 "]
RANKS = [f"#  Rank  {i} Group  0 Pid  700 on  node01 device  {i} [0x0{i}] NVIDIA H200" for i in range(2)]
TABLE = [*RANKS, HEADER, ROW, *FOOTER]
INFO = "node01:700:712 [1] NCCL INFO Connected all trees"


def busbw(seen: Terminal) -> list[float]:
    return [half.busbw_gb_per_s for run in seen.runs for row in run.rows for half in row.halves]


@pytest.mark.parametrize(
    "label", ["", "[0] ", "[1,0]<stdout>:", " 0: ", "[prterun-n1-77@1,0]<stdout>: ", "2026-02-25T07:58:10.123Z ",
              "[pod/worker-0/main] ", "worker-0  | ", "\x1b[0m", "Wed Feb 25 07:58:10 2026<stdout>:"],
)  # fmt: skip
def test_labels_are_taken_away(label: str) -> None:
    """Whatever a launcher, log collector or container tool puts before each line, the table is the same."""
    seen = terminal(label + line for line in TABLE)
    assert busbw(seen) == [323.86, 326.25]
    assert len(seen.runs[0].ranks) == 2
    assert seen.runs[0].complete


@pytest.mark.parametrize("at", range(3, len(ROW), 7))
@pytest.mark.parametrize("newline", [False, True])
def test_a_message_anywhere_in_a_row_takes_nothing_away(at: int, newline: bool) -> None:
    """A row cut by a message, or by the empty line that comes before a warning, is joined exactly."""
    pieces = [ROW[:at], INFO.replace("INFO", "WARN"), ROW[at:]] if newline else [ROW[:at] + INFO, ROW[at:]]
    seen = terminal([*RANKS, HEADER, *pieces, *FOOTER])
    assert busbw(seen) == [323.86, 326.25]
    assert seen.runs[0].damaged == 0
    assert seen.log.hosts == {"node01"}


def test_a_host_that_nobody_named_is_cut_off_a_number() -> None:
    """`0vm:700:700 [0] NCCL INFO` in a row is the value 0 and the host vm."""
    seen = terminal([HEADER, ROW[:74] + "0vm:700:700 [0] NCCL INFO AllReduce", ROW[75:], *FOOTER])
    assert [m.host for m in split([ROW[:74] + "0vm:700:700 [0] NCCL INFO x"]) if isinstance(m, Message)] == ["vm"]
    assert len(busbw(seen)) == 2


def test_labels_between_the_pieces_of_a_row() -> None:
    """A label in front of each write stands in the middle of a row."""
    row = ROW.replace("-1  3315", "-1[0]  3315").replace("0  3291", "0[0]  3291")
    assert busbw(terminal([f"[0] {line}" for line in [HEADER, row, *FOOTER]])) == [323.86, 326.25]


def test_ranks_that_each_write_a_table_are_apart() -> None:
    """With labels, tables of several programs are several runs."""
    seen = terminal(f"[{rank}] {line}" for line in TABLE for rank in range(3))
    assert len(seen.runs) == 3


def test_columns_come_from_the_header() -> None:
    """Per-iteration columns and a time stamp move the others; an old layout has no root and no #wrong."""
    extra = "i_min  i_max  i_p99  i_cv%"
    wide = f"#  size count type redop root  time algbw busbw #wrong {extra}  time algbw busbw #wrong {extra}  timestamp"
    row = "1073741824 268435456 float sum -1 3315.45 323.86 323.86 0 1 2 3 4 3291.13 326.25 326.25 0 5 6 7 8"
    row += " 2026-01-01 10:00:00"
    old = "#  size count type redop  time algbw busbw error  time algbw busbw error"
    old_row = "1073741824 268435456 float sum 3315.45 323.86 323.86 2e-06 3291.13 326.25 326.25 N/A"
    assert busbw(terminal([wide, row, *FOOTER])) == [323.86, 326.25]
    (run,) = nccl_tests([old, old_row, *FOOTER])
    assert [(half.wrong, half.checked) for half in run.rows[0].halves] == [(None, True), (None, False)]
    with pytest.raises(ParseError, match="found none"):
        nccl_tests([ROW, *FOOTER])


@pytest.mark.parametrize("broken", ["323.86  323.86", "3315.45", "1073741824"])
def test_a_row_that_contradicts_itself_is_damaged(broken: str) -> None:
    """A digit that changed makes time, size and algbw disagree: the row is counted, not believed."""
    seen = terminal([HEADER, ROW.replace(broken, "9" + broken[1:], 1), *FOOTER])
    assert busbw(seen) == []
    assert seen.runs[0].damaged == 1


def test_a_terminal_of_something_else_is_refused() -> None:
    """Text without NCCL, table or launcher raises."""
    with pytest.raises(ParseError, match="found none of them"):
        terminal(["roses are red", "violets are blue"])


ALL = [*TABLE, INFO, "srun: error: n3: task 2: Exited with exit code 1", "n1: Test NCCL failure common.cu:303 'x / y'"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(ALL), st.text(max_size=120)), max_size=40))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    """Lines lost, doubled, mixed or made up: a reading or ParseError, nothing else."""
    try:
        seen = terminal(lines)
    except ParseError:
        return
    assert all(value >= 0 for value in busbw(seen))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2000), st.characters(), st.integers(0, 2000))
def test_a_changed_character_never_makes_a_figure_up(at: int, character: str, cut: int) -> None:
    """One character changed and the end cut off: figures are those of the row, or none (a decimal may be lost)."""
    text = "\n".join(TABLE)
    broken = text[: at % len(text)] + character + text[at % len(text) + 1 :]
    try:
        seen = terminal(broken[: len(broken) - cut % len(broken)].splitlines())
    except ParseError:
        return
    for run in seen.runs:
        for row in run.rows:
            assert row.halves[0].algbw_gb_per_s == pytest.approx(323.86, rel=0.04)


def test_memory_does_not_grow_with_the_log() -> None:
    """8000 lines of many kinds leave counters, bounded lists and one unfinished line."""

    def lines() -> Iterator[str]:
        for i in range(2_000):
            yield f"node01:700:712 [1] NCCL INFO Channel {i % 24:02}/0 : {i % 8}[0] -> {i % 7}[1] via P2P/CUMEM"
            yield f"node01:700:712 [1] NCCL WARN something number {i}"
            yield f"srun: error: node{i}: task {i}: Exited with exit code 1"
            yield f"   {i}vm:700:700 [0] NCCL INFO AllReduce: {i} Bytes -> Algo RING proto SIMPLE channel"

    tracemalloc.start()
    seen = terminal(lines())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen.log.messages == 6_000
    assert (len(seen.log.warnings), len(seen.events)) == (100, 200)
    assert peak < 300_000, peak


def test_a_plain_line_keeps_its_label() -> None:
    """The rank of a label travels with the line."""
    assert list(split(["[1,3]<stdout>:hello"])) == [Plain(label="3", text="hello")]
