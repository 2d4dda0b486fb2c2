"""Answers of Ray Serve: the health reply of a proxy, routes, application status, metrics.

The health reply is plain text without an end of line; an unhealthy proxy says why, under status 503.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pytest_gpuready.audit.asked import unanswered, unreadable, within
from pytest_gpuready.audit.http_body import Body, body_of, failed_transfer, is_stream, judged_error
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.vllm_http import METRICS_ONCE, cut_metrics, stream, total
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.openai_answer import error_body, parse_stream
from pytest_gpuready.parse.prometheus import Metrics, parse_prometheus

HEALTHY = "success"
UNHEALTHY: dict[str, str] = {
    "This node is being drained.": "operation: the node is being drained (scaled down or taken out), not a defect",
    "Route table is not populated yet.": "Serve is still starting: the proxy has no routes from the controller yet",
    "No replicas are available yet.": "no replica runs yet: still starting, or the replicas cannot be placed on a GPU",
}
FAILURES = ("ray_serve_num_http_error_requests_total", "ray_serve_http_request_error_total")
PROXY_ONLY = (
    "a healthy proxy: whether the application behind it answers and its replicas are up is not in this reply",
    "one node's proxy at one moment",
)
_GOOD = {"RUNNING", "HEALTHY"}
_COMING = {
    "DEPLOYING",
    "UPDATING",
    "NOT_STARTED",
    "STARTING",
    "UPSCALING",
    "DOWNSCALING",
    "DELETING",
    "DRAINING",
    "DRAINED",
}


def read(given: Given) -> Reading:
    """What an answer of Ray Serve says."""
    owed = [*unanswered(given, "a Ray Serve answer", ("max_failures", "max_tokens")), *failed_transfer(given)]
    body = body_of(given)
    head = body.head()
    metric = _metric(given, head)
    try:
        findings, notes = _kind(body, head, metric, given)
    except ParseError as error:
        findings, notes = [unreadable(metric, str(error))], PROXY_ONLY
    if metric != "serve.metrics" and given.expect.number("max_failures") is not None:
        owed.append(unreadable("max_failures", "this reply does not count failures: audit the metrics"))
    if metric != "serve.stream" and given.expect.number("max_tokens") is not None:
        owed.append(unreadable("max_tokens", "this reply carries no token count"))
    return Reading(findings=(*findings, *owed), not_covered=notes)


def _metric(given: Given, head: str) -> str:
    command = given.command.lower()
    said = head.strip()
    if "/metrics" in command or re.search(r"^(# (HELP|TYPE) |ray_)", head, re.M):
        return "serve.metrics"
    if "healthz" in command or said == HEALTHY or said in UNHEALTHY:
        return "serve.health"
    if "/-/routes" in command:
        return "serve.routes"
    if "/api/serve" in command or '"applications"' in head or "serve status" in command:
        return "serve.applications"
    return "serve.stream" if is_stream(head) else "serve.request"


def _kind(body: Body, head: str, metric: str, given: Given) -> tuple[list[Finding], tuple[str, ...]]:
    if metric == "serve.metrics" and (body.status is None or body.status < 400):
        return _metrics(parse_prometheus(body.lines(), ("ray_",)), given), METRICS_ONCE
    if is_stream(head):
        return stream(parse_stream(body.chunks()), body.status, given), PROXY_ONLY
    said = head.strip()
    if body.longer() and head.lstrip()[:1] not in ("{", "["):
        raise ParseError("Ray Serve: expected a reply of at most 64 KiB, found more; save one reply")
    if metric == "serve.health" or said in UNHEALTHY:
        return [_health(said, body.status, metric)], PROXY_ONLY
    if head.lstrip()[:1] in ("{", "["):
        return _json(body, metric), PROXY_ONLY
    return [judged_error(metric, " ".join(head.split())[:300] or "an empty body", body.status)], PROXY_ONLY


def _health(said: str, status: int | None, metric: str) -> Finding:
    """The reply as it is, beside the status: only "success" under 200 is healthy; a contradiction is no reply."""
    outcome: Outcome = "not-measured"
    suspect = f"the reply is neither {HEALTHY!r} nor one of Serve's messages: another server, or a proxy in between"
    if said == HEALTHY and (status is None or 200 <= status < 300):
        outcome, suspect = "pass", ""
    elif said == HEALTHY:
        suspect = f"{HEALTHY!r} under status {status}: the two contradict each other"
    elif said in UNHEALTHY:
        outcome, suspect = "fail", UNHEALTHY[said]
    elif status is not None and status >= 500:
        outcome, suspect = "fail", "Ray Serve proxy is not healthy; see its log"
    return Finding(
        metric=metric,
        outcome=outcome,
        value=said[:300],
        expected=HEALTHY,
        source="the server's health reply",
        suspect=suspect,
    )


def _json(body: Body, metric: str) -> list[Finding]:
    try:
        document = body.document()
    except ValueError as error:
        return [unreadable(metric, f"expected JSON, found {str(error)[:120]}: cut, or not an answer")]
    found = error_body(document)
    if found is not None:
        return [judged_error(metric, found.message, found.code or body.status)]
    if isinstance(document, dict) and isinstance(document.get("applications"), dict):
        return list(_applications(document))
    if isinstance(document, dict) and metric == "serve.routes":
        good = bool(document) and (body.status is None or body.status < 400)
        routes: list[float | int | str] = [f"{route} {app}"[:120] for route, app in list(document.items())[:100]]
        suspect = "" if good else "no application is deployed, or this proxy does not know it yet"
        return [
            Finding(
                metric=metric, outcome="pass" if good else "fail", value=routes, expected="a route", suspect=suspect
            )
        ]
    if body.status is not None and body.status >= 400:
        return [judged_error(metric, "an answer under an error status", body.status)]
    return [Finding(metric=metric, outcome="observed", value="JSON")]


def _applications(document: dict[str, Any]) -> Iterator[Finding]:
    """Applications, their deployments and the proxies, each with its status."""
    if not document["applications"]:
        yield Finding(
            metric="serve.applications",
            outcome="fail",
            value=0,
            expected="an application",
            suspect="nothing is deployed",
        )
    for name, application in document["applications"].items():
        yield _status(str(name), application)
        deployments = application.get("deployments") if isinstance(application, dict) else None
        for inner, deployment in deployments.items() if isinstance(deployments, dict) else ():
            yield _status(f"{name}/{inner}", deployment)
    proxies = document.get("proxies")
    for node, proxy in proxies.items() if isinstance(proxies, dict) else ():
        yield _status(f"proxy {node}", proxy if isinstance(proxy, dict) else {"status": proxy})


def _status(part: str, entry: Any) -> Finding:
    word = str(entry.get("status") or "") if isinstance(entry, dict) else ""
    outcome: Outcome = "pass" if word in _GOOD else "not-measured" if word in _COMING or not word else "fail"
    message = str(entry.get("message") or "")[:200] if isinstance(entry, dict) else ""
    says = {"pass": "", "not-measured": "not settled yet", "fail": f"deployment {part}: {word}; see its replicas' logs"}
    return Finding(
        metric="serve.applications",
        outcome=outcome,
        part=part[:120],
        value=word or None,
        expected="RUNNING or HEALTHY",
        source="Ray Serve's own status",
        suspect=says[outcome],
        advice=message,
    )


def _metrics(found: Metrics, given: Given) -> list[Finding]:
    serve = [s for s in found.samples if s.name.startswith("ray_serve_")]
    requests = total(found.named("ray_serve_num_http_requests_total", "ray_serve_num_http_requests"))
    errors = total(found.named(*FAILURES)) if found.named(*FAILURES) else None
    findings = cut_metrics(found)
    whole = bool(serve) and requests is not None
    findings.append(
        Finding(
            metric="serve.metrics",
            outcome="pass" if whole else "not-measured",
            value="complete" if whole else "incomplete",
            expected="requests of Serve",
            source="Ray Serve's metrics",
            suspect="" if whole else "no count of HTTP requests in ray_serve_ metrics",
        )
    )
    if requests is not None:
        findings.append(Finding(metric="serve.requests", outcome="observed", value=requests, unit="requests"))
    limit = given.expect.number("max_failures")
    suspect = "requests failed; see the replicas' logs"
    findings += within(
        errors, limit, metric="serve.failures", part="", unit="requests", source=given.expect.source, suspect=suspect
    )
    if limit is None and errors is not None:
        findings.append(Finding(metric="serve.failures", outcome="observed", value=errors, unit="requests"))
    return findings
