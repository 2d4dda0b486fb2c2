"""The directory of a run, claimed before the first node is asked for anything, and held by a lock until the run ends.

A second run that wants the same directory, also one of another machine that shares it, is refused before it has
touched a node. Whoever claims a directory and then cannot open a run leaves it as it was. Where a run was killed while
it wrote its first file nothing was measured: such a directory is taken as an empty one is.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pytest_gpuready.agent.lease_record import plain
from pytest_gpuready.campaign.lease import user
from pytest_gpuready.errors import LeaseError, StoreError
from pytest_gpuready.files import unfinished

LOCK = "run.lock"
RUN = "run.json"
_SHOWN = 200
_TURNS = 16
"""How often a lock file is opened that somebody takes away in that moment."""


@dataclass(slots=True)
class Directory:
    """A directory that this process alone may write a run to. `made` are the folders that were not there before, the
    innermost first."""

    out: Path
    lock: TextIO
    made: tuple[Path, ...] = ()

    def move_aside(self) -> Path:
        """Keep all that lies there as `DIR.N`, and hold a new, empty directory instead; returns where it is now.

        Raises:
            LeaseError: another run claimed the new directory first.
        """
        number = 1
        while (target := self.out.with_name(f"{self.out.name}.{number}")).exists():
            number += 1
        moved = self.out.rename(target)
        old, self.lock = self.lock, _lock(self.out)
        old.close()
        return moved

    def give_up(self) -> None:
        """Let go of a directory in which no run was opened, and leave nothing of ours in it."""
        with contextlib.suppress(OSError):
            if not self.lock.closed and [path.name for path in self.out.iterdir()] == [LOCK]:
                (self.out / LOCK).unlink()  # while it is locked: who has opened it meanwhile sees that it is gone
                for folder in self.made:
                    folder.rmdir()
        self.lock.close()


def claim(out: Path) -> Directory:
    """The directory, for this process alone.

    Raises:
        LeaseError: another run is writing to it.
        StoreError: it holds something else than a run, or cannot be written.
    """
    try:
        names = {path.name for path in out.iterdir()} if out.exists() else set()
        cut = {path.name for path in unfinished(out / RUN)} if out.exists() else set()
        if {"store", "evidence"} <= names and RUN not in names:
            raise StoreError(
                f"expected {RUN} in {out}, found it gone while what was measured is there; keep that directory, and "
                "choose another --gpuready-out"
            )
        if names - cut - {LOCK} and RUN not in names:
            raise StoreError(
                f"expected {out} to be empty or a run directory, found other files; choose another --gpuready-out"
            )
        made = tuple(folder for folder in (out, *out.parents) if not folder.exists())
        directory = Directory(out, _lock(out), made)
        for path in unfinished(out / RUN):  # of a run that was killed: nobody else may write here now
            path.unlink(missing_ok=True)
        return directory
    except OSError as error:
        raise StoreError(
            f"expected to write in {out}, found {error.strerror}; choose another --gpuready-out"
        ) from error


def _lock(out: Path) -> TextIO:
    """The lock of a run directory, which is made where there is none, held until it is closed.

    Raises:
        LeaseError: another run holds it.
    """
    for _ in range(_TURNS):
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held, there = os.fstat(file.fileno()), (out / LOCK).stat()
        except BlockingIOError:
            file.close()
            break
        except FileNotFoundError:
            file.close()
            continue
        if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
            with contextlib.suppress(OSError):  # who is refused learns less where the disk is full
                file.truncate(0)
                file.write(_me())
                file.flush()
            return file
        file.close()  # what was locked here was given up, or is kept aside
    raise LeaseError(
        f"expected {out} free, found another run writing to it{_holder(out)}; wait for its end or choose another "
        "--gpuready-out"
    )


def _me() -> str:
    """Who has the directory, for whoever is refused it."""
    since = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return f"{user()} ({socket.gethostname()} pid {os.getpid()}) since {since}\n"


def _holder(out: Path) -> str:
    """Who wrote itself into the lock, "" where nobody did. Anybody who may write there may have."""
    try:
        with (out / LOCK).open(encoding="utf-8", errors="replace") as file:
            said = plain(file.readline(_SHOWN).strip(), _SHOWN)
    except OSError:
        return ""
    return f", that of {said}" if said else ""
