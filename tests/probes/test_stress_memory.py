"""Memory, caches and bandwidth as they are read: a recorded run on two H200s, and the same with something wrong."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpuready.model import Measurement
from tests.probes.stress_docs import answers, says, value
from tests.probes.test_stress_long import WORD, each


def test_a_run_as_recorded() -> None:
    """95 % of the memory without a wrong word, caches too, and every kernel near what clock and width allow."""
    found = answers("memory")
    for gpu in (0, 1):
        assert value(found["stress.memory.ended", gpu]) == "as planned"
        assert value(found["stress.memory.allocated", gpu]) == pytest.approx(95, abs=0.1)
        for metric in ("memory.wrong", "cache.l1.wrong", "cache.l2.wrong"):
            assert value(found[f"stress.{metric}", gpu]) == 0
        for kernel in ("read", "write", "copy", "triad"):
            assert 4200 < value(found[f"stress.hbm.{kernel}", gpu]) < 4814
        assert 87 < value(found["stress.hbm.share", gpu]) < 95
    share = found["stress.hbm.share", 0]
    assert isinstance(share, Measurement)
    assert share.detail.endswith("of 4814.3 GB/s")
    assert "copy" in share.detail


def test_a_word_that_changed_is_named() -> None:
    """Address, expected, found and bit; one bad cache does not spoil what is said of the other."""

    def flip(data: dict[str, Any]) -> None:
        next(one for one in each(data, 0, "cache") if one["level"] == "l1").update(error_count=7, errors=[WORD])

    found = answers("memory", flip)
    wrong = found["stress.cache.l1.wrong", 0]
    assert isinstance(wrong, Measurement)
    assert (wrong.value, wrong.stands) == (7, True)
    assert wrong.detail == "at 0x40: expected 0xffffffff, found 0xfffffdff (bit 9)"
    assert value(found["stress.cache.l2.wrong", 0]) == 0


def test_a_rate_above_physics_is_no_rate() -> None:
    """More than clock and width of the memory allow was not measured, for the kernel and for the share."""

    def fast(data: dict[str, Any]) -> None:
        next(one for one in each(data, 0, "hbm") if one["kernel"] == "read")["gb_per_s"] = [5000.0] * 5

    found = answers("memory", fast)
    assert "not a measurement" in says(found["stress.hbm.read", 0])
    assert "not a measurement" in says(found["stress.hbm.share", 0])
    assert value(found["stress.hbm.copy", 0]) > 4000


def test_without_the_width_there_is_no_share() -> None:
    """CUDA did not say clock or width: rates stand, their share of the theory is open."""

    def unknown(data: dict[str, Any]) -> None:
        data["gpus"][1]["ready"].pop("memory_gb_per_s")

    found = answers("memory", unknown)
    assert "expected clock and width of the memory" in says(found["stress.hbm.share", 1])
    assert value(found["stress.hbm.write", 1]) > 4000


def test_caches_that_nobody_read_prove_nothing() -> None:
    """A check of no words has found no wrong one."""

    def idle(data: dict[str, Any]) -> None:
        for one in each(data, 0, "cache"):
            one["checked_bytes"] = 0

    found = answers("memory", idle)
    assert "found none" in says(found["stress.cache.l1.wrong", 0])
    assert "found none" in says(found["stress.cache.l2.wrong", 0])


def test_a_missing_package_is_one_line_everywhere() -> None:
    """No worker could start: every metric of every GPU has the line that installs what is missing."""
    line = "expected the package cuda-core, found none; pip install 'pytest-gpuready[cuda13]' on the node"

    def lacking(data: dict[str, Any]) -> None:
        data.update(problem=line, windows=[])
        for gpu in data["gpus"]:
            gpu.pop("ready")
            gpu["problem"] = line
            for phase in gpu["phases"]:
                phase.pop(phase["kind"])
                phase["problem"] = line

    found = answers("memory", lacking)
    assert len(found) > 20
    assert all(says(one).endswith(line) for one in found.values())
