"""`campaign.journal`: what was stored is known for good, line by line."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuready.campaign.journal import Journal

ONE, TWO = "1" * 64, "2" * 64


def test_each_process_hears_all_of_the_run_once(tmp_path: Path) -> None:
    """What any process stores is heard by the others, in its order; nothing of before the run was opened."""
    mine, other = Journal(tmp_path / "journal"), Journal(tmp_path / "journal")
    assert list(mine.news()) == []
    mine.note("old@node01", [ONE], lost=False)
    mine.begin()
    mine.note("copies@node01_gpu0", [ONE], lost=False)
    other.note("copies@node02_gpu0", [], lost=True)
    heard = [("copies@node01_gpu0", False), ("copies@node02_gpu0", True)]
    assert list(mine.news()) == list(other.news()) == heard
    other.note("after-2@node02", [], lost=True)
    assert list(mine.news()) == [("after-2@node02", True)]
    assert list(mine.news()) == []


def test_every_output_stays_noted(tmp_path: Path) -> None:
    """A scope that holds another output now has held the first one, too; without a file nothing is known."""
    journal = Journal(tmp_path / "journal")
    assert journal.held() is None
    journal.note("k", [ONE], lost=False)
    journal.note("k", [TWO], lost=True)
    assert journal.held() == {"k": {ONE, TWO}}


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    """Where the disk was full in the middle of a line the next one stands for itself, and the half one for nothing."""
    journal = Journal(tmp_path / "journal")
    journal.note("k", [ONE], lost=False)
    with (tmp_path / "journal").open("a") as file:
        file.write(f"l held {TWO[:9]}")
    journal.note("m", [TWO], lost=False)
    assert journal.held() == {"k": {ONE}, "m": {TWO}}
