"""The agent ends with whoever started it, also while it still imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pytest_gpuready.agent import __main__ as agent
from pytest_gpuready.model import agent_words

SOURCES = Path(__file__).parents[2] / "src"


def test_an_import_that_hangs_does_not_outlive_the_controller(tmp_path: Path) -> None:
    """A package that never finishes loading: the agent is gone as soon as its controller's end of stdin closes."""
    (tmp_path / "msgspec.py").write_text(
        "import sys, time\nprint('loading', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest_gpuready.agent", "node"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCES}", agent_words.TIED: "1"},
        start_new_session=True,
    )
    assert running.stderr is not None
    assert running.stdin is not None
    try:
        assert running.stderr.readline() == b"loading\n"
        running.stdin.close()
        assert running.wait(30) == -signal.SIGKILL
    finally:
        running.kill()
        running.wait()


def test_both_ends_mean_the_same_variable() -> None:
    """The agent looks for the variable that the transport sets."""
    assert agent.TIED == agent_words.TIED
