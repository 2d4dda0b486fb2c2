"""`transport.ssh` on real sshds: what comes back from each node, and that a bad one costs only itself."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.agent_words import PROGRESS
from pytest_gpuready.transport import LostError
from pytest_gpuready.transport.recording import Recording, read_results
from pytest_gpuready.transport.ssh import Ssh
from tests.cluster.hosts import Hosts, alive, gone, pid_in

FOREVER_S = 60.0
"""A deadline that no test waits for."""


def sh(node: str, script: str, *words: str, timeout_s: float = FOREVER_S, grace_s: float = 5.0) -> Command:
    return Command(node=node, argv=("sh", "-c", script, "sh", *words), timeout_s=timeout_s, grace_s=grace_s)


def outcomes(transport: Ssh, commands: Iterable[Command]) -> dict[str, CommandResult | TransportError]:
    """Node -> what came of its command."""
    return {command.node: outcome for command, outcome in transport.run_many(commands)}


def result(outcome: CommandResult | TransportError) -> CommandResult:
    assert isinstance(outcome, CommandResult), outcome
    return outcome


# --- what comes back --------------------------------------------------------------------------------------------------


def test_one_command_on_all_nodes(hosts: Hosts) -> None:
    """Each node runs the same command; output is its own, stderr stands apart, and nothing else is in either."""
    told = outcomes(hosts.ssh(), [sh(name, "hostname; echo all; echo err >&2") for name in hosts.names])
    assert {n: (result(r).stdout, result(r).stderr, result(r).exit_code) for n, r in told.items()} == {
        name: (f"{name}\nall\n", "err\n", 0) for name in hosts.names
    }


def test_each_node_has_its_own_command_and_exit_code(hosts: Hosts) -> None:
    """255 of a command is not ssh's; a signal is minus its number; what is no text and a lone return come through."""
    a, b, c, d = hosts.names
    told = outcomes(
        hosts.ssh(),
        [sh(a, "exit 255"), sh(b, "kill -9 $$"), sh(c, r"printf '50%%\r100%%\r\n\377x'"), sh(d, "exit 3")],
    )
    assert [result(told[n]).exit_code for n in (a, b, c, d)] == [255, -9, 0, 3]
    assert result(told[c]).stdout == "50%\r100%\r\n\ufffdx"


HOSTILE = (
    "$(touch bad)",
    "`id`",
    "a;b|c&d",
    "'",
    '"',
    "\\",
    "*",
    "~",
    "!",
    "",
    "-n",
    "two\nlines\r",
    "é漢\udcff",
    "%h",
    "#",
)


def test_no_shell_reads_the_words(hosts: Hosts) -> None:
    """Words arrive as they are, whatever a shell would make of them, bytes that are no text included."""
    show = "import os, sys; sys.stdout.write(repr(sys.argv[1:]))"
    command = Command(node=hosts.names[0], argv=(sys.executable, "-c", show, *HOSTILE), timeout_s=FOREVER_S)
    assert hosts.ssh().run(command).stdout == repr(list(HOSTILE))


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch bad", "two words", "a,b", "a[1-3]", "@all", "$(id)", "*", "", "ü"]
)
def test_a_name_that_is_none_reaches_nothing(hosts: Hosts, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that ssh or ClusterShell could take for something else is refused; no ssh is started for it."""
    monkeypatch.setattr("pytest_gpuready.transport.ssh.FanOut", None)
    told = outcomes(hosts.ssh(), [sh(name, "true")])
    assert "expected a host name" in str(told[name])


def test_two_commands_for_one_node_are_refused(hosts: Hosts) -> None:
    """One call is one command a node."""
    with pytest.raises(ValueError, match="one command a node"):
        hosts.ssh().run_many([sh("a", "true"), sh("a", "false")])


def test_what_a_fan_out_brought_is_recorded(hosts: Hosts, tmp_path: Path) -> None:
    """A recording around it keeps the results that there are, not the errors."""
    recording = Recording(hosts.ssh(), tmp_path)
    told = dict(recording.run_many([sh(hosts.names[0], "echo kept"), sh("no such", "true")]))
    assert sorted(type(outcome).__name__ for outcome in told.values()) == ["CommandResult", "TransportError"]
    assert [kept.stdout for kept in read_results(tmp_path)] == ["kept\n"]


# --- a bad node costs only itself -------------------------------------------------------------------------------------


def test_bad_nodes_cost_only_themselves(hosts: Hosts, scratch: Path) -> None:
    """Nobody listens, no packet arrives, a command hangs: each has its own error or deadline, the fourth its result."""
    dead, cut_off, hung, fine = hosts.names
    hang = f"echo early; (trap '' TERM; echo $$ >{scratch}/pid; while :; do sleep 0.1; done)"
    with hosts.dead_sshd(dead), hosts.link_down(cut_off):
        commands = [
            sh(dead, "true"),
            sh(cut_off, "true"),
            sh(hung, hang, timeout_s=1.5, grace_s=0.2),
            sh(fine, "echo ok"),
        ]
        told = outcomes(hosts.ssh(connect_timeout_s=1.5), commands)
    assert f"{dead}: expected to log in by ssh" in str(told[dead])
    assert "refused" in str(told[dead])
    assert f"{cut_off}: expected to log in by ssh" in str(told[cut_off])
    late = result(told[hung])
    assert (late.stdout, late.timed_out, late.exit_code, late.unkillable) == ("early\n", True, None, "")
    assert not alive(pid_in(scratch / "pid"))
    assert result(told[fine]).stdout == "ok\n"


def test_nobody_is_left_after_a_deadline(hosts: Hosts, scratch: Path) -> None:
    """Children that left the group, the session and their parent end at the deadline, SIGTERM ignored or not."""
    script = (
        f"setsid sh -c 'trap \"\" TERM; echo $$ >{scratch}/session; sleep 300; sleep 300' & "
        f"(setsid sh -c 'echo $$ >{scratch}/orphan; exec sleep 300' &) ; "
        f"sh -c 'trap \"\" TERM; echo $$ >{scratch}/group; sleep 300; sleep 300' & wait"
    )
    late = hosts.ssh().run(sh(hosts.names[0], script, timeout_s=1.5, grace_s=0.1))
    assert late.timed_out
    assert not any(alive(pid_in(scratch / name)) for name in ("session", "orphan", "group"))


def test_what_is_printed_in_the_grace_is_kept(hosts: Hosts) -> None:
    """At the deadline a command is told to end; what it says then belongs to the result."""
    script = "trap 'sleep 0.1; echo last; exit 3' TERM; echo first; while :; do sleep 0.05; done"
    late = hosts.ssh().run(sh(hosts.names[0], script, timeout_s=1.5))
    assert (late.stdout, late.timed_out, late.exit_code) == ("first\nlast\n", True, None)


def test_endless_output_is_bounded(hosts: Hosts) -> None:
    """20 MB are cut at the bound, the command is ended, the result says so; a node beside it has all of its own."""
    much, fine = hosts.names[:2]
    told = outcomes(hosts.ssh(), [sh(much, "head -c 20000000 /dev/zero; sleep 300"), sh(fine, "echo ok")])
    assert len(result(told[much]).stdout) == 16 * 2**20
    assert "output beyond 16777216 bytes was cut" in result(told[much]).stderr
    assert result(told[fine]).stdout == "ok\n"


def test_a_node_that_speaks_garbage_costs_only_itself(hosts: Hosts) -> None:
    """What is no keeper's answer is not kept and not waited for."""
    told = outcomes(hosts.ssh(python=hosts.odd_python), [sh(name, "echo ok") for name in hosts.names])
    odd = hosts.names[2]
    assert str(told[odd]).startswith(f"{odd}: expected the answer of a keeper, found a line of more than")
    assert {result(told[n]).stdout for n in hosts.names if n != odd} == {"ok\n"}


def test_a_login_shell_that_talks_is_no_output(hosts: Hosts, scratch: Path) -> None:
    """What is printed before the keeper starts is neither stdout nor stderr of the command, with or without newline."""
    talking = scratch / "python3"
    talking.write_text(f'#!/bin/sh\necho welcome; echo motd >&2; printf "no newline"\nexec {sys.executable} "$@"\n')
    talking.chmod(0o755)
    told = hosts.ssh(python=str(talking)).run(sh(hosts.names[0], "echo out"))
    assert (told.stdout, told.stderr, told.exit_code) == ("out\n", "", 0)


def test_a_connection_that_breaks_is_no_result(hosts: Hosts, scratch: Path) -> None:
    """A command whose end nobody heard of is an error that holds what was heard; it ends on its node."""
    name = hosts.names[0]
    # One stream keeps its order: whoever heard the second line has heard the first.
    script = f"echo $$ >{scratch}/pid; echo early >&2; echo '{PROGRESS}{{\"heard\":1}}' >&2; sleep 300"
    heard = threading.Event()

    def said(_command: Command, told: dict[str, object]) -> None:
        if told:
            heard.set()

    def cut() -> None:
        assert heard.wait(20)
        pid = pid_in(scratch / "pid")
        keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        while Path(f"/proc/{keeper}/comm").read_text() != "sshd\n":
            keeper = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(") ")[2].split()[1])
        os.kill(keeper, 9)

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(
        LostError, match=rf"{name}: expected to hear how 'sh' ended, found ssh ended with code 255"
    ) as lost:
        hosts.ssh(progress=said).run(sh(name, script))
    cutter.join(20)
    partial = lost.value.partial
    assert (partial.stderr, partial.exit_code, partial.timed_out) == ("early\n", None, False)
    assert gone(pid_in(scratch / "pid"))


def test_a_tool_or_a_python_that_is_not_there_is_one_line(hosts: Hosts) -> None:
    """A tool that the node lacks reads as it does on this machine; a node without the Python says which."""
    name = hosts.names[0]
    with pytest.raises(
        TransportError, match=rf"{name}: expected to start 'no-such-tool', found No such file.*install it"
    ):
        hosts.ssh().run(Command(node=name, argv=("no-such-tool",), timeout_s=FOREVER_S))
    with pytest.raises(TransportError, match=rf"{name}: expected no-such-python and timeout .* there, found .*No such"):
        hosts.ssh(python="no-such-python").run(sh(name, "true"))


def test_a_narrow_fan_out_comes_to_all(hosts: Hosts) -> None:
    """Where one node at a time is asked, one that is late does not keep the others from their turn."""
    late, *others = hosts.names[:3]
    commands = [sh(late, "sleep 300", timeout_s=0.2, grace_s=0.1), *(sh(name, "echo ok") for name in others)]
    told = outcomes(hosts.ssh(fanout=1), commands)
    assert result(told[late]).timed_out
    assert [result(told[name]).stdout for name in others] == ["ok\n", "ok\n"]


def test_results_come_as_they_end(hosts: Hosts, scratch: Path) -> None:
    """A node that is done is not held back by one that is not."""
    slow, quick = hosts.names[:2]
    wait = f"while [ ! -e {scratch}/go ]; do sleep 0.02; done; echo slow"
    seen = []
    for command, outcome in hosts.ssh().run_many([sh(slow, wait), sh(quick, "echo quick")]):
        seen.append((command.node, result(outcome).stdout))
        (scratch / "go").touch()
    assert seen == [(quick, "quick\n"), (slow, "slow\n")]


# --- ending it --------------------------------------------------------------------------------------------------------


def test_stop_ends_all_and_keeps_what_they_say(hosts: Hosts, scratch: Path) -> None:
    """Stopped from another thread, commands end in their grace, by themselves, and are not late."""
    transport = hosts.ssh(fanout=2)
    script = f"trap 'echo last; exit 3' TERM; echo $$ >{scratch}/$1; while :; do sleep 0.05; done"
    told: dict[str, CommandResult | TransportError] = {}
    names = hosts.names[:3]
    thread = threading.Thread(target=lambda: told.update(outcomes(transport, [sh(n, script, n) for n in names])))
    thread.start()
    while len(list(scratch.iterdir())) < 2:
        time.sleep(0.01)
    begun = {path.name for path in scratch.iterdir()}
    transport.stop()
    thread.join(20)
    assert [(result(told[n]).stdout, result(told[n]).exit_code, result(told[n]).timed_out) for n in begun] == [
        ("last\n", 3, False)
    ] * 2
    (waiting,) = set(names) - begun
    assert "interrupted" in str(told[waiting])


def test_who_stops_to_listen_ends_the_rest(hosts: Hosts, scratch: Path) -> None:
    """An iteration that is given up ends what still runs."""
    slow, quick = hosts.names[:2]
    ended = hosts.ssh().run_many([sh(slow, f"echo $$ >{scratch}/pid; sleep 300"), sh(quick, "true")])
    next(ended)
    pid = pid_in(scratch / "pid")
    ended.close()  # type: ignore[attr-defined]
    assert gone(pid)


def test_progress_is_handed_over_and_left_out_of_stderr(hosts: Hosts) -> None:
    """Lines of progress reach the listener with their command; the other lines stay."""
    heard: list[tuple[Command, dict[str, object]]] = []
    command = sh(hosts.names[0], """echo a >&2; echo 'gpuready-progress {"s": 5.0}' >&2; echo b >&2""")
    told = hosts.ssh(progress=lambda *said: heard.append(said)).run(command)
    assert told.stderr == "a\nb\n"
    assert [said for said in heard if said[1]] == [(command, {"s": 5.0})]
