"""What a killed run has seen is not left behind: where it cannot be kept, a new run starts and says why."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuready.files import write_atomically
from pytest_gpuready.model import CommandResult
from tests.plugin.conftest import Accept, Outcome
from tests.plugin.test_many_nodes import LEVEL1, LEVEL2, NAMES, judged, record, text

REBOOTED = text(lambda said: re.sub(r'("boot_id": ?"\w{4})\w{4}', r"\1ffff", said))


def with_xid(result: CommandResult) -> CommandResult:
    """A hardware Xid of GPU 0 in the kernel log, as it is at the first contact."""
    if result.command.argv[3] != "node":
        return result
    document = json.loads(result.stdout)
    line = "NVRM: Xid (PCI:0000:00:06): 48, DBE (double bit error) ECC"
    document["data"]["kernel_log"]["lines"].append({"t": 2000.0, "text": line})
    return dataclasses.replace(result, stdout=json.dumps(document) + "\n")


def slow(result: CommandResult) -> CommandResult:
    """Copies at a third of their speed."""
    if result.command.argv[3] != "copies":
        return result
    document = json.loads(result.stdout)
    for copy in document["data"]["copies"]:
        copy["gb_per_s"] /= 3
        copy["repeats"] = [value / 3 for value in copy["repeats"]]
        copy["each"] = {name: value / 3 for name, value in copy["each"].items()}
    return dataclasses.replace(result, stdout=json.dumps(document) + "\n")


def killed(run: Outcome) -> None:
    """As if the run had been killed before its end: what it noted at its start stays."""
    path = run.out / "run.json"
    said = json.loads(path.read_text())
    said["ended"] = ""
    path.write_text(json.dumps(said))


def anew(run: Outcome) -> str:
    return next((line for line in run.certificate["assumptions"] if line.startswith("started anew")), "")


@pytest.fixture(autouse=True)
def killed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is noted at the end of a run: it was killed before."""
    monkeypatch.setattr("pytest_gpuready.acceptance.failed_nodes", lambda *_: frozenset())


def test_a_node_that_failed_by_its_own_word_and_was_rebooted_starts_anew(accept: Accept) -> None:
    """What a node fails at the first contact is noted before anything is measured: a kill and a reboot wash nothing."""
    record(accept.path / "nodes", node02=with_xid)
    first = accept(*LEVEL1)
    assert judged(first)["node02"] == "REJECTED"
    killed(first)
    shutil.rmtree(accept.path / "nodes")
    record(accept.path / "nodes", node02=REBOOTED)
    second = accept(*LEVEL1)
    assert "not continued: node02: failed before; now not reached, rebooted or changed" in anew(second)
    kept = json.loads((accept.path / "gpuready-out.1/run.json").read_text())
    assert kept["failed"] == ["node02"]


_KILLED: list[tuple[Outcome, Path]] = []


@pytest.fixture
def killed_at_level_2(accept: Accept, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run that was killed after node02 had failed level 2, and its recording: made once, and copied for each test."""
    if not _KILLED:
        record(accept.path / "nodes", level=2, node02=slow)
        first = accept(*LEVEL2)
        assert judged(first)["node02"] == "REJECTED"
        killed(first)
        kept = tmp_path_factory.mktemp("killed")
        for name in ("nodes", first.out.name):
            (accept.path / name).rename(kept / name)
        _KILLED.append((first, kept))
    first, kept = _KILLED[0]
    shutil.copytree(kept, accept.path, dirs_exist_ok=True)
    return Outcome(first.result, accept.path / first.out.name)


def remove(store: Path) -> None:
    next(store.glob("copies@node02_gpu0*")).unlink()


def cut(store: Path) -> None:
    path = next(store.glob("copies@node02_gpu0*"))
    path.write_bytes(path.read_bytes()[:100])


def empty(store: Path) -> None:
    next(store.glob("copies@node02_gpu0*")).write_text('{"results": [], "problem": "", "earlier": []}')


def without_journal(store: Path) -> None:
    (store / "journal").unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (remove, "results of copies@node02_gpu0 are gone from its store"),
        (cut, "a file of its store cannot be read"),
        (empty, "results of copies@node02_gpu0 are gone from its store"),
        (without_journal, "its journal is gone"),
    ],
)
def test_a_store_that_lost_a_result_is_not_continued(
    accept: Accept, killed_at_level_2: Outcome, damage: Callable[[Path], None], says: str
) -> None:
    """A FAIL does not go with its file: a run that no longer holds all that it measured is kept aside."""
    damage(killed_at_level_2.out / "store")
    second = accept(*LEVEL1)
    assert says in anew(second)
    assert (accept.path / "gpuready-out.1/run.json").exists()


def test_a_lower_level_does_not_leave_a_fail_behind(accept: Accept, killed_at_level_2: Outcome) -> None:
    """What failed at level 2 would not be looked at by level 1: that starts anew, as with one node."""
    assert judged(killed_at_level_2)["node02"] == "REJECTED"
    second = accept(*LEVEL1)
    assert "node02: failed while level 2 was aimed at, and now it is level 1" in anew(second)


def test_a_moment_without_any_node_leaves_the_run_as_it_is(accept: Accept) -> None:
    """Where none of its nodes is reachable a run is neither continued nor thrown away: exit code 20, one line."""
    record(accept.path / "nodes", node04=lambda _result: None)
    first = accept(*LEVEL1)
    shutil.rmtree(accept.path / "nodes")
    record(accept.path / "nodes", **{name: lambda _result: None for name in NAMES})
    second = accept(*LEVEL1)
    assert second.code == 20
    assert "found none of its nodes reachable; it is left as it is" in second.result.stderr.str()
    assert second.certificate == first.certificate
    shutil.rmtree(accept.path / "nodes")
    record(accept.path / "nodes")
    third = accept(*LEVEL1)
    assert (third.code, set(judged(third).values())) == (0, {"ACCEPTED"})
    assert not (accept.path / "gpuready-out.1").exists()


def test_a_store_that_is_full_ends_the_run(accept: Accept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no result can be kept nothing more is measured, and the certificate says why."""
    record(accept.path / "nodes", level=2)
    asked: list[str] = []

    def write(path: Path, data: bytes) -> None:
        if path.parent.name == "store" and path.name.startswith("copies"):
            asked.append(path.name)
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    monkeypatch.setattr("pytest_gpuready.campaign.store.write_atomically", write)
    run = accept(*LEVEL2)
    assert (run.code, run.status, len(asked)) == (20, "INCOMPLETE", 1)
    assert run.certificate["why"][0].startswith("nothing more was measured: expected to keep a measurement under")
    assert "No space left on device" in run.certificate["why"][0]


def test_one_stand_in_among_hardware_costs_itself(accept: Accept) -> None:
    """A node that names itself a stand-in does not count; the others are judged as hardware is."""
    named = text(lambda said: re.sub(r'"driver": ?"', '"driver":"stand-in ', said), "nvml")
    record(accept.path / "nodes", node02=named)
    run = accept(*LEVEL1)
    assert judged(run) == {name: "INCOMPLETE" if name == "node02" else "ACCEPTED" for name in NAMES}
    assert "names itself a stand-in" in str(run.certificate["why"])


def test_a_node_that_is_refused_has_no_say_in_the_profile(accept: Accept) -> None:
    """Stand-ins that show another model, though most of all nodes, are refused; what is left is judged by its own
    profile."""
    of_h100 = text(lambda said: re.sub(r'"driver": ?"', '"driver":"stand-in ', said).replace("10de:2335", "10de:2330"))
    record(accept.path / "nodes", node01=of_h100, node02=of_h100, node03=of_h100)
    run = accept(*LEVEL1)
    assert judged(run) == {name: "ACCEPTED" if name == "node04" else "INCOMPLETE" for name in NAMES}
    assert run.certificate["profile"]["name"] == "h200-sxm"


def test_a_recording_of_selected_nodes_is_judged_as_the_run(accept: Accept) -> None:
    """Only the nodes that were asked for are expected; one that the site file declares and that is in neither is
    missing."""
    record(accept.path / "nodes", names=NAMES[:1])
    meta = accept.path / "nodes/recording.json"
    said = json.loads(meta.read_text())
    meta.write_text(json.dumps({**said, "selected": ["node01"]}))
    assert judged(accept(*LEVEL1)) == {"node01": "ACCEPTED"}
    shutil.rmtree(accept.path / "nodes")
    record(accept.path / "nodes", names=NAMES[:3])
    assert judged(accept(*LEVEL1))["node04"] == "INCOMPLETE"
