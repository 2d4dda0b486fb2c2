"""Runs as the first process of a pod and does nothing: it holds the node for the commands that come by `kubectl exec`.

It is sent as text in the pod's own command and needs only Python 3.8. Nobody has to tell it that the controller has
died: where no command has run for a while it ends, the pod is done, and the GPUs are free again. As the first process
it reaps what others leave behind. At the end of the pod (SIGTERM: deleted, evicted, past its deadline) it tells the
keeper of every command that runs, which then has its grace; Kubernetes itself tells nobody but the first process.

What comes by exec has no parent inside the pod: its parent reads 0. That is the `timeout` around a keeper, the keeper
is its child. `timeout` itself is not told: it would leave the keeper no more than its own patience.
"""

from __future__ import annotations

import os
import signal

EVERY_S = 5.0
"""How often it looks whether somebody is there."""

HURRY_S = 0.1
"""How often it looks once the pod is told to end."""


def others() -> dict[int, int]:
    """Process id -> parent of every process of the pod but this one; the ended that wait to be reaped left out."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path would load pathlib
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stream:  # noqa: PTH123
                    state, parent = stream.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state not in (b"Z", b"X"):
                found[int(entry)] = int(parent)
    return found


def tell(there: dict[int, int]) -> None:
    """SIGTERM to every keeper."""
    for pid, parent in there.items():
        if parent and there.get(parent) == 0:
            try:  # noqa: SIM105 - an import that only this would need
                os.kill(pid, signal.SIGTERM)
            except OSError:
                pass


def reap() -> None:
    """Take the exit codes of orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main(idle_s: float) -> None:
    """Hold until nobody has been there for so long, or until told to end and everybody is gone."""
    awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # the first process gets no signal that it does not await
    quiet_s, told = 0.0, False
    while True:
        reap()
        there = others()
        if not there and (told or quiet_s >= idle_s):
            os._exit(0)
        every_s = HURRY_S if told else min(EVERY_S, idle_s)
        heard = signal.sigtimedwait(awaited, every_s)
        quiet_s = 0.0 if there else quiet_s + (every_s if heard is None else 0.0)
        if heard is not None and heard.si_signo != signal.SIGCHLD and not told:
            told = True
            tell(others())
