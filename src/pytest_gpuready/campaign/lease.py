"""One acceptance run at a time on a machine: two would measure each other.

The lease is an advisory lock on a file that says who holds it. It ends with the process that took it, however that
ends; nothing has to be cleaned up.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import getpass
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TextIO, cast

from pytest_gpuready.errors import LeaseError


def default_path() -> Path:
    """Where the lease of this machine lies: one place for all users of it."""
    run_lock = Path("/run/lock")
    return (run_lock if os.access(run_lock, os.W_OK) else Path(tempfile.gettempdir())) / "pytest-gpuready.lease"


class Lease:
    """The right to measure this machine, held until `release` or the end of the process."""

    def __init__(self, path: Path, *, node: str, out: Path, wait_s: float = 0.0) -> None:
        """Take the lease.

        Raises:
            LeaseError: another run holds it and did not let go within `wait_s`; the line says who.
        """
        self._file = _open(path)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    holder = self._file.read(1000)
                    self._file.close()
                    raise LeaseError(
                        f"{node}: expected the node free, found {_told(holder)}; wait for its end"
                    ) from error
                time.sleep(0.1)
        self._say(
            {
                "pid": os.getpid(),
                "user": _user(),
                "since": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "out": str(out),
            }
        )

    def release(self) -> None:
        """Let others measure; the file stays, empty."""
        self._say(None)
        self._file.close()

    def _say(self, holder: dict[str, object] | None) -> None:
        """Write who holds it; a file of another user that may only be read keeps the lock and says nothing."""
        if not self._file.writable():
            return
        self._file.seek(0)
        self._file.truncate()
        if holder:
            json.dump(holder, self._file)
        self._file.flush()


def _open(path: Path) -> TextIO:
    """The lease file, to write if possible; a lock needs no more than reading."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)  # whoever measures this machine next may be another user
        return _regular(path, descriptor, "r+")
    except PermissionError:
        pass
    except OSError as error:
        raise LeaseError(f"expected to open the lease {path}, found {error.strerror}; remove it") from error
    try:
        return _regular(path, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW), "r")
    except OSError as error:
        raise LeaseError(f"expected to open the lease {path}, found {error.strerror}; correct its owner") from error


def _regular(path: Path, descriptor: int, mode: str) -> TextIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LeaseError(f"expected the lease {path} to be a file, found something else; remove it")
    return cast("TextIO", os.fdopen(descriptor, mode, encoding="utf-8", errors="replace"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _told(holder: str) -> str:
    try:
        said = json.loads(holder)
        return (
            f"an acceptance run of {said['user']} (pid {said['pid']}) since {said['since']}, "
            f"which writes to {said['out']}"
        )
    except (ValueError, KeyError, TypeError):
        return "another acceptance run"
