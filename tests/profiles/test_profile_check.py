"""`python -m pytest_gpuready.profiles`: one line and 0, or all findings and 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready import profiles
from pytest_gpuready.profiles.__main__ import main


def test_a_profile_that_loads_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Name, version, number of clauses and digest of a shipped profile, and exit code 0."""
    profile = profiles.load("h200-sxm")
    assert main(["h200-sxm"]) == 0
    count = len(profile.clauses)
    assert capsys.readouterr().out == f"h200-sxm 2026.11 loads: {count} clauses, sha256 {profile.sha256}\n"


def test_every_finding_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two mistakes in a file are two lines and exit code 1."""
    path = tmp_path / "ours.yaml"
    path.write_text("profile: ours\nextends: base\nversion: 1\ntitle: O\nclauses: {GPU-10: {required: false}}\n")
    assert main([str(path)]) == 1
    found = capsys.readouterr().out.splitlines()
    assert len(found) == 2
    assert "line 3 $.version: expected text, found 1; put it in quotes" in found[0]
    assert "line 5 $.clauses.GPU-10.required" in found[1]


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that does not ship gets its neighbour and exit code 1."""
    assert main(["h200"]) == 1
    assert "found 'h200' (did you mean 'h200-sxm'?); correct the name\n" in capsys.readouterr().out
