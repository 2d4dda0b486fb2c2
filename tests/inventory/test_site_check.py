"""`python -m pytest_gpuready.inventory`: one line and 0, or all findings and 1."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_gpuready
from pytest_gpuready.inventory.__main__ import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "site-h200-8.yaml"


def test_a_site_file_that_loads_is_one_line() -> None:
    """The command as the manual shows it says nodes, profile, level, exclusions and digest, and exits 0."""
    source = str(Path(pytest_gpuready.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpuready.inventory", str(EXAMPLE)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    digest = hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "site-h200-8.yaml loads: node01 (GPUs: 8); profile h200-sxm 2026.11; level 2; clauses excluded: 1; "
        f"sha256 {digest}\n"
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("site: '1'\nlevel: 9\n", 2),
        (
            "site: 1\nprofile: h200-sxm\nlevel: 4\ndiagnostics: builtin\n"
            "exclude: [{clause: GPU-1, reason: x}, {clause: A-1, reason: x}]\n",
            2,
        ),
        ("site: 1\nprofile: h200\n", 1),
    ],
)
def test_every_finding_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, count: int) -> None:
    """What is wrong in the file, or against its profile, is a line each and exit code 1."""
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert main([str(path)]) == 1
    found = capsys.readouterr().out.splitlines()
    assert len(found) == count
    assert all(line.startswith("site.yaml line ") for line in found)


def test_a_file_that_leaves_all_open_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shortest site file declares nothing, and the line says what follows."""
    path = tmp_path / "site.yaml"
    path.write_text("site: 1\n")
    assert main([str(path)]) == 0
    said = "no node declared; the profile follows from the GPUs found; the highest level of the profile; "
    assert said in capsys.readouterr().out
