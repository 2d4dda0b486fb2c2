"""Readers of `dcgmi health`, `dcgmi discovery` and `dcgmi --version`."""

from __future__ import annotations

import re

from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.dcgm_expected import exit_findings, unanswered
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_diag import UNREACHABLE, exit_meaning
from pytest_gpuready.parse.dcgm_errors import meaning
from pytest_gpuready.parse.dcgm_messages import error_id
from pytest_gpuready.parse.dcgmi_discovery import Discovery, discovery
from pytest_gpuready.parse.dcgmi_health import WORDS, Health, health

_VERSION = re.compile(r"^\s*dcgmi\s+version:\s*(\d[\w.]*)\s*$", re.MULTILINE)
_BLIND = "what was before the watches: Healthy has been printed beside a failed row remap and double-bit errors"


def read_version(given: Given) -> Reading:
    """The version, which proves nothing about a GPU."""
    found = _VERSION.search(given.head())
    finding = Finding(metric="dcgm.version", outcome="not-measured", suspect="no version in the output")
    if found is not None:
        finding = Finding(metric="dcgm.version", outcome="observed", value=found[1])
    return Reading(
        findings=(finding, *unanswered(given.expect, (), "dcgmi --version")),
        tool_version=found[1] if found else "",
        not_covered=("the machine: a version says nothing about its GPUs",),
    )


def read_health(given: Given) -> Reading:
    """DCGM's own word for the whole and for each part."""
    text, whole = given.text()
    try:
        seen = health(text)
    except ParseError as error:
        findings = [_nothing("dcgm.health", str(error), given.exit_code)]
    else:
        findings = _health(seen, whole)
    failed = any(finding.outcome == "fail" for finding in findings)
    findings += exit_findings(given.exit_code, failed, "dcgm.exit_status", exit_meaning)
    findings += _requested_host(given, text)
    findings += unanswered(given.expect, ("requested_host",), "dcgmi health")
    return Reading(
        findings=tuple(findings),
        not_covered=(_BLIND, "which systems were watched, and for how long", "load: health only watches"),
    )


def _health(seen: Health, whole: bool) -> list[Finding]:
    if not seen.overall and not seen.errors and seen.just_set and seen.complete:
        return [Finding(metric="dcgm.health.watches", outcome="observed", value="set")]
    found = [_nothing("dcgm.health", error, None) for error in seen.errors]
    if seen.errors and not seen.overall:
        return found
    outcome: Outcome = {"Healthy": "pass", "Warning": "fail", "Failure": "fail"}.get(seen.overall, "not-measured")  # type: ignore[assignment]
    suspect = "" if seen.overall in WORDS else "DCGM's word for the overall health cannot be read"
    if outcome == "pass" and seen.just_set:
        outcome, suspect = "not-measured", "the watches were set in the same breath: they hold no data yet"
    sick = [one for one in seen.entities if one[2] != "Healthy"]
    if outcome == "fail":
        suspect = ", ".join(f"{kind} {number}" for kind, number, _ in sick) or "a part that the report does not name"
    if outcome == "pass" and (sick or seen.incidents):
        outcome, suspect = "not-measured", "the report contradicts itself"
    found.append(
        Finding(
            metric="dcgm.health",
            outcome=outcome,
            value=seen.overall or None,
            expected="Healthy",
            source="DCGM's own verdict",
            suspect=suspect,
        )
    )
    for one in seen.incidents:
        part = f"{one.entity} {one.number}"
        known = meaning(error_id(one.text))
        found.append(
            Finding(
                metric=f"dcgm.health.{one.system}",
                outcome="fail" if one.health in ("Warning", "Failure") else "not-measured",
                part=part,
                value=one.health or None,
                expected="Healthy",
                source="DCGM's own verdict",
                suspect=f"{known.suspect_of(part)}: {one.text}"
                if known.id >= 0
                else f"{part}, {one.system}: {one.text}",
                advice=known.remedy,
            )
        )
    if not whole or not seen.complete:
        found.append(Finding(metric="dcgm.complete", outcome="not-measured", suspect="output cut or damaged"))
    return found


def read_discovery(given: Given) -> Reading:
    """How many GPUs DCGM sees, and which."""
    try:
        seen = discovery(given.lines())
    except ParseError as error:
        findings = [_nothing("dcgm.gpus", str(error), given.exit_code)]
    else:
        findings = _discovery(seen, given)
    failed = any(finding.outcome == "fail" for finding in findings)
    findings += exit_findings(given.exit_code, failed, "dcgm.exit_status", exit_meaning)
    findings += _requested_host(given, given.head())
    handled = ("expected_gpus", "gpus_per_node", "expected_model", "requested_host")
    findings += unanswered(given.expect, handled, "dcgmi discovery")
    return Reading(findings=tuple(findings), not_covered=("whether the GPUs work: this is a list of what DCGM sees",))


def _discovery(seen: Discovery, given: Given) -> list[Finding]:
    expect = given.expect
    found = [_nothing("dcgm.gpus", error, None) for error in seen.errors]
    if seen.errors and seen.count is None:
        return found
    wanted = expect.count("expected_gpus")
    wanted = expect.count("gpus_per_node") if wanted is None else wanted
    outcome: Outcome = "observed" if wanted is None else "pass" if seen.count == wanted else "fail"
    suspect = "" if outcome != "fail" else f"GPUs absent: DCGM sees {seen.count} of {wanted}"
    cut = seen.count is None or len({gpu.number for gpu in seen.gpus}) != seen.count
    if cut:
        outcome, suspect = "not-measured", "output cut or damaged: the list does not hold as many GPUs as it says"
    found.append(
        Finding(
            metric="dcgm.gpus",
            outcome=outcome,
            value=seen.count,
            unit="GPUs",
            expected="" if wanted is None else str(wanted),
            source="" if wanted is None else expect.source,
            suspect=suspect,
            advice="" if outcome != "fail" else "compare with lspci and nvidia-smi -L, read dmesg for Xid 79",
        )
    )
    if seen.inactive:
        says = "GPUs that DCGM knows and that are not active"
        found.append(Finding(metric="dcgm.gpus.inactive", outcome="fail", suspect=says, advice="dcgmi discovery -l -a"))
    for gpu in seen.gpus:
        part = f"GPU {gpu.number}"
        if gpu.trouble or gpu.status:
            says = gpu.trouble or f"status {gpu.status}"
            found.append(Finding(metric="dcgm.gpu", outcome="fail", part=part, value=says, suspect=f"{part}: {says}"))
    return [*found, *_models(seen, given)]


def _models(seen: Discovery, given: Given) -> list[Finding]:
    wanted = given.expect.text("expected_model")
    found: list[Finding] = []
    for gpu in seen.gpus:
        outcome: Outcome = "observed" if wanted is None else "pass" if gpu.name == wanted else "fail"
        if not gpu.name:
            outcome = "not-measured"
        suspect = f"GPU {gpu.number} is another model" if outcome == "fail" else ""
        found.append(
            Finding(
                metric="dcgm.model",
                outcome=outcome,
                part=f"GPU {gpu.number}",
                value=gpu.name or None,
                expected=wanted or "",
                source=given.expect.source if wanted else "",
                suspect=suspect if gpu.name else "the list gives no name",
            )
        )
        if gpu.bus_id:
            found.append(Finding(metric="dcgm.bus_id", outcome="observed", part=f"GPU {gpu.number}", value=gpu.bus_id))
    if wanted is not None and not seen.gpus:
        found.append(
            Finding(metric="dcgm.model", outcome="not-measured", expected=wanted, suspect="no GPU in the list")
        )
    return found


def _requested_host(given: Given, text: str) -> list[Finding]:
    wanted = given.expect.text("requested_host")
    if wanted is None:
        return []
    named = wanted in given.command and not UNREACHABLE.search(text)
    return [
        Finding(
            metric="dcgm.requested_host",
            outcome="pass" if named else "not-measured",
            value=wanted if named else None,
            expected=wanted,
            source=given.expect.source,
            suspect="" if named else f"nv-hostengine on {wanted} did not answer, or the command is not known",
        )
    ]


def _nothing(metric: str, says: str, exit_code: int | None) -> Finding:
    host = UNREACHABLE.search(says)
    suspect = f"nv-hostengine on {host[1]} (service down or port blocked)" if host else says
    if not host and "connect to host engine" in says:
        suspect = "nv-hostengine (service down or port blocked)"
    ended = f" (exit code {exit_code}: {exit_meaning(exit_code)})" if exit_code else ""
    return Finding(
        metric=metric,
        outcome="not-measured",
        value=says[:300],
        suspect=f"{suspect}{ended}",
        advice="start nvidia-dcgm (nv-hostengine) there" if "onnect" in says else "keep all of the output",
    )
