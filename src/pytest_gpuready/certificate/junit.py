"""The certificate as JUnit XML: one test case per clause and part, and a last one for the verdict itself.

FAIL is a failure, NOT MEASURED and UNSTABLE are errors, NOT APPLICABLE is skipped with its reason. A dashboard that
counts only what is in the file must not turn green by omission: so NOT TESTED stands in it as an error too, and the
case `certificate` is an error unless the run is ACCEPTED. Nor must it turn red by what counts neither way:
a clause that is not required is skipped, and says so, where it would be a failure or an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from pytest_gpuready.certificate.document import Certificate, ClauseEntry

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
    suites = [
        (suite.title, [case for clause in suite.clauses for case in _cases(suite.title, clause)])
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
        kind, message = _CHILD.get(part.outcome, ""), part.line or f"{part.outcome}: {part.reason}"
        if kind and not clause.required and kind != "skipped":
            kind, message = "skipped", f"not required: {message}"
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
