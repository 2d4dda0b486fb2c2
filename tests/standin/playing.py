"""Runs the stand-in in this process: nothing of it needs one of its own but signals and hanging."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.standin.standin_dcgm.main import main
from tests.standin.standin_dcgm.scenario import VARIABLE


def run(folder: Path, scenario: dict[str, Any], words: list[str]) -> tuple[str, str, int]:
    """stdout, stderr and exit code of one command, in this process."""
    told = folder / "scenario.json"
    told.write_text(json.dumps(scenario), encoding="utf-8")
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        patch.setenv(VARIABLE, str(told))
        code = main(words)
    return stdout.getvalue(), stderr.getvalue(), code
