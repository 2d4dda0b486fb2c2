"""`campaign.store`: measured once, kept whole, shared by processes."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pytest_gpuready.campaign.store import Store, key_of
from pytest_gpuready.errors import StoreError, TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import Ended, Interrupted
from pytest_gpuready.transport.local import Local

COMMAND = Command(node="node01", argv=("echo", "x"), timeout_s=10)


class Counting:
    """A transport that counts what it runs."""

    def __init__(self) -> None:
        self.ran = 0

    def run(self, command: Command) -> CommandResult:
        self.ran += 1
        return Local().run(command)


class Unreachable:
    """A transport to a node that is not there."""

    def run(self, command: Command) -> CommandResult:
        raise TransportError(f"{command.node}: expected an answer, found none; check the network")


def results(store: Store, key: str) -> list[CommandResult]:
    taken = store.read(key)
    return taken.results if taken else []


def test_a_scope_is_measured_once(tmp_path: Path) -> None:
    """The second to ask reads what the first measured, also in another store on the same directory."""
    transport = Counting()
    first, second = Store(tmp_path, transport), Store(tmp_path, transport)
    first.take({"k": COMMAND})
    second.take({"k": COMMAND})
    assert second.read("k") == first.read("k")
    assert transport.ran == 1


def test_retests_are_added_up_to_the_number_asked_for(tmp_path: Path) -> None:
    """`again` runs what is missing and keeps the first result in front."""
    transport = Counting()
    store = Store(tmp_path, transport)
    store.take({"k": COMMAND})
    first = results(store, "k")
    store.again({"k": COMMAND}, runs=2)
    store.again({"k": COMMAND}, runs=2)
    assert results(store, "k")[:1] == first
    assert len(results(store, "k")) == 2
    assert transport.ran == 2


def test_an_unreachable_node_is_a_stored_problem(tmp_path: Path) -> None:
    """A transport error costs only its own scope: it is kept as its problem."""
    store = Store(tmp_path, Unreachable())
    store.take({"k": COMMAND})
    taken = store.read("k")
    assert taken is not None
    assert taken.problem == "node01: expected an answer, found none; check the network"
    assert taken.results == []


def test_raw_output_lies_under_its_digest(tmp_path: Path) -> None:
    """Evidence is named by the sha256 of what was printed."""
    Store(tmp_path, Local()).take({"k": COMMAND})
    path = tmp_path / "evidence" / f"{hashlib.sha256(b'x' + bytes([10])).hexdigest()}.txt"
    assert path.read_bytes() == b"x\n"


def test_evidence_that_vanished_or_changed_is_written_again(tmp_path: Path) -> None:
    """The store holds every raw output as well: files that are gone, emptied or changed are made good from it."""
    store = Store(tmp_path, Local())
    for key in ("a", "b", "c"):
        store.take({key: Command(node="node01", argv=("echo", key), timeout_s=10)})
    whole = {path: path.read_bytes() for path in (tmp_path / "evidence").iterdir()}
    gone, empty, other = whole
    gone.unlink()
    empty.write_text("")
    other.write_text("nothing")
    store.restore_evidence()
    assert {path: path.read_bytes() for path in (tmp_path / "evidence").iterdir()} == whole
    other.write_text("nothing")
    store.forget("a")
    store.forget("b")
    store.forget("c")
    assert {path.read_bytes() for path in (tmp_path / "evidence").iterdir()} == set(whole.values())


def test_a_damaged_store_file_is_an_error(tmp_path: Path) -> None:
    """A store file that was cut is an error, never an empty measurement."""
    store = Store(tmp_path, Local())
    store.take({"k": COMMAND})
    path = tmp_path / "store" / "k.json"
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(StoreError, match="start in a new directory"):
        store.read("k")


def test_a_full_disk_is_an_error_and_leaves_no_half_file(tmp_path: Path) -> None:
    """Where the file cannot be written whole, nothing of it is left under its name."""
    script = (
        "import resource, signal, pathlib, sys\n"
        "from pytest_gpuready.campaign.store import Store\n"
        "from pytest_gpuready.errors import StoreError\n"
        "from pytest_gpuready.model import Command\n"
        "from pytest_gpuready.transport.local import Local\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try:\n"
        "    command = Command(node='n', argv=('echo', 'x'), timeout_s=9)\n"
        f"    Store(pathlib.Path({str(tmp_path)!r}), Local()).take({{'k': command}})\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "expected to keep a measurement under" in done.stdout, done.stderr
    assert not list((tmp_path / "store").glob("*.json"))
    assert not list(tmp_path.rglob("*.tmp"))


def test_two_processes_measure_once(tmp_path: Path) -> None:
    """Processes that ask at the same time share one measurement: the command runs once."""
    script = (
        "import pathlib\n"
        "from pytest_gpuready.campaign.store import Store\n"
        "from pytest_gpuready.model import Command\n"
        "from pytest_gpuready.transport.local import Local\n"
        f"argv = ('sh', '-c', 'echo ran >> {tmp_path}/count; sleep 0.5; echo x')\n"
        f"store = Store(pathlib.Path({str(tmp_path / 'out')!r}), Local())\n"
        "store.take({'k': Command(node='n', argv=argv, timeout_s=20)})\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "ran\n"


def test_keys_are_file_names() -> None:
    """A part's slash does not make a folder."""
    assert key_of("copies", "node01/gpu3") == "copies@node01_gpu3"


class Stopped:
    """A transport whose command was told to end by Ctrl-C after it had printed this."""

    def __init__(self, printed: str) -> None:
        self._printed = printed

    def run(self, command: Command) -> CommandResult:
        result = CommandResult(
            command=command, exit_code=0, stdout=self._printed, stderr="", started="2026-12-01", duration_s=1.0
        )
        raise Interrupted(result)


def test_what_was_said_on_ctrl_c_is_kept_and_the_interrupt_goes_on(tmp_path: Path) -> None:
    """A command that printed something in its grace is in the store before the interrupt reaches anybody else."""
    store = Store(tmp_path, Stopped("known so far\n"))
    with pytest.raises(KeyboardInterrupt) as caught:
        store.take({"k": COMMAND})
    assert type(caught.value) is KeyboardInterrupt
    taken = store.read("k")
    assert taken is not None
    assert [result.stdout for result in taken.results] == ["known so far\n"]


def test_a_command_that_said_nothing_on_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """A killed command that printed nothing was not measured: the scope stays free."""
    store = Store(tmp_path, Stopped("\n"))
    with pytest.raises(KeyboardInterrupt):
        store.take({"k": COMMAND})
    assert store.read("k") is None


class Stammering:
    """A transport that brings a result twice, and one that nobody asked for."""

    def run(self, command: Command) -> CommandResult:
        return Local().run(command)

    def run_many(self, commands: Iterable[Command]) -> Iterator[Ended]:
        for command in commands:
            yield dataclasses.replace(command, node="node77"), self.run(command)
            yield command, self.run(command)
            yield command, self.run(command)

    def stop(self) -> None:
        """Nothing runs here."""


def test_a_result_counts_once_and_for_who_was_asked(tmp_path: Path) -> None:
    """The same result again is no retest, and a node that nobody asked has none."""
    store = Store(tmp_path, Stammering())
    store.take({"k": COMMAND})
    assert len(results(store, "k")) == 1
    assert store.scopes() == ["k"]
