"""A run directory is claimed by one run at a time, and left as it was by who could not open a run in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_gpuready.campaign.directory import claim
from pytest_gpuready.errors import LeaseError, StoreError


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """While it is held nobody else gets it; afterwards the next one does, and what lies there is kept aside."""
    out = tmp_path / "runs/one"
    first = claim(out)
    with pytest.raises(LeaseError, match="found another run writing to it"):
        claim(out)
    (out / "run.json").write_text("{}")
    first.give_up()
    second = claim(out)
    assert second.move_aside() == tmp_path / "runs/one.1"
    assert (tmp_path / "runs/one.1/run.json").exists()
    assert [path.name for path in out.iterdir()] == ["run.lock"]
    with pytest.raises(LeaseError, match="found another run writing to it"):
        claim(out)
    second.give_up()


def test_who_is_refused_hears_whose_it_is(tmp_path: Path) -> None:
    """User, host, process and start of the run that has the directory; what stands there is shown as plain text."""
    held = claim(tmp_path / "out")
    with pytest.raises(LeaseError, match=rf"writing to it, that of \S+ \(\S+ pid {os.getpid()}\) since 20"):
        claim(tmp_path / "out")
    (tmp_path / "out/run.lock").write_text("x\x1b[31m" + "y" * 999)
    with pytest.raises(LeaseError, match=r"that of x\?\[31my+; wait") as refused:
        claim(tmp_path / "out")
    assert len(str(refused.value)) < 500
    held.give_up()


def test_a_run_that_lost_its_run_file_is_kept(tmp_path: Path) -> None:
    """Where what was measured is there and `run.json` is not, the line says just that."""
    for name in ("store", "evidence"):
        (tmp_path / name).mkdir()
    with pytest.raises(StoreError, match=r"expected run\.json in .*, found it gone while what was measured is there"):
        claim(tmp_path)


def test_a_run_that_was_killed_in_its_first_write_is_in_nobodys_way(tmp_path: Path) -> None:
    """Lock and half a `run.json` are all there is: the next run takes the directory, and sweeps it. Beside anything
    else they are left as they are."""
    (tmp_path / "run.lock").touch()
    (tmp_path / ".run.json.k3x_.tmp").write_text('{"gpuready_run"')
    claim(tmp_path).give_up()
    assert list(tmp_path.iterdir()) == []
    for name in (".run.json.k3x_.tmp", "thesis.tex"):
        (tmp_path / name).touch()
    with pytest.raises(StoreError, match="found other files"):
        claim(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_is_left_where_no_run_was_opened(tmp_path: Path) -> None:
    """Folders that were made are gone again, one that was empty is empty, and a run that lies there stays."""
    claim(tmp_path / "a/b/c").give_up()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").mkdir()
    claim(tmp_path / "empty").give_up()
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]
    (tmp_path / "empty/run.json").write_text("{}")
    claim(tmp_path / "empty").give_up()
    assert (tmp_path / "empty/run.json").read_text() == "{}"


def test_a_lock_that_its_owner_took_away_holds_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened the lock file of a run that gave up in that moment begins anew, and holds the file that is there."""
    out = tmp_path / "out"
    left = claim(out)
    take = Path.open

    def late(self: Path, *arguments: object, **named: object) -> object:
        file = take(self, *arguments, **named)  # type: ignore[call-overload]
        if not left.lock.closed:
            left.give_up()
        return file

    monkeypatch.setattr(Path, "open", late)
    mine = claim(out)
    monkeypatch.undo()
    with pytest.raises(LeaseError):
        claim(out)
    mine.give_up()
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("make", ["file inside", "file itself"])
def test_what_is_no_run_directory_is_not_touched(tmp_path: Path, make: str) -> None:
    """Other people's files, or a file of that name: said in one line, before anything is locked."""
    out = tmp_path / "out"
    if make == "file inside":
        out.mkdir()
        (out / "thesis.tex").touch()
    else:
        out.touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="choose another --gpuready-out"):
        claim(out)
    assert sorted(tmp_path.rglob("*")) == before
