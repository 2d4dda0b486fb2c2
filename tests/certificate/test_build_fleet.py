"""From what was found on several nodes to their certificate: each node has its own verdict, and nothing is left out."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from pytest_gpuready.certificate import document
from pytest_gpuready.certificate.build import Facts, Record, build
from pytest_gpuready.certificate.cells import DIAGNOSED_AT_MOST
from pytest_gpuready.certificate.document import Certificate, NodeEntry, PartEntry
from pytest_gpuready.certificate.fleet import only
from pytest_gpuready.certificate.rule import Asked, rule
from pytest_gpuready.certificate.written import canonical_chunks, json_bytes, number
from pytest_gpuready.judge import Found, judge
from pytest_gpuready.model import (
    Clause,
    Inventory,
    Measurement,
    Node,
    Part,
    Problem,
    ProblemKind,
    Profile,
    Slot,
    Verdict,
)
from pytest_gpuready.profiles import load
from tests.certificate import samples
from tests.certificate.pages import drawn

SCHEMA = Path(document.__file__).with_name("schema-1.json")
SILENCE = "node4: expected a login within 10 s, found none; see that it is up"


class Told:
    """Findings as the certificate asks for them: what each part shows is written down, all else is well."""

    def __init__(self, profile: Profile, inventory: Inventory, odd: dict[tuple[str, str], Found]) -> None:
        self.profile = profile
        self.inventory = inventory
        self._odd = odd

    def found(self, metric: str, part: Part) -> Found:
        if part.node == "node4":
            return Problem(metric=metric, part=part.name, kind=ProblemKind.NOT_MEASURED, says=SILENCE)
        well = Measurement(metric=metric, part=part.name, value="well", unit="", evidence=("0" * 64,))
        return self._odd.get((metric, part.name), well)

    def verdict(self, clause: Clause, part: Part) -> Verdict:
        return judge(clause, part.name, self.found(clause.metric, part), peers={}, virtual=False)

    def peers(self, metric: str, part: Part) -> dict[str, Any]:
        return {slot.part.name: "well" for slot in self.inventory.node(part.node).slots}


@functools.cache
def profile() -> Profile:
    """Six clauses on a GPU and two on a node, all of which want to hear "well"."""
    base = load("h200-sxm")
    some = [c for c in base.clauses if c.limit and c.required and c.level == 1 and not c.not_applicable and not c.needs]
    kept = [c for c in some if c.per == "gpu"][:6] + [c for c in some if c.per == "node"][:2]
    wanted = {"equals": "well", "at_least": None, "at_most": None, "marginal": None, "ceiling": None, "uniform": False}
    clauses = [
        dataclasses.replace(c, limit=dataclasses.replace(c.limit, unit="", **wanted), unit="", action="do it")
        for c in kept
        if c.limit
    ]
    return dataclasses.replace(base, clauses=tuple(clauses))


def built(
    count: int = 4, gpus: int = 2, *, bad: tuple[str, ...] = (), agree: bool = True, opening: bool = False
) -> Certificate:
    """The certificate of so many nodes; the first clause fails on the parts in `bad`. `opening`: before that."""
    nodes = tuple(
        Node(name=f"node{n}", slots=tuple(Slot(part=Part(node=f"node{n}", index=i)) for i in range(gpus)))
        for n in range(1, count + 1)
    )
    inventory = Inventory(nodes=nodes, assumptions=tuple(f"{node.name}: no DCGM" for node in nodes))
    first = profile().clauses[0]
    odd = {(first.metric, name): Measurement(metric=first.metric, part=name, value="ill", unit="") for name in bad}
    findings = Told(profile(), inventory, odd)  # type: ignore[var-annotated]
    records = {
        (clause.id, part.name): [Record(outcome=findings.verdict(clause, part).outcome.value)]
        for clause in profile().clauses
        for part in inventory.parts(clause.per)
        if agree or part.node != "node3"
    }
    entries = tuple(
        NodeEntry(name=n.name, gpus=[], answered=n.name != "node4", problem=SILENCE if n.name == "node4" else "")
        for n in nodes
    )
    facts = Facts(
        started="s",
        issued="i",
        finished=not opening,
        level_asked=1,
        basis="hardware",
        nodes=entries,
        command="pytest",
    )
    said = {} if opening else records
    return build(
        findings=findings,  # type: ignore[arg-type]
        records=said,
        facts=facts,
        log_of=lambda part: [f"{part.name} said"],
        opening=opening,
    )


def cells(certificate: Certificate) -> dict[tuple[str, str], PartEntry]:
    return {(c.id, p.part): p for s in certificate.suites for c in s.clauses for p in c.parts}


def test_each_node_has_the_verdict_of_its_own_cells() -> None:
    """A failing, an untested and a silent node cost only themselves; the verdict of a node is that of it alone."""
    certificate = built(bad=("node2/gpu1",), agree=False)
    assert [node.judged for node in certificate.nodes] == ["ACCEPTED", "REJECTED", "INCOMPLETE", "INCOMPLETE"]
    assert certificate.judged == "REJECTED"
    asked = Asked(level=1, finished=True, profile="p", levels=frozenset({1}))
    for node in certificate.nodes:
        own = [(c, p) for s in certificate.suites for c in s.clauses for p in c.parts if p.node == node.name]
        alone = only(certificate, node, own)
        assert rule(own, asked).judged == node.judged == node.verdict == alone.judged
        assert sum(node.outcomes.values()) == len(own) == sum(len(c.parts) for s in alone.suites for c in s.clauses)
    assert all(node.judged == "ACCEPTED" for node in built(3).nodes)
    assert built(3).judged == "ACCEPTED"


def test_every_cell_stands_in_the_json() -> None:
    """Every clause on every expected part has its word in a document that holds to the schema; a PASS says little."""
    certificate = built(bad=("node2/gpu1",))
    text = json_bytes(certificate)
    read = json.loads(text)
    jsonschema.validate(read, json.loads(SCHEMA.read_text()))
    assert msgspec.json.decode(text, type=Certificate) == certificate
    told = {(c["id"], p["part"]): p for s in read["suites"] for c in s["clauses"] for p in c["parts"]}
    assert len(told) == 4 * (6 * 2 + 2) == read["counts"]["cells"]
    assert set(told[profile().clauses[0].id, "node1/gpu0"]) == {"part", "outcome", "shown", "value", "evidence"}
    lines = [line for line in text.splitlines() if b'{"part":' in line]
    assert len(lines) == len(told)
    assert read["assumptions"] == ["node[1-4]: no DCGM"]


@pytest.mark.parametrize("sample", [samples.rejected, samples.four, samples.empty])
def test_the_number_is_made_from_the_canonical_form(sample: Any) -> None:
    """In pieces it is the text that msgspec gives whole, fields in order and keys sorted, without the number."""
    certificate = msgspec.structs.replace(sample(), number="")
    whole = msgspec.json.encode(certificate, order="deterministic")
    assert b"".join(canonical_chunks(certificate)) == whole
    assert number(sample()) == number(certificate)
    assert json.loads(json_bytes(certificate)) == json.loads(whole)


def test_a_silent_node_is_no_fault_of_its_gpus() -> None:
    """All that it lacks has one reason and one action, which do not speak of a GPU; one line says why it is missing."""
    certificate = built()
    quiet = [part for (_, name), part in cells(certificate).items() if name.startswith("node4")]
    assert {part.outcome for part in quiet} == {"NOT MEASURED"}
    assert {part.reason for part in quiet} == {SILENCE}
    assert {part.action for part in quiet} == {"see why node4 was not measured; nobody has looked at its GPUs"}
    assert not any(part.line for part in quiet)
    assert certificate.why == ["node4 gave no answer: expected a login within 10 s, found none; see that it is up"]
    assert certificate.nodes[3].why == ["no answer: expected a login within 10 s, found none; see that it is up"]
    assert len({id(part.reason) for part in quiet}) == 1


def test_a_failure_on_many_nodes_is_one_reason() -> None:
    """What fails alike on many nodes is one line of `why`; what to do names the node."""
    certificate = built(3, bad=("node1/gpu0", "node2/gpu1", "node3/gpu0"))
    clause = profile().clauses[0].id
    assert certificate.why == [f"{clause} FAIL on 3 parts of node[1-3]: ill, expected well"]
    assert certificate.do_next == ["node1: do it", "node2: do it", "node3: do it", "pytest"]


def test_evidence_of_findings_is_bounded() -> None:
    """Every failing part has its line and action; neighbours and kernel log stand at so many of a clause."""
    certificate = built(2, 80, bad=tuple(f"node{n}/gpu{i}" for n in (1, 2) for i in range(80)))
    failed = [part for part in cells(certificate).values() if part.outcome == "FAIL"]
    assert len(failed) == 160
    assert all(part.line and part.action for part in failed)
    assert sum(bool(part.log and part.neighbours) for part in failed) == DIAGNOSED_AT_MOST


def test_a_run_that_opens_says_what_is_known() -> None:
    """Before anything is measured the certificate has no cells and no node is anything but INCOMPLETE; profile,
    assumptions, who gave no answer and how to go on stand there."""
    certificate = built(9, opening=True)
    assert {node.verdict for node in certificate.nodes} == {"INCOMPLETE"}
    assert certificate.why == ["the run has not ended", f"node4 gave no answer: {SILENCE.removeprefix('node4: ')}"]
    assert certificate.suites == []
    assert certificate.profile is not None
    assert certificate.profile.name == "h200-sxm"
    assert certificate.assumptions == ["node[1-9]: no DCGM"]
    assert certificate.do_next == ["pytest"]
    page = drawn(certificate)
    assert "<title>INCOMPLETE, run not ended, 9 nodes, node[1-9]" in page
    assert "h200-sxm" in page
