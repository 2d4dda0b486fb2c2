"""What Slurm says of its nodes, reservations and jobs: `sinfo` and `scontrol -o show`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.hostlist import expand

SINFO = "%N|%P|%T|%E"
"""The format for `sinfo -h -N -o`, behind a mark: a reason may be of several lines."""

FREE = frozenset({"idle", "powered_down", "powering_up"})
BUSY = frozenset({"allocated", "mixed", "completing", "planned"})
HELD = frozenset({"maint", "reserved"})
"""Given to who has the reservation."""

DEAD = frozenset({"down", "unknown", "future", "error"})
"""Not even a job that has the node can use it."""

_FLAGS = "*~#!%$@^-+"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """`state` as Slurm says it, flags and all; `default` where it is in the default partition."""

    partitions: frozenset[str]
    default: bool
    state: str
    reason: str

    @property
    def base(self) -> str:
        """The state without flags."""
        return self.state.rstrip(_FLAGS)

    @property
    def answers(self) -> bool:
        """False where slurmctld does not hear of it."""
        return "*" not in self.state and self.base not in DEAD

    @property
    def shown(self) -> str:
        """State and reason, for one line of ours."""
        return self.state + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation:
    """A reservation that holds its nodes now."""

    name: str
    nodes: frozenset[str]
    flags: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job: its nodes in Slurm's order, and how many GPUs it holds on each that has any."""

    state: str
    nodes: tuple[str, ...]
    gpus: Mapping[str, int]


def node_states(text: str, mark: str) -> dict[str, NodeState]:
    """Node -> state, from `sinfo -h -N -o MARK|SINFO`: a line for each partition it is in."""
    found: dict[str, NodeState] = {}
    for line in text.split(f"{mark}|")[1:]:
        name, partition, state, reason = line.split("|", 3)
        before = found.get(name)
        plain = " ".join(reason.split())
        found[name] = NodeState(
            partitions=(before.partitions if before else frozenset()) | {partition.rstrip("*")},
            default=partition.endswith("*") or (before is not None and before.default),
            state=state,
            reason="" if plain == "none" else plain[:200],
        )
    return found


def reservations(text: str) -> tuple[SlurmReservation, ...]:
    """Those that hold nodes now, from `scontrol -o show reservation`."""
    return tuple(
        SlurmReservation(
            name=_word(line, "ReservationName"),
            nodes=frozenset(expand(_word(line, "Nodes"))),
            flags=frozenset(_word(line, "Flags").split(",")),
        )
        for line in text.splitlines()
        if _word(line, "State") == "ACTIVE"
    )


def slurm_job(text: str) -> SlurmJob:
    """From `scontrol -d -o show job ID`.

    Raises:
        ParseError: it is no job.
    """
    state = _word(text, "JobState")
    if not state:
        raise ParseError(f"scontrol show job: expected JobState=, found {text[:80]!a}")
    gpus: dict[str, int] = {}
    for nodes, held in re.findall(r"(?<!\S)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", text):
        # gpu:h100:4(IDX:0-3),gpu:a100:2(IDX:4-5)
        count = sum(int(number) for number in re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:(\d{1,4})(?=[(,]|$)", held))
        if count:
            gpus |= dict.fromkeys(expand(nodes), count)
    return SlurmJob(state=state, nodes=expand(_word(text, "NodeList")), gpus=gpus)


def _word(line: str, name: str) -> str:
    found = re.search(rf"(?<!\S){name}=(\S*)", line)
    return found[1] if found else ""
