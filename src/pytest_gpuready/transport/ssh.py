"""Many nodes through ssh: ClusterShell starts and hears the ssh clients, a keeper on each node keeps the command.

What a node needs: sshd, coreutils, and Python 3.8 for any command, 3.10 for an agent command. Nothing is installed
there and nothing is left: the keeper (`transport.keeper`) is sent as text with every command.

The agent travels with the agent command, through stdin, into a file that exists in the memory of the keeper's process
alone (memfd), and is checked there against its sha256. Weighed against a file in a private folder under /tmp: nothing
has to be removed, also when the controller is killed or the node has a read-only or full disk; nobody else can own,
replace or keep it; it costs about 120 kB a command and node, far less than the login. It is pure Python, with a small
stand-in for msgspec (`agent_zip`): a compiled package would tie the node to the controller's Python and machine. The
CUDA packages cannot travel; probes that need them want a `python` on the node that has them.

Every command runs in a session of its own, under its deadline on the node and once more under `timeout -k` around the
keeper, and ends when the controller does: ssh holds its stdin open for as long as that lives. How a command ended is
said by the keeper, so the exit code 255 of a command and that of ssh itself are two things.

Through gateways (`topology`) nothing else changes, but: they need ClusterShell for the Python that
CLUSTERSHELL_GW_PYTHON_EXECUTABLE names; commands that differ run one after the other; and on Ctrl-C what commands
print in their grace is lost. A daemon that leaves its session, its parent and its environment behind is not found
again at a deadline.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport import Ended, Interrupted
from pytest_gpuready.transport.agent_zip import AgentZip, agent_zip
from pytest_gpuready.transport.fan_out import KILL_S, FanOut, Route
from pytest_gpuready.transport.kept import SLACK_S, Kept, Request, request
from pytest_gpuready.transport.local import ENDING, GRACE_S, MAX_BYTES, Progress

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
"""A node's name: nothing that ssh takes for an option or ClusterShell for a pattern."""

_ALWAYS = (
    "-T",
    "-oClearAllForwardings=yes",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=4",
)


class Ssh:
    """The transport for many nodes. `progress` is called from a thread of the transport."""

    def __init__(
        self,
        *,
        config: Path | None = None,
        options: Sequence[str] = (),
        python: str = "python3",
        connect_timeout_s: float = 10.0,
        login_timeout_s: float = 30.0,
        fanout: int = 64,
        topology: Path | None = None,
        max_bytes: int = MAX_BYTES,
        patience_s: float = GRACE_S,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        agent: Callable[[], AgentZip] = agent_zip,
    ) -> None:
        """How nodes are reached.

        `config` is an ssh_config instead of the user's own, `options` further words for ssh, `python` the node's
        interpreter, `fanout` how many nodes at a time, `topology` ClusterShell's file of gateways. `patience_s` is how
        long what should have ended may take to do so, `environment` further variables for agent commands.

        Raises:
            TransportError: ssh is not installed here, or one of the files is not there.
        """
        if shutil.which("ssh") is None:
            raise TransportError("expected ssh on the PATH, found none; install openssh-client")
        for path in (config, topology):
            if path is not None and not path.is_file():
                raise TransportError(f"expected a file for the ssh transport, found no {path}; correct the path")
        self._route = Route(
            ssh="ssh",
            options=(*(("-F", str(config)) if config else ()), *_ALWAYS, *options),
            connect_timeout_s=connect_timeout_s,
            login_timeout_s=login_timeout_s,
            fanout=fanout,
            topology=topology,
        )
        self._python = python
        self._max_bytes = max_bytes
        self._patience_s = patience_s
        self._environment = dict(environment or {})
        self._progress: Progress = progress or (lambda _command, _said: None)
        self._agent = agent
        self._running: list[FanOut] = []

    def run(self, command: Command) -> CommandResult:
        """Run the command on its node.

        Raises:
            TransportError: the node could not be reached, the command not be started, or its end not be heard of.
            Interrupted: Ctrl-C was pressed meanwhile.
        """
        outcome: CommandResult | TransportError | None = None
        try:
            for ended in self.run_many([command]):
                outcome = ended[1]
        except KeyboardInterrupt:
            if isinstance(outcome, CommandResult):
                raise Interrupted(outcome) from None
            raise
        if isinstance(outcome, CommandResult):
            return outcome
        assert outcome is not None
        raise outcome

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        """Run these commands, one a node, each under its own deadline; yields them as they end.

        A second Ctrl-C ends all of them at once.

        Raises:
            ValueError: two of the commands are for one node.
        """
        commands = tuple(commands)
        if len({command.node for command in commands}) < len(commands):
            raise ValueError("expected one command a node, found two for one of them")
        return self._run_many(commands)

    def _run_many(self, commands: tuple[Command, ...]) -> Iterator[Ended]:
        named = []
        for command in commands:
            if NAME.fullmatch(command.node):
                named.append(command)
            else:
                yield (
                    command,
                    TransportError(f"{command.node!a}: expected a host name, found other characters; correct the name"),
                )
        if not named:
            return
        fan_out = FanOut(self._route, self._kept(named), self._progress)
        self._running.append(fan_out)
        interrupted = False
        try:
            fan_out.start()
            while True:
                try:
                    ended = fan_out.ended.get()
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
                    fan_out.stop()
                    for command in fan_out.running:
                        self._progress(command, {ENDING: True})
                    continue
                if ended is None:
                    break
                yield ended
            if interrupted:
                raise KeyboardInterrupt
        finally:
            # Only where somebody stopped to listen is there anything left to end.
            fan_out.kill()
            fan_out.wait(KILL_S + SLACK_S)
            self._running.remove(fan_out)

    def _kept(self, commands: list[Command]) -> list[Kept]:
        requests: dict[tuple[object, ...], Request] = {}
        kept = []
        for command in commands:
            key = (command.argv, command.timeout_s, command.grace_s)
            if key not in requests:
                requests[key] = request(
                    command,
                    python=self._python,
                    agent=self._agent() if command.argv[0] == PYTHON else None,
                    patience_s=self._patience_s,
                    max_bytes=self._max_bytes,
                    environment=self._environment,
                )
            kept.append(
                Kept(
                    command=command,
                    request=requests[key],
                    max_bytes=self._max_bytes,
                    said=lambda said, command=command: self._progress(command, said),  # type: ignore[misc]
                )
            )
        return kept

    def stop(self) -> None:
        """Tell every command that runs now to end, and wait for it.

        Ctrl-C while it waits kills them at once.
        """
        running = list(self._running)
        for fan_out in running:
            fan_out.stop()
        grace_s = max((command.grace_s for fan_out in running for command in fan_out.running), default=0.0)
        give_up = time.monotonic() + grace_s + SLACK_S + 2 * KILL_S
        try:
            for fan_out in running:
                fan_out.wait(max(0.0, give_up - time.monotonic()))
        except KeyboardInterrupt:
            for fan_out in running:
                fan_out.kill()
            raise
