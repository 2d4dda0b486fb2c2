"""The burn-in over time: a figure per GPU with the limits that somebody stated, its numbers as a table."""

from __future__ import annotations

import re

import lxml.html
import msgspec
import pytest

from pytest_gpuready.certificate.document import Certificate, PartEntry, WatchEntry
from pytest_gpuready.certificate.timeline import timelines
from tests.certificate import samples
from tests.certificate.pages import drawn

BURN = ("STRESS-60", "STRESS-61")


def changed(certificate: Certificate, ids: tuple[str, ...], **fields: object) -> Certificate:
    """The certificate with these fields in every part of some clauses."""

    def of(part: PartEntry) -> PartEntry:
        return msgspec.structs.replace(part, **fields)

    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[
                msgspec.structs.replace(c, parts=[of(p) for p in c.parts]) if c.id in ids else c for c in suite.clauses
            ],
        )
        for suite in certificate.suites
    ]
    return msgspec.structs.replace(certificate, suites=suites)


def figures(certificate: Certificate) -> list[lxml.html.HtmlElement]:
    page = lxml.html.document_fromstring(drawn(certificate))
    return page.xpath("//h2[@id='burn-in']/following-sibling::div[1]//svg")


def test_each_gpu_has_a_figure_with_its_limits() -> None:
    """The sentence of a figure says span and limit of each column; a limit is a dashed line with its number."""
    first, second = figures(samples.whole())
    said = first.get("aria-label").replace("\u00a0", " ").replace("\u202f", " ")
    assert said.startswith("GPU 0 in the burn-in, 4 min: Power 650 to 730 W, limit 700 W, SM clock 1 395 to 1 515 MHz")
    assert "Temperature 46 to 59 °C, limit 89 °C, Memory temperature 44 to 55 °C" in said
    assert second.get("aria-label").startswith("GPU\u00a01 in the burn-in")
    assert len(first.xpath(".//*[@class='lim1']")) == 2
    texts = [text.text for text in first.iter("text")]
    assert "limit 700" in texts
    assert "limit 89" in texts


def test_all_figures_share_their_scales() -> None:
    """The power limit, the same on both, lies at one height in both figures, and every axis starts at zero."""
    first, second = (figure.xpath(".//*[@class='lim1']/@d") for figure in figures(samples.whole()))
    assert first == second


def test_a_limit_that_nobody_stated_is_not_drawn() -> None:
    """Without NVML's word the power has no limit, without the engine's the temperature has none."""
    bare = changed(samples.whole(), ("GPU-20",), value=None, shown="")
    (part,) = [p for s in bare.suites for c in s.clauses if c.id == "STRESS-61" for p in c.parts][:1]
    assert part.watch is not None
    bare = changed(bare, BURN, watch=msgspec.structs.replace(part.watch, limits=msgspec.UNSET))
    found = timelines(bare, False)
    assert found is not None
    assert not found.limits
    assert {(row.power_limit, row.slowdown) for row in found.rows} == {("\u2013", "\u2013")}
    assert "limit" not in figures(bare)[0].get("aria-label")
    assert "dashed line is the limit" not in drawn(bare)


def test_the_table_has_the_numbers() -> None:
    """Beside the figures stand the spans and what the clauses rest on, GPU by GPU."""
    page = lxml.html.document_fromstring(drawn(samples.whole()))
    (table,) = page.xpath("//div[@aria-label='Burn-in in numbers']/table")
    row = [" ".join(cell.text_content().split()) for cell in table.xpath("./tbody/tr[2]/*")]
    assert row[0] == "GPU 1"
    assert row[1] == "650 to 730 W"
    assert row[5:] == ["687.8 W", "700 W", "89 °C", "22 °C", "34.02 %", "120"]


@pytest.mark.parametrize(("gpus", "large", "count"), [(4, True, 4), (5, False, 5), (30, False, 24)])
def test_many_gpus_have_small_figures(gpus: int, large: bool, count: int) -> None:
    """Up to four GPUs have large figures; of more than 24 the failing ones come first and the table has the rest."""
    found = timelines(samples.burnt(gpus, values={("STRESS-61", f"node01/gpu{gpus - 1}"): 1}), False)
    assert found is not None
    assert (found.large, len(found.figures), found.left_out) == (large, count, gpus - count)
    assert len(found.rows) == gpus
    names = [part.part for part, _ in found.figures]
    assert names[-1] == f"node01/gpu{gpus - 1}"
    assert "\u2715" in found.figures[-1][1]


def test_without_samples_there_is_no_section() -> None:
    """A run without a burn-in, or one of which no samples are left, has no figure and no empty table."""
    assert timelines(samples.accepted(), False) is None
    bare = changed(samples.whole(), BURN, watch=WatchEntry(facts={"power": "1-2 W"}))
    assert timelines(bare, False) is None
    assert 'id="burn-in"' not in drawn(bare)


@pytest.mark.parametrize(
    "watch",
    [
        WatchEntry(times_s=[0.0], series={"power_w": [float("nan")]}, limits={"power_w": float("inf")}),
        WatchEntry(times_s=[float("inf"), -1.0], series={"power_w": [1e300, -1e300]}, limits={"temperature_c": -5.0}),
        WatchEntry(times_s=[0.0, 1.0], series={"power_w": [], "<b onx=1>": [1.0, 2.0]}, limits={"<b onx=1>": 2.0}),
        WatchEntry(times_s=[0.0, 1e7], series={"power_w": [0.0, 0.0]}),
    ],
)
def test_a_watch_that_no_sensor_can_show_still_gives_a_page(watch: WatchEntry) -> None:
    """Numbers that cannot be drawn are left out, names are escaped, and no coordinate is anything but a number."""
    page = drawn(changed(samples.whole(), BURN, watch=watch))
    assert "<b onx" not in page
    for figure in figures(changed(samples.whole(), BURN, watch=watch)):
        for path in figure.xpath(".//@d"):
            assert not re.search("nan|inf", path)


def test_the_watch_of_the_burn_in_is_drawn_once() -> None:
    """Under "Watch under load" stand the other measurements, each with its clause."""
    page = lxml.html.document_fromstring(drawn(samples.whole()))
    titles = [
        h.text_content() for h in page.xpath("//h2[@id='watch']/following-sibling::h3[following::h2[@id='time']]")
    ]
    assert titles == ["PCIE-1: PCIe generation under load"]
