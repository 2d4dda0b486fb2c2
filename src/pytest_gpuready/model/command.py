"""What is asked of a node and what it answered. Everything that is learnt about a node is one of these."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.model.shown import shown

PYTHON = "python"
"""First word of an agent command: the transport puts in the node's own interpreter; recordings do not know it."""

GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command on one node.

    `argv` is a list of words, never a shell line. `timeout_s` is a deadline on the node for the whole process group.
    `grace_s` is how long its group has to end by itself (SIGTERM) before it is killed: what it prints then is kept.
    `repeat` is 0 for the first run of it and counts retests; only a replay looks at it.
    `says` is what it does, for whoever waits for it ("DCGM targeted_power, level 3"), `typical_s` how long it usually
    takes (0: seconds, nobody needs to be told).
    """

    node: str
    argv: tuple[str, ...]
    timeout_s: float
    grace_s: float = GRACE_S
    repeat: int = 0
    says: str = ""
    typical_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("a command needs at least one word")
        if self.timeout_s <= 0:
            raise ValueError(f"a command needs a deadline above 0 s, got {self.timeout_s}")

    @property
    def line(self) -> str:
        """The words joined by spaces, to key a recording; never executed."""
        return " ".join(self.argv)

    @property
    def shown(self) -> str:
        """The same as a person reads it: a plan in a few words."""
        return shown(self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command printed and how it ended.

    `exit_code` is None where the deadline passed (`timed_out`); what was printed until then is kept.
    `started` is UTC ISO 8601, `duration_s` wall seconds. `unkillable` names a process that survived SIGKILL (state D).
    """

    command: Command
    exit_code: int | None
    stdout: str
    stderr: str
    started: str
    duration_s: float
    timed_out: bool = False
    unkillable: str = ""
