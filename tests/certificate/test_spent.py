"""What each second bought: every measurement once, its time, the clauses that rest on it, and one thing it found."""

from __future__ import annotations

from typing import Any

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate, EvidenceEntry
from pytest_gpuready.certificate.spent import Spent, spent
from pytest_gpuready.certificate.spent_lines import time_lines
from tests.certificate import samples
from tests.certificate.pages import drawn


def told(certificate: Certificate) -> Spent:
    found = spent(certificate)
    assert found is not None
    return found


def lines(certificate: Certificate, at_most: int = 8, room: int = 88) -> list[str]:
    return [f"{label:<5}{text}" for label, text in time_lines(certificate, room, at_most)]


def with_evidence(certificate: Certificate, *more: EvidenceEntry, **changed: Any) -> Certificate:
    """The certificate with more raw outputs, and with the entries of one command (`of`) changed."""
    of = changed.pop("of", None)
    kept = [msgspec.structs.replace(e, **changed) if of and e.says.startswith(of) else e for e in certificate.evidence]
    return msgspec.structs.replace(certificate, evidence=[*kept, *more])


def test_every_measurement_stands_once_in_the_order_of_levels() -> None:
    """Level, what it is, seconds: as the raw outputs say; each at the lowest level that asks for it."""
    rows = told(samples.whole()).rows
    assert [(row.level, row.what, row.times.slowest_s) for row in rows if not row.what.startswith("health")] == [
        (1, "NVML", 2.3),
        (2, "copies", 14.2),
        (2, "memory and caches", 7.3),
        (3, "matrix products in every format", 86),
        (4, "burn-in", 241.8),
        (4, "load in pulses", 54.8),
        (4, "memory patterns", 13.7),
    ]


def test_clauses_rest_on_what_their_cells_name() -> None:
    """The clauses of a row are those whose cells name its raw output, in the order of the profile."""
    rows = {row.what: row.clauses for row in told(samples.whole()).rows}
    assert rows["load in pulses"] == ("STRESS-53", "STRESS-54", "STRESS-55", "STRESS-56")
    assert rows["health after level 3"] == ("AFTER-3", "AFTER-4")
    assert len(rows["matrix products in every format"]) == 32
    assert sum(map(len, rows.values())) == samples.whole().counts.clauses


def test_the_sums_are_those_of_the_rows() -> None:
    """Each level and the whole are added up from the rows; what nobody rests on is not in them."""
    found = told(samples.whole())
    by_level = {level: times.slowest_s for level, times, _ in found.levels}
    assert by_level == pytest.approx({1: 2.3, 2: 14.2 + 7.3 + 0.6, 3: 86.5, 4: 241.8 + 54.8 + 13.7 + 0.6})
    assert found.whole.slowest_s == pytest.approx(sum(by_level.values()))
    assert [count for _, _, count in found.levels] == [42, 36, 34, 17]
    assert (found.idle, found.idle_s) == (1, 0.4)


def test_a_retest_is_the_same_measurement() -> None:
    """A second run of one command is added to its row, and counted as once more; what it found counts with it."""
    whole = samples.accepted()
    (first,) = [entry for entry in whole.evidence if entry.says == "copies GPU 0"]
    again = msgspec.structs.replace(first, sha256="ab" * 32, started="2026-11-30T11:09:00Z", duration_s=15.0)
    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[
                msgspec.structs.replace(
                    clause,
                    parts=[msgspec.structs.replace(p, evidence=[*p.evidence, again.sha256]) for p in clause.parts],
                )
                for clause in suite.clauses
            ],
        )
        if suite.id == "pcie_link"
        else suite
        for suite in whole.suites
    ]
    found = told(msgspec.structs.replace(with_evidence(whole, again), suites=suites))
    (row,) = [row for row in found.rows if row.what == "copies"]
    assert (row.commands, row.again, row.times.slowest_s) == (2, 1, pytest.approx(29.2))


def test_a_command_for_each_gpu_is_one_measurement() -> None:
    """What is run GPU by GPU is one row: the seconds of all of them."""
    whole = samples.accepted()
    (first,) = [entry for entry in whole.evidence if entry.says == "copies GPU 0"]
    other = msgspec.structs.replace(first, says="copies GPU 1", command=first.command.replace("19", "2a"))
    (row,) = [row for row in told(with_evidence(whole, other)).rows if row.what == "copies"]
    assert (row.commands, row.again, row.times.slowest_s) == (2, 0, pytest.approx(28.4))


def test_what_counts_no_more_is_told_apart() -> None:
    """An attempt on which no cell rests adds nothing to a row: page and sums tell it by itself."""
    lost = msgspec.structs.replace(samples.accepted().evidence[3], sha256="cd" * 32, duration_s=600.0)
    found = told(with_evidence(samples.accepted(), lost))
    assert (found.idle, found.idle_s) == (2, pytest.approx(600.4))
    assert found.whole.slowest_s == pytest.approx(told(samples.accepted()).whole.slowest_s)
    page = drawn(with_evidence(samples.accepted(), lost))
    assert "2\u00a0more raw outputs, 600.4 s: no clause of this certificate rests on them" in page


def test_of_several_nodes_the_slowest_counts() -> None:
    """One row a measurement, however many nodes: the slowest node with its name, and the median."""
    whole = samples.burnt(1, 3)
    slow = [
        msgspec.structs.replace(e, duration_s=300.0) if (e.node, e.says) == ("node02", "burn-in (level 4)") else e
        for e in whole.evidence
    ]
    found = told(msgspec.structs.replace(whole, evidence=slow))
    (row,) = [row for row in found.rows if row.what == "burn-in"]
    times = row.times
    assert (times.slowest_s, times.slowest, times.median_s, times.nodes) == (300.0, "node02", 241.8, 3)
    assert (found.whole.slowest, found.whole.nodes) == ("node02", 3)
    said = lines(msgspec.structs.replace(whole, evidence=slow))
    assert said[0] == "time 480.0 s of commands on the slowest of 3 nodes (node02), median 421.8 s"


def test_the_example_is_what_somebody_has_to_see() -> None:
    """A row shows its worst failure; without one the passing number nearest to its limit, else a value of page one."""
    rows = {row.what: row.example for row in told(samples.rejected()).rows}
    clause, part = rows["copies"] or pytest.fail("no example")
    assert (clause.id, part.part, part.outcome) == ("PCIE-4", "node01/gpu5", "FAIL")
    rows = {row.what: row.example for row in told(samples.whole()).rows}
    examples = {what: (pair[0].id, pair[1].shown) for what, pair in rows.items() if pair}
    assert examples["memory and caches"] == ("STRESS-65", "89.27")
    assert examples["memory patterns"] == ("STRESS-51", "0")
    assert examples["health after level 4"] == ("AFTER-5", "as promised")


@pytest.mark.parametrize("sample", [samples.whole, samples.rejected, samples.rack, samples.hostile, samples.crowd])
@pytest.mark.parametrize("room", [68, 88])
def test_the_terminal_has_eight_lines_at_most(sample: Any, room: int) -> None:
    """Whatever was taken: at most eight lines, each as wide as asked for, the first one with the sum."""
    said = time_lines(sample(), room)
    assert 1 <= len(said) <= 8
    assert said[0][0] == "time"
    assert all(len(text) <= room for _, text in said)


def test_the_terminal_tells_the_longest() -> None:
    """Sum and levels, the longest measurements in the order of levels, the others in one line."""
    said = lines(samples.whole())
    assert said[0] == "time 421.8 s of commands (level 1: 2.3 s, 2: 22.1 s, 3: 86.5 s, 4: 310.9 s)"
    assert [line.split()[1] for line in said[1:7]] == ["2", "2", "3", "4", "4", "4"]
    assert any("241.8 s   8 clauses  burn-in: Degrees left in the burn-in 22 C" in line for line in said)
    assert said[7].startswith("     others     4.0 s  48 clauses  NVML, health after level 2")


def test_a_replay_says_that_the_times_are_recorded() -> None:
    """Nothing of a replay took the time that is told: it was recorded."""
    assert lines(samples.replay())[0].startswith("time 24.4 s of commands, as recorded (level 1: 2.3 s")
    page = lxml.html.document_fromstring(drawn(samples.replay()))
    (lead,) = page.xpath("//h2[@id='time']/following-sibling::p[1]")
    assert lead.text_content().startswith("As recorded: 24.4 s of commands.")


def test_nothing_taken_is_no_table() -> None:
    """Without raw outputs, or where no cell rests on any, there is nothing to tell."""
    bare = msgspec.structs.replace(samples.accepted(), evidence=[])
    assert (spent(bare), time_lines(bare, 88)) == (None, [])
    assert 'id="time"' not in drawn(bare)
    strange = [msgspec.structs.replace(entry, sha256="ef" * 32) for entry in samples.accepted().evidence]
    assert spent(msgspec.structs.replace(samples.accepted(), evidence=strange)) is None


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -5.0])
def test_a_time_that_is_none_adds_nothing(seconds: float) -> None:
    """A duration that no clock can show counts as none."""
    odd = with_evidence(samples.accepted(), of="copies", duration_s=seconds)
    assert told(odd).whole.slowest_s == pytest.approx(2.3 + 7.3 + 0.6)


def test_the_page_has_a_row_for_each() -> None:
    """The section of the page shows every measurement, how many clauses rest on it, and the sum of each level."""
    page = lxml.html.document_fromstring(drawn(samples.whole()))
    (table,) = page.find_class("times")
    rows = [" ".join(row.text_content().split()) for row in table.iter("tr")]
    assert len(rows) == 1 + len(told(samples.whole()).rows) + 4
    assert any("burn-in" in row and "241.8 s" in row and "STRESS-57 to STRESS-64" in row for row in rows)
    assert any("all of level 3" in row and "86.5 s" in row and "20.5 % of the time" in row for row in rows)
    assert page.xpath("//a[@href='#time']")
