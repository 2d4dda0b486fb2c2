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
from collections.abc import Iterator, Sequence
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
    return b"".join(junit_chunks(certificate))


def junit_chunks(certificate: Certificate) -> Iterator[bytes]:
    """The document in pieces of at most one clause: text, since a tree of elements takes five times as long."""
    by_node = certificate.counts.cells > CASES_AT_MOST
    suites = [(suite, [_grouped(clause, by_node) for clause in suite.clauses]) for suite in certificate.suites]
    verdict = _verdict(certificate)
    counts = [
        Counter(
            _worst(clause, parts)
            for clause, cases in zip(suite.clauses, groups, strict=True)
            for parts in cases.values()
        )
        for suite, groups in suites
    ]
    counts.append(Counter([verdict.kind]))
    yield f"<?xml version='1.0' encoding='utf-8'?>\n<testsuites name=\"gpuready\" {_counted(counts)}>\n".encode()
    for (suite, groups), counted in zip(suites, counts, strict=False):
        yield _encoded(_head(certificate, suite.title, counted))
        for clause, cases in zip(suite.clauses, groups, strict=True):
            yield _encoded("".join(_cases(suite.title, clause, cases, by_node)))
        yield b"  </testsuite>\n"
    yield _encoded(_head(certificate, "Certificate", counts[-1]) + verdict.text)
    yield b"  </testsuite>\n</testsuites>"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "xmlcharrefreplace")


def _grouped(clause: ClauseEntry, by_node: bool) -> dict[str, list[PartEntry]]:
    """The parts of each case of a clause, by what the case is about."""
    cases: dict[str, list[PartEntry]] = {}
    for part in clause.parts:
        cases.setdefault(part.node if by_node else part.part, []).append(part)
    return cases


def _head(certificate: Certificate, title: str, counts: Counter[str]) -> str:
    """The beginning of a suite, with its counts and what holds for the whole run."""
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
        f'hostname="{_attribute(host)}" time="0" {_counted([counts])}>\n'
        "    <properties>\n"
        + "".join(f'      <property name="{name}" value="{_attribute(text)}" />\n' for name, text in properties)
        + "    </properties>\n"
    )


def _counted(counts: Sequence[Counter[str]]) -> str:
    kinds: Counter[str] = sum(counts, Counter())
    failures, errors, skipped = (kinds[kind] for kind in ("failure", "error", "skipped"))
    return f'tests="{kinds.total()}" failures="{failures}" errors="{errors}" skipped="{skipped}"'


def _verdict(certificate: Certificate) -> _Case:
    """The last case, about the certificate itself."""
    case = '    <testcase classname="gpuready" name="certificate" time="0"'
    if certificate.judged == "ACCEPTED":
        return _Case("", f"{case} />\n")
    kind = "failure" if certificate.judged == "REJECTED" else "error"
    child = _child(kind, f"{certificate.verdict}: {certificate.says}", certificate.why)
    return _Case(kind, f"{case}>\n{child}    </testcase>\n")


def _cases(suite: str, clause: ClauseEntry, cases: dict[str, list[PartEntry]], by_node: bool) -> Iterator[str]:
    """The cases of a clause; what they have in common is written once."""
    name = _attribute(f"gpuready.{suite}")
    metric, limit = (
        _property("metric", clause.metric),
        _property("limit", clause.limit) + _property("peers", clause.peers),
    )
    first = _property("clause", clause.id) + ("" if by_node else _property("sentence", clause.sentence))
    if not by_node:
        limit = _property("unit", clause.unit) + limit + _property("source", clause.source)
    for about, parts in cases.items():
        if by_node:
            said, child = _of_node(clause, parts)
            own = _property("outcome", said) + metric + limit
        else:
            part = parts[0]
            kind, message = _kind(clause, part)
            child = _child(kind, message, part.log) if kind else ""
            own = (
                f"{_property('outcome', part.outcome)}{metric}{_property('value', part.shown)}{limit}"
                f"{_property('evidence', ' '.join(part.evidence))}"
            )
        yield (
            f'    <testcase classname="{name}" name="{_attribute(f"{clause.id}[{about}]")}" time="0">\n'
            f"      <properties>\n{first}{own}      </properties>\n{child}    </testcase>\n"
        )


def _of_node(clause: ClauseEntry, parts: list[PartEntry]) -> tuple[str, str]:
    """Outcomes and child of a case about all parts of a node: the worst in front, then all others that are not well."""
    counts = Counter(part.outcome for part in parts)
    kind = _worst(clause, parts)
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    if not kind:
        return said, ""
    told = [(*_kind(clause, part), part) for part in parts]
    messages = [message for own, message, _ in told if own == kind]
    others = [message for own, message, _ in told if own not in (kind, "", "skipped")]
    log = next(part.log for own, _, part in told if own == kind)
    lines = dict.fromkeys([*messages, *others, *log])
    lines.pop(messages[0], None)
    return said, _child(kind, messages[0], tuple(lines))


def _worst(clause: ClauseEntry, parts: list[PartEntry]) -> str:
    """What a case about these parts counts as."""
    return min((_counts_as(clause, part) for part in parts), key=_RANK.__getitem__)


def _counts_as(clause: ClauseEntry, part: PartEntry) -> str:
    """What a cell counts as; "" where it passed."""
    kind = _CHILD.get(part.outcome, "")
    return "skipped" if kind and not clause.required else kind


def _kind(clause: ClauseEntry, part: PartEntry) -> tuple[str, str]:
    """What a cell counts as, and what is said about it."""
    kind, message = _counts_as(clause, part), part.line or f"{part.outcome}: {part.reason}"
    return kind, message if clause.required or part.outcome == "NOT APPLICABLE" else f"not required: {message}"


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
