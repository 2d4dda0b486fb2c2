"""`transport.recording` and `transport.replay`: what was recorded comes back, and nothing else does."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pytest_gpuready.errors import RecordingEndedError, TransportError
from pytest_gpuready.files import write_atomically
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, Interrupted
from pytest_gpuready.transport.local import Local
from pytest_gpuready.transport.recording import Recording, append, read_meta, read_results
from pytest_gpuready.transport.replay import Replay


def echo(*words: str, node: str = "node01") -> Command:
    return Command(node=node, argv=("echo", *words), timeout_s=10)


def test_a_recorded_command_is_replayed_as_it_was(tmp_path: Path) -> None:
    """Output, times and exit code of a replay are those of the recording."""
    recorded = Recording(Local(), tmp_path / "r").run(echo("hello"))
    assert Replay(tmp_path / "r").run(echo("hello")) == recorded
    assert read_meta(tmp_path / "r").nodes == ["node01"]


def test_repeats_come_in_order_and_end(tmp_path: Path) -> None:
    """Asked again, a replay gives the next recorded result, and invents none beyond the last."""
    recording = Recording(Local(), tmp_path / "r")
    asked = [dataclasses.replace(echo("x"), repeat=number) for number in range(3)]
    first, second = recording.run(asked[0]), recording.run(asked[1])
    replay = Replay(tmp_path / "r")
    assert [replay.run(command).started for command in asked[:2]] == [first.started, second.started]
    with pytest.raises(RecordingEndedError, match="expected result 3 of 'echo x', found 2"):
        replay.run(asked[2])


def test_a_retest_stands_in_for_no_first_run(tmp_path: Path) -> None:
    """Where the first run is not in the recording its command has no answer, although its retest is there."""
    retest = dataclasses.replace(echo("x"), repeat=1)
    Recording(Local(), tmp_path / "r").run(retest)
    replay = Replay(tmp_path / "r")
    assert replay.run(retest).stdout == "x\n"
    with pytest.raises(TransportError, match="expected result 1 of 'echo x', found no such") as refused:
        replay.run(echo("x"))
    assert not isinstance(refused.value, RecordingEndedError)


def test_of_two_results_of_one_run_neither_counts(tmp_path: Path) -> None:
    """A recording that holds two results of one run of a command does not say which of them is meant; all others are
    answered."""
    recording = Recording(Local(), tmp_path / "r")
    for word in ("x", "x", "y"):
        recording.run(echo(word))
    replay = Replay(tmp_path / "r")
    with pytest.raises(TransportError, match="node01: expected one result of run 1 of 'echo x', found two, the second"):
        replay.run(echo("x"))
    assert replay.run(echo("y")).stdout == "y\n"


def test_what_was_lost_is_lost_again(tmp_path: Path) -> None:
    """A retest to which no answer came has none in the replay, for the same reason; the first run has its own."""

    class Loses(Local):
        """Brings the first run of a command, and no other."""

        def run(self, command: Command) -> CommandResult:
            if command.repeat:
                raise TransportError("node01: expected to log in, found Connection refused")
            return super().run(command)

    recording = Recording(Loses(), tmp_path / "r")
    retest = dataclasses.replace(echo("x"), repeat=1)
    outcomes = [outcome for command in (echo("x"), retest) for _, outcome in recording.run_many([command])]
    assert isinstance(outcomes[1], TransportError)
    replay = Replay(tmp_path / "r")
    assert replay.run(echo("x")) == outcomes[0]
    with pytest.raises(TransportError, match="node01: expected to log in, found Connection refused") as lost:
        replay.run(retest)
    assert not isinstance(lost.value, RecordingEndedError)


def test_of_a_result_that_comes_twice_the_first_is_recorded(tmp_path: Path) -> None:
    """What a transport brings behind the answer to a command is not kept: a run does not take it either."""

    class Twice(Local):
        """Brings each result twice."""

        def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
            for command in commands:
                yield from [(command, self.run(command))] * 2

    assert len(list(Recording(Twice(), tmp_path / "r").run_many([echo("x")]))) == 2
    assert len(read_results(tmp_path / "r")) == 1


def test_switches_are_recorded_with_the_nodes(tmp_path: Path) -> None:
    """What nodes hang on is what a replay says they hung on, and so is why nobody could say it; where nobody asked, a
    replay knows nothing."""
    everywhere = {"node01": ("s0", "core"), "node99": ("s9", "core")}
    recording = Recording(Local(), tmp_path / "r")
    recording.run(echo("x"))
    assert Replay(tmp_path / "r").switches() is None
    assert recording.switches(lambda: everywhere, ["node01", "node02"]) == {"node01": ("s0", "core")}
    recording.run(echo("y"))
    assert Replay(tmp_path / "r").switches() == {"node01": ("s0", "core")}

    def ask() -> dict[str, tuple[str, ...]]:
        raise TransportError("scontrol: no answer within 10 s")

    other = Recording(Local(), tmp_path / "other")
    with pytest.raises(TransportError, match="no answer"):
        other.switches(ask, ["node01"])
    with pytest.raises(TransportError, match="scontrol: no answer within 10 s"):
        Replay(tmp_path / "other").switches()


@pytest.mark.parametrize("command", [echo("other"), echo("x", node="node02")])
def test_what_was_not_recorded_is_an_error(tmp_path: Path, command: Command) -> None:
    """Another command, or the same on another node, has no answer."""
    Recording(Local(), tmp_path / "r").run(echo("x"))
    with pytest.raises(TransportError, match="expected a recorded result, found none in r/ of echo"):
        Replay(tmp_path / "r").run(command)


def test_a_folder_without_a_recording_is_one_line(tmp_path: Path) -> None:
    """A replay of nothing says what is missing."""
    with pytest.raises(TransportError, match=r"expected a recording, found no readable .*recording\.json"):
        Replay(tmp_path)


def test_a_broken_result_file_is_one_line(tmp_path: Path) -> None:
    """Half a result file is an error with its name, never a shorter recording."""
    Recording(Local(), tmp_path / "r").run(echo("x"))
    path = next((tmp_path / "r" / "results").glob("*.json"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(TransportError, match="expected the result of a command in"):
        Replay(tmp_path / "r")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has room for everything but for a result with the word "long" in it."""

    def write(path: Path, data: bytes) -> None:
        if b"long" in data and path.name != "recording.json":
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    monkeypatch.setattr("pytest_gpuready.transport.recording.write_atomically", write)


@pytest.mark.usefixtures("full")
def test_what_cannot_be_kept_costs_the_recording_alone(tmp_path: Path) -> None:
    """Every outcome still reaches the run; the recording says from where on it is incomplete, keeps nothing behind
    that, leaves no file without a result, and answers for what it holds."""
    recording = Recording(Local(), tmp_path / "r")
    recording.begin(["node01"])
    commands = [echo("short"), echo("long"), echo("after")]
    outcomes = [outcome for command in commands for _, outcome in recording.run_many([command])]
    assert [outcome.stdout for outcome in outcomes if isinstance(outcome, CommandResult)] == [
        "short\n",
        "long\n",
        "after\n",
    ]
    assert recording.incomplete.startswith(
        f"the recording in {tmp_path / 'r'} is incomplete from echo long on node01 on: No space left on device; "
    )
    assert [path.name for path in sorted((tmp_path / "r" / "results").iterdir())] == ["0000.json"]
    replay = Replay(tmp_path / "r")
    assert replay.run(echo("short")) == outcomes[0]
    for command in commands[1:]:
        with pytest.raises(TransportError, match="expected a recorded result, found none"):
            replay.run(command)


@pytest.mark.usefixtures("full")
def test_a_full_disk_hides_no_ctrl_c(tmp_path: Path) -> None:
    """The interrupt behind the last result goes on, although that result cannot be recorded."""

    class Pressed(Local):
        def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
            for command in commands:
                yield command, self.run(command)
            raise KeyboardInterrupt

    recording = Recording(Pressed(), tmp_path / "r")
    ended = recording.run_many([echo("long")])
    assert isinstance(next(ended)[1], CommandResult)
    with pytest.raises(KeyboardInterrupt):
        next(ended)
    assert recording.incomplete


def test_a_recording_that_is_taken_away_is_incomplete(tmp_path: Path) -> None:
    """Where the recording is removed while it is made, what comes later does not pass for all of it."""
    recording = Recording(Local(), tmp_path / "r")
    recording.begin(["node01"])
    recording.run(echo("x"))
    shutil.rmtree(tmp_path / "r")
    assert recording.run(echo("y")).stdout == "y\n"
    assert "is incomplete from echo y on node01 on: recording.json is gone" in recording.incomplete
    assert not (tmp_path / "r").exists()


def test_a_claim_without_a_result_holds_nothing(tmp_path: Path) -> None:
    """An empty file, left by who was killed before it wrote, costs its own command and not the recording."""
    recording = Recording(Local(), tmp_path / "r")
    recording.run(echo("x"))
    (tmp_path / "r" / "lost").mkdir()
    for claim in ("results/0001.json", "lost/0000.json"):
        (tmp_path / "r" / claim).touch()
    recording.run(echo("z"))
    assert [result.stdout for result in read_results(tmp_path / "r")] == ["x\n", "z\n"]
    assert Replay(tmp_path / "r").run(echo("z")).stdout == "z\n"


def test_another_format_is_refused(tmp_path: Path) -> None:
    """A recording of a later format is refused by its number."""
    Recording(Local(), tmp_path / "r").run(echo("x"))
    meta = tmp_path / "r" / "recording.json"
    meta.write_text(meta.read_text().replace('"gpuready_recording": 1', '"gpuready_recording": 9'))
    with pytest.raises(TransportError, match="expected recording format 1, found 9"):
        Replay(tmp_path / "r")


@pytest.mark.parametrize(("printed", "kept"), [("known so far", 1), ("", 0)])
def test_what_was_said_on_ctrl_c_is_recorded(tmp_path: Path, printed: str, kept: int) -> None:
    """The result of an interrupted command is kept if it is one, and the interrupt goes on with it."""

    class Stopped:
        def run(self, command: Command) -> CommandResult:
            raise Interrupted(
                CommandResult(command=command, exit_code=0, stdout=printed, stderr="", started="", duration_s=0.0)
            )

        def stop(self) -> None:
            pass

    with pytest.raises(Interrupted):
        Recording(Stopped(), tmp_path / "r").run(echo("x"))
    assert len(read_results(tmp_path / "r")) == kept


def test_a_changed_parameter_is_named_as_the_reason(tmp_path: Path) -> None:
    """The same test recorded with other parameters is no unknown command, and the reason stands before the words."""
    base = (
        "python",
        "-m",
        "pytest_gpuready.agent",
        "around",
        "0000:19:00.0",
        "--",
        "dcgmi",
        "diag",
        "-r",
        "pcie",
        "-j",
    )
    known = Command(node="node01", argv=(*base, "-p", "pcie.h2d_d2h_single_pinned.min_bandwidth=45"), timeout_s=5)
    append(tmp_path / "r", [CommandResult(command=known, exit_code=0, stdout="", stderr="", started="", duration_s=1)])
    replay = Replay(tmp_path / "r")
    for argv in (base, (*base, "-p", "pcie.h2d_d2h_single_pinned.min_bandwidth=50")):
        with pytest.raises(TransportError) as caught:
            replay.run(dataclasses.replace(known, argv=argv))
        said = str(caught.value)
        assert said.startswith(
            "node01: expected a recorded result, found dcgmi diag -r pcie -j in r/ with other parameters"
        )
        assert said.endswith("the profile or an option has changed the command; record the node again")


class Unreachable:
    """A transport to nodes that are not there."""

    def run(self, command: Command) -> CommandResult:
        raise TransportError(f"{command.node}: expected an answer, found connection refused")

    def stop(self) -> None:
        """Nothing runs here."""


def test_a_replay_says_why_a_node_did_not_answer(tmp_path: Path) -> None:
    """The reason of the day is recorded beside the results."""
    command = Command(node="node02", argv=("true",), timeout_s=5)
    assert [str(outcome) for _, outcome in Recording(Unreachable(), tmp_path).run_many([command])] != []
    with pytest.raises(TransportError, match=r"^node02: expected an answer, found connection refused$"):
        Replay(tmp_path).run(command)


def test_a_plan_that_was_not_recorded_is_told_in_few_words(tmp_path: Path) -> None:
    """The line names the command with its plan in short, so that the reason and what to do are not lost in JSON."""
    Recording(Local(), tmp_path / "r").run(echo("x"))
    phases = ",".join(f'{{"kind":"gemm","format":"{name}","limit_s":60.0}}' for name in ("bf16", "fp16", "int8"))
    with pytest.raises(TransportError) as caught:
        Replay(tmp_path / "r").run(echo("stress", f'{{"phases":[{phases}],"seed":1}}', "0000:19:00.0"))
    assert str(caught.value) == (
        "node01: expected a recorded result, found none in r/ of echo stress {gemm bf16 fp16 int8} 0000:19:00.0; "
        "record the node again"
    )
