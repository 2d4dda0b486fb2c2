"""The plain table of nvidia-smi, with two and three lines a row, whole and cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.smi_table import smi_listed, smi_table

OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 418.87.00    Driver Version: 418.87.00    CUDA Version: 10.1     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:15:00.0 Off |                    2 |
| N/A   36C    P0    43W / 300W |      0MiB / 32480MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  ERR!                Off  | 00000000:16:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |     GPU is lost      |    ERR!         ERR! |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|  No running processes found                                                 |
+-----------------------------------------------------------------------------+
"""


def test_two_lines_a_row() -> None:
    """Older drivers print no MIG line; a lost GPU's row is a row."""
    table = smi_table(OLD.splitlines())
    assert (table.driver, table.complete, table.unread) == ("418.87.00", True, ())
    good, lost = table.gpus
    assert (good.bdf, good.word("name"), good.number("ecc.errors.uncorrected.volatile.total")) == (
        "0000:15:00.0",
        "Tesla V100-SXM2...",
        2,
    )
    assert {lost.cells[name].kind for name in ("name", "pstate", "health")} == {"fault"}


def test_a_cut_table_is_not_complete() -> None:
    """Every cut before the closing line of the processes leaves the table incomplete."""
    lines = OLD.splitlines()
    assert not any(smi_table(lines[:n]).complete for n in range(len(lines)))


def test_the_list() -> None:
    """`nvidia-smi -L` names index, product and UUID; MIG devices are no GPUs."""
    gpu = smi_listed("GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-5e13c096-3b1e-4c7a-a9d2-00000077b00e)")
    assert gpu
    assert (gpu.index, gpu.word("name")) == (3, "NVIDIA H100 80GB HBM3")
    assert smi_listed("  MIG 1g.10gb     Device  0: (UUID: MIG-1)") is None


@given(st.lists(st.text(alphabet="| +-=0123456789NAERP/%MiB:.WCOfn", max_size=100), max_size=12))
def test_any_text_is_read(lines: list[str]) -> None:
    """No text makes the parser raise."""
    assert len(smi_table(lines).gpus) <= len(lines)
