"""Whole runs on a machine with NVIDIA GPUs: accepted, killed, continued, two at once. Run by hand: see conftest.py.

In a process of its own: beside a pytest that has used CUDA itself, every run finds a foreign process on the GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SUITES = ("--pyargs", "pytest_gpuready.suites", "-o", "addopts=", "-p", "no:cacheprovider")


def command(level: int) -> list[str]:
    site = ["--gpuready-site", os.environ["SITE"]] if os.environ.get("SITE") else []
    return [sys.executable, "-m", "pytest", *SUITES, "-m", f"level{level}", *site]


def certificate(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "gpuready-out" / "certificate.json").read_text())
    return loaded


def agents() -> list[int]:
    """Processes on this machine that are an agent of ours at work on copies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pytest_gpuready.agent" in words and b"copies" in words:
            found.append(int(path.parent.name))
    return found


def wait_for(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def test_killed_while_copying_then_continued(tmp_path: Path) -> None:
    """SIGKILL leaves INCOMPLETE and no agent behind; the next run continues in the same directory and is accepted."""
    process = subprocess.Popen(command(2), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(agents, 60)
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    assert certificate(tmp_path)["verdict"] == "INCOMPLETE"
    assert wait_for(lambda: not agents(), 10), "an agent outlived its controller"
    done = subprocess.run(command(2), cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert certificate(tmp_path)["verdict"] == "ACCEPTED", done.stdout
    assert certificate(tmp_path)["basis"] == "hardware"
    assert done.returncode == 0
    assert "(continued)" in done.stdout
    assert not (tmp_path / "gpuready-out.1").exists()


def test_interrupted_while_copying(tmp_path: Path) -> None:
    """Ctrl-C ends the agent and leaves a certificate that says INCOMPLETE and is finished."""
    process = subprocess.Popen(command(2), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(agents, 60)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 2
    assert wait_for(lambda: not agents(), 10)
    assert (certificate(tmp_path)["verdict"], certificate(tmp_path)["finished"]) == ("INCOMPLETE", True)


def test_two_runs_at_once(tmp_path: Path) -> None:
    """The second run on a node is told who holds it, measures nothing and exits 20."""
    first = subprocess.Popen(command(2), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_for(agents, 60)
    (tmp_path / "second").mkdir()
    second = subprocess.run(
        command(2), cwd=tmp_path / "second", capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 20
    assert f"pid {first.pid})" in second.stdout + second.stderr
    assert not (tmp_path / "second" / "gpuready-out").exists()
    assert first.wait(timeout=120) == 0
    assert certificate(tmp_path)["verdict"] == "ACCEPTED"
