"""A recording that cannot be kept: the run goes on and judges what it measured, and says that the recording does not
hold it."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.plugin.conftest import Accept, Outcome
from tests.plugin.test_many_nodes import LEVEL1, NAMES, SITE, judged, record

FULL = """
import os
from pathlib import Path
import pytest_gpuready.campaign.reach
import pytest_gpuready.transport.recording as recording
from pytest_gpuready.transport.replay import Replay

HERE = Path(__file__).parent
WRITE = recording.write_atomically

class Nodes(Replay):
    def run(self, command):
        with open(HERE / "asked", "a") as asked:
            asked.write(f"{command.node} {command.argv[3]} {command.argv[4:]} {command.repeat}\\n")
        return super().run(command)

def opened(kind, way, screen):
    bare = Nodes(HERE / "nodes")
    return bare, bare

def write(path, data):
    if path.parent.name == "results" and b'"WHICH"' in data:
        raise OSError(28, "No space left on device")
    WRITE(path, data)

pytest_gpuready.campaign.reach.open_way = opened
recording.write_atomically = write
"""
ASKED = ("--gpuready-site", "site.yaml", "--gpuready-transport", "slurm", "--gpuready-record", "rec")


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plug-in changes in this process, where it opens the run for workers, is taken back."""
    for changed in ("campaign.reach.open_way", "transport.recording.write_atomically"):
        module, _, name = f"pytest_gpuready.{changed}".rpartition(".")
        monkeypatch.setattr(sys.modules[module], name, getattr(sys.modules[module], name))


def run(accept: Accept, level: int, which: str, *more: str) -> Outcome:
    """Nodes that answer, and a disk without room for what this probe said."""
    record(accept.path / "nodes", level=level)
    (accept.path / "site.yaml").write_text(SITE)
    (accept.path / "full.py").write_text(FULL.replace("WHICH", which))
    return accept("-m", f"level{level}", *ASKED, *more, plugins=("full",))


def unrecorded(ended: Outcome) -> list[str]:
    return [line for line in ended.certificate["assumptions"] if "recording" in line]


@pytest.mark.parametrize("more", [(), ("-n", "2")])
def test_no_load_is_repeated_for_a_recording(accept: Accept, more: tuple[str, ...]) -> None:
    """The disk has no room for the copies: every command is sent as often as where it has, each result counts, all
    nodes keep their verdict; the loss is said once on the terminal and on the certificate, also where a worker met
    it, and nothing half-written is left."""
    ended = run(accept, 2, "copies", *more)
    asked = Counter((accept.path / "asked").read_text().splitlines())
    assert len(asked) > 4 * len(NAMES)
    assert set(asked.values()) == {1}
    assert judged(ended) == dict.fromkeys(NAMES, ended.status)
    (line,) = unrecorded(ended)
    where = re.escape(str(accept.path / "rec"))
    assert re.match(
        rf"the recording in {where} is incomplete from .* copies .* on node\d\d on: No space left on device; ", line
    )
    assert ended.result.outlines.count(f"gpuready: {line}") == 1
    assert [path for path in (accept.path / "rec").rglob("*") if path.is_file() and not path.stat().st_size] == []
    for name in NAMES:
        assert (ended.out / "store" / f"copies@{name}_gpu0.json").stat().st_size


def test_accepted_without_its_recording_is_not_exit_code_0(accept: Accept) -> None:
    """The hardware is accepted, for all of it was measured; the exit code says that not all was done that was asked
    for. What was recorded is whole, and its replay has no verdict on the rest."""
    ended = run(accept, 1, "nvml")
    assert (ended.status, ended.code, len(unrecorded(ended))) == ("ACCEPTED", 20, 1)
    shutil.rmtree(accept.path / "nodes")
    (accept.path / "rec").rename(accept.path / "nodes")
    replayed = accept(*LEVEL1)
    assert (replayed.status, replayed.code) == ("INCOMPLETE", 20)
    assert "expected a recorded result, found none" in str(replayed.certificate["why"])


def test_a_whole_recording_is_exit_code_0(accept: Accept) -> None:
    """With room for everything the same run is accepted, says nothing of its recording, and is replayed as it was."""
    ended = run(accept, 1, "nothing of this name")
    assert (ended.status, ended.code, unrecorded(ended)) == ("ACCEPTED", 0, [])
    shutil.rmtree(accept.path / "nodes")
    (accept.path / "rec").rename(accept.path / "nodes")
    assert judged(accept(*LEVEL1)) == dict.fromkeys(NAMES, "ACCEPTED")


def test_no_node_is_asked_where_nothing_can_be_recorded(accept: Accept) -> None:
    """Where the recording cannot be begun the run is not: one line, exit code 4, and no node has been asked."""
    (accept.path / "rec").write_text("in the way")
    ended = run(accept, 1, "nvml")
    assert ended.code == 4
    assert f"expected to keep a recording in {accept.path / 'rec'}, found File exists" in str(ended.result.errlines)
    assert not Path(accept.path / "asked").exists()
