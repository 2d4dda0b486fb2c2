"""Runs of pytest in processes of their own, forked from one in which pytest and the plug-in are loaded already.

Such a run has its own process id, memory, working directory, environment and end, and may be meddled with and killed
like any other; it is only not spent half of its time on imports. Tests of signals, workers and the command line start
Python anew instead.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
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
    said = [folder / f"forked-{name}.txt" for name in ("stdout", "stderr")]
    process = _SERVER.Process(target=_main, args=(folder, arguments, dict(os.environ), said))
    process.start()
    process.join(timeout_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"expected the end of pytest {' '.join(arguments)} within {timeout_s:g} s, found none")
    out, err = (path.read_text(encoding="utf-8", errors="replace").splitlines() for path in said)
    return pytest.RunResult(process.exitcode, out, err, time.monotonic() - began)


def _main(folder: Path, arguments: tuple[str, ...], environment: dict[str, str], said: list[Path]) -> None:
    """In the new process: what the command line would have given it, then pytest."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    for descriptor, path in enumerate(said, 1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.exit(int(pytest.main(list(arguments))))
