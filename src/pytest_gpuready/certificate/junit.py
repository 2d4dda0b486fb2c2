"""The certificate as JUnit XML: one test case per clause and part, and a last one for the verdict itself.

FAIL is a failure, NOT MEASURED and UNSTABLE are errors, NOT APPLICABLE is skipped with its reason. A dashboard that
counts only what is in the file must not turn green by omission: so NOT TESTED stands in it as an error too, and the
case `certificate` is an error unless the run is ACCEPTED. Nor must it turn red by what counts neither way:
a clause that is not required is skipped, and says so, where it would be a failure or an error.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, PartEntry

_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_CHILD = {
    "FAIL": "failure",
    "NOT MEASURED": "error",
    "UNSTABLE": "error",
    "NOT TESTED": "error",
    "NOT APPLICABLE": "skipped",
}


def junit(certificate: Certificate) -> bytes:
    """The JUnit document (the `testsuites` layout that Jenkins and GitLab read), UTF-8."""
    root = ET.Element("testsuites", name="gpuready")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in certificate.suites:
        cases = [_case(suite.title, clause, part) for clause in suite.clauses for part in clause.parts]
        _add(root, certificate, suite.title, cases, totals)
    verdict = ET.Element("testcase", classname="gpuready", name="certificate", time="0")
    if certificate.judged != "ACCEPTED":
        child = ET.SubElement(
            verdict,
            "failure" if certificate.judged == "REJECTED" else "error",
            message=_clean(f"{certificate.verdict}: {certificate.says}"),
        )
        child.text = _clean("\n".join(certificate.why))
    _add(root, certificate, "Certificate", [verdict], totals)
    for name, value in totals.items():
        root.set(name, str(value))
    ET.indent(root)
    # In one piece: given an encoding, ElementTree encodes every name and quote for itself.
    text: str = ET.tostring(root, encoding="unicode")
    return b"<?xml version='1.0' encoding='utf-8'?>\n" + text.encode("utf-8", "xmlcharrefreplace")


def _add(
    root: ET.Element, certificate: Certificate, name: str, cases: list[ET.Element], totals: dict[str, int]
) -> None:
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    for key, value in counts.items():
        totals[key] += value
    attributes = {
        "name": _clean(name),
        "timestamp": certificate.started.split("+")[0],
        "hostname": _clean(_host(certificate)),
        "time": "0",
        **{key: str(value) for key, value in counts.items()},
    }
    suite = ET.SubElement(root, "testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    for key, text in (
        ("gpuready.verdict", certificate.verdict),
        ("gpuready.basis", certificate.basis),
        ("gpuready.certificate", certificate.number),
        (
            "gpuready.profile",
            f"{certificate.profile.name} {certificate.profile.version}" if certificate.profile else "",
        ),
        ("gpuready.level", f"{certificate.level_reached} of {certificate.level_asked}"),
    ):
        ET.SubElement(properties, "property", name=key, value=_clean(text))
    suite.extend(cases)


def _host(certificate: Certificate) -> str:
    node = certificate.nodes[0] if certificate.nodes else None
    return (node.host or node.name) if node else "unknown"


def _case(suite: str, clause: ClauseEntry, part: PartEntry) -> ET.Element:
    case = ET.Element(
        "testcase", classname=_clean(f"gpuready.{suite}"), name=_clean(f"{clause.id}[{part.part}]"), time="0"
    )
    properties = ET.SubElement(case, "properties")
    for key, text in (
        ("clause", clause.id),
        ("sentence", clause.sentence),
        ("outcome", part.outcome),
        ("metric", clause.metric),
        ("value", part.shown),
        ("unit", clause.unit),
        ("limit", clause.limit),
        ("source", clause.source),
        ("evidence", " ".join(part.evidence)),
    ):
        if text:
            ET.SubElement(properties, "property", name=key, value=_clean(text))
    kind = _CHILD.get(part.outcome)
    if kind:
        message = part.line or f"{part.outcome}: {part.reason}"
        if not clause.required and kind != "skipped":
            kind, message = "skipped", f"not required: {message}"
        child = ET.SubElement(case, kind, message=_clean(message))
        if part.log:
            child.text = _clean("\n".join(part.log))
    return case


def _clean(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("?", text)
