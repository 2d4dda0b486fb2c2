"""The lease through `transport.ssh`: two runs from one host, one node."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuready.campaign.lease import refusal, release_command, renew_command, ticket
from pytest_gpuready.model import Command
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport.ssh import Ssh
from tests.cluster.hosts import Hosts


def test_a_second_run_is_told_of_the_first_by_the_node(hosts: Hosts, scratch: Path) -> None:
    """The ticket travels with the agent; a run that is refused learns who has the node, until that lets it go."""
    node = hosts.names[0]
    first, second = (
        hosts.ssh(environment=ticket(scratch / name, path=str(scratch / "lease"))) for name in ("first", "second")
    )

    def said(transport: Ssh, command: Command) -> str:
        done = transport.run(command)
        why = refusal(done)
        assert done.exit_code == (75 if why else 0), done
        return why

    agent = Command(node=node, argv=(PYTHON, "-m", "pytest_gpuready.agent", "node"), timeout_s=60.0)
    assert said(first, agent) == ""
    assert said(first, renew_command(node)) == ""
    assert said(second, renew_command(node)).startswith(
        f"{node}: expected the node free, found an acceptance run of root"
    )
    assert said(first, release_command(node)) == ""
