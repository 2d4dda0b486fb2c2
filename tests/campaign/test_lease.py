"""`campaign.lease`: one run at a time, and the second is told who the first is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuready.campaign.lease import Lease
from pytest_gpuready.errors import LeaseError


def test_the_second_run_is_told_who_holds_the_node(tmp_path: Path) -> None:
    """A held lease names user, process, start and directory of the holder."""
    held = Lease(tmp_path / "lease", node="node01", out=tmp_path / "first")
    with pytest.raises(LeaseError, match=rf"node01: expected the node free.*pid \d+\) since 20.*{tmp_path}/first"):
        Lease(tmp_path / "lease", node="node01", out=tmp_path / "second")
    held.release()
    Lease(tmp_path / "lease", node="node01", out=tmp_path / "second").release()


def test_the_lease_of_a_killed_run_is_free(tmp_path: Path) -> None:
    """A lease ends with its process, however that ends."""
    script = (
        "import os, pathlib, signal\n"
        "from pytest_gpuready.campaign.lease import Lease\n"
        f"lease = Lease(pathlib.Path({str(tmp_path / 'lease')!r}), node='n', out=pathlib.Path('o'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert json.loads((tmp_path / "lease").read_text())["out"] == "o"
    Lease(tmp_path / "lease", node="n", out=tmp_path).release()


def test_the_lease_does_not_follow_a_link(tmp_path: Path) -> None:
    """A link laid in the place of the lease is refused: its target is not emptied."""
    (tmp_path / "precious").write_text("data")
    (tmp_path / "lease").symlink_to(tmp_path / "precious")
    with pytest.raises(LeaseError, match="expected to open the lease"):
        Lease(tmp_path / "lease", node="n", out=tmp_path)
    assert (tmp_path / "precious").read_text() == "data"
