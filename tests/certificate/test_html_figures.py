"""Figures: each has a sentence, its numbers stand as text, scales are honest."""

from __future__ import annotations

import re
from collections.abc import Callable

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate import plots
from pytest_gpuready.certificate.document import Certificate, ClauseEntry, WatchEntry
from tests.certificate import samples
from tests.certificate.pages import drawn


def _clause(certificate: Certificate, clause_id: str) -> ClauseEntry:
    return next(c for suite in certificate.suites for c in suite.clauses if c.id == clause_id)


@pytest.mark.parametrize(
    "sample", [samples.accepted, samples.rejected, samples.rack, samples.one_node_of_72, samples.hostile]
)
def test_figures_have_a_sentence(sample: Callable[[], Certificate]) -> None:
    """Every figure is an image with a sentence for those who do not see it; every other SVG is hidden from them."""
    page = lxml.html.document_fromstring(drawn(sample()))
    figures = [svg for svg in page.iter("svg") if svg.get("role") == "img"]
    assert len(figures) > 20
    assert all(len(svg.get("aria-label", "")) > 3 for svg in figures)
    for svg in page.iter("svg"):
        hidden = svg.get("aria-hidden") == "true" or any(a.get("aria-hidden") == "true" for a in svg.iterancestors())
        assert hidden or svg.get("role") == "img"


def test_numbers_behind_figures_are_open() -> None:
    """The numbers of strips and watches stand in details that are open; only whole commands are folded away."""
    page = lxml.html.document_fromstring(drawn(samples.rejected()))
    details = [one for one in page.iter("details") if one.get("class") != "plans"]
    assert details
    assert all(one.get("open") is not None for one in details)
    text = " ".join(one.text_content() for one in details)
    for number in ("55.38", "6.71", "52.10", "76 to 126"):
        assert number in text.replace("\u00a0", " ")


def test_bullet_starts_at_zero_and_ends_at_the_ceiling() -> None:
    """The bar of the worst part is as long as its share of the physical ceiling; a failing bar has its own look."""
    clause = _clause(samples.rejected(), "PCIE-5")
    svg = str(plots.bullet(clause, many=False))
    bar = re.search(r'<rect x="0" y="8" width="([0-9.]+)" height="6" class="dotbad"/>', svg)
    assert bar is not None
    assert float(bar.group(1)) == pytest.approx(260 * 6.71 / 63.0, abs=0.06)
    limit = re.search(r'<path d="M([0-9.]+) 0v22" class="lim"', svg)
    assert limit is not None
    assert float(limit.group(1)) == pytest.approx(260 * 50.0 / 63.0, abs=0.06)


def test_a_limit_at_the_ceiling_has_no_bullet() -> None:
    """Where the ceiling itself is promised there is no room to draw: boxes say it better."""
    assert not plots.has_bullet(_clause(samples.accepted(), "PCIE-1"))
    assert plots.has_bullet(_clause(samples.accepted(), "PCIE-5"))


def test_boxes_show_each_part_by_shape() -> None:
    """A failing part has a filled box with a cross, the others a check; the sentence names the failing one."""
    svg = str(plots.boxes(_clause(samples.rejected(), "PCIE-1").parts, many=False))
    assert svg.count('href="#g-pass"') == 7
    assert svg.count('href="#g-fail"') == 1
    assert 'class="box-fail"' in svg
    assert "1 FAIL (GPU\u00a05), 7 PASS of 8" in svg


def test_very_many_parts_are_counted_in_words() -> None:
    """More parts than boxes can show give no figure, and the sentence still names what is wrong."""
    parts = _clause(samples.accepted(), "PCIE-1").parts * 500
    assert plots.boxes(parts, many=False) == ""
    assert plots.counts_sentence(parts, many=False) == "1000 PASS of 1000"


def test_strip_has_a_dot_per_part() -> None:
    """Each GPU has its mark; the failing one is a cross and is named."""
    svg = str(plots.strip(_clause(samples.rejected(), "PCIE-5"), many=False))
    assert svg.count("<circle") == 7
    assert svg.count('class="cross"') == 1
    assert "\u2715 GPU\u00a05" in svg
    assert 'class="hatch"' in svg


def test_strip_without_a_limit_names_nobody() -> None:
    """Where nobody knows the wrong side, no part is the worst: the ends are labelled instead."""
    svg = str(plots.strip(_clause(samples.accepted(), "PCIE-8"), many=False))
    assert "dotw" not in svg
    assert ">52.10<" in svg
    assert ">52.30<" in svg


@pytest.mark.parametrize("count", [2, 8, 72])
def test_marks_stay_inside_the_strip(count: int) -> None:
    """Dots and labels lie inside the figure for any number of GPUs."""
    certificate = samples.rejected() if count == 8 else samples.accepted() if count == 2 else samples.one_node_of_72()
    for suite in certificate.suites:
        for clause in suite.clauses:
            if plots.has_strip(clause):
                svg = lxml.html.fromstring(str(plots.strip(clause, many=False)))
                for dot in svg.iter("circle"):
                    assert 0 <= float(dot.get("cx")) <= 210
                    assert 0 <= float(dot.get("cy")) <= 24
                for text in svg.iter("text"):
                    half = 2.7 * len(text.text_content())
                    assert half - 1 <= float(text.get("x")) <= 211 - half


def test_watch_keeps_a_single_dip() -> None:
    """Of 20,000 samples few are drawn, and one low sample among them stays seen."""
    values = [16.0] * 20_000
    values[12_345] = 8.0
    entry = WatchEntry(times_s=[n / 10 for n in range(20_000)], series={"width": values})
    svg = str(plots.watch("GPU 0", "", entry, plots.panels([entry]), failing=False))
    path = re.search(r'<path d="(M[^"]+)" class="ln1"', svg)
    assert path is not None
    assert len(path.group(1)) < 4000
    heights = {float(v) for v in re.findall(r"V([0-9.]+)", path.group(1))}
    assert len(heights) == 2
    assert "8 to 16" in svg


def test_watch_bears_ragged_and_unknown_columns() -> None:
    """Columns of unequal length and of unknown name are drawn as far as they go."""
    entry = WatchEntry(
        times_s=[0.0, 1.0, 2.0], series={"power_w": [77.0, 80.0], "fan<1>": [1.0, 2.0, 3.0], "width": []}
    )
    svg = str(plots.watch("GPU 0", "", entry, plots.panels([entry]), failing=True))
    assert "77 to 80" in svg
    assert "fan&lt;1" in svg
    assert "\u2715 GPU 0" in svg


def test_watch_stands_once_per_part() -> None:
    """Several clauses share one watch: page and table show each part once."""
    page = lxml.html.document_fromstring(drawn(samples.accepted()))
    labels = [svg.get("aria-label") for svg in page.iter("svg") if "while it was measured" in svg.get("aria-label", "")]
    assert len(labels) == 2
    assert "power 76 to 126\u00a0W" in labels[0]


def test_many_watches_are_drawn_in_part_and_told_in_full() -> None:
    """Of 72 watched GPUs 24 are drawn; the table has all of them and the page says so."""
    page = lxml.html.document_fromstring(drawn(samples.one_node_of_72()))
    figures = [svg for svg in page.iter("svg") if "while it was measured" in svg.get("aria-label", "")]
    assert len(figures) == 24
    assert "48 more parts were watched" in page.text_content()


def test_numbers_that_cannot_be_drawn_are_left_out() -> None:
    """A document whose parts have no numbers, or only words, still gives a page."""
    base = samples.accepted()
    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[
                msgspec.structs.replace(
                    clause, parts=[msgspec.structs.replace(p, value="?", shown="?") for p in clause.parts]
                )
                for clause in suite.clauses
            ],
        )
        for suite in base.suites
    ]
    page = lxml.html.document_fromstring(drawn(msgspec.structs.replace(base, suites=suites)))
    assert page.find_class("strip")
