"""NVLink lines of nvidia-smi: links, sentences, counters, contradictions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.nvlink import nvlink

HEAD = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)"


def test_all_kinds_of_lines() -> None:
    """Status, counters, capabilities and remote ends of one GPU come together."""
    (gpu,) = nvlink(
        [
            HEAD,
            "\t Link 0: 26.562 GB/s",
            "\t Link 1: <inactive>",
            HEAD,
            "\t Link 0: Replay Errors: 12",
            "\t Link 0: Effective BER: 15e-255",
            "",
            "\t Link 0, P2P is supported: true",
            "\t Link 0, Access to system memory supported: false",
            "\t Link 0: Remote Device 0000000A:00:00.0: Link 26",
        ]
    )
    assert gpu.rates == {0: 26.562, 1: None}
    assert gpu.counters == {0: {"Replay Errors": 12, "Effective BER": "15e-255"}}
    assert gpu.remote == {0: "000a:00:00.0 link 26"}
    assert gpu.cannot == {0: ["Access to system memory"]}
    assert (gpu.name, gpu.wrong) == ("NVIDIA H100 80GB HBM3", [])


def test_contradictions_and_unknown_lines_are_kept_as_wrong() -> None:
    """Two states of a link, two values of a counter and a line that nobody can read are each said."""
    lines = [
        "Link 0: 26 GB/s",
        "Link 0: <inactive>",
        "Link 1: Replay Errors: 1",
        "Link 1: Replay Errors: 2",
        "Link 2: ?",
    ]
    (gpu,) = nvlink([HEAD, *lines])
    assert len(gpu.wrong) == 3
    assert nvlink([HEAD, "Link 900: 26 GB/s"])[0].wrong


@pytest.mark.parametrize("lines", [[], ["hello"], [HEAD]])
def test_no_links_is_refused(lines: list[str]) -> None:
    """A text without any line about links is refused, not read as no links."""
    with pytest.raises(ParseError, match="expected lines like 'Link 0"):
        nvlink(lines)


@given(st.lists(st.text(max_size=40), max_size=15))
def test_any_text(lines: list[str]) -> None:
    """Damage is read or refused."""
    for prefix in ("", "Link 0: ", "Link 1, ", "GPU "):
        with contextlib.suppress(ParseError):
            nvlink([prefix + line for line in lines])
