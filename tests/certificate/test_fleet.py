"""Several nodes on one page, on a terminal and in JUnit: who is accepted, and what is wrong with the others."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import lxml.html
import msgspec
import pytest
from lxml import etree

from pytest_gpuready.certificate import facts
from pytest_gpuready.certificate.document import Certificate, PartEntry
from pytest_gpuready.certificate.folded import natural
from pytest_gpuready.certificate.html import render
from pytest_gpuready.certificate.junit import junit
from pytest_gpuready.certificate.opening import header_lines
from pytest_gpuready.certificate.outliers import spreads
from pytest_gpuready.certificate.rule import by_reason
from pytest_gpuready.certificate.summary import summary_lines
from pytest_gpuready.certificate.tables import ids_text
from pytest_gpuready.certificate.written import canonical_chunks, json_bytes
from pytest_gpuready.model import Inventory, Node, Part, Slot
from pytest_gpuready.profiles import load
from tests.certificate import samples
from tests.certificate.pages import drawn

XSD = Path(__file__).parents[1] / "data" / "junit.xsd"


def page_of(certificate: Certificate) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(drawn(certificate))


def text(element: lxml.html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def lines_of(certificate: Certificate, width: int = 100) -> list[str]:
    return [f"{label:<11} {said}" for label, said in summary_lines(certificate, "gpuready-out", width)]


def changed(certificate: Certificate, **fields: object) -> Certificate:
    """The certificate with these fields in every cell."""
    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[
                msgspec.structs.replace(c, parts=[msgspec.structs.replace(p, **fields) for p in c.parts])
                for c in suite.clauses
            ],
        )
        for suite in certificate.suites
    ]
    return msgspec.structs.replace(certificate, suites=suites)


@functools.cache
def hostile() -> Certificate:
    """Three nodes whose names, and all that was said about them, are markup."""
    base = msgspec.json.encode(samples.fleet(3, 1, slow=("node01/gpu0",), silent=("node02",))).replace(
        b"node0", b"<b onx=1>\\u202e&n"
    )
    read = msgspec.json.decode(base, type=Certificate)
    nodes = [msgspec.structs.replace(n, system_serial=samples.NASTY, problem=samples.NASTY) for n in read.nodes]
    said = {"reason": samples.NASTY, "detail": samples.NASTY, "action": samples.NASTY}
    return msgspec.structs.replace(changed(read, **said), nodes=nodes, why=[samples.NASTY], do_next=[samples.NASTY])


@functools.cache
def ruined() -> Certificate:
    """130 nodes of which every cell failed, with long texts."""
    long = "why and why and why " * 30
    fields = {"outcome": "FAIL", "reason": long, "action": long, "line": long, "detail": long, "log": [long] * 12}
    certificate = changed(samples.crowd(), **fields)
    nodes = [msgspec.structs.replace(n, judged="REJECTED", verdict="REJECTED") for n in certificate.nodes]
    return msgspec.structs.replace(certificate, nodes=nodes)


# --- the page ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "counts"),
    [(samples.four, (1, 2, 1)), (samples.crowd, (3, 3, 124))],
)
def test_page_one_counts_the_nodes(sample: Callable[[], Certificate], counts: tuple[int, int, int]) -> None:
    """Three boxes say how many nodes came to which verdict."""
    boxes = page_of(sample()).find_class("counts")[0].findall("div")
    assert [int(box.findtext("b")) for box in boxes] == list(counts)
    words = [text(box.find("span")) for box in boxes]
    assert all(map(str.startswith, words, ("REJECTED", "INCOMPLETE", "ACCEPTED")))


def test_the_worst_part_says_where_why_and_what_next() -> None:
    """A row has node, GPU, outcome, clause, value, limit and action, and leads to the findings of the node."""
    page = page_of(samples.four())
    rows = page.find_class("worst")[0].xpath(".//tbody/tr")
    assert [text(cell) for cell in rows[0].findall("td")][:3] == [
        "GPU 5",
        "FAILPCIE-5",
        "Copy to the GPU, pinned: 6.71 GB/s, limit ≥ 50.00 GB/s",
    ]
    assert "check IOMMU" in text(rows[0])
    assert [text(row.find("th")) for row in rows] == ["node02", "node03"]
    anchor = rows[0].find("th").find("a").get("href")[1:]
    assert "node02" in text(page.get_element_by_id(anchor).find("h3"))


def test_a_node_without_an_answer_is_no_gpu_fault() -> None:
    """Page one tells it apart from findings about GPUs, folded by why; it has no section of findings."""
    page = page_of(samples.crowd())
    (table,) = page.find_class("quiet")
    assert [text(row) for row in table.xpath(".//tbody/tr")] == [
        "node[042,101]2 nodesExpected a login within 10 s, found none; see that it is up and lets us in."
    ]
    assert "says nothing about their GPUs" in text(page)
    assert not any("node042" in text(row) for row in page.find_class("worst"))
    assert not any("node042" in text(section.find("h3")) for section in page.find_class("node"))


def test_every_node_has_a_word_for_every_suite() -> None:
    """In the heat map each node has its verdict and each suite its worst word, as glyph and as text."""
    certificate = samples.four()
    rows = page_of(certificate).find_class("heat")[0].xpath(".//tbody/tr")
    told = {text(row.find("th")): [text(cell) for cell in row.findall("td")] for row in rows}
    assert told == {
        "node01 ACCEPTED": ["PASS"] * 5,
        "node02 REJECTED": ["PASS", "PASS", "FAIL", "PASS", "PASS"],
        "node03 INCOMPLETE": ["PASS", "PASS", "UNSTABLE", "PASS", "PASS"],
        "node04 INCOMPLETE": ["NOT MEASURED"] * 5,
    }
    glyphs = {cell.xpath(".//*[local-name()='use']")[0].get("href") for row in rows for cell in row.findall("td")}
    assert glyphs == {"#g-pass", "#g-fail", "#g-un", "#g-nm"}


def test_many_accepted_nodes_are_counted() -> None:
    """From 128 nodes on those that nobody has to look at are a number and their names, folded."""
    page = page_of(samples.crowd())
    names = [text(row.find("th")).split()[0] for row in page.find_class("heat")[0].xpath(".//tbody/tr")]
    assert names == ["node007", "node012", "node041", "node042", "node090", "node101"]
    (rest,) = page.find_class("rest")
    assert text(rest).startswith("124 more nodes are ACCEPTED and not listed: node[001-006,008-011,013-040,")
    assert len(page_of(samples.four()).find_class("heat")[0].xpath(".//tbody/tr")) == 4


def test_who_is_far_from_its_peers_is_named() -> None:
    """A GPU inside the limit and far from all others is an outlier: drawn, named, and marked in the heat map."""
    whole = samples.fleet(12, 1)
    suites = []
    for suite in whole.suites:
        clauses = []
        for clause in suite.clauses:
            parts = [
                msgspec.structs.replace(p, value=51.5, shown="51.50") if p.part == "node05/gpu0" else p
                for p in clause.parts
            ]
            clauses.append(msgspec.structs.replace(clause, parts=parts) if clause.id == "PCIE-5" else clause)
        suites.append(msgspec.structs.replace(suite, clauses=clauses))
    certificate = msgspec.structs.replace(whole, suites=suites)
    (spread,) = [one for one in spreads(certificate) if one.clause.id == "PCIE-5"]
    assert [part.part for part, _ in spread.far] == ["node05/gpu0"]
    page = page_of(certificate)
    heads = [text(row.find("th")) for row in page.find_class("heat")[0].xpath(".//tbody/tr")]
    assert [head for head in heads if "●" in head] == ["node05 ACCEPTED ●"]
    figure = page.find_class("fs")[0].xpath(".//*[local-name()='svg']")[0]
    assert figure.get("aria-label").endswith("node05 GPU\u00a00 51.50")


def test_a_replay_accepts_no_node() -> None:
    """On another basis no node is ACCEPTED anywhere on the page, and nothing is green."""
    base = samples.fleet(2, 1)
    nodes = [msgspec.structs.replace(n, verdict="REPLAY: would be ACCEPTED") for n in base.nodes]
    html = drawn(msgspec.structs.replace(base, verdict="", basis="replay", basis_note="a recording", nodes=nodes))
    assert not re.search(r"#0c6744|#62d3a4|#0a5a3b|g-seal", html)
    page = lxml.html.document_fromstring(html)
    boxes = page.find_class("counts")[0].findall("div")
    assert ["none" in box.get("class") for box in boxes] == [True, True, False]
    assert text(boxes[2]).startswith("2would be ACCEPTED")
    assert text(page.find_class("heat")[0].find(".//tbody/tr/th")) == "node01 REPLAY: would be ACCEPTED"


def test_hostile_nodes_are_inert() -> None:
    """Names and texts of nodes show as text: no tag, handler, script or bidirectional control comes of them."""
    html = drawn(hostile())
    page = lxml.html.document_fromstring(html)
    assert page.xpath("//b[@onx]") == page.xpath("//script") == page.xpath("//img") == []
    assert not any(name.startswith("on") for element in page.iter() for name in element.attrib)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]", html)
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {ref[1:] for ref in page.xpath("//@href")} <= set(ids)
    assert "<b onx=1>" in text(page.find_class("heat")[0])


def test_the_page_is_bounded() -> None:
    """Where every cell of 130 nodes failed, the page stays small, and says how much more there is and where."""
    html = render(ruined())
    assert len(html.encode()) < 1_500_000
    said = text(lxml.html.document_fromstring(html))
    assert "96 more nodes that are not accepted: their findings stand in certificate.json" in said
    assert "10 140 cells have no room on a page" in said


def quiet_node() -> Certificate:
    """Three nodes of four GPUs of which the second gave no answer."""
    return samples.fleet(3, 4, silent=("node02",))


def test_the_clauses_table_says_once_why_a_node_has_no_values() -> None:
    """A row says how many parts have a value and on which node none has; the reason stands above all tables."""
    certificate = quiet_node()
    page = page_of(certificate)
    why = next(node.problem.partition(": ")[2] for node in certificate.nodes if node.name == "node02")
    above = page.get_element_by_id("clauses").getnext().getnext()
    assert text(above) == f"Nothing was measured on node02: {why}."
    tables = page.find_class("clauses")
    rows = [text(cell) for table in tables for cell in table.xpath(".//td[@data-l='measured, worst']")]
    assert sum("none on node02" in said for said in rows) > 20
    assert [said for said in rows if why in said and said[0].isdigit()] == []
    assert "NOT MEASURED" in text(page.find_class("not")[0])
    assert "on node02 and all 4 GPUs" in text(page.find_class("not")[0])


def test_no_table_of_numbers_where_nothing_differs() -> None:
    """Clauses that come to one word on every part, for reasons that name the node, need no table of numbers."""
    certificate = samples.fleet(3, 1)
    suites = [
        msgspec.structs.replace(
            suite,
            clauses=[
                msgspec.structs.replace(
                    c,
                    parts=[
                        PartEntry(part=p.part, outcome="NOT APPLICABLE", reason=f"{p.node} has none") for p in c.parts
                    ],
                )
                for c in suite.clauses
            ],
        )
        for suite in certificate.suites
    ]
    page = page_of(msgspec.structs.replace(certificate, suites=suites))
    assert [text(one) for one in page.iter("summary") if text(one).startswith("Numbers behind: clauses")] == []


def test_a_rack_stands_beside_the_serial() -> None:
    """On the page and in the JSON; where nobody named one it is left out of both."""
    plain = samples.four()
    assert b'"rack"' not in json_bytes(plain)
    nodes = [msgspec.structs.replace(node, rack="R12", system_serial="S7") for node in plain.nodes]
    racked = msgspec.structs.replace(plain, nodes=nodes)
    written = json_bytes(racked)
    assert written.count(b'"rack": "R12"') == 4
    assert msgspec.json.decode(written, type=Certificate) == racked
    assert b"".join(canonical_chunks(racked)) == msgspec.json.encode(racked, order="deterministic")
    assert b"".join(canonical_chunks(plain)) == msgspec.json.encode(plain, order="deterministic")
    assert "rack R12, serial S7" in text(page_of(racked).find_class("node")[0].find("h3"))
    assert ", rack R12, serial S7" in facts.facts(msgspec.structs.replace(racked, nodes=nodes[:1]))[0][1]


def test_what_a_run_continues_is_not_assumed() -> None:
    """It has a title of its own beside what is assumed."""
    lines = ["continued: node[01-02] kept, node[03-04] measured anew", "node[01-04]: no DCGM"]
    page = page_of(msgspec.structs.replace(samples.four(), assumptions=lines))
    said = text(page.find_class("not")[0])
    assert "Continued" in said
    assert "continued: node" not in said
    header = header_lines(
        load("h200-sxm"),
        Inventory(nodes=(Node(name="node01", slots=()), Node(name="node02", slots=())), assumptions=tuple(lines)),
        1,
        basis=("hardware", ""),
        seen=(0, 0),
        long_s=0.0,
        where="out x/ (continued)",
        moved_to="",
    )
    assert header[3:] == [lines[0], f"assumed: {lines[1]}", "out x/ (continued)"]


def test_names_stand_in_the_order_of_their_numbers() -> None:
    """As people count: gpuw2 before gpuw10, PCIE-20 before PCIE-21; suites stay in the order of the profile."""
    assert sorted(["gpuw10", "gpuw9", "gpuw02", "gpuw2", "a"], key=natural) == [
        "a",
        "gpuw02",
        "gpuw2",
        "gpuw9",
        "gpuw10",
    ]
    assert ids_text(["PCIE-19", "PCIE-21", "PCIE-20", "GPU-3", "GPU-1"]) == "PCIE-19 to PCIE-21, GPU-1, GPU-3"


def test_a_gpu_without_a_name_is_missing_from_the_count() -> None:
    """A GPU that is on the bus and lost to NVML is one of those expected, and not one of that model."""
    certificate = samples.fleet(2, 4)
    lost = msgspec.structs.replace(certificate.nodes[0].gpus[2], name="", memory_mib=0)
    gpus = [lost if gpu.part == lost.part else gpu for gpu in certificate.nodes[0].gpus]
    nodes = [msgspec.structs.replace(certificate.nodes[0], gpus=gpus), certificate.nodes[1]]
    said = facts.hardware_text(msgspec.structs.replace(certificate, nodes=nodes))
    assert said.startswith("7 of 8\u00a0\u00d7\u00a0")


# --- the terminal ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sample", "bound"), [(samples.four, 18), (samples.crowd, 16), (hostile, 22), (ruined, 20)])
def test_the_summary_stays_short(sample: Callable[[], Certificate], bound: int) -> None:
    """However many nodes and whatever they say: about fifteen lines of printable ASCII and what to do next, which is
    never cut; none is wider than asked for."""
    lines = lines_of(sample())
    assert len(lines) <= bound
    for line in lines:
        assert len(line) <= 100
        assert all(" " <= char <= "~" for char in line), line


def test_the_summary_names_who_is_not_accepted() -> None:
    """Counts of nodes, their names folded, the first failure with its parts, and who gave no answer."""
    lines = lines_of(samples.crowd())
    assert lines[0].startswith("REJECTED    130 nodes, node[001-130], basis hardware, level 0 of 2 reached")
    assert lines[1:4] == [
        "nodes       3 REJECTED, 3 INCOMPLETE (2 gave no answer), 124 ACCEPTED, each by its own clauses",
        "rejected    node[007,041,090]",
        "incomplete  node012",
    ]
    assert lines[4].startswith("why         3 parts of node[007,041,090]: PCIE-5 Copy to the GPU, pinned 6.71 GB/s")
    assert any(line.startswith("no answer   node[042,101]: expected a login within 10 s") for line in lines)
    assert not any(line.startswith("missing") and "node042" in line for line in lines)


def test_what_to_do_next_is_never_cut() -> None:
    """An action longer than three lines stands there to its last word, and so does the command, on however many
    nodes."""
    action = " ".join(f"step{number}" for number in range(60))
    certificate = changed(samples.crowd(), action=action)
    command = (
        "python -m pytest --gpuready-site /srv/acceptance/a-long-name/site.yaml " + "--gpuready-out x " * 9 + "-m end"
    )
    certificate = msgspec.structs.replace(certificate, do_next=[command])
    said = " ".join(text for _, text in summary_lines(certificate, "gpuready-out"))
    assert action in said
    assert command in said.replace(" \\", "")


def test_reasons_that_differ_in_the_name_are_one() -> None:
    """Nodes whose reasons differ in their own name alone are told together, with a word for the name."""
    certificate = samples.crowd()
    nodes = [
        msgspec.structs.replace(n, problem=f"{n.name}: expected {n.name} to answer, see `ssh {n.name}`")
        for n in certificate.nodes
    ]
    said = " ".join(text for _, text in summary_lines(msgspec.structs.replace(certificate, nodes=nodes), "out", 200))
    assert "node[042,101]: expected <node> to answer, see `ssh <node>`" in said
    assert by_reason([("n1", "n1: ask n1.")]) == [("ask n1.", ["n1"])]
    assert by_reason([("n1", "ask n1."), ("n2", "n2: ask n2.")]) == [("ask <node>.", ["n1", "n2"])]


def test_the_header_of_a_thousand_nodes() -> None:
    """The first lines name the nodes folded, count GPUs over all of them, and tell an assumption of all once."""
    nodes = tuple(
        Node(name=f"n{i:04d}", slots=(Slot(part=Part(node=f"n{i:04d}", index=0)),), driver="1.2" if i else "")
        for i in range(1000)
    )
    said = tuple(f"{node.name}: no DCGM" for node in nodes)
    inventory = Inventory(nodes=nodes, assumptions=said, problems={"n0000": "no login"})
    lines = header_lines(
        load("h200-sxm"),
        inventory,
        1,
        basis=("hardware", ""),
        seen=(999, 998),
        long_s=0.0,
        where="out x/ (new)",
        moved_to="",
    )
    assert lines[0].startswith("BASIS hardware, 1000 nodes n[0000-0999], level 1, profile h200-sxm")
    assert lines[1].startswith("GPUs expected 1000, on the bus 999, by NVML 998")
    assert lines[2].startswith("driver 1.2 (999), unknown (1), CUDA unknown; ")
    assert lines[3:] == [
        "1 node says nothing or not all of themselves: n0000",
        "assumed: n[0000-0999]: no DCGM",
        "out x/ (new)",
    ]
    assert all(len(line) <= 90 for line in lines)


# --- JUnit -------------------------------------------------------------------------------------------------------


def test_junit_of_many_has_a_case_for_each_clause_and_node() -> None:
    """From 5,000 cells on a case is a clause on a node; counts are right, and the layout is that of JUnit."""
    certificate = samples.crowd()
    root = etree.fromstring(junit(certificate))
    etree.XMLSchema(etree.parse(XSD)).assertValid(root)
    names = [case.get("name") for case in root.iter("testcase")]
    clauses = [clause.id for suite in certificate.suites for clause in suite.clauses]
    assert len(names) == len(set(names)) == len(clauses) * 130 + 1
    for suite in root.iter("testsuite"):
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("errors")) == len(suite.findall("testcase/error"))
    assert root.get("failures") == "4"  # three links, and the certificate
    few = samples.fleet(3, 1)
    many = msgspec.structs.replace(few, counts=msgspec.structs.replace(few.counts, cells=10_000))
    green = etree.fromstring(junit(many))
    assert (green.get("failures"), green.get("errors")) == ("0", "0")


def test_junit_spells_out_the_parts_of_a_node() -> None:
    """A case of several parts is as bad as the worst, and has a line for each part that is not well."""
    base = samples.fleet(3, 4, slow=("node02/gpu1", "node02/gpu3"))
    counts = msgspec.structs.replace(base.counts, cells=10_000)
    root = etree.fromstring(junit(msgspec.structs.replace(base, counts=counts)))
    (case,) = root.xpath("//testcase[@name='PCIE-5[node02]']")
    outcomes = case.xpath(".//property[@name='outcome']/@value")
    assert outcomes == ["2 PASS, 2 FAIL"]
    (failure,) = case.findall("failure")
    assert "on node02 GPU 1" in failure.get("message")
    assert "on node02 GPU 3" in failure.text
    assert root.xpath("//testcase[@name='PCIE-5[node01]']/failure") == []
