"""The lease file of a node: where it lies, how it is opened, its lock, and what the record in it counts for now."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.agent.lease_record import HOLD_MOST_S, HOLD_S, SIZE, Record, decode, span
from pytest_gpuready.errors import LeaseError

FOLDERS = ("/run/lock", "/tmp", "/dev/shm")  # noqa: S108 - links in it are not followed
"""Where the lease may lie. /dev/shm is last: where a user logs out for good, systemd removes his files there."""

LONGEST_S = 7 * 86400.0
"""No command lasts longer: what a record says beyond that is not shown."""

_NAME = "pytest-gpuready.lease"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def default_path() -> Path:
    """Where the lease of this machine lies: the same place for all of its users, whoever asks."""
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            if Path(folder).stat().st_mode & stat.S_IWOTH and os.access(folder, os.W_OK):
                return Path(folder) / _NAME
    return Path(FOLDERS[0]) / _NAME


def since_boot_s() -> float:
    """Seconds since the boot, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This node, this boot."""

    path: Path
    boot: str
    now: Callable[[], float] = since_boot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What stands in the file: it counts for `left_s` more, `most_s` where its command runs to its deadline.

    `unreadable` says what stands there instead of a record.
    """

    record: Record | None = None
    left_s: float = 0.0
    most_s: float = 0.0
    unreadable: str = ""

    @property
    def run(self) -> str:
        return self.record.ticket.run if self.record else ""

    def refusal(self, *, idle: bool) -> str:
        """What somebody else is told while it counts; `idle` where nobody has the lock."""
        if self.record is None:
            return (
                f"expected a record in the lease of the node, found {self.unreadable}; "
                f"it counts for at most {span(self.left_s)} more: wait, or remove it"
            )
        most = span(self.left_s if idle else max(self.left_s, self.most_s))
        return (
            f"expected the node free, found {self.record.ticket.holder}; unless it goes on, "
            f"the node is free in at most {most}; wait for its end"
        )


class LeaseFile:
    """The lease file, open. `mute` is True where it cannot be written."""

    def __init__(self, at: Here) -> None:
        self.path = at.path
        self._at = at
        self._descriptor, self.mute = _open(at.path)

    def lock(self, kind: int) -> bool:
        """Take the lock, or change its kind. Returns False where somebody else has it; it is lost then."""
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # a file system without locks
            raise LeaseError(f"expected to lock the lease {self.path}, found {error.strerror}") from error
        return True

    def unlock(self) -> None:
        """Give it up."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read(self) -> Found:
        """What stands there and what it counts for now."""
        try:
            record = decode(os.pread(self._descriptor, SIZE + 1, 0))
        except (OSError, ValueError) as error:
            return self._unreadable(str(error))
        if record is None:
            return Found()
        now = self._at.now()
        left_s = record.until - now if record.boot == self._at.boot else 0.0
        if left_s > HOLD_MOST_S:
            return self._unreadable(f"one that asks for {span(left_s)}")
        return Found(record=record, left_s=max(0.0, left_s), most_s=min(record.most - now, LONGEST_S))

    def _unreadable(self, why: str) -> Found:
        age_s = time.time() - os.fstat(self._descriptor).st_mtime
        return Found(left_s=HOLD_S - age_s if 0 <= age_s < HOLD_S else 0.0, unreadable=f"{why} in {self.path}")

    def write(self, what: bytes) -> None:
        """Put these bytes there, if that is possible."""
        if self.mute:
            return
        try:
            self.mute = os.pwrite(self._descriptor, what, 0) < SIZE
            if os.fstat(self._descriptor).st_size > SIZE:
                os.ftruncate(self._descriptor, SIZE)
        except OSError:  # no room
            self.mute = True

    def locker(self) -> int:
        """The process that has the lock; 0 where the kernel does not say."""
        about = os.fstat(self._descriptor)
        file = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        with contextlib.suppress(OSError, ValueError):
            for line in Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines():
                words = line.split()
                if words[1:2] == ["FLOCK"] and words[5:6] == [file] and int(words[4]) > 0:
                    return int(words[4])
        return 0

    def close(self) -> None:
        """Give up file and lock."""
        os.close(self._descriptor)


def _open(path: Path) -> tuple[int, bool]:
    """The lease file, and whether it may only be read; a lock needs no more.

    It is opened before it is created: where others own it, a hardened kernel (fs.protected_regular) refuses to open it
    by a call that might create it.
    """
    try:
        for create in (0, os.O_CREAT | os.O_EXCL, 0):
            try:
                descriptor = os.open(path, os.O_RDWR | create | _FLAGS, 0o666)
            except FileExistsError:
                continue
            except FileNotFoundError:
                if create:
                    raise
                continue
            if create:
                with contextlib.suppress(OSError):
                    os.fchmod(descriptor, 0o666)  # whoever measures this machine next may be another user
            return _regular(path, descriptor), False
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            found = "a link" if error.errno == errno.ELOOP else error.strerror  # no link in its place is followed
            raise LeaseError(f"expected to open the lease {path}, found {found}; remove it") from error
    try:
        return _regular(path, os.open(path, os.O_RDONLY | _FLAGS)), True
    except OSError as error:
        raise LeaseError(f"expected to open the lease {path}, found {error.strerror}; correct its owner") from error


def _regular(path: Path, descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LeaseError(f"expected the lease {path} to be a file, found something else; remove it")
    return descriptor
