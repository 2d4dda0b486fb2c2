"""The page says what the document says: verdict with basis, every cell; nothing of untrusted text comes alive."""

from __future__ import annotations

import re
from collections.abc import Callable

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate, ExclusionEntry
from pytest_gpuready.certificate.words import WORDS, source_text
from pytest_gpuready.certificate.words import said as word_of
from tests.certificate import samples
from tests.certificate.pages import drawn

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
    samples.excluded,
    samples.excluded_rejected,
    samples.virtual,
    samples.lost,
    samples.foreign,
    samples.empty,
    samples.hostile,
)
every_sample = pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.__name__)


def _page(certificate: Certificate) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(drawn(certificate))


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
    html = drawn(sample())
    assert "g-seal" not in html
    assert "v-accepted" not in html
    assert not re.search(r"#0c6744|#62d3a4|#0a5a3b", html)
    assert "This page certifies no hardware" in html


@pytest.mark.parametrize("sample", [samples.rejected, samples.incomplete, samples.stopped, samples.rack, samples.empty])
def test_the_seal_belongs_to_accepted(sample: Callable[[], Certificate]) -> None:
    """No page but an accepted one holds the seal."""
    assert "g-seal" in drawn(samples.accepted())
    assert "g-seal" not in drawn(sample())


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
        outcomes = [word_of(part) for part in clause.parts]
        if row.get("data-cells"):
            assert int(row.get("data-cells")) == len(clause.parts)
            assert set(outcomes) == {_text(row.find_class("tag")[0])}
            continue
        told = [outcome for count, outcome in alike.get(clause.id, []) for _ in range(count)]
        for part in clause.parts:
            shown = cells.get((clause.id, part.part))
            if shown is None:
                assert word_of(part) in told, (clause.id, part.part)
                told.remove(word_of(part))
            else:
                assert shown.startswith(word_of(part)), (clause.id, part.part)
        assert told == []


@every_sample
def test_nothing_is_fetched_and_nothing_runs(sample: Callable[[], Certificate]) -> None:
    """No script, no event handler, no form, no frame; references stay inside the page; CSP forbids the rest."""
    html = drawn(sample())
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
    html = drawn(samples.hostile())
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
    footer = re.search(r'@bottom-left\{content:"([^"]*)"', drawn(samples.hostile()))
    assert footer is not None
    assert re.fullmatch(r"(?:[A-Za-z0-9 ._:-]|\\[0-9a-f]+ )*", footer.group(1))


def test_long_text_is_bounded() -> None:
    """Texts of forty thousand characters do not flood the page; it says how much was left out."""
    html = drawn(samples.hostile(samples.LONG))
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
        "Excluded by the site fileEXCLUDED 1 clause (1 of 42 of level 1). All of them stand under the verdict.",
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
    html = drawn(samples.rejected())
    assert "143\u202f771\u00a0MiB" in html
    assert "\u221286.6\u202f%" in html
    assert "\u2265\u00a050.00" in html
    assert "4\u202f118" in html


def test_the_page_says_that_it_is_not_signed() -> None:
    """What the page does not prove stands on it."""
    assert "This certificate carries no signature." in _text(_page(samples.accepted()))


def test_every_word_is_explained() -> None:
    """Each outcome has a line that says what it means."""
    lines = [_text(row) for row in _page(samples.accepted()).find_class("wordlist")[0].iter("tr")]
    for word in WORDS.values():
        assert (f"{word.outcome}{word.meaning}" in lines) is (word.outcome != "WAIVED")


def test_a_waiver_is_explained_where_there_is_one() -> None:
    """WAIVED has a line as soon as a cell has that word, and none before."""
    base = samples.rejected()
    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[
                msgspec.structs.replace(
                    clause,
                    parts=[
                        msgspec.structs.replace(p, outcome="WAIVED") if p.outcome == "FAIL" else p for p in clause.parts
                    ],
                )
                for clause in suite.clauses
            ],
        )
        for suite in base.suites
    ]
    waived = msgspec.structs.replace(base, suites=suites)
    assert WORDS["WAIVED"].meaning in _text(_page(waived).find_class("wordlist")[0])
    assert WORDS["WAIVED"].meaning not in _text(_page(base))


@pytest.mark.parametrize("sample", [samples.excluded, samples.excluded_rejected])
def test_every_exclusion_stands_under_the_verdict(sample: Callable[[], Certificate]) -> None:
    """Page one counts the excluded clauses, of how many of each level, and names all by reason, before the findings."""
    html = drawn(sample())
    note = _text(lxml.html.document_fromstring(html).find_class("excluded")[0])
    assert note == (
        "EXCLUDED 10 clauses (9 of 42 of level 1, 1 of 36 of level 2) taken out by the site file, not looked at: "
        "GPU-2 to GPU-9 (agreed); NVL-1 (Demo/ of the provider); PCIE-8 (no reason given)."
    )
    assert html.index('class="sm excluded"') < html.index('class="page1')
    assert "excluded" not in drawn(samples.virtual()).split("<main")[1].split('class="page1')[0]


def test_no_exclusion_is_dropped() -> None:
    """Fifty clauses, each taken out for a reason of its own, all stand on page one."""
    base = samples.accepted()
    entries = [ExclusionEntry(clause=f"X-{2 * n}", reason=f"reason {n}") for n in range(50)]
    note = _text(_page(msgspec.structs.replace(base, exclusions=entries)).find_class("excluded")[0])
    assert all(f"{entry.clause} ({entry.reason})" in note for entry in entries)
    assert "GPU-32 (the site sets NCCL_NVLS_ENABLE=0 on purpose)" in note


def test_excluded_and_hidden_have_their_own_words() -> None:
    """What the site file took out is not NOT APPLICABLE on the page, what a virtual machine hides not OBSERVED."""
    page = _page(samples.excluded())
    rows = {row.get("data-clause"): row for row in page.iter("tr") if row.get("data-clause")}
    assert _text(rows["GPU-2"].find_class("tag")[0]) == "EXCLUDED"
    assert _text(rows["GPU-15"].find_class("tag")[0]) == "NOT APPLICABLE"
    page = _page(samples.virtual())
    rows = {row.get("data-clause"): row for row in page.iter("tr") if row.get("data-clause")}
    assert _text(rows["PCIE-4"].find_class("tag")[0]) == "HIDDEN"
    assert _text(rows["PCIE-7"].find_class("tag")[0]) == "OBSERVED"
    assert "6 HIDDEN" in _text(page)
    aside = _text(page.find_class("not")[0])
    assert "Hidden by the virtual machineHIDDEN PCIE-4, PCIE-15, PCIE-16 A virtual machine shows no bridge" in aside
    untested = page.find_class("plainrows")[0]
    assert "HIDDENPCIE-4, PCIE-15, PCIE-16GPU 0 and 1" in _text(untested)


def test_a_missing_gpu_is_one_finding() -> None:
    """What a GPU that is gone left unmeasured is one finding, one diagnosis and one row, and names the cause."""
    page = _page(samples.lost())
    items = page.find_class("find")[0].findall("li")
    assert [_text(item.find_class("tag")[0]) for item in items] == ["FAIL", "NOT MEASURED", "NOT TESTED"]
    assert re.fullmatch(r"\d\d clauses on GPU 3 have no measurement", _text(items[1].find_class("what")[0]))
    assert "GPU 3 is absent (NVML shows 7 GPUs, none at 0000:4c:00.0). Begin with GPU-1." in _text(items[1])
    assert len(page.find_class("diag")) == 2
    untested = page.find_class("plainrows")[0]
    assert len([row for row in untested.iter("tr") if "NOT MEASURED" in _text(row)]) == 1
    tags = [_text(tag) for tag in page.find_class("head")[0].find_class("tag")]
    assert tags == ["NOT MEASURED", *["NOT TESTED"] * 3]


def test_only_what_failed_is_red() -> None:
    """Among neighbours a value is marked where the clause of that very metric is FAIL on a part of the finding."""
    block = next(
        d for d in _page(samples.excluded_rejected()).find_class("diag") if "PCIE-5 on GPU 2" in _text(d.find("h3"))
    )
    assert [_text(cell) for cell in block.iter("td") if cell.get("class") == "r bad"] == ["\u2715 6.71"]


def test_the_measured_time_is_that_of_the_outputs() -> None:
    """The times are those of the raw outputs; a replay says when it was recorded and, apart from that, judged."""
    facts = _text(_page(samples.accepted()).find_class("facts")[0])
    assert "Measured2026-11-30 11:04 UTC" in facts
    assert "Judged" not in facts
    page = _page(samples.replay())
    assert "Recorded2026-11-30 11:04 UTC" in _text(page.find_class("facts")[0])
    assert "Judged2026-11-30 11:16 UTC" in _text(page.find_class("facts")[0])
    assert "it was recorded once, 2026-11-30 11:04 UTC" in _text(page)
    assert "no raw output says when" in _text(_page(samples.empty()))


def test_environment_says_whose_it_is() -> None:
    """Values of a node stand under its name, those of the machine that judged apart from them."""
    page = _page(samples.virtual())
    tables = {_text(t.find("caption")): _text(t) for t in page.find_class("pairs")}
    assert "NCCL_NVLS_ENABLE0" in tables["Environment of node01"]
    assert "Calls itselfgpu-17" in tables["Environment of node01"]
    assert "NCCL" not in tables["Environment of the machine that judged"]
    assert "python3.12.3" in tables["Environment of the machine that judged"]
    assert "node01, calls itself gpu-17" in _text(page.find_class("facts")[0])


def test_sources_and_ceilings_are_whole_on_page_one() -> None:
    """No source is cut, and a clause with a ceiling shows it whatever its figure."""
    certificate = samples.accepted()
    table = _page(certificate).find_class("head")[0]
    rows = {_text(row.find("th")): row for row in table.iter("tr")}
    for suite in certificate.suites:
        for clause in suite.clauses:
            shown = next((row for name, row in rows.items() if name.startswith(f"{clause.headline}{clause.id} ")), None)
            if shown is not None and clause.headline:
                assert " ".join(source_text(clause).split()) in _text(shown.find("th"))
                ceiling = _text(shown.findall("td")[3])
                assert (ceiling == "\u2013") is (clause.ceiling is None)


def test_so_far_is_said_while_the_run_goes_on() -> None:
    """The heading of page one says "so far" only as long as the run has not ended."""
    assert "Promised and measured so far" in drawn(samples.incomplete())
    assert "so far" not in drawn(samples.rejected())


def test_a_note_keeps_its_spelling() -> None:
    """What was replayed is spelled as it is named."""
    noted = msgspec.structs.replace(samples.replay(), basis_note="demo/ (recorded 2026-11-30)")
    assert "Replayed: demo/ (recorded 2026-11-30)." in _text(_page(noted).find_class("says")[0])


@pytest.mark.parametrize(("started", "seconds"), [("9999-12-31T23:59:59Z", 5.0), ("yesterday", 1.0), ("", 1e300)])
def test_impossible_times_are_left_out(started: str, seconds: float) -> None:
    """An output whose time cannot be is not taken for the time of the measurement."""
    base = samples.accepted()
    odd = msgspec.structs.replace(base.evidence[0], started=started, duration_s=seconds)
    page = _page(msgspec.structs.replace(base, evidence=[odd, *base.evidence[1:]]))
    assert "Measured2026-11-30 11:04 UTC" in _text(page.find_class("facts")[0])
