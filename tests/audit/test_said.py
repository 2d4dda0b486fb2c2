"""What an audit says to a person: values with their units, which inputs are open, what a table leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready.audit.expect import Expectations, ExpectError, from_options
from pytest_gpuready.audit.run import audit
from pytest_gpuready.audit.show import text
from tests.dcgm_runs import RUNS

NOTHING = Expectations({}, source="--expect")

TABLE = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:19:00.0 Off |                    0 |
| N/A   31C    P0             77W /  700W |       0MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """What plain nvidia-smi prints of one GPU."""
    path = tmp_path / "smi.txt"
    path.write_text(TABLE)
    return path


def said(*paths: Path, expect: Expectations = NOTHING) -> str:
    return text(audit(list(paths), tool="", expect=expect, exit_code=None))


def test_a_table_does_not_cover_the_life_of_the_board(table: Path) -> None:
    """Volatile counters pass for what they are; that nobody looked at the aggregate ones stands under not covered."""
    report = said(table)
    assert "pass           gpu.ecc [GPU 0 0000:19:00.0] 0" in report
    assert "not covered    ECC errors over the life of the board (aggregate)" in report


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("min_peak_busbw_gb_per_s=350", "min_peak_busbw_gb_per_s, expected 350 GB/s (--expect)"),
        ("rail_gbit_per_s=400", "rail_gbit_per_s, expected 400 Gb/s (--expect)"),
        ("ranks=16", "ranks, expected 16 (--expect)"),
        ('required_tests=["pcie", "memory"]', "required_tests, expected pcie, memory (--expect)"),
    ],
)
def test_an_expectation_is_shown_with_its_value(table: Path, option: str, shown: str) -> None:
    """What this text cannot answer is named with what was asked for, in its unit."""
    assert shown in said(table, expect=from_options([option]))


def test_the_last_line_names_what_is_open(table: Path) -> None:
    """A text that nobody recognises turns the whole into not measured; the last line says which it is."""
    (table.parent / "README.txt").write_text("hello\n")
    (table.parent / "z.log").write_text("")
    report = said(table.parent)
    last = report.splitlines()[-1]
    assert last == f"audit: NOT-MEASURED, 3 inputs; not measured: {table.parent}/README.txt, {table.parent}/z.log"
    assert "suspect: the file is empty" in report
    assert "suspect: no tool's output was recognised in it" in report
    assert said(table).splitlines()[-1] == "audit: PASS, 1 input"


def test_one_key_has_one_value() -> None:
    """The same key twice with two values is an error; said twice alike it is one."""
    with pytest.raises(ExpectError, match="expected one value, found '8' and '16'; give one of them"):
        from_options(["expected_gpus=8", "expected_gpus=16"])
    assert from_options(["expected_gpus=8", "expected_gpus=8"]).count("expected_gpus") == 8


def test_gpus_that_dcgm_sees_are_counted_and_named() -> None:
    """With one GPU of eight, DCGM sees 1, and its number is said to be a number."""
    report = said(RUNS / "h200x1/r1-json/stdout", expect=from_options(["expected_gpus=8"]))
    assert "suspect: GPUs absent from DCGM (it sees 1: GPU 0)" in report
