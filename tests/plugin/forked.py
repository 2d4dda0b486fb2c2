"""Runs of pytest in processes of their own, forked from one in which pytest and the plug-in are loaded already.

Such a run has its own process id, memory, working directory, environment and end, and may be meddled with and killed
like any other; it is only not spent half of its time on imports. Tests of workers and the command line start Python
anew instead.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["pytest", "xdist.plugin", "pytest_gpuready.driving"])


def run(folder: Path, *arguments: str, timeout_s: float) -> pytest.RunResult:
    """The ended run of pytest with these arguments in this folder, which is on its import path too.

    Raises:
        TimeoutError: it had not ended in time, and was killed.
    """
    began = time.monotonic()
    said = (folder / "forked-stdout.txt", folder / "forked-stderr.txt")
    process = start(folder, *arguments, said=said)
    process.join(timeout_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"expected the end of pytest {' '.join(arguments)} within {timeout_s:g} s, found none")
    out, err = (path.read_text(encoding="utf-8", errors="replace").splitlines() for path in said)
    return pytest.RunResult(process.exitcode, out, err, time.monotonic() - began)


def start(
    folder: Path, *arguments: str, said: tuple[Path, Path], environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """The run of pytest with these arguments, just begun; what it says goes to these two files, or terminals."""
    process = _SERVER.Process(target=_main, args=(folder, arguments, {**os.environ, **(environment or {})}, said))
    process.start()
    return process


def _main(folder: Path, arguments: tuple[str, ...], environment: dict[str, str], said: tuple[Path, Path]) -> None:
    """In the new process: what the command line would have given it, then pytest."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and & ignore it for their children
    for descriptor, path in enumerate(said, 1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    with open(1, "w", encoding="utf-8", closefd=False) as sys.stdout:  # as Python has it: on a terminal line by line
        sys.exit(int(pytest.main(list(arguments))))
