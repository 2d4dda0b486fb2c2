"""The jobs that have the nodes: the one we are in, or one that we take from Slurm and give back when we end.

A job of ours lives as long as a pipe: salloc's command reads it, and a small shell beside salloc cancels the job at its
end, for one that still waits. We hold the other end open and write nothing, so whatever ends us, SIGKILL too, ends
the job. What Slurm does not give is asked for beforehand: one such node would make the others wait with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError, TransportError
from pytest_gpuready.parse.slurm_state import (
    BUSY,
    FREE,
    HELD,
    SINFO,
    NodeState,
    SlurmJob,
    SlurmReservation,
    node_states,
    reservations,
    slurm_job,
)
from pytest_gpuready.transport import StoppedError
from pytest_gpuready.transport.kept import INTERRUPTED
from pytest_gpuready.transport.slurm.commands import ask, environment, fold, last_error
from pytest_gpuready.transport.slurm.step import Place

ENDS_S = 5.0
"""How long salloc may take to give a job back."""

AGAIN_S = 60.0
"""How long we wait for the free nodes alone, where others of the first request were not to be had."""

LOOK_S = 5.0  # how often Slurm is asked what a job waits for

# salloc hangs at times where a signal comes while it gives a job back, so it is not told by one but by Slurm.
_HOLD = (
    'exec 3<&0; name=$1; shift; salloc "--job-name=$name" "$@" <&3 & salloc=$!; '
    '{ cat <&3; for i in 1 2 3 4 5 6 7 8 9; do scancel "--name=$name"; sleep "$i"; done; kill -9 "$salloc"; } '
    '>/dev/null 2>&1 & watch=$!; wait "$salloc"; code=$?; kill "$watch"; exit "$code"'
)
_GRANTED = "gpuready-job "
_READ = f'echo "{_GRANTED}$SLURM_JOB_ID"; exec cat >/dev/null'

Refused = dict[str, TransportError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked of Slurm: "" is its own default. `options` are further words for salloc, they win."""

    partition: str
    reservation: str
    constraint: str
    account: str
    time_limit: str
    options: tuple[str, ...]

    def words(self, name: str, nodes: Sequence[str]) -> list[str]:
        """The job's name and the words for salloc: whole nodes, and the job stays where one of them dies."""
        named = ("partition", "reservation", "constraint", "account")
        asked = [f"--{key}={getattr(self, key)}" for key in named if getattr(self, key)]
        limit = [f"--time={self.time_limit}"] if self.time_limit else []
        count = len(nodes)
        whole = ["--exclusive", "--mem=0", "--no-kill", "--no-bell", f"--nodes={count}", f"--nodelist={fold(nodes)}"]
        return [name, *whole, *asked, *limit, *self.options, "sh", "-c", _READ]


class Jobs:
    """Node -> the job that has it. Asked from one thread at a time."""

    def __init__(
        self,
        wanted: Wanted,
        *,
        job: str,
        wait_s: float,
        step_options: tuple[str, ...],
        says: Callable[[str], None],
    ) -> None:
        """`job`: who has the nodes already, "" where we take them. `says` hears what we wait for."""
        self._wanted, self._job, self._wait_s, self._options, self._says = wanted, job, wait_s, step_options, says
        self._places: dict[str, Place] = {}
        self._refused: Refused = {}
        self._held: list[subprocess.Popen[bytes]] = []
        self._stopped = threading.Event()
        self._asking = threading.Lock()

    @property
    def ids(self) -> tuple[str, ...]:
        """The jobs that have nodes of ours."""
        return tuple(dict.fromkeys(place.job for place in self._places.values()))

    def stop(self) -> None:
        """Wait for no job any more, from any thread."""
        self._stopped.set()

    def places(self, nodes: Sequence[str]) -> dict[str, Place | TransportError]:
        """Where each of these nodes runs its steps, or why it does not. Takes them from Slurm where that is ours to do.

        Raises:
            TransportError: Slurm does not answer.
            KeyboardInterrupt: Ctrl-C while we waited; what we waited for is given back.
        """
        with self._asking:
            self._stopped.clear()
            mark = secrets.token_hex(8)
            states = node_states(ask("sinfo", "-a", "-h", "-N", "-o", f"{mark}|{SINFO}"), mark)
            new = [node for node in nodes if node not in self._places and node not in self._refused]
            if self._job:
                self._join(new)
            elif new:
                self._take(new, states)
            found: dict[str, Place | TransportError] = {}
            for node in nodes:
                place, state = self._places.get(node), states.get(node)
                if place and state and not state.answers:
                    found[node] = refusal(node, f"it {state.shown}")
                else:
                    found[node] = place or self._refused.get(node) or StoppedError(f"{node}: {INTERRUPTED}")
            return found

    def close(self) -> None:
        """Give back what we took."""
        held, self._held = self._held, []
        self._places.clear()
        for process in held:
            give_back(process)

    # --- a job that is there ------------------------------------------------------------------------------------------

    def _join(self, nodes: Iterable[str]) -> None:
        """The nodes of the jobs that we were given."""
        for job in () if self._places else self._job.split(","):
            self._settle(job)
        for node in nodes:
            if node not in self._places:
                self._refused[node] = TransportError(
                    f"{node}: expected a node of job {self._job}, found {fold(self._places)[:80] or 'none'} in it; "
                    "name nodes of the job, or start the run outside it"
                )

    def _settle(self, job: str) -> None:
        try:
            found: SlurmJob = slurm_job(ask("scontrol", "-d", "-o", "show", "job", job))
        except ParseError as error:
            raise TransportError(str(error)) from error
        if found.state != "RUNNING":
            raise TransportError(f"expected job {job} to run, found it {found.state}; start the run in one that does")
        for node in found.nodes:
            self._places[node] = Place(job=job, gpus=found.gpus.get(node, 0), options=self._options)

    # --- a job of ours ------------------------------------------------------------------------------------------------

    def _take(self, new: Sequence[str], states: Mapping[str, NodeState]) -> None:
        """Take these nodes, as many of them as Slurm gives."""
        nodes = self._offered(new, states)
        if not nodes:
            return
        why = self._allocate(nodes, self._wait_s)
        if not why or self._stopped.is_set():
            return
        mark = secrets.token_hex(8)
        states = node_states(ask("sinfo", "-a", "-h", "-N", "-o", f"{mark}|{SINFO}"), mark)
        left = self._offered(nodes, states)
        free = [node for node in left if states[node].base not in BUSY]
        if free and len(free) < len(nodes):
            for node in left:
                if node not in free:
                    self._refused[node] = refusal(node, f"it {states[node].shown} after {self._wait_s:g} s")
            why = self._allocate(free, min(AGAIN_S, self._wait_s))
            left = free
        for node in left if why and not self._stopped.is_set() else ():
            self._refused[node] = TransportError(f"{node}: expected {len(left)} node(s) from Slurm, found {why}")

    def _offered(self, nodes: Iterable[str], states: Mapping[str, NodeState]) -> list[str]:
        """Those that Slurm may give; the others are refused."""
        wanted = self._wanted
        try:
            held = reservations(ask("scontrol", "-o", "show", "reservation"))
        except ParseError as error:
            raise TransportError(str(error)) from error
        defaults = any(state.default for state in states.values())
        offered = []
        for node in nodes:
            state = states.get(node)
            why = "no node of this name" if state is None else _why_not(node, state, wanted, held, defaults)
            if why:
                self._refused[node] = refusal(node, why)
            else:
                offered.append(node)
        return offered

    def _allocate(self, nodes: Sequence[str], wait_s: float) -> str:
        """Take these nodes for us. Returns "" or why that was not to be."""
        name = f"gpuready-{secrets.token_hex(4)}"
        words = ["sh", "-c", _HOLD, "sh", *self._wanted.words(name, nodes)]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )
        granted = False
        try:
            job, why = self._granted(process, name, wait_s)
            if job:
                self._settle(job)
                self._held.append(process)
                granted = True
        finally:
            if not granted:
                give_back(process)
        return why

    def _granted(self, process: subprocess.Popen[bytes], name: str, wait_s: float) -> tuple[str, str]:
        """Wait for it: its number, or "" and why not."""
        assert process.stdout
        assert process.stderr
        give_up = time.monotonic() + wait_s
        look_at = time.monotonic() + 1.0
        heard, seen = b"", ""
        while not self._stopped.is_set():
            now = time.monotonic()
            if select.select([process.stdout], [], [], max(0.0, min(0.5, give_up - now)))[0]:
                piece = os.read(process.stdout.fileno(), 4096)
                heard += piece
                _, mark, job = heard.partition(_GRANTED.encode())
                if mark and b"\n" in job:
                    return job.split(b"\n")[0].decode("ascii", errors="replace"), ""
                if not piece:
                    return "", f"salloc: {last_error(process.stderr.read())}; see what it asks for"
            if now >= look_at or now >= give_up:
                look_at = now + LOOK_S
                said = _waits_for(name)
                if now >= give_up:
                    return "", f"none within {wait_s:g} s: {said}; wait longer, or name other nodes"
                if said != seen:
                    seen = said
                    self._says(f"waiting for {self._wanted.partition or 'Slurm'}: {said}")
        return "", INTERRUPTED


def _why_not(node: str, state: NodeState, wanted: Wanted, held: Iterable[SlurmReservation], defaults: bool) -> str:
    """Why Slurm would not give this node, "" where it may."""
    asked = {name for name in wanted.partition.split(",") if name}
    if asked and not asked & state.partitions:
        return f"it in partition {', '.join(sorted(state.partitions))}, not in {wanted.partition}"
    if not asked and defaults and not state.default:
        return f"it in partition {', '.join(sorted(state.partitions))}, which is not the default; name it"
    if not state.answers or state.base not in FREE | BUSY | (HELD if wanted.reservation else frozenset()):
        return f"it {state.shown}"
    for each in held:
        if each.name == wanted.reservation and "FLEX" not in each.flags and each.nodes and node not in each.nodes:
            return f"it outside reservation {each.name}"
        if each.name != wanted.reservation and node in each.nodes and "MAGNETIC" not in each.flags:
            return f"it reserved ({each.name})"
    return ""


def _waits_for(name: str) -> str:
    """What Slurm says of a job that waits."""
    try:
        said = ask("squeue", "-h", f"--name={name}", "-o", "%i|%T|%R").strip()
    except TransportError as error:
        return str(error)
    job, _, rest = said.partition("|")
    state, _, reason = rest.partition("|")
    return f"job {job} {state} {reason}".strip()[:200] if job else "no job"


def refusal(node: str, why: str) -> TransportError:
    """The error of a node that Slurm does not give."""
    return TransportError(f"{node}: expected a node that Slurm gives, found {why}; see `scontrol show node {node}`")


def give_back(process: subprocess.Popen[bytes]) -> None:
    """End the pipe, and with it the job."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    with contextlib.suppress(OSError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_S)
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()
