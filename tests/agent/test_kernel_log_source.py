"""The kernel log from /dev/kmsg and from the journal, on files and small programs that stand for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_gpuready.agent import kernel_log as source
from pytest_gpuready.agent.kernel_lines import Record, keep, relevant
from pytest_gpuready.agent.kernel_log import journal_records, kernel_log, kmsg_records
from pytest_gpuready.parse.kernel_log import sxids, xids

NO_JOURNAL = ("gpuready-no-such-journal",)


def kmsg(path: Path, *records: str) -> Path:
    path.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
    return path


def journal(path: Path, text: str) -> tuple[str, ...]:
    """A program that prints this as the journal would."""
    path.write_text(text, encoding="utf-8")
    return (sys.executable, "-c", "import sys; print(open(sys.argv[1]).read(), end='')", str(path))


def test_ring_from_its_beginning_is_complete(tmp_path: Path) -> None:
    """Sequence 0 comes first: the log is complete, all lines counted, only GPU and PCIe lines kept."""
    path = kmsg(
        tmp_path / "kmsg",
        "5,0,0,-;Linux version 6.8.0",
        "6,1,951302,-;nvidia: loading out-of-tree module taints kernel.",
        " SUBSYSTEM=pci",
        "6,2,1000000,-;usb 1-1: new device",
        "3,3,38771204,-;NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    log = kernel_log(path, NO_JOURNAL)
    assert (log.source, log.complete, log.total_lines, log.problem) == (str(path), True, 4, "")
    assert [round(line.t, 3) for line in log.lines] == [0.951, 38.771]


def test_lines_of_one_record_stay_together(tmp_path: Path) -> None:
    """A record of three lines (a GPU that never answered) is one line with the address in it."""
    path = kmsg(
        tmp_path / "kmsg",
        "5,0,0,-;Linux version 6.8.0",
        r"3,1,38771204,-;NVRM: The NVIDIA GPU 0000:d1:00.0\x0aNVRM: (PCI ID: 10de:26b9) installed in this system has"
        r"\x0aNVRM: fallen off the bus and is not responding to commands.",
    )
    log = kernel_log(path, NO_JOURNAL)
    assert len(log.lines) == 1
    assert [(xid.number, xid.bdf) for xid in xids(log.lines)] == [(79, "0000:d1:00.0")]


def test_fragments_are_joined() -> None:
    """A record flagged as the rest of the one before belongs to it, and an escape is undone."""
    records = kmsg_records(b"3,5,1000000,c;NVRM: GPU 0000:91:00.0: \n3,6,1000001,+;GPU has fallen off\\x5c the bus.\n")
    assert [record.text for record in records] == ["NVRM: GPU 0000:91:00.0:GPU has fallen off\\ the bus."]


def test_ring_without_its_beginning_asks_the_journal(tmp_path: Path) -> None:
    """Where the ring has lost its beginning the journal of this boot is taken, and it is complete from line one."""
    path = kmsg(tmp_path / "kmsg", "6,812,99000000,-;NVRM: something late")
    text = (
        "[    0.000000] node01 kernel: Linux version 6.8.0\n"
        "[   38.771204] node01 kernel: NVRM: The NVIDIA GPU 0000:d1:00.0\n"
        "                              NVRM: (PCI ID: 10de:26b9) installed in this system has\n"
        "                              NVRM: fallen off the bus and is not responding to commands.\n"
        "[   99.000000] node01 kernel: NVRM: something late\n"
    )
    log = kernel_log(path, journal(tmp_path / "journal", text))
    assert (log.source, log.complete) == ("journalctl -k -b", True)
    assert [(xid.number, xid.bdf) for xid in xids(log.lines)] == [(79, "0000:d1:00.0")]


def test_journal_with_holes_is_not_complete(tmp_path: Path) -> None:
    """A journal that says it missed kernel messages proves no absence."""
    text = (
        "[    0.000000] node01 kernel: Linux version 6.8.0\n"
        "[   40.000000] node01 systemd-journald[411]: Missed 1337 kernel messages\n"
        "[   41.000000] node01 kernel: NVRM: loading\n"
    )
    assert not kernel_log(tmp_path / "none", journal(tmp_path / "journal", text)).complete


def test_gap_in_the_ring_is_not_complete(tmp_path: Path) -> None:
    """A missing sequence number means a lost record."""
    path = kmsg(tmp_path / "kmsg", "5,0,0,-;Linux version 6.8.0", "6,7,1000000,-;NVRM: loading")
    assert not kernel_log(path, NO_JOURNAL).complete


def test_journal_that_stopped_before_the_ring_begins(tmp_path: Path) -> None:
    """A longer journal does not hide an Xid of the ring, and the time between the two makes it incomplete."""
    ring = [f"6,{i},{i}000000,-;usb line {i}" for i in range(5000, 5010)]
    path = kmsg(tmp_path / "kmsg", *ring, "3,5010,5010000000,-;NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off")
    text = "".join(f"[ {i:5d}.000000] host kernel: {'Linux version' if not i else 'usb'} {i}\n" for i in range(4000))
    log = kernel_log(path, journal(tmp_path / "journal", text))
    assert [xid.number for xid in xids(log.lines)] == [79]
    assert not log.complete
    assert log.total_lines == 4000 + 11


def test_journal_and_ring_that_overlap(tmp_path: Path) -> None:
    """Where the journal reaches the ring nothing is missing: lines of both count once, what one alone has is there."""
    xid = "NVRM: Xid (PCI:0000:06:00): 31, pid=1"
    path = kmsg(tmp_path / "kmsg", f"3,9,90000000,-;{xid}", "6,10,91000000,-;NVRM: Xid (PCI:0000:06:00): 48, pid=2")
    text = f"[    0.000000] host kernel: Linux version 6.1\n[   90.000000] host kernel: {xid}\n"
    log = kernel_log(path, journal(tmp_path / "journal", text))
    assert [x.number for x in xids(log.lines)] == [31, 48]
    assert (log.complete, log.total_lines, log.source) == (True, 3, f"journalctl -k -b and {path}")
    holes = kmsg(tmp_path / "holes", f"3,9,90000000,-;{xid}", "6,12,91000000,-;usb")
    assert not kernel_log(holes, journal(tmp_path / "journal", text)).complete


def test_journal_longer_than_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that was cut at the size bound may have lost an Xid: not complete."""
    monkeypatch.setattr(source, "LARGEST", 100)
    text = "[    0.000000] host kernel: Linux version 6.1\n" + "[    1.000000] host kernel: usb\n" * 9
    assert not kernel_log(tmp_path / "none", journal(tmp_path / "journal", text)).complete


def test_journal_that_died_half_way(tmp_path: Path) -> None:
    """A journal program that ended with an error did not show all of it."""
    dying = "print('[    0.000000] host kernel: Linux version 6.1'); raise SystemExit(1)"
    log = kernel_log(tmp_path / "none", (sys.executable, "-c", dying))
    assert (log.complete, log.total_lines) == (False, 1)


def test_ring_longer_than_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of which the end was not reached, in size or in time, is not complete; an empty one is a problem."""
    path = kmsg(tmp_path / "kmsg", "5,0,0,-;Linux version 6.8.0", "6,1,1000000,-;NVRM: loading")
    assert kernel_log(path, NO_JOURNAL).complete
    monkeypatch.setattr(source, "LARGEST", 10)
    assert not kernel_log(path, NO_JOURNAL).complete
    monkeypatch.undo()
    monkeypatch.setattr(source, "DEADLINE_S", -1.0)
    assert kernel_log(path, NO_JOURNAL).problem.startswith(f"{path} holds no record")


def test_nothing_readable_says_both_reasons(tmp_path: Path) -> None:
    """Without either source the problem names both and what to do, in one line."""
    problem = kernel_log(tmp_path / "none", NO_JOURNAL).problem
    assert "No such file" in problem
    assert "gpuready-no-such-journal not found" in problem
    assert "run as root" in problem


def test_journal_that_may_not_be_read(tmp_path: Path) -> None:
    """A journal that shows nothing is a problem with what it said, never an empty complete log."""
    log = kernel_log(tmp_path / "none", journal(tmp_path / "journal", "-- No entries --\n"))
    assert "shows no kernel log (exit 0: '-- No entries --')" in log.problem
    assert not log.complete


def test_lines_of_another_process_are_no_kernel_lines() -> None:
    """Only records of the kernel count; indented lines belong to the record above."""
    records = journal_records(
        "[    1.0] host kernel: NVRM: a\n    b\n[    2.0] host sshd[1]: NVRM: Xid (PCI:0000:91:00): 79\n"
    )
    assert records == [Record(-1, 1.0, "NVRM: a b")]


def test_storm_does_not_wash_away_an_xid() -> None:
    """Of 5,000 lines 2,000 are kept, among them the single Xid of another GPU and every SXid, each cut at 500."""
    early = Record(0, 1.0, "NVRM: Xid (PCI:0000:91:00): 48, pid=1, name=x, DBE")
    switch = Record(1, 2.0, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30")
    storm = [Record(n, n / 10, f"NVRM: Xid (PCI:0000:4d:00): 119, pid={n}, " + "x" * 900) for n in range(100, 2600)]
    chat = [Record(n, n / 10, "NVRM: GPU2 RPC history") for n in range(2600, 5000)]
    kept = relevant([early, switch, *storm, *chat])
    assert len(kept) == 2000
    assert [line.text for line in kept[:2]] == [early.text, switch.text]
    assert max(len(line.text) for line in kept) == 500
    assert not any("RPC history" in line.text for line in kept)


@pytest.mark.parametrize(
    "single",
    [
        "nvidia 0000:91:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
        "pcieport 0000:90:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:91:00.0",
        "NVRM: GPU 0000:91:00.0: RmInitAdapter failed! (0x24:0xffff:1436)",
        "NVRM: GPU 0000:91:00.0: rm_init_adapter failed, device minor number 4",
    ],
)
def test_storm_does_not_wash_away_an_uncorrected_error(single: str) -> None:
    """Thousands of corrected errors do not cost the one line that counts."""
    chat = "pcieport 0000:15:01.0: AER: Corrected error received: 0000:19:00.0"
    storm = [Record(n, n / 10, chat) for n in range(1, 5000)]
    kept = relevant([Record(0, 0.0, single), *storm])
    assert len(kept) == 2000
    assert kept[0].text == single


def test_xids_of_others_do_not_crowd_out_one_of_ours(tmp_path: Path) -> None:
    """2,500 remote procedure calls, each with an xid of its own, weigh nothing: before and behind them ours is kept."""
    calls = [f"6,{n},{n}000,-;RPC: {n} xid 0x{n:08x} call_decode result 0" for n in range(2, 2502)]
    ours = "NVRM: Xid (PCI:0000:19:00): 79, pid=1234, name=python, GPU has fallen off the bus."
    for first, last in ((1, 0), (0, 1)):
        records = ["6,0,0,-;Linux version 6.8.0", f"6,1,1000,-;{ours if first else 'usb'}", *calls]
        log = kernel_log(kmsg(tmp_path / "kmsg", *records, f"6,2502,9,-;{ours if last else 'usb'}"), NO_JOURNAL)
        assert [(x.number, x.bdf) for x in xids(log.lines)] == [(79, "0000:19:00.0")]
        assert (log.complete, log.total_lines) == (True, 2503)


def test_a_log_with_more_errors_than_are_kept_is_not_complete(tmp_path: Path) -> None:
    """Where a line about an error had to be dropped nobody knows any more that there was none of another kind."""
    storm = [f"3,{n},{n}000,-;NVRM: Xid (PCI:0000:4d:00): 31, pid={n}, name=x" for n in range(1, 2502)]
    log = kernel_log(kmsg(tmp_path / "kmsg", "5,0,0,-;Linux version 6.8.0", *storm), NO_JOURNAL)
    assert (log.complete, len(log.lines)) == (False, 2000)
    fits = kernel_log(kmsg(tmp_path / "fits", "5,0,0,-;Linux version 6.8.0", *storm[:2000]), NO_JOURNAL)
    assert (fits.complete, len(fits.lines)) == (True, 2000)


def test_a_fatal_event_is_another_kind_than_the_same_number_not_fatal() -> None:
    """Of one number and switch the first fatal line is kept among thousands that are not, and so is a second Xid."""
    storm = [
        Record(n, n / 10, f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link {n % 64} a{n}")
        for n in range(3000)
    ]
    storm[5] = Record(5, 0.5, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 30")
    storm[6] = Record(6, 0.6, "NVRM: Xid (PCI:0000:19:00): 31, pid=1")
    storm[7] = Record(7, 0.7, "NVRM: Xid (PCI:0000:19:00): 31, pid=1, fault NVRM: Xid (PCI:0000:19:00): 48, DBE")
    kept = keep(storm)
    assert [event.link for event in sxids(kept.lines) if event.fatal] == [30]
    assert [xid.number for xid in xids(kept.lines)] == [31, 31, 48]
    assert kept.lost == 1000


@pytest.mark.parametrize("filler", [0, 380, 450, 470, 490, 498, 700, 1400])
def test_an_xid_behind_the_cut_is_kept(filler: int) -> None:
    """Wherever in a long record an Xid stands, it is kept whole, once, with number and address."""
    data = (
        f"6,1,1,-;NVRM: GPU0 {'x' * filler}\n"
        "6,2,2,+; NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus.\n"
        f"6,3,3,+;{'y' * 900} Xid 48 on GPU 0000:2a:00.0\n"
    )
    lines = relevant(kmsg_records(data.encode()))
    assert [(x.number, x.bdf) for x in xids(lines)] == [(79, "0000:19:00.0"), (48, "0000:2a:00.0")]
    assert max(len(line.text) for line in lines) <= 500


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("rm_init_adapter failed, device minor number 0", True),
        ("pcieport 0000:15:01.0: AER: Correctable error message received from 0000:19:00.0", True),
        ("nvidia 0000:19:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", True),
        ("mlx5_core 0000:5e:00.0: 252.056 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x8 link", True),
        ("EXT4-fs (sda1): mounted filesystem", False),
        ("LAYERED: nothing about errors", False),
    ],
)
def test_what_is_relevant(text: str, kept: bool) -> None:
    """Lines about PCIe, AER and NVIDIA are kept, others are only counted."""
    assert bool(relevant([Record(0, 0.0, text)])) is kept
