"""Sentences of nvidia-smi and CUDA: known ones read, all others none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.smi_messages import cuda_code, message


@pytest.mark.parametrize(
    ("line", "what", "why", "bdf", "index"),
    [
        ("Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error", "lost gpu", "Unknown Error",
         "0000:9b:00.0", -1),
        ("Unable to determine the device handle for GPU 3: 0000:9B:00.0: Not Found", "lost gpu", "Not Found",
         "0000:9b:00.0", 3),
        ("Unable to determine the device handle for GPU2: Unknown Error", "lost gpu", "Unknown Error", "", 2),
        ("NVML library version: 570.211", "library version", "570.211", "", -1),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build  (x)", "kernel module",
         "570.172.08", "", -1),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "kernel module",
         "535.104.05", "", -1),
        ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0", "inforom", "", "0000:3b:00.0", -1),
        ("Detected 8 CUDA Capable device(s)", "cuda devices", "8", "", -1),
        ("-> system not yet initialized", "cuda error", "802", "", -1),
    ],
)  # fmt: skip
def test_known_sentences(line: str, what: str, why: str, bdf: str, index: int) -> None:
    """Kind, reason and GPU of each sentence."""
    found = message(line)
    assert found
    assert (found.what, found.why, found.bdf, found.index) == (what, why, bdf, index)


@pytest.mark.parametrize("line", ["", "0, NVIDIA H100, P0", "all is well", "returned 0", "cuda: no error", "x" * 600])
def test_other_lines_are_none(line: str) -> None:
    """What nobody knows is no message, and 0 is no error."""
    assert message(line) is None


@given(st.text(max_size=120))
def test_any_line(text: str) -> None:
    """No line makes the parser raise."""
    message(text)
    message("Unable to determine the device handle for " + text)
    assert cuda_code(text) >= 0
