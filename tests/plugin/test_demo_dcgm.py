"""The built-in recording with real runs of dcgmi: what they prove passes, what they leave open stays open."""

from __future__ import annotations

import pytest

from tests.judged import cells, judged, parts

PROVEN = {"DCGM-1", "DCGM-2", "DCGM-3", "DCGM-5", "DCGM-6", "DCGM-7", "DCGM-9", "DCGM-10", "DCGM-11"}


def test_level_2_would_be_accepted_and_says_that_it_is_composed(tmp_path):
    """Software checks, memory and pcie of a real H200 pass; the page says how the recording was made."""
    certificate = judged(tmp_path, "demo-dcgm", level=2)
    assert certificate.judged == "ACCEPTED", certificate.why
    assert certificate.basis == "replay"
    assert "composed: runs of dcgmi 4.6.0" in certificate.basis_note
    (pcie,) = parts(certificate, "DCGM-6")
    assert "dcgmi 4.6.0, nv-hostengine; given" in pcie.conditions


def test_level_4_is_incomplete_where_a_test_is_absent_missing_or_was_killed(tmp_path):
    """memory_bandwidth is absent from a run that exits 0, eud and pulse_test are not installed, memtest was killed."""
    certificate = judged(tmp_path, "demo-dcgm", level=4)
    assert certificate.judged == "INCOMPLETE"
    assert set(cells(certificate, "PASS")) >= PROVEN
    open_ = {clause for clause in cells(certificate, "NOT MEASURED") if clause.startswith("DCGM")}
    assert open_ == {"DCGM-4", "DCGM-8", "DCGM-12", "DCGM-13", "DCGM-14"}
    assert set(cells(certificate, "NOT APPLICABLE")) >= {"DCGM-15", "DCGM-16", "DCGM-17"}


@pytest.mark.parametrize(("level", "code"), [("level2", 0), ("level3", 20)])
def test_the_whole_run_ends_so(accept, level, code):
    """pytest on the built-in recording exits by its verdict."""
    run = accept("--gpuready-replay", "demo-dcgm", "-m", level)
    assert run.code == code
    run.result.stdout.fnmatch_lines(["*REPLAY: certifies no hardware*"])


def test_a_soak_was_not_recorded(accept):
    """The same node with a soak asked for has no recorded result of it: nothing of the shorter run counts."""
    run = accept("--gpuready-replay", "demo-dcgm", "-m", "level4", "--gpuready-burn", "4h")
    assert run.code == 20
    assert (
        "soak of 4h: the burn-in and DCGM's diagnostic, targeted_power, memtest run 3600 s each"
        in (run.certificate["assumptions"])
    )
    assert "DCGM-7" in run.cells("NOT MEASURED")
    assert "DCGM-9" in run.cells("PASS")


def test_a_soak_is_refused_where_it_cannot_be_kept(accept):
    """At level 2, or shorter than DCGM's tests take, a soak is a usage error of one line, not a run without it."""
    assert accept("--gpuready-replay", "demo-dcgm", "-m", "level2", "--gpuready-burn", "4h").code == 4
    assert accept("--gpuready-replay", "demo-dcgm", "-m", "level4", "--gpuready-burn", "30m").code == 4
    assert accept("--gpuready-replay", "demo-dcgm", "-m", "level4", "--gpuready-burn", "4").code == 4
