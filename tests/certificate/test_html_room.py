"""The page where there is little room: a phone shows every value under its name, paper tells nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.page import FINDINGS_AT_MOST
from tests.certificate import samples
from tests.certificate.dcgm_node import without_engine
from tests.certificate.pages import drawn
from tests.judged import judged


def page_of(certificate: Certificate) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(drawn(certificate))


def style(page: lxml.html.HtmlElement, medium: str) -> str:
    """The rules for one medium."""
    found: str = page.find(".//style").text.partition(f"@media {medium}{{")[2].partition("\n@media")[0]
    return found


def text(element: lxml.html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


@pytest.mark.parametrize("sample", [samples.rejected, samples.lost, samples.rack, samples.accepted])
def test_wide_tables_stack_on_a_phone(sample: Callable[[], Certificate]) -> None:
    """In every table wider than a phone each value carries its column's name; it stays a table to be read aloud."""
    page = page_of(sample())
    tables = page.xpath("//div[@class='scroll']/table")
    assert tables
    for table in tables:
        assert "stack" in table.get("class").split()
        assert table.get("role") == "table"
        columns = [text(head).removeprefix("✕ ").lower() for head in table.xpath("./thead/tr/th")]
        for cell in table.xpath("./tbody/tr/td[not(contains(@class, 'wide')) or @data-l]"):
            assert cell.get("role") == "cell"
            assert cell.get("data-l").lower().replace("\u00a0", " ") in columns
    rules = style(page, "(max-width:700px)")
    assert ".stack td[data-l]::before{content:attr(data-l)" in rules
    assert ".scroll>.stack{min-width:0}" in rules


def test_neighbours_have_their_values_under_their_names() -> None:
    """Each metric of the comparison shows a value for every GPU, the failing one marked."""
    (table, *_) = page_of(samples.rejected()).xpath("//section[@id='d2']//div[@class='scroll']/table")
    row = table.xpath("./tbody/tr")[0]
    assert [cell.get("data-l") for cell in row.findall("td")] == [f"GPU\u00a0{n}" for n in range(8)]
    assert [text(cell) for cell in row.findall("td") if "bad" in cell.get("class")] == ["✕ 3"]


def test_what_does_not_apply_was_not_promised(tmp_path) -> None:
    """On page one the row of a clause that does not apply stands under Not covered, not among what was measured."""
    page = page_of(judged(tmp_path, "demo-dcgm", level=4))
    promised, left = page.find_class("prom")[0], page.find_class("not")[0]
    assert "NOT APPLICABLE" not in text(promised)
    assert "NVLinks active" not in text(promised)
    assert "Not applicable" in [text(title) for title in left.findall(".//h3")]
    assert "NVL-1 to NVL-6" in text(left)


def test_a_promised_value_is_shown_with_how_many_have_it() -> None:
    """The row of NVLinks shows 18, and that all parts have it, like the row of any other limit."""
    rows = [text(row) for row in page_of(samples.accepted()).find_class("prom")[0].xpath(".//tbody/tr")]
    (active,) = [row for row in rows if row.startswith("NVLinks active")]
    assert "18 18on 2 of 2" in active


def test_paper_tells_a_finding_once(tmp_path) -> None:
    """Few findings stand in full under the verdict: what only repeats them is for the screen."""
    page = page_of(judged(tmp_path, without_engine(tmp_path), level=4))
    assert ".again{display:none}" in style(page, "print")
    assert "break-before:page" not in style(page, "print")
    for again in page.find_class("again"):
        again.getparent().remove(again)
    said = text(page.find("body"))
    for words in ("gave no value", "exit code 137 (killed by signal 9)", "its plug-in may be missing"):
        assert said.count(words) >= 1
    assert said.count("exit code 137 (killed by signal 9)") == 1
    tags = page.xpath("//h2[@id='untested']/following-sibling::table[1]//span[starts-with(@class, 'tag')]")
    # NOT MEASURED is the optional clause alone: it is no finding, so nothing above tells it.
    assert [text(tag) for tag in tags].count("NOT MEASURED") == 1
    assert {text(tag) for tag in tags} == {"NOT MEASURED", "EXCLUDED", "HIDDEN", "NOT APPLICABLE"}


@pytest.mark.parametrize(("count", "told"), [(FINDINGS_AT_MOST, True), (FINDINGS_AT_MOST + 1, False)])
def test_many_findings_stand_where_they_stood(count: int, told: bool) -> None:
    """Where page one has no room for all findings, paper leaves nothing out of the lists behind it."""
    whole = samples.accepted()
    suite = whole.suites[0]
    clauses = []
    for place, clause in enumerate(suite.clauses[:count]):
        part = msgspec.structs.replace(
            clause.parts[0], outcome="NOT MEASURED", value=None, shown="", reason=f"why {place}"
        )
        clauses.append(msgspec.structs.replace(clause, required=True, parts=[part]))
    suites = [msgspec.structs.replace(suite, clauses=clauses)]
    page = page_of(msgspec.structs.replace(whole, judged="INCOMPLETE", verdict="", suites=suites))
    assert len(page.find_class("find")[0].findall("li")) == FINDINGS_AT_MOST
    rows = page.xpath("//h2[@id='untested']/following-sibling::table[1]/tbody/tr[td/span='NOT MEASURED']")
    assert [row.get("class") == "again" for row in rows] == [told] * count
    (group,) = [g for g in page.find_class("not")[0].xpath(".//div[h3]") if text(g.find("h3")) == "Not measured"]
    assert (group.get("class") == "again") is told
