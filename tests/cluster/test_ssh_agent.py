"""The agent on nodes that have nothing of ours: it travels with its command and leaves nothing."""

from __future__ import annotations

import dataclasses
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_doc import Envelope, NodeDoc
from pytest_gpuready.transport.agent_zip import agent_zip
from tests.cluster.hosts import Hosts


def agent(node: str, *words: str) -> Command:
    return Command(node=node, argv=("python", "-m", "pytest_gpuready.agent", *words), timeout_s=60)


def bare_python(hosts: Hosts) -> str:
    """A Python that finds no installed package, as a node's may."""
    path = hosts.folder / "bare-python"
    if not path.exists():
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        path.chmod(0o755)
    return str(path)


def test_the_agent_needs_nothing_on_the_node(hosts: Hosts) -> None:
    """A Python without any package runs it, also where /tmp is read-only, and no file is left."""
    names = (hosts.names[0], hosts.names[3])
    told = dict(hosts.ssh(python=bare_python(hosts)).run_many([agent(name, "node") for name in names]))
    for command, outcome in told.items():
        assert isinstance(outcome, CommandResult), outcome
        envelope = msgspec.json.decode(outcome.stdout, type=Envelope)
        document = msgspec.json.decode(envelope.data, type=NodeDoc)
        assert (envelope.host, document.hostname) == (command.node, command.node)
    left = [path for folder in ("/tmp", "/dev/shm") for path in Path(folder).glob("*gpuready-*")]
    assert not [path for path in left if not path.is_dir()]  # a dry run beside this test has a folder of that name


def test_an_agent_that_changed_on_its_way_does_not_run(hosts: Hosts) -> None:
    """What arrives with another sha256 than was announced is not started."""
    other = dataclasses.replace(agent_zip(), sha256="0" * 64)
    with pytest.raises(
        TransportError, match=r"expected .* to start the agent, found an agent with sha256 [0-9a-f]{16}"
    ):
        hosts.ssh(agent=lambda: other).run(agent(hosts.names[0], "node"))


def test_a_python_that_is_too_old_is_one_line(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's version and the one that is needed are named."""
    monkeypatch.setattr("pytest_gpuready.transport.kept.OLDEST", (99, 1))
    with pytest.raises(TransportError, match=r"to start the agent, found Python 3\.\d+\.\d+, older than 99\.1; name"):
        hosts.ssh().run(agent(hosts.names[0], "node"))


def test_nodes_behind_a_gateway(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a gateway each node has the same result, deadline and agent; an unreachable one costs only itself."""
    gateway, near, dead, far = hosts.names
    ours = socket.gethostname().split(".")[0]
    topology = tmp_path / "topology.conf"
    topology.write_text(f"[routes]\n{ours}: {gateway}\n{gateway}: {near},{dead},{far}\n")
    monkeypatch.setenv("CLUSTERSHELL_GW_PYTHON_EXECUTABLE", sys.executable)
    monkeypatch.setenv("CLUSTERSHELL_GW_LOG_DIR", str(tmp_path))
    transport = hosts.ssh(topology=topology)
    whence = "echo ${SSH_CONNECTION%% *}; echo err >&2; exit 255"
    script = ("sh", "-c", f"case $(hostname) in {far}) echo early; sleep 300;; *) {whence};; esac")
    with hosts.dead_sshd(dead):
        commands = [Command(node=name, argv=script, timeout_s=1.5, grace_s=0.1) for name in (near, dead, far)]
        told = {command.node: outcome for command, outcome in transport.run_many(commands)}
    reached, late = told[near], told[far]
    assert isinstance(reached, CommandResult), reached
    assert (reached.stdout, reached.stderr, reached.exit_code) == ("10.77.0.1\n", "err\n", 255)
    assert isinstance(late, CommandResult), late
    assert (late.stdout, late.timed_out) == ("early\n", True)
    assert "expected to log in by ssh" in str(told[dead])
    assert msgspec.json.decode(transport.run(agent(near, "node")).stdout, type=Envelope).host == near
