"""`parse.nccl_tests` against digits that Python's `int` does not take."""

from __future__ import annotations

from pytest_gpuready.parse.nccl_lines import Plain
from pytest_gpuready.parse.nccl_tests import Tables

HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
ROW = "1024 256 float sum -1 10.0 0.1 0.1 0 10.0 0.1 0.1 0"


def test_digits_that_are_no_decimals_are_damage() -> None:
    """A superscript two is a digit to Unicode and no number: the row does not count, and nothing crashes."""
    tables = Tables()
    for text in (HEADER, ROW, f"²{ROW}", f"1²{ROW}", "# Reducing maxBytes to " + "9" * 5000):
        tables.take(Plain(label="", text=text))
    (run,) = tables.close()
    assert [row.size_bytes for row in run.rows] == [1024]
    assert run.reduced_to_bytes is None
