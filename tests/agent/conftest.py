"""The real agent process under the real pynvml, on a stand-in of the driver's libraries."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuready.model import Command, CommandResult

TESTS = Path(__file__).parent.parent
SOURCES = TESTS.parent / "src"


@pytest.fixture(scope="session")
def stand_in() -> ModuleType:
    """tests/fake_nvml/stand_in_driver.py, whatever the import mode of this run."""
    spec = importlib.util.spec_from_file_location("stand_in_driver", TESTS / "fake_nvml" / "stand_in_driver.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def driver(stand_in: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries of a current driver."""
    return stand_in.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_driver(stand_in: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries of a driver that lacks the functions which came late."""
    return stand_in.build(tmp_path_factory.mktemp("old-driver"), old=True)


Agent = Callable[..., CommandResult]


@pytest.fixture
def agent(tmp_path: Path, stand_in: ModuleType) -> Agent:
    """Runs one agent process: probe and arguments, libraries, their values, deadline in seconds."""

    def run(
        *words: str,
        libraries: Path | None = None,
        values: dict[str, str] | None = None,
        timeout_s: float = 60.0,
        environment: dict[str, str] | None = None,
    ) -> CommandResult:
        argv = ("python", "-m", "pytest_gpuready.agent", *words)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), **(environment or {})}
        if libraries is not None:
            env["LD_LIBRARY_PATH"] = str(libraries)
        if values is not None:
            env["FAKE_NVML"] = str(stand_in.write(tmp_path / "node.nvml", values))
        command = Command(node="node01", argv=argv, timeout_s=timeout_s)
        real = [sys.executable, *argv[1:]]
        try:
            ran = subprocess.run(real, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)
        except subprocess.TimeoutExpired:
            return _result(command, None, "", "", timed_out=True)
        return _result(command, ran.returncode, ran.stdout, ran.stderr)

    return run


def _result(command: Command, code: int | None, out: str, err: str, *, timed_out: bool = False) -> CommandResult:
    return CommandResult(
        command=command,
        exit_code=code,
        stdout=out,
        stderr=err,
        started="2026-12-01T00:00:00Z",
        duration_s=0.1,
        timed_out=timed_out,
    )
