"""Messages of srun, slurmstepd, mpirun (Open MPI, PRRTE), Hydra and ssh -> events: what stopped a job, and where.

A paragraph may be wrapped anywhere; it is joined before it is read. Lines about one step, job and node are one event.
Slurm has no end mark and says nothing when all is well: silence proves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EVENTS_AT_MOST = 200
PARAGRAPH_LINES = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that a launcher said went wrong. `kind` is a word of our own; what was not said is "" or None."""

    kind: str
    text: str
    node: str = ""
    rank: int | None = None
    signal: int | None = None
    exit_code: int | None = None
    reason: str = ""
    step: str = ""


_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "cancelled",
            r"\*\*\* (?:STEP|JOB) (?P<step>\S+)(?: ON (?P<node>\S+))? CANCELLED AT \S+"
            r"(?: DUE TO (?P<reason>[A-Z][A-Z ]+?))?"
            r"(?: \*\*\*|,|$)",
        ),
        ("not launched", r"Task launch for (?:StepId=)?(?P<step>\S+) failed on node (?P<node>\S+): (?P<reason>.+)"),
        ("no address", r"[Cc]an't find (?:an )?address for host (?P<node>[^\s,]+)"),
        (
            "out of memory",
            r"Detected \d+ oom[-_]kill event.* in (?:StepId=|step )?(?P<step>[^\s.]+(?:\.\S+?)?)\.?(?:\s|$)",
        ),
        (
            "ended badly",
            r"srun: error: (?P<node>[^\s:]+): tasks? (?P<rank>[\d,-]+): (?P<reason>(?:Exited with exit code"
            r" (?P<exit>\d+)|.+))",
        ),
        ("node failed", r"[Nn]ode failure on (?P<node>[^\s,]+)"),
        ("io error", r"Aborting, io error and missing step on node (?P<node>\S+)"),
        (
            "not allocated",
            r"(?:Unable to (?:allocate resources|create step)|Job allocation .* revoked)[^:]*:?\s*(?P<reason>.*)",
        ),
        ("not launched", r"Application launch failed: (?P<reason>.+)"),
        ("not executed", r"execve\(\): (?P<reason>.+)"),
        ("stopped", r"Job step aborted|Force Terminated (?:job|StepId)|Timed out waiting for job step to complete"),
        ("srun error", r"^(?:srun|salloc|sbatch|slurmstepd): (?:error|fatal): (?P<reason>.+)"),
        ("ssh", r"ssh: connect to host (?P<node>\S+) port \d+: (?P<reason>.+)"),
        ("ssh", r"ssh: Could not resolve hostname (?P<node>[^\s:]+): (?P<reason>.+)"),
        ("ssh", r"(?P<reason>Host key verification failed|Permission denied \(publickey.*)"),
        ("aborted", r"^\[(?P<node>[^\s:\]]+):\d+\] Signal: (?P<reason>[\w ]+) \((?P<signal>\d+)\)"),
        ("aborted", r"application called MPI_Abort\(.*?, (?P<exit>-?\d+)\) - process (?P<rank>\d+)"),
        ("setup", r"(?:prterun|mpirun|mpiexec): (?P<reason>(?:killing job|command not found|Forwarding signal).*)"),
    )
)
_WORDS = (
    "srun: error", "slurmstepd", "ssh: ", "verification failed", "Permission denied", "CANCELLED", "launch f",
    "MPI_ABORT", "MPI_Abort", "Signal: ", "mpirun: ", "prterun: ", "mpiexec: ", "oom", "Job step aborted",
    "Force Terminated", "revoked", "sbatch: error", "salloc: error", "srun: fatal", "execve",
)  # fmt: skip

_OPENS = (
    "MPI_ABORT was invoked", "noticed that process rank", "detected that one or more processes",
    "lost communication", "BAD TERMINATION", "not enough slots", "unable to launch the specified",
    "unable to find the specified", "unable to reliably start", "unexpectedly failed", "attempt to run as root",
    "MPI_INIT fail", "exited on signal", "was unable to start", "APPLICATION TERMINATED WITH THE EXIT STRING",
    "All nodes which are allocated",
)  # fmt: skip
_SIGNAL = re.compile(
    r"process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<signal>\d+)"
    r"(?: \((?P<reason>[^)]*)\))?"
)
_STATUS = re.compile(r"Process name: \[\S*?,(?P<rank>\d+)\]\s+Exit code: (?P<exit>-?\d+)")
_ABORT = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator .*? with errorcode (?P<exit>-?\d+)")
_LOST = re.compile(r"Remote daemon: \[\S+\] on node (?P<node>\S+)")
_HYDRA = re.compile(
    r"(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT (?P<node>\S+).*?"
    r"(?:KILLED BY SIGNAL: (?P<signal>\d+)(?: \((?P<reason>[^)]*)\))?|EXIT (?:CODE|STATUS): (?P<exit>\d+))"
)
_ON_NODE = re.compile(r"(?:Node|node|host)(?: name)?:?\s+(?P<node>[\w.-]+)")
_KILLED = re.compile(r"exited on signal (?P<signal>\d+)(?: \((?P<reason>[^)]*)\))?")


class Launcher:
    """Takes lines one at a time and keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.left_out = 0
        """Events beyond the bound, which are not in `events`."""
        self.allocated: bool = False
        self._paragraph: list[str] = []

    def take(self, line: str) -> bool:
        """True where the line belonged to a launcher's message."""
        text = line.strip()
        if self._paragraph and (text.startswith(("srun: ", "slurmstepd: ", ".. ")) or ": Test " in text):
            self._end()
        if self._paragraph:
            if _rule(text) or len(self._paragraph) >= PARAGRAPH_LINES:
                self._end()
                return True
            self._paragraph.append(text)
            return True
        if any(words in text for words in _OPENS):
            self._paragraph = [text]
            return True
        if any(words in text for words in _WORDS) and (event := _event(text)):
            self._add(event)
            return True
        return text.startswith(("srun: ", "salloc: ", "sbatch: ", "slurmstepd: ")) or _rule(text)

    def close(self) -> list[Event]:
        """All events."""
        self._end()
        return self.events

    def _end(self) -> None:
        if self._paragraph:
            joined = " ".join(" ".join(self._paragraph).replace("=   ", " ").split())
            self._paragraph = []
            self._add(_of_paragraph(joined))

    def _add(self, event: Event) -> None:
        for index, known in enumerate(self.events):
            same_job = event.step and known.step and event.step.split(".")[0] == known.step.split(".")[0]
            if event.kind == known.kind and event.node == known.node and event.reason == known.reason and (
                same_job or (event.step == known.step and event.rank == known.rank and event.text == known.text)
            ):  # fmt: skip
                if len(event.step) > len(known.step):
                    self.events[index] = event
                return
        if len(self.events) < EVENTS_AT_MOST:
            self.events.append(event)
        else:
            self.left_out += 1


def _rule(text: str) -> bool:
    return len(text) >= 20 and not text.strip("-=")


def _event(text: str) -> Event | None:
    for kind, pattern in _RULES:
        if found := pattern.search(text):
            return _made(kind, text, found)
    return None


def _of_paragraph(text: str) -> Event:
    for kind, pattern in (
        ("aborted", _ABORT),
        ("killed", _SIGNAL),
        ("ended badly", _STATUS),
        ("lost", _LOST),
        ("ended badly", _HYDRA),
        ("killed", _KILLED),
        ("not launched", _ON_NODE),
    ):
        if found := pattern.search(text):
            return _made(kind, text, found)
    return Event(kind="not launched", text=text[:500])


def _made(kind: str, text: str, found: re.Match[str]) -> Event:
    said = found.groupdict()
    rank, step = said.get("rank") or "", said.get("step") or ""
    return Event(
        kind=kind,
        text=text[:500],
        node=(said.get("node") or "").rstrip(",;"),
        rank=int(rank[:9]) if rank.isdecimal() else None,
        signal=int(said["signal"][:6]) if said.get("signal") else None,
        exit_code=int(said["exit"][:9]) if said.get("exit") else None,
        reason=(said.get("reason") or "").strip()[:200],
        step=step.rstrip(",.*"),
    )
