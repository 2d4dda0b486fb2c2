"""One acceptance run at a time on a node, wherever its controller runs: two would measure each other.

One file on the node, and two things on it:

- The lock (flock). Who measures has it: a run on the node itself for its whole life, an agent command of a run from
  elsewhere for its own. That is the real exclusion. The kernel ends it with the process, however that ends, and no
  record, clock or deadline ever overrules it. `node` and `nvml` of one run share the lock, as they are asked side by
  side; whatever loads the node has it alone, also beside its own run: an earlier command that hangs is no company.
- The record (`lease_record`), which keeps the node for a run between its commands. A living command renews it a few
  times within `hold_s`, and once more at its end. Weighed against writing the command's whole deadline into it: an
  agent that was killed would then lock the node for hours with nobody behind it; so it is `hold_s` from the last sign
  of life, whatever happened. A load that outlived its agent and everybody who ends it is covered for no longer.

A record counts for nothing after a reboot (boot id) and when its time on CLOCK_BOOTTIME is over. One that cannot be
read, or that asks for more than an hour, keeps others off for as long as any other: `HOLD_S` from the last change of
the file, by the clock of the node's kernel; a change that lies in the future does not count.

The file lies in one place for all users of the node (`default_path`). Other users can take the lock, or fill the file
with lies, and so keep the node from being measured; each is said, and none lets two runs measure at once. A link or
anything else but a file in its place is refused. A file that may only be read keeps the lock and says nothing. Whoever
deletes it (its owner, root) ends all leases: two runs then meet. A run in a container sees the node's file only where
the folder is mounted from the node.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

from pytest_gpuready.agent.lease_file import Here, LeaseFile, default_path
from pytest_gpuready.agent.lease_record import EMPTY, Record, Ticket, ticket_of
from pytest_gpuready.errors import LeaseError

REFUSED = 75
"""What an agent command exits with where another run has the node; no agent ends so otherwise."""

SAYS = "gpuready lease: "
"""How the one line begins that a refused agent command prints on stderr."""

MUTE = "gpuready lease: the lease cannot be written; between its commands this run keeps nobody else off the node"
"""What an agent command says on stderr where that is so; it measures all the same."""

SHARING = frozenset({"node", "nvml"})
"""Probes that put no load on the node: those of one run may be asked side by side."""

_BEATS = 4


def take(ticket: Ticket, at: Here, *, deadline_s: float = 0.0, sharing: bool = False) -> Held:
    """Take the node for the run of this ticket; `deadline_s` is how long the command may last.

    Raises:
        LeaseError: another run has it, an earlier command of this run still has, or the file cannot be used.
    """
    file = LeaseFile(at)
    give_up = time.monotonic() + ticket.wait_s
    held = Held(file, ticket, at, deadline_s)
    try:
        while not _taken(file, ticket, held, sharing=sharing and not file.mute):
            if time.monotonic() >= give_up:
                raise LeaseError(_in_the_way(file, ticket))
            # Two that came at the same moment do not come back at the same moment.
            time.sleep(0.03 + os.getpid() % 7 * 0.005)
    except BaseException:
        file.close()
        raise
    held.begin()
    return held


def renew(ticket: Ticket, at: Here) -> None:
    """Keep the node for its run for another `hold_s`, where it is that run's: one that was let go, be it in this
    moment, is not taken again. A command of the run that has the lock renews by itself.

    Raises:
        LeaseError: another run has it, or the file cannot be used.
    """
    file = LeaseFile(at)
    try:
        locked = file.lock(fcntl.LOCK_SH)
        found = file.read()
        if found.run == ticket.run:
            if locked:
                Held(file, ticket, at, 0.0).write()
        elif found.left_s > 0 or not locked:
            raise LeaseError(_in_the_way(file, ticket))
    finally:
        file.close()


def _taken(file: LeaseFile, ticket: Ticket, held: Held, *, sharing: bool) -> bool:
    """Try once. Raises LeaseError where it is no use to try again."""
    locked = file.lock(fcntl.LOCK_SH if sharing else fcntl.LOCK_EX)
    found = file.read()
    if found.run == ticket.run:
        return locked
    if found.left_s > 0:
        raise LeaseError(found.refusal(idle=locked and not sharing))
    if not locked or not sharing:
        return locked
    # Alone for a moment, to make the record ours. The change of a lock is not atomic: what stands there is read again.
    if file.lock(fcntl.LOCK_EX) and file.read().left_s <= 0:
        held.write()
        if file.mute or (file.lock(fcntl.LOCK_SH) and file.read().run == ticket.run):
            return True
    file.unlock()
    return False


def _in_the_way(file: LeaseFile, ticket: Ticket) -> str:
    """Who has the lock, when waiting for it was in vain."""
    found = file.read()
    if found.left_s > 0 and found.run != ticket.run:
        return found.refusal(idle=False)
    process = f"process {pid}" if (pid := file.locker()) else "a process"
    if found.record is None:
        return f"expected the node free, found {process} that has {file.path} and does not say why; see what it is"
    holder = found.record.ticket.holder
    if found.run == ticket.run:
        return (
            f"expected the earlier commands of this run to have ended, found {process}; see whether it hangs, "
            "or whether the run was started twice"
        )
    if not found.record.until:
        return f"expected the node free, found {holder}, for as long as it lives; wait for its end"
    return f"expected the node free, found {holder}: {process} of it still runs; see whether it hangs"


class Held:
    """The right to measure this node, until `end` or `free` or the end of the process."""

    def __init__(self, file: LeaseFile, ticket: Ticket, at: Here, deadline_s: float) -> None:
        self._file = file
        self._ticket = ticket
        self._at = at
        self._ends = at.now() + deadline_s
        self._over = threading.Event()
        self._writing = threading.Lock()

    @property
    def mute(self) -> bool:
        """True where the record cannot be written: between the commands of the run, nobody else is kept off."""
        return self._file.mute

    def begin(self) -> None:
        """Write the record, and from now on again and again."""
        self.write()
        if self._ticket.hold_s and not self.mute:
            threading.Thread(target=self._beat, daemon=True).start()

    def end(self) -> None:
        """The command has ended: the node is kept for the next one of this run, for `hold_s`."""
        self._ends = 0.0
        self._last(self._record().encode())

    def free(self) -> None:
        """The run has ended: let others measure. The file stays, empty."""
        self._last(EMPTY)

    def write(self) -> None:
        """Say who has the node, as of now."""
        self._file.write(self._record().encode())

    def _record(self) -> Record:
        now, hold_s = self._at.now(), self._ticket.hold_s
        until = now + hold_s if hold_s else 0.0
        most = max(until, self._ends + hold_s) if hold_s else 0.0
        return Record(ticket=self._ticket, boot=self._at.boot, until=until, most=most)

    def _beat(self) -> None:
        while not self._over.wait(self._ticket.hold_s / _BEATS):
            with self._writing:
                if not self._over.is_set():
                    self.write()

    def _last(self, what: bytes) -> None:
        self._over.set()
        if self._writing.acquire(timeout=1.0):  # a file system that hangs must not keep the document back
            self._file.write(what)
            self._file.close()


def take_by(text: str, *, word: str, deadline: str, boot: str) -> Held:
    """Take this node for the agent command of that word, by the ticket and the deadline that its controller gave.

    Raises:
        LeaseError: see `take`; or what the controller gave is no ticket.
    """
    ticket, at = _given(text, boot)
    try:
        deadline_s = float(deadline or 0)
    except ValueError as error:
        raise LeaseError(f"expected a deadline in seconds, found {error}; correct the transport") from error
    return take(ticket, at, deadline_s=deadline_s, sharing=word in SHARING)


def renew_by(text: str, *, boot: str) -> None:
    """`renew` by the ticket that the controller gave.

    Raises:
        LeaseError: see `renew`; or what the controller gave is no ticket.
    """
    ticket, at = _given(text, boot)
    renew(ticket, at)


def _given(text: str, boot: str) -> tuple[Ticket, Here]:
    try:
        ticket = ticket_of(text)
    except ValueError as error:
        raise LeaseError(f"expected the ticket of a run, found {error}; correct the transport") from error
    return ticket, Here(path=Path(ticket.path) if ticket.path else default_path(), boot=boot)
