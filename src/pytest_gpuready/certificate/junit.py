"""The certificate as JUnit XML: one test case per clause and part, and a last one for the verdict itself.

FAIL is a failure, NOT MEASURED and UNSTABLE are errors, NOT APPLICABLE is skipped with its reason. A dashboard that
counts only what is in the file must not turn green by omission: so NOT TESTED stands in it as an error too, and the
case `certificate` is an error unless the run is ACCEPTED. Nor must it turn red by what counts neither way:
a clause that is not required is skipped, and says so, where it would be a failure or an error.

Dashboards break on a hundred thousand cases. From 5,000 cells on there is one case per clause and *node*, named by
both; it is as bad as the worst of its parts, says how many have which outcome, and spells out each that is not well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry
from pytest_gpuready.certificate.folded import folded

CASES_AT_MOST = 5000
"""Cells of a certificate up to which each has a case of its own."""
_RANK = {"failure": 0, "error": 1, "": 2, "skipped": 3}
"""Of several parts the worst counts; a case is skipped only where all of them are."""
_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_CHILD = {
    "FAIL": "failure",
    "NOT MEASURED": "error",
    "UNSTABLE": "error",
    "NOT TESTED": "error",
    "NOT APPLICABLE": "skipped",
}


@dataclass(frozen=True, slots=True)
class _Case:
    """One test case: what it counts as ("" where it passed) and its lines."""

    kind: str
    text: str


def junit(certificate: Certificate) -> bytes:
    """The JUnit document (the `testsuites` layout that Jenkins and GitLab read), UTF-8."""
    cases_of = _cases if certificate.counts.cells <= CASES_AT_MOST else _cases_of_nodes
    suites = [
        (suite.title, [case for clause in suite.clauses for case in cases_of(suite.title, clause)])
        for suite in certificate.suites
    ]
    suites.append(("Certificate", [_verdict(certificate)]))
    counts = _counts([case for _, cases in suites for case in cases])
    # Written line by line: a tree of elements for a hundred thousand properties takes five times as long.
    lines = [
        "<?xml version='1.0' encoding='utf-8'?>\n",
        f'<testsuites name="gpuready" {counts}>\n',
        *(_suite(certificate, title, cases) for title, cases in suites),
        "</testsuites>",
    ]
    return "".join(lines).encode("utf-8", "xmlcharrefreplace")


def _suite(certificate: Certificate, title: str, cases: list[_Case]) -> str:
    node = certificate.nodes[0] if certificate.nodes else None
    host = (node.host or node.name) if node else "unknown"
    if len(certificate.nodes) > 1:
        host = folded((node.name for node in certificate.nodes), 4)
    profile = certificate.profile
    properties = (
        ("gpuready.verdict", certificate.verdict),
        ("gpuready.basis", certificate.basis),
        ("gpuready.certificate", certificate.number),
        ("gpuready.profile", f"{profile.name} {profile.version}" if profile else ""),
        ("gpuready.level", f"{certificate.level_reached} of {certificate.level_asked}"),
    )
    return (
        f'  <testsuite name="{_attribute(title)}" timestamp="{_attribute(certificate.started.split("+")[0])}" '
        f'hostname="{_attribute(host)}" time="0" {_counts(cases)}>\n'
        "    <properties>\n"
        + "".join(f'      <property name="{name}" value="{_attribute(text)}" />\n' for name, text in properties)
        + "    </properties>\n"
        + "".join(case.text for case in cases)
        + "  </testsuite>\n"
    )


def _counts(cases: list[_Case]) -> str:
    kinds = Counter(case.kind for case in cases)
    failures, errors, skipped = (kinds[kind] for kind in ("failure", "error", "skipped"))
    return f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="{skipped}"'


def _verdict(certificate: Certificate) -> _Case:
    """The last case, about the certificate itself."""
    case = '    <testcase classname="gpuready" name="certificate" time="0"'
    if certificate.judged == "ACCEPTED":
        return _Case("", f"{case} />\n")
    kind = "failure" if certificate.judged == "REJECTED" else "error"
    child = _child(kind, f"{certificate.verdict}: {certificate.says}", certificate.why)
    return _Case(kind, f"{case}>\n{child}    </testcase>\n")


def _cases(suite: str, clause: ClauseEntry) -> list[_Case]:
    """The cases of a clause, one for each part; what they have in common is written once."""
    name = _attribute(f"gpuready.{suite}")
    first = _property("clause", clause.id) + _property("sentence", clause.sentence)
    metric = _property("metric", clause.metric)
    limit = _property("unit", clause.unit) + _property("limit", clause.limit) + _property("source", clause.source)
    cases = []
    for part in clause.parts:
        kind, message = _kind(clause, part)
        text = (
            f'    <testcase classname="{name}" name="{_attribute(f"{clause.id}[{part.part}]")}" time="0">\n'
            "      <properties>\n"
            f"{first}{_property('outcome', part.outcome)}{metric}{_property('value', part.shown)}{limit}"
            f"{_property('evidence', ' '.join(part.evidence))}"
            "      </properties>\n"
            f"{_child(kind, message, part.log) if kind else ''}"
            "    </testcase>\n"
        )
        cases.append(_Case(kind, text))
    return cases


def _cases_of_nodes(suite: str, clause: ClauseEntry) -> list[_Case]:
    """The cases of a clause, one for each node."""
    name = _attribute(f"gpuready.{suite}")
    nodes: dict[str, list[PartEntry]] = {}
    for part in clause.parts:
        nodes.setdefault(part.node, []).append(part)
    first = _property("clause", clause.id) + _property("metric", clause.metric)
    limit = _property("limit", clause.limit)
    cases = []
    for node, parts in nodes.items():
        told = [(*_kind(clause, part), part) for part in parts]
        kind = min((kind for kind, _, _ in told), key=_RANK.__getitem__)
        counts = Counter(part.outcome for part in parts)
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        child = ""
        if kind:
            bad = [(message, part) for own, message, part in told if own == kind]
            others = [message for own, message, _ in told if own not in (kind, "", "skipped")]
            lines = dict.fromkeys([*(m for m, _ in bad[1:] if m != bad[0][0]), *others, *bad[0][1].log])
            child = _child(kind, bad[0][0], tuple(lines))
        text = (
            f'    <testcase classname="{name}" name="{_attribute(f"{clause.id}[{node}]")}" time="0">\n'
            "      <properties>\n"
            f"{first}{_property('outcome', outcomes)}{limit}"
            "      </properties>\n"
            f"{child}"
            "    </testcase>\n"
        )
        cases.append(_Case(kind, text))
    return cases


def _kind(clause: ClauseEntry, part: PartEntry) -> tuple[str, str]:
    """What a cell counts as ("" where it passed), and what is said about it."""
    kind, message = _CHILD.get(part.outcome, ""), part.line or f"{part.outcome}: {part.reason}"
    if kind and not clause.required and kind != "skipped":
        return "skipped", f"not required: {message}"
    return kind, message


def _property(name: str, text: str) -> str:
    return f'        <property name="{name}" value="{_attribute(text)}" />\n' if text else ""


def _child(kind: str, message: str, lines: Sequence[str]) -> str:
    told = f">{escape(_clean(chr(10).join(lines)))}</{kind}>" if lines else " />"
    return f'      <{kind} message="{_attribute(message)}"{told}\n'


def _attribute(text: str) -> str:
    """Text between the quotes of an attribute."""
    return escape(_clean(text), {'"': "&quot;", "\n": "&#10;", "\t": "&#09;"})


def _clean(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("?", text)
