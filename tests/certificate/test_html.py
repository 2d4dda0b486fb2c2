"""The page says what the document says: verdict with basis, every cell; nothing of untrusted text comes alive."""

from __future__ import annotations

import re
from collections.abc import Callable

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.html import render
from pytest_gpuready.certificate.words import WORDS
from tests.certificate import samples

ALL: tuple[Callable[[], Certificate], ...] = (
    samples.accepted,
    samples.marginal,
    samples.rejected,
    samples.incomplete,
    samples.stopped,
    samples.replay,
    samples.replay_rejected,
    samples.stand_in,
    samples.rack,
    samples.one_node_of_72,
    samples.single,
    samples.empty,
    samples.hostile,
)
every_sample = pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.__name__)


def _page(certificate: Certificate) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(render(certificate))


def _text(element: lxml.html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


@pytest.mark.parametrize(
    ("sample", "title", "word", "css"),
    [
        (samples.accepted, "ACCEPTED, node01", "ACCEPTED", "v-accepted"),
        (samples.rejected, "REJECTED, node01", "REJECTED", "v-rejected"),
        (samples.incomplete, "INCOMPLETE, run not ended, node01", "INCOMPLETE", "v-incomplete"),
        (samples.stopped, "INCOMPLETE, node01", "INCOMPLETE", "v-incomplete"),
        (samples.replay, "REPLAY: would be ACCEPTED, node01", "REPLAY: would beACCEPTED", "v-replay"),
        (samples.replay_rejected, "REPLAY: would be REJECTED", "REPLAY: would beREJECTED", "v-replay"),
        (samples.stand_in, "STAND-IN: would be ACCEPTED", "STAND-IN: would beACCEPTED", "v-replay"),
    ],
)
def test_verdict_and_title(sample: Callable[[], Certificate], title: str, word: str, css: str) -> None:
    """Window title, heading and look of the band carry the verdict, and the basis where it is not hardware."""
    page = _page(sample())
    assert page.findtext(".//title").startswith(title)
    assert _text(page.find(".//h1")) == word
    assert page.find_class("verdict")[0].get("class") == f"verdict {css}"


@pytest.mark.parametrize("sample", [samples.replay, samples.replay_rejected, samples.stand_in])
def test_no_seal_and_no_green_without_hardware(sample: Callable[[], Certificate]) -> None:
    """A replay or stand-in holds neither the seal nor the accepted look nor any green, and says what it is."""
    html = render(sample())
    assert "g-seal" not in html
    assert "v-accepted" not in html
    assert not re.search(r"#0c6744|#62d3a4|#0a5a3b", html)
    assert "This page certifies no hardware" in html


@pytest.mark.parametrize("sample", [samples.rejected, samples.incomplete, samples.stopped, samples.rack, samples.empty])
def test_the_seal_belongs_to_accepted(sample: Callable[[], Certificate]) -> None:
    """No page but an accepted one holds the seal."""
    assert "g-seal" in render(samples.accepted())
    assert "g-seal" not in render(sample())


def test_an_unfinished_run_never_looks_accepted() -> None:
    """A document that says ACCEPTED while its run goes on is shown as INCOMPLETE, and the page says why."""
    page = _page(msgspec.structs.replace(samples.accepted(), finished=False))
    assert _text(page.find(".//h1")) == "INCOMPLETE"
    assert "The run has not ended" in _text(page.find_class("running")[0])
    assert "g-seal" not in lxml.html.tostring(page, encoding="unicode")


@every_sample
def test_every_cell_has_its_word(sample: Callable[[], Certificate]) -> None:
    """Each clause on each part stands on the page with its own outcome: in a cell, or in a row for all alike parts."""
    certificate = sample()
    page = _page(certificate)
    rows = [row for row in page.iter("tr") if row.get("data-clause") is not None]
    clauses = [clause for suite in certificate.suites for clause in suite.clauses]
    assert len(rows) == len(clauses)
    cells: dict[tuple[str, str], str] = {}
    for cell in page.iter("td"):
        if cell.get("data-part") is not None:
            cells[cell.get("data-clause"), cell.get("data-part")] = _text(cell)
    alike: dict[str, list[tuple[int, str]]] = {}
    for span in page.iter("span"):
        if span.get("data-alike"):
            outcome = _text(span.getparent().getparent().find("th"))
            alike.setdefault(span.get("data-clause"), []).append((int(span.get("data-alike")), outcome))
    for row, clause in zip(rows, clauses, strict=True):
        outcomes = [part.outcome for part in clause.parts]
        if row.get("data-cells"):
            assert int(row.get("data-cells")) == len(clause.parts)
            assert set(outcomes) == {_text(row.find_class("tag")[0])}
            continue
        told = [outcome for count, outcome in alike.get(clause.id, []) for _ in range(count)]
        for part in clause.parts:
            said = cells.get((clause.id, part.part))
            if said is None:
                assert part.outcome in told, (clause.id, part.part)
                told.remove(part.outcome)
            else:
                assert said.startswith(part.outcome), (clause.id, part.part)
        assert told == []


@every_sample
def test_nothing_is_fetched_and_nothing_runs(sample: Callable[[], Certificate]) -> None:
    """No script, no event handler, no form, no frame; references stay inside the page; CSP forbids the rest."""
    html = render(sample())
    page = lxml.html.document_fromstring(html)
    tags = {element.tag for element in page.iter() if isinstance(element.tag, str)}
    assert tags.isdisjoint(
        {"script", "iframe", "object", "embed", "form", "input", "img", "link", "base", "foreignobject"}
    )
    for element in page.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on"), (element.tag, name)
            if name in ("href", "src", "xlink:href", "action", "data"):
                assert value.startswith("#"), value
    styles = "".join(style.text or "" for style in page.iter("style"))
    assert set(re.findall(r"url\(([^)]*)\)", styles)) <= {"#hx"}
    assert "@import" not in styles
    policy = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


@every_sample
def test_references_inside_the_page_resolve(sample: Callable[[], Certificate]) -> None:
    """Every #reference has its target, and no id stands twice."""
    page = _page(sample())
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {ref[1:] for ref in page.xpath("//@href") if ref.startswith("#")} <= set(ids)


def test_hostile_text_is_inert() -> None:
    """Text of nodes and tools shows as text: no tag of it becomes an element, no control or bidi character survives."""
    html = render(samples.hostile())
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("</style>") == 1
    assert html.count("</title></svg>") == 0
    assert "{{ 7*7 }}" in html
    assert "49 }}" not in html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]", html)
    assert "<script>alert('x')</script>" in lxml.html.document_fromstring(html).text_content()
    html.encode("utf-8")


def test_hostile_text_stays_in_its_css_string() -> None:
    """In the footer of printed pages every sign that could end a CSS string or the style element is escaped."""
    footer = re.search(r'@bottom-left\{content:"([^"]*)"', render(samples.hostile()))
    assert footer is not None
    assert re.fullmatch(r"(?:[A-Za-z0-9 ._:-]|\\[0-9a-f]+ )*", footer.group(1))


def test_long_text_is_bounded() -> None:
    """Texts of forty thousand characters do not flood the page; it says how much was left out."""
    html = render(samples.hostile(samples.LONG))
    assert len(html) < 1_000_000
    assert "characters more in certificate.json" in html
    assert not re.search("x{4100}", html)


def test_rejected_page_answers_three_questions() -> None:
    """Which part, why, what to do next come from the worst finding, with everything that finds the part."""
    triad = _page(samples.rejected()).find_class("triad")[0]
    assert [_text(large) for large in triad.find_class("big")] == [
        "GPU 0, module 2",
        "Uncorrected ECC errors: 2, limit 0",
        "Drain node01, reset GPU 0, run level 2 again",
    ]
    assert "0000:19:00.0" in _text(triad)


@pytest.mark.parametrize("sample", [samples.accepted, samples.stopped, samples.replay, samples.empty])
def test_other_pages_have_no_triad(sample: Callable[[], Certificate]) -> None:
    """Nobody is pointed at where nothing failed."""
    assert _page(sample()).find_class("triad") == []


def test_findings_stand_worst_first_and_folded() -> None:
    """FAIL before NOT MEASURED before UNSTABLE before NOT TESTED; what fails on the same part follows its cause."""
    items = _page(samples.rejected()).find_class("find")[0].findall("li")
    assert [_text(item.find_class("tag")[0]) for item in items] == [
        "FAIL",
        "FAIL",
        "NOT MEASURED",
        "UNSTABLE",
        "NOT TESTED",
    ]
    assert "On the same part, probably one cause: PCIE-2" in _text(items[1])
    assert _text(items[4].find_class("what")[0]) == "6 clauses not tested, GPU 0 to 7"


def test_diagnostics_show_the_evidence() -> None:
    """A failure shows expected, found, where, what to do, its neighbours with the odd one marked, log and digests."""
    page = _page(samples.rejected())
    block = next(d for d in page.find_class("diag") if "PCIE-5 on GPU 5" in _text(d.find("h3")))
    text = _text(block)
    for said in ("≥ 50.00 GB/s", "6.71 GB/s on GPU 5", "module 5", "0000:ab:00.0", "check IOMMU"):
        assert said in text
    odd = [_text(cell) for cell in block.find_class("bad")]
    assert odd == ["✕ 6.71", "✕ 3", "✕ 8", "✕ 6.68"]
    first = page.find_class("diag")[0]
    assert "available PCIe bandwidth" in first.find(".//pre").text_content()
    assert "Evidence" in _text(first)


def test_not_covered_says_what_is_missing() -> None:
    """Page one lists exclusions with reason, what was observed, does not apply, was not asked for or is assumed."""
    text = _text(_page(samples.accepted()).find_class("not")[0])
    for said in (
        "Levels 3 and 4 were not asked for.",
        "GPU-32 The site sets NCCL_NVLS_ENABLE=0 on purpose.",
        "Observed without a limit",
        "GPU-15 Page retirement ended with Volta",
        "Inlet air as found.",
    ):
        assert said in text
    assert "MARGINAL PCIE-5 GPU 1 52.90 GB/s, limit ≥ 50.00, inner limit 53.50." in _text(
        _page(samples.marginal()).find_class("not")[0]
    )


def test_same_columns_of_gpus_are_folded() -> None:
    """What all GPUs share is one sentence; a GPU that is not there says so in its row."""
    page = _page(samples.accepted())
    assert "The same on all 2: Model NVIDIA H200, PCI id 10de:2335" in _text(page)
    assert "expected, not found" in _text(_page(samples.rack()))


def test_numbers_are_set_for_people() -> None:
    """Thousands, minus, units and limits carry the signs of print, with the same decimals in a row."""
    html = render(samples.rejected())
    assert "143\u202f771\u00a0MiB" in html
    assert "\u221286.6\u202f%" in html
    assert "\u2265\u00a050.00" in html
    assert "4\u202f118" in html


def test_the_page_says_that_it_is_not_signed() -> None:
    """What the page does not prove stands on it."""
    assert "This certificate carries no signature." in _text(_page(samples.accepted()))


def test_every_word_is_explained() -> None:
    """Each outcome has a line that says what it means."""
    page = _page(samples.accepted())
    said = [_text(row) for row in page.find_class("wordlist")[0].iter("tr")]
    for word in WORDS.values():
        assert f"{word.outcome} {word.meaning}" in said or f"{word.outcome}{word.meaning}" in said
