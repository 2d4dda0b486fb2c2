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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command
from pytest_gpuready.transport import Ended
from pytest_gpuready.transport.agent_zip import AgentZip, agent_zip
from pytest_gpuready.transport.engine import Engined
from pytest_gpuready.transport.kept import Kept, Request
from pytest_gpuready.transport.local import GRACE_S, MAX_BYTES, Progress
from pytest_gpuready.transport.ssh.fan_out import FanOut, Route

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
"""A node's name: nothing that ssh takes for an option or ClusterShell for a pattern."""

_ALWAYS = (
    "-T",
    "-oClearAllForwardings=yes",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=4",
)


class Ssh(Engined):
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
        self._login = f"ssh -F {config}" if config else "ssh"
        super().__init__(
            progress, python=python, agent=agent, patience_s=patience_s, max_bytes=max_bytes, environment=environment
        )

    def _open(self, commands: tuple[Command, ...]) -> tuple[list[Ended], FanOut | None, Callable[[], None]]:
        named: list[Command] = []
        refused: list[Ended] = []
        for command in commands:
            if NAME.fullmatch(command.node):
                named.append(command)
            else:
                why = f"{command.node!a}: expected a host name, found other characters; correct the name"
                refused.append((command, TransportError(why)))
        if not named:
            return refused, None, lambda: None
        fan_out = FanOut(self._route, self._kept(named), self._progress)
        return refused, fan_out, fan_out.start

    def _kept(self, commands: list[Command]) -> list[Kept]:
        requests: dict[tuple[object, ...], Request] = {}
        kept = []
        for command in commands:
            kept.append(
                Kept(
                    command=command,
                    request=self._asked(command, requests),
                    max_bytes=self._max_bytes,
                    login=self._login,
                    said=lambda said, command=command: self._progress(command, said),  # type: ignore[misc]
                )
            )
        return kept
