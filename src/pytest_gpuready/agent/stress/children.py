"""Child processes that end with us, whatever happens to us.

Each has a session of its own: a Ctrl-C at the terminal is for us to pass on, and its whole group can be killed. The
kernel kills it when we die; it also sees the end of its stdin then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
KILL_S = 1.0
PLACE = Path(__file__).parents[3]
"""Where our own package lies."""

# In between, and gone before the child's own code runs: what is set here outlives exec, and a fork in a process with
# threads (we have some) must not run Python. Who was orphaned before the call learns it from its parent's number.
_TIED = (
    "import ctypes,os,sys;"
    f"ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG},{int(signal.SIGKILL)},0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execv(sys.argv[2],sys.argv[2:])"
)


def start(words: Sequence[str], *, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """A child that runs these words, the first a path, with pipes to us.

    Raises:
        OSError: it could not be started.
    """
    environment = dict(os.environ)
    if not PLACE.is_dir():  # a file that was sent here: what is in it may be on no path of the child
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PLACE), environment.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for it and for whatever it started; does not wait."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def gone(process: subprocess.Popen[bytes], patience_s: float = KILL_S) -> bool:
    """Kill what is left of it and wait a moment. False where it did not end: the kernel holds it."""
    kill(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience_s)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    return process.poll() is not None


def how_it_ended(code: int | None) -> str:
    """In words: "exit code 1", "signal SIGKILL"."""
    if code is None:
        return "no end of it"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
