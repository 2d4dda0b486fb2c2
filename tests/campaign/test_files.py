"""Several files are put in place together, whoever interrupts that."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pytest_gpuready.files import unfinished, write_together


def interrupting(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C, twice, as soon as this many files are renamed."""
    rename = Path.replace
    renamed = []

    def replace(self: Path, target: Path) -> Path:
        made = rename(self, target)
        renamed.append(made)
        if len(renamed) == at:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(Path, "replace", replace)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_ctrl_c_between_two_renames_is_heard_behind_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """All files are new then, nothing half-written is left, and the next Ctrl-C is heard at once."""
    paths = [tmp_path / name for name in ("page", "junit", "json")]
    for path in paths:
        path.write_bytes(b"old")
    before = signal.getsignal(signal.SIGINT)
    interrupting(monkeypatch, at)
    with pytest.raises(KeyboardInterrupt):
        write_together(dict.fromkeys(paths, b"new"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("page", "junit", "json"), b"new"
    )
    assert signal.getsignal(signal.SIGINT) is before


def test_a_rename_that_fails_takes_the_others_back(tmp_path: Path) -> None:
    """What was there before is there again, and what was not is not."""
    (tmp_path / "page").write_bytes(b"old")
    (tmp_path / "json").mkdir()
    with pytest.raises(OSError, match="json"):
        write_together({tmp_path / "page": b"new", tmp_path / "junit": b"new", tmp_path / "json": b"new"})
    assert (tmp_path / "page").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["json", "page"]


def test_what_a_killed_process_left_is_known(tmp_path: Path) -> None:
    """The name of what is not finished begins with that of the file that it was to become."""
    for name in (".run.json.x1_.tmp", ".run.jsonl.x.tmp", "run.json", ".run.json.swp"):
        (tmp_path / name).touch()
    assert unfinished(tmp_path / "run.json") == [tmp_path / ".run.json.x1_.tmp"]
