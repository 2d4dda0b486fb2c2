"""The page of a run with the built-in engine: many clauses, long commands and long sources, set so that they read."""

from __future__ import annotations

import re
from collections.abc import Callable

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.notes import SHORT, notes
from pytest_gpuready.certificate.page import folded_names
from pytest_gpuready.certificate.words import decimals, source_text
from pytest_gpuready.certificate.written import json_bytes
from tests.certificate import samples
from tests.certificate.pages import drawn


def page_of(certificate: Certificate) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(drawn(certificate))


def text(element: lxml.html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def promised(certificate: Certificate) -> dict[str, str]:
    """The rows of page one: what was promised -> all of the row."""
    rows = page_of(certificate).find_class("prom")[0].xpath(".//tbody/tr")
    return {text(row.find("th")): text(row) for row in rows}


# --- evidence ----------------------------------------------------------------------------------------------------


def test_the_command_of_the_engine_is_told_and_kept() -> None:
    """A row of the evidence says what was run and its plan in short; the whole command stands below and in the JSON."""
    whole = samples.whole()
    page = page_of(whole)
    (table,) = page.xpath("//div[@aria-label='Evidence']/table")
    rows = [text(row) for row in table.xpath("./tbody/tr")]
    (memory,) = [row for row in rows if row.startswith("memory and caches (level 2)")]
    assert "python -m pytest_gpuready.agent stress {alloc, hbm read copy} 0000:19:00.0" in memory
    assert not any('"phases"' in row for row in rows)
    (plans,) = page.find_class("plans")
    assert samples.MEMORY_PLAN in text(plans)
    assert "(5)" in text(plans.find("summary"))
    assert samples.MEMORY_PLAN.replace('"', '\\"').encode() in json_bytes(whole)


def test_one_plan_for_many_nodes_is_told_once() -> None:
    """The same plan under other addresses is no other plan."""
    page = page_of(samples.burnt(1, 3))
    assert len(page.find_class("plans")[0].findall("dl/dt")) == 5


def test_without_a_plan_nothing_is_folded_away() -> None:
    """Commands that are shown whole are not told twice."""
    kept = [entry for entry in samples.accepted().evidence if "stress" not in entry.command]
    assert not page_of(msgspec.structs.replace(samples.accepted(), evidence=kept)).find_class("plans")


# --- page one ----------------------------------------------------------------------------------------------------


def test_page_one_tells_a_source_in_one_line() -> None:
    """Where page one holds many promises, each has its clause, as a link, and the kind of its source."""
    rows = promised(samples.whole())
    assert any(re.fullmatch("BF16 sustainedSTRESS-23 \u00b7 (rule|baseline)", name) for name in rows)
    assert all(len(name) < 700 for name in rows)
    page = page_of(samples.whole())
    assert page.xpath("//section[@class='prom']//a[@href='#c-STRESS-23']")
    assert text(page.xpath("//th[@id='c-STRESS-23']")[0]).startswith("STRESS-23")


def test_what_fails_tells_all_of_its_source() -> None:
    """A promise that is broken has its source beside it, however many others there are."""
    broken = samples.burnt(2, values={("STRESS-23", "node01/gpu1"): 400.0}, status="REJECTED")
    (row,) = [row for name, row in promised(broken).items() if name.startswith("BF16 sustained")]
    (clause,) = [c for s in broken.suites for c in s.clauses if c.id == "STRESS-23"]
    assert " ".join(source_text(clause).split()) in row


def test_what_shows_all_there_can_be_is_folded() -> None:
    """Lanes and generation are one row with the other words of their suite, their values beside their names."""
    (row,) = [name for name in promised(samples.whole()) if name.startswith("PCIe link, ")]
    assert "PCIe generation under load 5, PCIe lanes under load 16" in row


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["Wrong FP64 results", "Wrong TF32 results", "Wrong INT8 results"], "Wrong FP64, TF32 and INT8 results"),
        (["Wrong FP64 results", "Wrong TF32 results"], "Wrong FP64 results, Wrong TF32 results"),
        (["ECC on", "ECC off", "ECC gone"], "ECC on, ECC off, ECC gone"),
        ([], ""),
    ],
)
def test_names_that_differ_in_their_middle_are_one(names: list[str], said: str) -> None:
    """Three names or more with one beginning and one end share them."""
    assert folded_names(names) == said


def test_an_optional_clause_without_a_value_is_not_covered() -> None:
    """It is no finding on top of an accepted page: it stands under Not covered and under what was not tested."""
    whole = samples.burnt(
        2, problems={("STRESS-64", f"node01/gpu{n}"): f"node01 GPU {n}: at {n + 50} C" for n in (0, 1)}
    )
    page = page_of(whole)
    assert not page.find_class("find")
    assert not page.find_class("diag")
    titles = [text(title) for title in page.find_class("not")[0].findall(".//h3")]
    assert "Without a value, and not required" in titles
    (row,) = [
        row for row in page.xpath("//h2[@id='untested']/following-sibling::table[1]/tbody/tr") if "64" in text(row)
    ]
    assert text(row).startswith("NOT MEASUREDnot required")
    assert "again" not in (row.get("class") or "")


# --- clauses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [samples.whole, samples.accepted, samples.rejected])
def test_every_source_stands_on_the_page(sample: Callable[[], Certificate]) -> None:
    """A source that clauses share is told once, as a note, and cited at each of them; none is lost."""
    page = page_of(sample())
    said = text(page)
    for suite in sample().suites:
        shared = notes(suite.clauses)
        assert sorted(shared.values()) == list("abcdefghijklmnop"[: len(shared)])
        for clause in suite.clauses:
            source = source_text(clause) if clause.limit else ""
            if any(part.outcome != "NOT APPLICABLE" for part in clause.parts):
                assert " ".join(source.split()) in said
            (row,) = page.xpath(f"//tr[@data-clause='{clause.id}']")
            if source in shared:
                assert re.search(rf"Limit from \w+ {shared[source]}\b", text(row))
    for note in page.find_class("notes"):
        assert all(len(text(told)) > SHORT for told in note.findall("dd"))


def test_what_does_not_apply_is_one_line() -> None:
    """A clause that applies to nothing has its reason and no limit, no margin and no empty cell."""
    (row,) = page_of(samples.whole()).xpath("//tr[@data-clause='GPU-15']")
    assert [text(cell) for cell in row.findall("td")][1:] == [
        "NOT APPLICABLE2 of 2",
        "page retirement ended with Volta; from Ampere on rows are remapped (GPU-12 to GPU-14)",
    ]


def test_the_level_of_a_clause_stands_where_a_suite_has_several() -> None:
    """The engine's suite runs from level 2 to 4: each of its clauses says its own."""
    page = page_of(samples.whole())
    heads = [text(head) for head in page.find_class("suitehead")]
    assert any(head.startswith("The built-in enginelevels 2 to 4, gate") for head in heads)
    (row,) = page.xpath("//tr[@data-clause='STRESS-61']")
    assert text(row.find("th")) == "STRESS-61level 4, gate"
    (row,) = page.xpath("//tr[@data-clause='GPU-1']")
    assert text(row.find("th")) == "GPU-1gate"


def test_a_value_has_four_digits() -> None:
    """More digits say nothing, but where a value would look like its limit they are needed."""
    clauses = {c.id: c for s in samples.whole().suites for c in s.clauses}
    assert [decimals(clauses[one]) for one in ("STRESS-6", "STRESS-15", "STRESS-19", "STRESS-31")] == [0, 2, 1, 0]
    near = msgspec.structs.replace(
        clauses["STRESS-31"],
        at_least=1100.0,
        parts=[msgspec.structs.replace(p, value=1100.2, shown="1100.2") for p in clauses["STRESS-31"].parts],
    )
    assert decimals(near) == 1


def test_a_unit_is_not_broken() -> None:
    """In the column of limits number and unit are kept whole, each for itself."""
    (row,) = page_of(samples.whole()).xpath("//tr[@data-clause='STRESS-32']")
    spans = row.xpath("./td[@data-l='limit']/span")
    assert [span.get("class") for span in spans[:2]] == ["nw", "unit nw"]
    assert text(spans[1]) == "TFLOPS/GHz"
