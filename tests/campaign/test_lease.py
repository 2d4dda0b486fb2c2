"""`campaign.lease`: one run at a time, and the second is told who the first is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuready.campaign.lease import Lease, refusal, release_command, renew_command, ticket
from pytest_gpuready.errors import LeaseError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_words import DEADLINE, LEASE
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport.agent_environment import agent_environment
from pytest_gpuready.transport.kept import request
from pytest_gpuready.transport.local import Local

NODE = (PYTHON, "-m", "pytest_gpuready.agent", "node")


def test_the_second_run_is_told_who_holds_the_node(tmp_path: Path) -> None:
    """A held lease names user, process, start and directory of the holder."""
    held = Lease(tmp_path / "lease", node="node01", out=tmp_path / "first")
    with pytest.raises(LeaseError, match=rf"node01: expected the node free.*pid \d+\) since 20.*{tmp_path}/first"):
        Lease(tmp_path / "lease", node="node01", out=tmp_path / "second")
    held.release()
    Lease(tmp_path / "lease", node="node01", out=tmp_path / "second").release()


def test_the_lease_of_a_killed_run_is_free(tmp_path: Path) -> None:
    """A lease ends with its process, however that ends."""
    script = (
        "import os, pathlib, signal\n"
        "from pytest_gpuready.campaign.lease import Lease\n"
        f"lease = Lease(pathlib.Path({str(tmp_path / 'lease')!r}), node='n', out=pathlib.Path('o'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert json.loads((tmp_path / "lease").read_text())["out"] == "o"
    Lease(tmp_path / "lease", node="n", out=tmp_path).release()


def test_the_lease_does_not_follow_a_link(tmp_path: Path) -> None:
    """A link laid in the place of the lease is refused: its target is not emptied."""
    (tmp_path / "precious").write_text("data")
    (tmp_path / "lease").symlink_to(tmp_path / "precious")
    with pytest.raises(LeaseError, match="expected to open the lease"):
        Lease(tmp_path / "lease", node="n", out=tmp_path)
    assert (tmp_path / "precious").read_text() == "data"


def test_a_run_from_elsewhere_and_one_on_the_node_never_meet(tmp_path: Path) -> None:
    """Each is told of the other in the same words, by whoever came first; `release` ends it, for its own run alone, and
    a renewal that comes behind it takes nothing."""
    lease = tmp_path / "lease"
    first, second = (
        Local(environment=ticket(tmp_path / name, wait_s=0.0, path=str(lease))) for name in ("first", "second")
    )
    on_node = Lease(lease, node="node01", out=tmp_path / "local")
    said = refusal(first.run(renew_command("node01")))
    assert said.startswith("node01: expected the node free, found an acceptance run of ")
    assert said.endswith(f"which writes to {tmp_path}/local, for as long as it lives; wait for its end")
    on_node.release()
    assert first.run(Command(node="node01", argv=NODE, timeout_s=60.0)).exit_code == 0
    kept = first.run(renew_command("node01"))
    assert (kept.exit_code, kept.stdout, kept.stderr, refusal(kept)) == (0, "", "", "")
    assert f"which writes to {tmp_path}/first; unless it goes on, the node is free in at most 5 min" in refusal(
        second.run(release_command("node01"))
    )
    with pytest.raises(LeaseError, match=rf"node01: expected the node free, found .*{tmp_path}/first; unless"):
        Lease(lease, node="node01", out=tmp_path / "local")
    assert refusal(first.run(release_command("node01"))) == ""
    late = first.run(renew_command("node01"))
    assert (late.exit_code, refusal(late), lease.read_text().strip()) == (0, "", "")
    Lease(lease, node="node01", out=tmp_path / "local").release()


def result(command: Command, code: int, stderr: str) -> CommandResult:
    return CommandResult(command=command, exit_code=code, stdout="", stderr=stderr, started="", duration_s=0.0)


def test_a_refusal_is_one_line_of_an_agent(tmp_path: Path) -> None:
    """Only the agent's own code with the agent's own line is one; what a node says in it is bounded and plain."""
    agent = renew_command("n")
    tool = Command(node="n", argv=("dcgmi",), timeout_s=1.0)
    said = "warning\ngpuready lease: found \x1b[31m" + "x" * 9999
    assert refusal(result(agent, 75, said))[:20] == "n: found ?[31mxxxxxx"
    assert len(refusal(result(agent, 75, said))) < 900
    assert refusal(result(agent, 75, "killed")) == ""
    assert refusal(result(agent, 1, said)) == ""
    assert refusal(result(tool, 75, said)) == ""


def test_a_run_that_is_continued_has_the_name_of_the_one_that_died(tmp_path: Path) -> None:
    """Same directory, user and host: its nodes are its own at once; another directory is another run."""
    run = [json.loads(ticket(tmp_path / name)[LEASE])["run"] for name in ("a", "a", "b")]
    assert run[0] == run[1] != run[2]


def test_only_agents_are_given_the_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local and remote agents with the deadline of their command; a tool gets neither this run's ticket nor another."""
    monkeypatch.setenv(LEASE, "of somebody else")
    mine = ticket(tmp_path)
    agent = Command(node="n", argv=(PYTHON, "-m", "x"), timeout_s=60.0, grace_s=10.0)
    assert agent_environment(agent, mine) == {"PYTHONSAFEPATH": "1", "GPUREADY_TIED": "1", DEADLINE: "70", **mine}
    tool = Command(node="n", argv=("sh", "-c", f"echo ${LEASE}${DEADLINE}"), timeout_s=60.0)
    assert Local(environment=mine).run(tool).stdout == "\n"
    for command, there in ((agent, True), (tool, False)):
        sent = request(command, python="python3", agent=None, patience_s=1.0, max_bytes=1, environment=mine).stdin
        assert (mine[LEASE].encode() in sent) == there
