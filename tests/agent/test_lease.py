"""`agent.lease`: one run at a time on a node, by the lock while a command lives and by the record between commands."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpuready.agent.lease import REFUSED, SAYS, take
from pytest_gpuready.agent.lease_file import Here, default_path
from pytest_gpuready.agent.lease_record import HOLD_MOST_S, HOLD_S, SIZE, Record, Ticket, decode, span, ticket_of
from pytest_gpuready.errors import LeaseError
from pytest_gpuready.model.agent_words import DEADLINE, LEASE

SOURCES = Path(__file__).parents[2] / "src"

# The real agent, whose probe "node" says that it runs and then waits for the end of its stdin.
AGENT = """
import os, sys
from pytest_gpuready.agent import __main__ as agent
def probe(_):
    print("running", file=sys.stderr, flush=True)
    os.read(0, 1)
    return {}
agent.PROBES["node"] = agent.PROBES["copies"] = (probe, 0, 0)
sys.exit(agent.main(sys.argv[1:]))
"""


def ticket(path: Path, run: str = "one", *, hold_s: float = 300.0, wait_s: float = 0.0) -> Ticket:
    return Ticket(
        run=run,
        user=f"user-{run}",
        host="login1",
        pid=4711,
        since="2025-11-30T19:00:00+00:00",
        out=f"/out/{run}",
        hold_s=hold_s,
        wait_s=wait_s,
        path=str(path),
    )


@contextlib.contextmanager
def agent(given: Ticket, *words: str) -> Iterator[subprocess.Popen[str]]:
    """An agent command with a ticket, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), LEASE: given.text, DEADLINE: "70"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Clock:
    """A node's clock since boot, set by hand."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path, clock: Clock) -> Here:
    """A node whose clock stands still."""
    return Here(path=tmp_path / "lease", boot="boot-1", now=clock)


def refused(at: Here, run: str = "two") -> str:
    """The line that says why this run does not get the node."""
    with pytest.raises(LeaseError) as why:
        take(ticket(at.path, run), at)
    return str(why.value)


def get(at: Here, run: str = "two") -> None:
    """That run gets the node, and lets it go."""
    take(ticket(at.path, run), at).free()


def test_agents_of_two_runs_never_measure_at_once(tmp_path: Path) -> None:
    """Real processes: another run is refused while an agent lives, between commands, and after kill -9; the same run is
    not; who is refused has touched nothing; `release` is the holder's alone, and frees the node."""
    path = tmp_path / "lease"
    one, two = ticket(path), ticket(path, "two")
    with agent(one, "node") as first:
        assert first.stderr is not None
        assert first.stderr.readline() == "running\n"
        assert decode(path.read_bytes()) is not None
        with agent(two, "node") as second:
            out, err = second.communicate()
        assert (second.returncode, out) == (REFUSED, "")
        # The command's 70 s and the hold of 300 s, less what has passed.
        assert re.fullmatch(
            f"{SAYS}expected the node free, found an acceptance run of user-one \\(login1 pid 4711\\) since "
            "2025-11-30T19:00:00\\+00:00, which writes to /out/one; unless it goes on, the node is free in at most "
            "[56] min( \\d+ s)?; wait for its end\n",
            err,
        )
        first.kill()
        first.communicate()
    with agent(two, "node") as third, agent(two, "lease", "release") as fourth:
        assert third.wait() == fourth.wait() == REFUSED
    with agent(one, "node") as again:
        out, err = again.communicate("x")
        assert (again.returncode, json.loads(out)["probe"], err) == (0, "node", "running\n")
    with agent(one, "lease", "release") as release:
        assert (release.communicate(), release.returncode) == (("", ""), 0)
    assert path.read_bytes().strip() == b""


def test_a_node_is_kept_for_its_run_and_then_it_is_not(node: Here, clock: Clock) -> None:
    """`hold_s` after the end of the last command the node is free, by the clock since boot and no other."""
    held = take(ticket(node.path), node, deadline_s=5000.0)
    assert "free in at most 1 h 28 min" in refused(node), "the command may last, and then the node is held"
    held.end()
    clock.s += 40.5
    assert "user-one (login1 pid 4711) since 2025-11-30" in refused(node)
    assert "free in at most 4 min 20 s;" in refused(node)
    os.utime(node.path, (0, 0))
    refused(node)
    take(ticket(node.path), node).end()
    clock.s += 299.0
    refused(node)
    clock.s += 1.0
    get(node)


def test_an_agent_that_was_killed_keeps_nobody_off_for_its_deadline(node: Here, clock: Clock) -> None:
    """The kernel ended its lock; what is left of it is `hold_s`, and the line says so."""
    node.path.write_bytes(Record(ticket=ticket(node.path), boot="boot-1", until=1300.0, most=90000.0).encode())
    assert "free in at most 5 min;" in refused(node)
    clock.s = 1300.0
    get(node)


def test_a_reboot_ends_every_lease(node: Here, clock: Clock) -> None:
    """The record of another boot counts for nothing, whatever its time says."""
    take(ticket(node.path), node).end()
    clock.s = 3.0
    get(Here(path=node.path, boot="boot-2", now=clock))


def test_a_living_agent_counts_beyond_its_record(node: Here, clock: Clock) -> None:
    """While the lock is held no record overrules it: neither one whose time is over, nor garbage, nor none."""
    held = take(ticket(node.path), node)
    clock.s += 9999.0
    assert f"to /out/one: process {os.getpid()} of it still runs; see whether it hangs" in refused(node)
    assert f"found process {os.getpid()}; see whether it hangs" in refused(node, "one"), "its own run too"
    for content in (b"{", b"", b"x" * 5000):
        node.path.write_bytes(content)
        os.utime(node.path, (0, 0))
        assert f"found process {os.getpid()} that has {node.path} and does not say why" in refused(node)
    held.free()
    get(node)


def test_a_living_agent_renews_its_record(tmp_path: Path) -> None:
    """What is left of it grows while it lives, and runs out once it has ended."""
    at = Here(path=tmp_path / "lease", boot="boot")
    held = take(ticket(at.path, hold_s=0.04), at)
    first = decode(at.path.read_bytes())
    later = first
    give_up = time.monotonic() + 20.0
    while first == later and time.monotonic() < give_up:
        time.sleep(0.01)
        later = decode(at.path.read_bytes())
    held.end()
    assert first is not None
    assert later is not None
    assert later.until > first.until
    time.sleep(0.05)
    get(at)


def test_a_command_waits_for_the_end_of_an_earlier_one_of_its_run(node: Here) -> None:
    """As long as its ticket says; only then it is refused."""
    earlier = take(ticket(node.path), node)
    order = []

    def end() -> None:
        order.append("the earlier one ended")
        earlier.end()

    timer = threading.Timer(0.1, end)
    timer.start()
    later = take(ticket(node.path, wait_s=20.0), node)
    order.append("the later one began")
    later.end()
    timer.join()
    assert order == ["the earlier one ended", "the later one began"]


def test_probes_without_load_share_the_node_with_their_own_run_alone(node: Here) -> None:
    """`node` and `nvml` of one run are asked side by side; a load waits for them, and another run is refused."""
    one = ticket(node.path, wait_s=5.0)
    ready, got = threading.Barrier(2), []

    def ask() -> None:
        ready.wait()
        got.append(take(one, node, sharing=True))

    both = [threading.Thread(target=ask) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(got) == 2
    assert "found process" in refused(node, "one"), "a load beside them"
    assert "user-one" in refused(node)
    with pytest.raises(LeaseError, match="user-one"):
        take(ticket(node.path, "two"), node, sharing=True)
    got[0].end()
    assert "user-one" in refused(node)
    got[1].end()
    get(node, "one")


WHO = Ticket(run="r", user="u", host="h", pid=1, since="", out="")
FAR = json.loads(Record(ticket=WHO, boot="boot-1", until=0, most=0).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"\0",
        b"[" * SIZE,
        b"7",
        b'{"pid": 1, "user": "u", "since": "s", "out": "o"}',
        b"x" * (SIZE + 1),
        json.dumps({**FAR, "until": 1000.0 + HOLD_MOST_S + 1}).encode(),
        json.dumps({**FAR, "until": 10**400}).encode(),
        json.dumps({**FAR, "until": float("nan")}).encode(),
        json.dumps({**FAR, "user": 7}).encode(),
        json.dumps({**FAR, "run": ""}).encode(),
    ],
    ids=["bytes", "deep", "number", "older", "long", "far", "huge", "nan", "type", "nobody"],
)
def test_a_record_that_cannot_be_believed_counts_for_a_bounded_time(node: Here, content: bytes) -> None:
    """From the last change of the file on, unless that lies in the future; then the node is free and the file whole."""
    node.path.write_bytes(content)
    assert f"in {node.path}; it counts for at most 5 min more: wait, or remove it" in refused(node)
    for age_s in (HOLD_S + 1, -3600.0):
        node.path.write_bytes(content)
        os.utime(node.path, (time.time() - age_s,) * 2)
        take(ticket(node.path), node).end()
        assert node.path.stat().st_size == SIZE
        assert "user-one" in refused(node)


def test_what_others_write_is_bounded_and_shown_plainly(node: Here) -> None:
    """Escape sequences, lines and lengths of a record reach nobody's terminal, and the longest ticket fits."""
    evil = Ticket(
        run="r" * 99, user='\x1b[31m"\n' * 50, host="h\u202e" * 99, pid=1, since="\U0001f600" * 99, out="漢\\" * 999
    )
    take(evil, node).end()
    assert node.path.stat().st_size == SIZE
    line = refused(node)
    assert line.isprintable()
    assert len(line) < 700
    assert ticket_of(evil.text) == evil


def test_a_file_of_another_user_keeps_its_lock() -> None:
    """Where it may only be read, the lock holds and nothing is written; else the record holds too."""
    script = (
        "import os, sys\n"
        "from pytest_gpuready.agent.lease import take_by\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "held = take_by(sys.argv[1], word='node', deadline='', boot='b')\n"
        "print(held.mute, flush=True)\n"
        "os.read(0, 1); held.end()\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are for one user alone
        Path(folder).chmod(0o755)
        at = Here(path=Path(folder) / "lease", boot="b")
        for mode, mute in ((0o644, True), (0o666, False)):
            at.path.write_bytes(b"")
            at.path.chmod(mode)
            with subprocess.Popen(
                [sys.executable, "-c", script, ticket(at.path).text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": str(SOURCES)},
            ) as other:
                assert other.stdout is not None
                assert other.stdout.readline() == f"{mute}\n"
                assert ("user-one" in refused(at)) != mute
                other.communicate("x")
            if mute:
                get(at)
            else:
                assert "user-one" in refused(at)


def test_what_lies_in_the_place_of_the_lease_is_not_opened(tmp_path: Path) -> None:
    """A link, a FIFO, a folder: one line each, at once, and the target of the link is as it was."""
    (tmp_path / "precious").write_text("data")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder", "missing/lease"):
        with pytest.raises(LeaseError, match=r"expected (to open )?the lease .*; remove it"):
            take(ticket(tmp_path / name), Here(path=tmp_path / name, boot="b"))
    assert (tmp_path / "precious").read_text() == "data"


def test_no_room_for_the_record_is_no_reason_not_to_measure(node: Here) -> None:
    """Where nothing can be written the lock alone holds, also for probes without load, and the agent can say so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for sharing in (False, True):
            held = take(ticket(node.path), node, sharing=sharing)
            assert held.mute
            assert "does not say why" in refused(node)
            held.end()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    get(node)


def test_the_lease_lies_in_one_place_for_all_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first folder that everybody may write: not the first that this user may, and TMPDIR does not matter."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    roots, all_users = tmp_path / "run-lock", tmp_path / "tmp"
    roots.mkdir(mode=0o755)
    all_users.mkdir()
    all_users.chmod(0o1777)
    monkeypatch.setattr("pytest_gpuready.agent.lease_file.FOLDERS", (str(tmp_path / "no"), str(roots), str(all_users)))
    assert default_path() == all_users / "pytest-gpuready.lease"


def test_a_ticket_that_is_none_is_refused(tmp_path: Path) -> None:
    """Garbage, an unknown field, a hold of days: the agent does not measure."""
    good = json.loads(ticket(tmp_path / "lease").text)
    for text in ("{", "[]", json.dumps({**good, "new": 1}), json.dumps({**good, "hold_s": 1e6}), '{"run": "x"}'):
        with pytest.raises(ValueError, match="no ticket"):
            ticket_of(text)


def test_spans_read_as_words() -> None:
    """Rounded up to a second, hours without seconds."""
    assert [span(s) for s in (0, 0.2, 60, 250, 3600, 3661, 86400)] == [
        "0 s", "1 s", "1 min", "4 min 10 s", "1 h", "1 h 1 min", "24 h",
    ]  # fmt: skip
