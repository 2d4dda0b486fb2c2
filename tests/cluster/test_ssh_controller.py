"""What becomes of commands on nodes when their controller dies or somebody presses Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.hosts import Hosts, alive, gone, group, pid_in

SRC = Path(__file__).parents[2] / "src"

CONTROLLER = """
import pathlib, signal, sys
from pytest_gpuready.model import Command
from pytest_gpuready.transport.ssh import Ssh

signal.signal(signal.SIGINT, signal.default_int_handler)
config, topology, grace_s, *rest = sys.argv[1:]
half = len(rest) // 2
transport = Ssh(
    config=pathlib.Path(config), topology=pathlib.Path(topology) if topology else None, python=sys.executable,
    patience_s=1,
)
commands = [
    Command(node=node, argv=tuple(eval(argv)), timeout_s=60, grace_s=float(grace_s))
    for node, argv in zip(rest[:half], rest[half:])
]
try:
    for command, outcome in transport.run_many(commands):
        print(repr(getattr(outcome, "stdout", str(outcome))), getattr(outcome, "exit_code", None), flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@contextmanager
def controller(
    hosts: Hosts, commands: dict[str, tuple[str, ...]], topology: str = "", grace_s: float = 0.2
) -> Iterator[subprocess.Popen[str]]:
    """A process that runs these commands, at the head of a process group as at a terminal; its ssh end with it."""
    ours = [sys.executable, "-c", CONTROLLER, str(hosts.config), topology, str(grace_s)]
    words = [*ours, *commands, *map(repr, commands.values())]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)
    assert gone(*group(process.pid))


def stubborn(pid: Path) -> str:
    return f"trap '' TERM HUP; echo $$ >{pid}; while :; do sleep 0.1; done"


def test_nobody_is_left_when_the_controller_is_killed(hosts: Hosts, scratch: Path) -> None:
    """SIGKILL of the controller ends a sleep, a child that left, one that ignores SIGTERM and an agent with a tool."""
    pids = [scratch / name for name in ("plain", "left", "stubborn", "tool")]
    plain, left, ignores, tool = pids
    words = (
        ("sh", "-c", f"echo $$ >{plain}; exec sleep 300"),
        ("sh", "-c", f"setsid sh -c 'echo $$ >{left}; exec sleep 300' & wait"),
        ("sh", "-c", stubborn(ignores)),
        ("python", "-m", "pytest_gpuready.agent", "around", "-", "--", "sh", "-c", f"echo $$ >{tool}; sleep 300"),
    )
    with controller(hosts, dict(zip(hosts.names, words, strict=True))) as process:
        running = [pid_in(path) for path in pids]
        process.kill()
        assert gone(*running)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_nobody_is_left_behind_a_gateway(
    hosts: Hosts, scratch: Path, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    """The end of the controller reaches through a gateway, and so does Ctrl-C."""
    gateway, *names = hosts.names
    ours = socket.gethostname().split(".")[0]
    topology = scratch / "topology.conf"
    topology.write_text(f"[routes]\n{ours}: {gateway}\n{gateway}: {','.join(names)}\n")
    monkeypatch.setenv("CLUSTERSHELL_GW_PYTHON_EXECUTABLE", sys.executable)
    monkeypatch.setenv("CLUSTERSHELL_GW_LOG_DIR", str(scratch))
    words = ("sh", "-c", f"echo $$ >{scratch}/$(hostname); sleep 300")
    with controller(hosts, dict.fromkeys(names, words), str(topology)) as process:
        running = [pid_in(scratch / name) for name in names]
        os.killpg(process.pid, signum) if signum == signal.SIGINT else process.kill()
        assert gone(*running)
        said, _ = process.communicate(timeout=20)
    assert signum == signal.SIGKILL or said.endswith("interrupted\n")


def test_ctrl_c_keeps_what_is_printed_in_the_grace(hosts: Hosts, scratch: Path) -> None:
    """At a terminal Ctrl-C reaches the whole group: what commands say in their grace comes before the interrupt."""
    script = f"trap 'sleep 0.1; echo last; exit 3' TERM; echo $$ >{scratch}/$(hostname); while :; do sleep 0.05; done"
    names = hosts.names[:2]
    with controller(hosts, dict.fromkeys(names, ("sh", "-c", script)), grace_s=20) as process:
        running = [pid_in(scratch / name) for name in names]
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    assert said.splitlines() == ["'last\\n' 3", "'last\\n' 3", "interrupted"]
    assert not any(map(alive, running))


def test_a_second_ctrl_c_kills_at_once(hosts: Hosts, scratch: Path) -> None:
    """Who presses Ctrl-C again does not wait for the grace, and nobody is left."""
    script = f"trap 'touch {scratch}/told' TERM; echo $$ >{scratch}/pid; while :; do sleep 0.05; done"
    with controller(hosts, {hosts.names[0]: ("sh", "-c", script)}, grace_s=20) as process:
        pid = pid_in(scratch / "pid")
        os.killpg(process.pid, signal.SIGINT)
        while not (scratch / "told").exists() and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    assert said == "interrupted\n"
    assert gone(pid)
