"""Many nodes through Slurm: one srun for all that are asked the same, a keeper on each node keeps the command.

In a job (SLURM_JOB_ID, or `job`) its nodes are used, and it is left as it was. Outside of any job the first command
takes one job for all nodes that the run needs, whole nodes, and the end of this process gives them back. What Slurm
does not give (drained, down, reserved, of another partition) costs only itself.

What a node needs: sh, coreutils, and Python 3.8 for any command, 3.10 for an agent command. The keeper
(`transport.keeper`) and the agent travel through srun's stdin, which srun hands to every task; so deadlines on the
node, bounds, exit codes and the end with the controller are those of `transport.ssh`. Names of nodes are Slurm's.

Tasks see the environment of this process, as Slurm's own default is, and the GPUs that the job holds.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence

from pytest_gpuready.errors import ParseError, TransportError
from pytest_gpuready.model import Command
from pytest_gpuready.parse.slurm_topology import SlurmTopology, slurm_topology
from pytest_gpuready.transport import Ended
from pytest_gpuready.transport.agent_zip import AgentZip, agent_zip
from pytest_gpuready.transport.engine import Engined
from pytest_gpuready.transport.kept import Request
from pytest_gpuready.transport.local import GRACE_S, MAX_BYTES, Progress
from pytest_gpuready.transport.slurm.commands import ask, require
from pytest_gpuready.transport.slurm.jobs import Jobs, Wanted
from pytest_gpuready.transport.slurm.step import SHAPE, InStep, Place
from pytest_gpuready.transport.slurm.steps import Group, Steps

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""A node's name: nothing that Slurm takes for an option, a list or a file."""


class Slurm(Engined):
    """The transport for nodes of a Slurm cluster. `progress` is called from a thread of the transport."""

    _line_shape = SHAPE

    def __init__(
        self,
        *,
        nodes: Sequence[str] = (),
        job: str = "",
        partition: str = "",
        reservation: str = "",
        constraint: str = "",
        account: str = "",
        time_limit: str = "",
        options: Sequence[str] = (),
        step_options: Sequence[str] = (),
        python: str = "python3",
        wait_s: float = 600.0,
        start_s: float = 60.0,
        max_bytes: int = MAX_BYTES,
        patience_s: float = GRACE_S,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        says: Callable[[str], None] | None = None,
        agent: Callable[[], AgentZip] = agent_zip,
    ) -> None:
        """How nodes are reached; nothing is asked of Slurm before the first command.

        `nodes` is all that the run will need: they are taken together, with those of the first command. `job` is one to
        use instead of taking any, or several with commas between; SLURM_JOB_ID says it too. `partition`, `reservation`,
        `constraint`, `account` and `time_limit` are Slurm's words for a job of ours, `options` further words for
        salloc, `step_options` for srun. `wait_s` is how long we wait for the nodes, `start_s` how long for all tasks of
        a step to begin. `says` gets a line while we wait, `environment` further variables for agent commands.

        Raises:
            TransportError: Slurm's commands are not installed here.
        """
        job = job or os.environ.get("SLURM_JOB_ID", "")
        require("srun", "sinfo", "scontrol", "scancel", *(() if job else ("salloc", "squeue")))
        self._needed = tuple(node for node in nodes if NAME.fullmatch(node))
        wanted = Wanted(
            partition=partition,
            reservation=reservation,
            constraint=constraint,
            account=account,
            time_limit=time_limit,
            options=tuple(options),
        )
        self._jobs = Jobs(
            wanted,
            job=job,
            wait_s=wait_s,
            step_options=tuple(step_options),
            says=says or (lambda _line: None),
        )
        self._start_s = start_s
        super().__init__(
            progress, python=python, agent=agent, patience_s=patience_s, max_bytes=max_bytes, environment=environment
        )
        self._suspects: set[str] = set()

    def _open(self, commands: tuple[Command, ...]) -> tuple[list[Ended], Steps | None, Callable[[], None]]:
        refused, groups = self._grouped(commands)
        steps = Steps(groups, start_s=self._start_s, suspects=self._suspects, progress=self._progress)
        return refused, steps if groups else None, steps.start

    def _grouped(self, commands: tuple[Command, ...]) -> tuple[list[Ended], list[Group]]:
        """What cannot run and why, and what can: each group is one srun."""
        refused: list[Ended] = []
        named: list[Command] = []
        for command in commands:
            if NAME.fullmatch(command.node):
                named.append(command)
            else:
                why = f"{command.node!a}: expected a node's name as Slurm has them, found other characters"
                refused.append((command, TransportError(f"{why}; correct the name")))
        names = dict.fromkeys(command.node for command in named)
        places: Mapping[str, Place | TransportError]
        try:
            places = self._jobs.places(tuple(dict.fromkeys((*names, *self._needed)))) if named else {}
        except TransportError as error:
            places = {node: TransportError(f"{node}: {error}") for node in names}
        requests: dict[tuple[object, ...], Request] = {}
        groups: dict[tuple[object, ...], tuple[Place, list[InStep]]] = {}
        for command in named:
            place = places[command.node]
            if isinstance(place, TransportError):
                refused.append((command, place))
                continue
            key = (command.argv, command.timeout_s, command.grace_s)
            # A node that did not start last time is asked apart: the others would have to wait for it.
            alone = command.node if command.node in self._suspects else ""
            kept = self._kept(command, self._asked(command, requests))
            groups.setdefault((*key, place, alone), (place, []))[1].append(kept)
        return refused, list(groups.values())

    def _kept(self, command: Command, asked: Request) -> InStep:
        return InStep(
            command=command,
            request=asked,
            max_bytes=self._max_bytes,
            said=lambda said: self._progress(command, said),
        )

    def stop(self) -> None:
        """Tell every command that runs now to end, and wait for it; the nodes stay ours for what comes next."""
        self._jobs.stop()
        super().stop()

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that have the nodes, for another process of the same run (`job`)."""
        return self._jobs.ids

    def topology(self) -> SlurmTopology:
        """What hangs on what, as Slurm's topology plug-in knows it.

        Raises:
            TransportError: Slurm does not answer, or in another form.
        """
        try:
            return slurm_topology(ask("scontrol", "show", "topology"))
        except ParseError as error:
            raise TransportError(str(error)) from error

    def close(self) -> None:
        """Give back the nodes that were taken. It may be used again."""
        self._jobs.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
