"""What a profile may give to DCGM makes its tests stricter; anything else does not load."""

from __future__ import annotations

import pytest

from pytest_gpuready.errors import ProfileError
from pytest_gpuready.profiles import load

PROFILE = """profile: mine
version: "1"
title: Mine
extends: h200-sxm
pci_ids: ["10de:2335"]
dcgm:
  {name}: {{value: {value}, unit: "{unit}", source: {{kind: contract, cite: annex 2}}{more}}}
"""


def write(tmp_path, name: str, value: object, unit: str = "", more: str = ""):
    path = tmp_path / "mine.yaml"
    path.write_text(PROFILE.format(name=name, value=value, unit=unit, more=more))
    return path


def test_a_child_changes_one_parameter_and_keeps_the_others(tmp_path):
    """The youngest value counts, with its source; inherited parameters stay."""
    profile = load(write(tmp_path, "diagnostic.gflops_tolerance_pcnt", 5, "%"))
    by_name = {parameter.name: parameter for parameter in profile.dcgm}
    assert by_name["diagnostic.gflops_tolerance_pcnt"].word == "diagnostic.gflops_tolerance_pcnt=5"
    assert str(by_name["diagnostic.gflops_tolerance_pcnt"].source) == "contract: annex 2"
    assert by_name["memory_bandwidth.minimum_bandwidth"].value == 2_700_000
    assert profile.sha256 != load("h200-sxm").sha256


@pytest.mark.parametrize(
    ("name", "value", "unit", "says"),
    [
        ("diagnostic.precision", "fp8", "", "DCGM has no FP8"),
        ("diagnostic.precision", "bf16", "", "built-in engine"),
        ("diagnostic.precision", "single", "", "passes over every other word"),
        ("diagnostic.precision", '""', "", "letters h, s and d"),
        ("diagnostic.is_allowed", 0, "", "expected one of"),
        ("pcie.test_pinned", 0, "", "expected one of"),
        ("memory_bandwidth.minimum_bandwidht", 2000000, "MB/s", "did you mean 'memory_bandwidth.minimum_bandwidth'"),
        ("memory_bandwidth.minimum_bandwidth", 2333, "GB/s", "expected MB/s"),
        ("memory_bandwidth.minimum_bandwidth", "fast", "MB/s", "expected a number"),
        ("memtest.test_duration", 10, "s", "from 600 to"),
        ("diagnostic.gflops_tolerance_pcnt", 90, "%", "from 1 to 25"),
        ("diagnostic.gflops_tolerance_pcnt", 0, "%", "from 1 to 25"),
        ("diagnostic.gflops_tolerance_pcnt", ".nan", "%", "expected a number of %"),
        ("targeted_power.target_power", ".inf", "W", "expected a number of W"),
        ("memory_bandwidth.minimum_bandwidth", 1000, "MB/s", "from 50000"),
        ("memory_bandwidth.minimum_bandwidth", 60000, "MB/s", "10 to 100 % of the physical ceiling 4.8e+06"),
        ("targeted_power.target_power", 60, "W", "expected a physical ceiling"),
        ("targeted_stress.target_stress", 100, "GFLOP/s", "expected a physical ceiling"),
        ("diagnostic.temperature_max", 1000000, "C", "from 30 to 120"),
        ("memtest.test_duration", 1000000000, "s", "from 600 to"),
        ("pcie.gpu_nvlinks_expected_up", 18, "", "nvlink.links.active"),
        ("pcie.h2d_d2h_single_pinned.min_pci_generation", 3, "", "change that limit instead"),
    ],
)
def test_what_would_blind_a_test_does_not_load(tmp_path, name, value, unit, says):
    """Unknown names, other units, words, formats DCGM lacks, and values that switch a test off are errors."""
    with pytest.raises(ProfileError) as caught:
        load(write(tmp_path, name, value, unit))
    assert says in str(caught.value)
    assert "mine.yaml line 7" in str(caught.value)


def test_a_floor_lies_below_physics_and_above_a_tenth_of_it(tmp_path):
    """A floor over the ceiling cannot be met, one under a tenth of it cannot be missed."""
    for value in (2333, 9_000_000):
        with pytest.raises(ProfileError, match="10 to 100 % of the physical ceiling"):
            load(write(tmp_path, "memory_bandwidth.minimum_bandwidth", value, "MB/s", ", ceiling: 4800000"))


def test_a_parameter_needs_its_source(tmp_path):
    """Where a value comes from stands beside it, or it does not load."""
    path = write(tmp_path, "targeted_stress.target_stress", 30000, "GFLOP/s")
    path.write_text(path.read_text().replace("cite: annex 2", 'cite: " "'))
    with pytest.raises(ProfileError, match="source"):
        load(path)


def test_a_clause_waits_for_something_that_can_hold(tmp_path):
    """`after` names a metric with a clause at this level or below; anything else would wait for ever."""
    path = tmp_path / "mine.yaml"
    head = PROFILE.split("dcgm:", maxsplit=1)[0]
    path.write_text(head + "clauses:\n  GPU-1: {after: [dcgm.memtest]}\n")
    with pytest.raises(ProfileError, match="nothing would ever hold"):
        load(path)
    path.write_text(head + "clauses:\n  DCGM-5: {after: [dcgm.redy]}\n")
    with pytest.raises(ProfileError, match=r"did you mean 'dcgm\.ready'"):
        load(path)
