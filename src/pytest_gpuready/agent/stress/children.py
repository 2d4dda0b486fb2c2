"""Child processes that end with us, whatever happens to us.

Each has a session of its own: a Ctrl-C at the terminal is for us to pass on, and its whole group can be killed. The
kernel kills it when we die; it also sees the end of its stdin then. What a child started in a session of its own
becomes ours when that child is gone, and can be ended too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
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


def start(
    words: Sequence[str], *, stderr: int = subprocess.PIPE, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A child that runs these words, the first a path, with pipes to us and our environment where none is given.

    Raises:
        OSError: it could not be started.
    """
    environment = dict(os.environ if environment is None else environment)
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


def adopt(whether: bool) -> None:
    """From now on whoever loses its parent below us becomes our child, or no longer."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


def ours() -> set[int]:
    """Our children as the kernel has them, those that we adopted too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):  # gone meanwhile
            if int(stat.read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def end_adopted(known: Collection[int], patience_s: float = KILL_S) -> bool:
    """SIGKILL for every child but these, and for what they leave to us. False where some did not end."""
    give_up = time.monotonic() + patience_s
    while adopted := ours().difference(known):
        for pid in adopted:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > give_up:
            return False
        time.sleep(0.002)
    return True


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
