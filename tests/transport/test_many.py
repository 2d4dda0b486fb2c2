"""`run_many` where there is one node, and what the controller makes of what a keeper says."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.model.command import PYTHON
from pytest_gpuready.transport import Interrupted, ManyTransport, one_by_one
from pytest_gpuready.transport.kept import NOISE_BYTES, Kept, request
from pytest_gpuready.transport.local import MAX_BYTES, Local
from pytest_gpuready.transport.recording import Recording, read_results
from pytest_gpuready.transport.replay import Replay
from pytest_gpuready.transport.rubbish import CUT, KEPT_BYTES
from pytest_gpuready.transport.ssh import Ssh


def sh(node: str, script: str) -> Command:
    return Command(node=node, argv=("sh", "-c", script), timeout_s=20)


def test_local_runs_them_one_after_the_other(tmp_path: Path) -> None:
    """Two names of this machine are this machine: the second begins when the first has ended; a failure is its own."""
    first = sh("a", f"sleep 0.1; echo first >>{tmp_path}/log")
    commands = [first, Command(node="b", argv=("no-such-tool",), timeout_s=5), sh("c", f"echo third >>{tmp_path}/log")]
    told = list(Local().run_many(commands))
    assert [command for command, _ in told] == commands
    assert [type(outcome) for _, outcome in told] == [CommandResult, TransportError, CommandResult]
    assert (tmp_path / "log").read_text() == "first\nthird\n"


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    """A fan-out that was recorded answers the same commands; one that was not is an error of its node alone."""
    commands = [sh("a", "echo a"), sh("b", "echo b")]
    for _ in Recording(Local(), tmp_path).run_many(commands):
        pass
    told = dict(Replay(tmp_path).run_many([*commands, sh("c", "echo c")]))
    assert [told[command].stdout for command in commands] == ["a\n", "b\n"]  # type: ignore[union-attr]
    assert isinstance(told[sh("c", "echo c")], TransportError)


def test_a_recording_asks_a_transport_for_one_node_too(tmp_path: Path) -> None:
    """A transport that knows no fan-out is asked for one command after the other, and recorded all the same."""

    class Echo:
        def run(self, command: Command) -> CommandResult:
            return CommandResult(command=command, exit_code=0, stdout="e", stderr="", started="", duration_s=0.0)

        def stop(self) -> None: ...

    assert not isinstance(Echo(), ManyTransport)
    assert len(list(Recording(Echo(), tmp_path).run_many([sh("a", "x"), sh("b", "x")]))) == 2
    assert len(read_results(tmp_path)) == 2


def test_ctrl_c_comes_after_what_it_kept() -> None:
    """What an interrupted command printed is yielded before the interrupt, and nothing begins behind it."""
    kept = CommandResult(command=sh("a", "x"), exit_code=3, stdout="last", stderr="", started="", duration_s=0.0)

    class Pressed:
        def run(self, command: Command) -> CommandResult:
            raise Interrupted(kept)

        def stop(self) -> None: ...

    ended = one_by_one(Pressed(), [sh("a", "x"), sh("b", "x")])
    assert next(ended) == (sh("a", "x"), kept)
    with pytest.raises(KeyboardInterrupt):
        next(ended)


# --- what a keeper says -----------------------------------------------------------------------------------------------


def kept(max_bytes: int = 1000) -> Kept:
    command = sh("n1", "x")
    asked = request(command, python="python3", agent=None, patience_s=1, max_bytes=max_bytes)
    return Kept(command=command, request=asked, max_bytes=max_bytes, said=lambda _: None)


def agent(max_bytes: int = MAX_BYTES) -> Kept:
    command = Command(node="n1", argv=(PYTHON, "-m", "pytest_gpuready.agent", "node"), timeout_s=20)
    asked = request(command, python="python3", agent=None, patience_s=1, max_bytes=max_bytes)
    return Kept(command=command, request=asked, max_bytes=max_bytes, said=lambda _: None)


def hear(each: Kept, *lines: str) -> Kept:
    for line in lines:
        each.hear(f"{each.request.word} {line}".encode(), aside=False)
    return each


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "o",
        "o ===",
        "o a",
        "end",
        "end 0 0 0 0",
        "end x 0 0 0.1 0",
        "end 0 0 0 nil 0",
        "more 1",
        "o " + b64("x" * 1001),
    ],
)
def test_a_line_that_no_keeper_says_is_an_error(line: str) -> None:
    """Half lines, unknown words, numbers that are none and more than the bound are garbage, never a result."""
    outcome = hear(kept(), "start", line).outcome(0, "")
    assert "n1: expected the answer of a keeper, found a line that no keeper says" in str(outcome)


def test_noise_has_a_bound() -> None:
    """A node that talks and talks beside its command is garbage."""
    each = hear(kept(), "start")
    for _ in range(NOISE_BYTES // 1000 + 1):
        each.hear(b"x" * 1000, aside=True)
    assert "bytes that are not the command's" in str(each.outcome(0, ""))


def test_another_commands_word_is_noise() -> None:
    """Who does not know the word of this command cannot end it."""
    each = hear(kept(), "start")
    each.hear(b"gpuready-0000000000000000 end 0 0 0 0.1 0", aside=False)
    each.hear(f"{each.request.word} end 0 0 0 0.1 0".encode(), aside=True)
    assert "expected to hear how 'sh' ended" in str(each.outcome(0, ""))


def test_nothing_counts_behind_the_end() -> None:
    """What comes after the end is no output."""
    each = hear(kept(), "start", f"o {b64('out')}", "end 0 0 0 0.5 0 0", f"o {b64('more')}")
    outcome = each.outcome(0, "")
    assert isinstance(outcome, CommandResult)
    assert (outcome.stdout, outcome.exit_code, outcome.duration_s) == ("out", 0, 0.5)


@pytest.mark.parametrize("begins", ["", '{"gpuready_agent": 1, "data": "'])
def test_of_rubbish_the_beginning_is_kept(begins: str) -> None:
    """Megabytes that are no JSON cost no memory, not even while they come where they do not begin as JSON; what was
    left out is said, and stderr keeps its end."""
    each = hear(agent(), "start", f"o {b64(begins)}")
    piece, most = b64("\n not JSON" * 3000), 0
    for _ in range(100):
        hear(each, f"o {piece}", f"e {piece}")
        most = max(most, len(each._stdout) * (not begins) + len(each._stderr))
    outcome = hear(each, f"e {b64('last word')}", "end 0 0 0 0.5 0 0").outcome(0, "")
    assert isinstance(outcome, CommandResult)
    assert most < 5 * KEPT_BYTES
    assert len(outcome.stdout) == KEPT_BYTES
    assert outcome.stdout.startswith(begins or "\n not JSON")
    assert outcome.stderr.endswith(f"last word\n{CUT}")
    assert len(outcome.stderr) < 3 * KEPT_BYTES
    assert not each._stdout


def test_a_long_answer_is_kept_whole() -> None:
    """One JSON document of any size is an answer; so is whatever another tool prints."""
    document = json.dumps({"gpuready_agent": 1, "log": ["line"] * 40_000})
    each = hear(agent(), "start", *(f"o {b64(document[i : i + 30_000])}" for i in range(0, len(document), 30_000)))
    outcome = hear(each, "end 0 0 0 0.5 0 0").outcome(0, "")
    assert isinstance(outcome, CommandResult)
    assert (outcome.stdout, outcome.stderr) == (document, "")
    text = "no JSON\n" * 40_000
    each = hear(kept(MAX_BYTES), "start", *(f"o {b64(text[i : i + 30_000])}" for i in range(0, len(text), 30_000)))
    outcome = hear(each, "end 0 0 0 0.5 0 0").outcome(0, "")
    assert isinstance(outcome, CommandResult)
    assert outcome.stdout == text


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_no_time_that_a_command_takes_is_garbage(seconds: str) -> None:
    """What cannot be kept as a number of seconds is no answer of a keeper."""
    outcome = hear(kept(), "start", f"end 0 0 0 {seconds} 0 0").outcome(0, "")
    assert isinstance(outcome, TransportError)
    assert "a line that no keeper says" in str(outcome)


def test_a_process_that_survived_is_named() -> None:
    """What SIGKILL did not end has no exit code and is named."""
    outcome = hear(kept(), "start", "end -9 0 0 0.5 4711 0").outcome(0, "")
    assert isinstance(outcome, CommandResult)
    assert (outcome.exit_code, outcome.unkillable) == (None, "process 4711 did not end on SIGKILL")


def test_what_a_node_says_of_itself_is_one_plain_line() -> None:
    """An error shows what the node printed without what a terminal would obey, and not all of it."""
    each = kept()
    each.hear(b"\x1b[2Jssh: no \x07route" + b"!" * 1000, aside=True)
    text = str(each.outcome(255, ""))
    assert "ssh: no ?route" in text
    assert text.isprintable()
    assert len(text) < 400


# --- what has to be installed here ------------------------------------------------------------------------------------


def test_without_ssh_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Debian package is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="expected ssh on the PATH, found none; install openssh-client"):
        Ssh()


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """Neither the nodes' settings nor their gateways are guessed where the file that was named is missing."""
    for name in ("config", "topology"):
        with pytest.raises(TransportError, match=r"expected a file .*, found no .*none\.conf; correct"):
            Ssh(**{name: tmp_path / "none.conf"})  # type: ignore[arg-type]


def test_a_topology_without_this_host_is_one_line(tmp_path: Path) -> None:
    """Each node's error names the file of gateways; nothing is reached without it."""
    (tmp_path / "topology.conf").write_text("[routes]\nnobody: gateway\ngateway: n1\n")
    told = dict(Ssh(topology=tmp_path / "topology.conf").run_many([sh("n1", "true")]))
    assert "expected a topology in" in str(told[sh("n1", "true")])
    assert "that starts at this host" in str(told[sh("n1", "true")])


@pytest.mark.parametrize(
    "names", [("n1", "n01", "n001"), ("fe80::1", "10.0.0.7"), ("a-1.b-02.c", "a-2.b-3.c"), ("7", "x_1")]
)
def test_names_come_back_as_they_are(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What ClusterShell calls a node is the name that it was given: each has its own outcome."""
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = dict(Ssh().run_many([sh(name, "true") for name in names]))
    assert {command.node for command in told} == set(names)
    assert all("found ssh ended with code 255" in str(outcome) for outcome in told.values())
