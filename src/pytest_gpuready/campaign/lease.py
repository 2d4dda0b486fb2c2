"""The controller's side of the lease of a node (`agent.lease`): its own, its ticket, and how a refusal reads.

A run on the node itself has the lock for its whole life (`Lease`). A run from elsewhere gives a ticket to each of its
agent commands (`ticket`), and lets the node go at its end (`release_command`); where it dies, the node is free after
the ticket's `hold_s`. `renew_command` keeps a node that has to wait for others for longer than that.

The name of a run is made of its user, its host and boot, and its directory: a run that was killed and is continued
there gets its nodes back at once. That two do not write to one directory at the same time is the directory's own lock.
"""

from __future__ import annotations

import datetime
import getpass
import hashlib
import os
import socket
from pathlib import Path

from pytest_gpuready.agent.__main__ import boot_id
from pytest_gpuready.agent.lease import REFUSED, SAYS, take
from pytest_gpuready.agent.lease_file import Here, default_path
from pytest_gpuready.agent.lease_record import HOLD_S, WAIT_S, Ticket, plain
from pytest_gpuready.errors import LeaseError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_words import LEASE
from pytest_gpuready.model.command import PYTHON

__all__ = ["Lease", "default_path", "refusal", "release_command", "renew_command", "ticket"]

PATIENCE_S = 0.25
"""How long a run on the node waits for somebody who only looks whether the node is free."""

_ABOUT_LEASE_S = 20.0
_SHOWN = 800


class Lease:
    """The right to measure this machine, held until `release` or the end of the process."""

    def __init__(self, path: Path, *, node: str, out: Path, wait_s: float = PATIENCE_S) -> None:
        """Take the lease.

        Raises:
            LeaseError: another run holds it and did not let go within `wait_s`; the line says who.
        """
        mine = _ticket(out, hold_s=0.0, wait_s=wait_s)
        try:
            self._held = take(mine, Here(path=path, boot=boot_id()))
        except LeaseError as error:
            raise LeaseError(f"{node}: {error}") from error

    def release(self) -> None:
        """Let others measure; the file stays, empty."""
        self._held.free()


def ticket(out: Path, *, hold_s: float = HOLD_S, wait_s: float = WAIT_S, path: str = "") -> dict[str, str]:
    """The environment for all agent commands of the run that writes to this directory and holds its lock.

    `path` is the lease file as the agent sees it, "" for the node's usual one.
    """
    return {LEASE: _ticket(out, hold_s=hold_s, wait_s=wait_s, path=path).text}


def release_command(node: str) -> Command:
    """Lets the node go, for a transport that carries the ticket."""
    return _about_lease(node, "release")


def renew_command(node: str) -> Command:
    """Keeps the node for another `hold_s`, for a transport that carries the ticket."""
    return _about_lease(node, "renew")


def refusal(result: CommandResult) -> str:
    """Why the node refused this command: who holds it, since when and for how long; "" where it did not."""
    command = result.command
    if command.argv[0] != PYTHON or result.exit_code != REFUSED:
        return ""
    said = [line.removeprefix(SAYS) for line in result.stderr.splitlines() if line.startswith(SAYS)]
    return f"{command.node}: {plain(said[-1], _SHOWN)}" if said else ""


def _ticket(out: Path, *, hold_s: float, wait_s: float, path: str = "") -> Ticket:
    host, where = socket.gethostname(), str(out.absolute())
    name = "\0".join((str(os.getuid()), host, where, boot_id(), *_filesystem(out)))
    return Ticket(
        # A run that has the lock for its whole life shares the node with nobody, also not with one of its name.
        run=hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        if hold_s
        else f"local-{os.getpid()}-{os.urandom(4).hex()}",
        user=user(),
        host=host,
        pid=os.getpid(),
        since=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        out=str(out) if not hold_s else where,
        hold_s=hold_s,
        wait_s=wait_s,
        path=path,
    )


def _about_lease(node: str, word: str) -> Command:
    argv = (PYTHON, "-m", "pytest_gpuready.agent", "lease", word)
    return Command(node=node, argv=argv, timeout_s=_ABOUT_LEASE_S, says=f"lease {word}")


def _filesystem(out: Path) -> tuple[str, ...]:
    """Which directory it is that a path leads to from here: two machines may have one host name, and the same paths."""
    for folder in out.absolute().parents:
        try:
            found = folder.stat()
        except OSError:
            continue
        return str(found.st_dev), str(found.st_ino)
    return ()


def user() -> str:
    """Who runs this, by name where there is one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
