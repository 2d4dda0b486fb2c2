"""Answers of the Triton inference server: inference, streams, errors, health, model statistics, metrics.

An ensemble and its members count the same requests, so counts are never added over models. Statistics of time are
left alone: requests that clients cancelled spoil their sums.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pytest_gpuready.audit.asked import unanswered, unreadable
from pytest_gpuready.audit.http_body import Body, body_of, failed_transfer, is_stream, judged_error
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.vllm_http import (
    METRICS_ONCE,
    ONE_ANSWER,
    count,
    cut_metrics,
    empty,
    stream,
)
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.openai_answer import Answer, error_body, parse_stream
from pytest_gpuready.parse.prometheus import Metrics, Sample, parse_prometheus

SUCCESS, FAILURE = "nv_inference_request_success", "nv_inference_request_failure"
NO_END = "generate_stream has no end mark: the stream can have been cut between two events"


def read(given: Given) -> Reading:
    """What an answer of Triton says."""
    owed = [*unanswered(given, "a Triton answer", ("max_tokens", "max_failures")), *failed_transfer(given)]
    body = body_of(given)
    head = body.head()
    metric = _metric(given, head)
    version = ""
    try:
        findings, notes = _kind(body, head, metric, given)
    except ParseError as error:
        findings, notes = [unreadable(metric, str(error))], ONE_ANSWER
    if metric == "serve.server" and (found := re.search(r'"version"\s*:\s*"([\w.]{1,20})"', head)):
        version = found[1]
    if metric != "serve.metrics" and given.expect.number("max_failures") is not None and metric != "serve.statistics":
        owed.append(unreadable("max_failures", "this answer does not count failures: audit the server's metrics"))
    if given.expect.number("max_tokens") is not None:
        owed.append(unreadable("max_tokens", "Triton's answers carry no token count"))
    return Reading(findings=(*findings, *owed), tool_version=version, not_covered=notes)


_BY_COMMAND: tuple[tuple[str, str], ...] = (
    (r"/metrics", "serve.metrics"),
    (r"/health/|/ready\b|/live\b", "serve.health"),
    (r"/stats", "serve.statistics"),
    (r"/repository/index", "serve.models"),
    (r"generate_stream", "serve.stream"),
)
_BY_TEXT: tuple[tuple[str, str], ...] = (
    (r"(?m)^(# (HELP|TYPE) |nv_)", "serve.metrics"),
    (r'"model_stats"', "serve.statistics"),
    (r'"extensions"', "serve.server"),
)


def _metric(given: Given, head: str) -> str:
    """What was asked: by the command, else by what came."""
    command = given.command.lower()
    named = next((metric for pattern, metric in _BY_COMMAND if re.search(pattern, command)), "")
    if named or is_stream(head):
        return named or "serve.stream"
    return next((metric for pattern, metric in _BY_TEXT if re.search(pattern, head)), "serve.infer")


def _kind(body: Body, head: str, metric: str, given: Given) -> tuple[list[Finding], tuple[str, ...]]:
    if not head.strip():
        return [empty(metric, body.status, given)], ()
    if is_stream(head):
        return _stream(parse_stream(body.chunks()), body.status, given), (*ONE_ANSWER, NO_END)
    if head.lstrip()[:1] in ("{", "["):
        return _json(body, metric, given), ONE_ANSWER
    if metric == "serve.metrics" and (body.status is None or body.status < 400):
        return _metrics(parse_prometheus(body.lines(), ("nv_",)), given), METRICS_ONCE
    return [judged_error(metric, " ".join(head.split())[:300], body.status)], ()


def _stream(answer: Answer, status: int | None, given: Given) -> list[Finding]:
    """generate_stream: no end mark, so it is whole only where the transfer is known to have ended well."""
    findings = [f for f in stream(answer, status, given) if f.metric not in ("serve.done", "serve.completion_tokens")]
    if not answer.native or answer.errors or (status is not None and status >= 400):
        return findings
    outcome: Outcome = "observed"
    suspect = ""
    if answer.partial or answer.unreadable or not answer.spoke:
        outcome, suspect = "not-measured", "the last event is cut, is no JSON or carries no text: connection or server"
    elif given.exit_code is not None:
        outcome = "pass"
    ended = Finding(
        metric="serve.stream",
        outcome=outcome,
        value=f"{answer.events} events",
        source="the stream itself",
        suspect=suspect,
    )
    return [ended, *(f for f in findings if f.metric != "serve.stream")]


def _json(body: Body, metric: str, given: Given) -> list[Finding]:
    try:
        document = body.document()
    except ValueError as error:
        return [unreadable(metric, f"expected JSON, found {str(error)[:120]}: cut, or not an answer")]
    error_found = error_body(document)
    bad = body.status is not None and body.status >= 400
    if error_found is not None or bad:
        says = error_found.message if error_found else "an answer under an error status"
        return [judged_error(metric, says, body.status)]
    if isinstance(document, list):
        return list(_index(document))
    if not isinstance(document, dict):
        raise ParseError("triton: expected an object, found something else; record the answer again")
    if isinstance(document.get("model_stats"), list):
        return list(_statistics(document["model_stats"], given))
    if isinstance(document.get("outputs"), list) or isinstance(document.get("text_output"), str):
        return [_infer(document)]
    return list(_facts(document))


def _infer(document: dict[str, Any]) -> Finding:
    """An answer with outputs: each must have a name, a type, a shape, and data of that many elements."""
    why = ""
    names: list[float | int | str] = []
    for output in document.get("outputs") or ():
        shape = output.get("shape") if isinstance(output, dict) else None
        if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
            why = "an output without a shape"
            continue
        names.append(str(output.get("name"))[:100])
        elements = 1
        for n in shape:
            elements *= n
        data = output.get("data")
        if isinstance(data, list) and not any(isinstance(d, list) for d in data) and len(data) != elements:
            why = f"{names[-1]} has {len(data)} of {elements} elements"
        if isinstance(data, list) and any(isinstance(d, float) and d != d for d in data):  # noqa: PLR0124 - NaN
            why = f"{names[-1]} holds values that are no numbers"
    if "outputs" in document and not document["outputs"]:
        why = "no outputs"
    return Finding(
        metric="serve.infer",
        outcome="not-measured" if why else "pass",
        part=str(document.get("model_name") or "")[:100],
        value=names or None,
        expected="outputs",
        source="the server's answer",
        suspect=why,
    )


def _facts(document: dict[str, Any]) -> Iterator[Finding]:
    """Metadata of the server or a model."""
    name = document.get("name")
    if not isinstance(name, str):
        raise ParseError("triton: expected outputs, statistics, metadata or an error, found none; record it again")
    yield Finding(metric="serve.server", outcome="observed", value=name[:100])


def _index(models: list[Any]) -> Iterator[Finding]:
    """The repository index: models that are there and how they are."""
    if not models:
        yield Finding(
            metric="serve.models", outcome="fail", value=0, expected="a model", suspect="server: no model is there"
        )
    for model in models:
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            raise ParseError("triton: expected models with names, found something else; record the answer again")
        state, reason = str(model.get("state") or ""), str(model.get("reason") or "")
        idle = reason in ("", "unloaded") and state != "READY"
        outcome: Outcome = "pass" if state == "READY" else "observed" if idle else "fail"
        yield Finding(
            metric="serve.models",
            outcome=outcome,
            part=f"{model['name']}/{model.get('version', '')}"[:120].rstrip("/"),
            value=state or "not loaded",
            expected="READY",
            source="the server's own index",
            suspect=f"model failed to load: {reason[:200]}" if outcome == "fail" else "",
        )


def _statistics(models: list[Any], given: Given) -> Iterator[Finding]:
    limit = given.expect.number("max_failures")
    for model in models:
        inference = model.get("inference_stats") if isinstance(model, dict) else None
        counts = {
            kind: entry["count"]
            for kind in ("success", "fail", "cancel")
            if isinstance(inference, dict)
            and isinstance(entry := inference.get(kind), dict)
            and isinstance(entry.get("count"), int)
        }
        part = f"{model.get('name')}/{model.get('version')}"[:120] if isinstance(model, dict) else ""
        if "success" not in counts or "fail" not in counts:
            yield unreadable("serve.statistics", f"no counts of success and failure for {part or 'a model'}")
            continue
        yield Finding(metric="serve.success", outcome="observed", part=part, value=counts["success"], unit="requests")
        bad = counts["fail"] > (limit or 0)
        yield Finding(
            metric="serve.statistics",
            outcome="fail" if bad else "pass",
            part=part,
            value=counts["fail"],
            unit="failed requests",
            expected=f"<= {limit or 0:g}",
            source=given.expect.source if limit is not None else "the server's own count",
            suspect=f"requests failed on {part}; see server log" if bad else "",
        )


def _model(sample: Sample) -> str:
    return f"{sample.labels.get('model', '?')}/{sample.labels.get('version', '?')}"


def _metrics(found: Metrics, given: Given) -> list[Finding]:
    """Requests by model (and GPU), failures by model and reason; one model's failures against the limit."""
    success, failure = found.named(SUCCESS), found.named(FAILURE)
    findings = [*cut_metrics(found), *_successes(success), *_failures(failure, given)]
    members = {_model(s) for s in success if "gpu_uuid" in s.labels}
    entries = {_model(s) for s in success} - members or members
    why = ""
    if not success:
        why = f"no sample of {SUCCESS}"
    elif any(count(s) is None for s in (*success, *failure)):
        why = "a counter is no count (NaN, negative or wrapped around)"
    elif not entries <= {_model(s) for s in failure}:
        why = f"no sample of {FAILURE} for {', '.join(sorted(entries - {_model(s) for s in failure}))[:200]}"
    findings.append(
        Finding(
            metric="serve.metrics",
            outcome="not-measured" if why else "pass",
            value="incomplete" if why else "complete",
            expected="success and failure of every model",
            source="Triton's metrics",
            suspect=why,
        )
    )
    return findings


def _successes(samples: list[Sample]) -> Iterator[Finding]:
    for s in samples:
        gpu = s.labels.get("gpu_uuid") or s.labels.get("gpu")
        value = count(s)
        if value is not None:
            part = _model(s) + (f" {gpu}" if gpu else "")
            yield Finding(metric="serve.success", outcome="observed", part=part, value=value, unit="requests")


def _failures(samples: list[Sample], given: Given) -> Iterator[Finding]:
    limit = given.expect.number("max_failures")
    by_model: dict[str, list[Sample]] = {}
    for s in samples:
        by_model.setdefault(_model(s), []).append(s)
    if limit is not None and not samples:
        yield unreadable("serve.metrics", f"no sample of {FAILURE}: failures are not counted here")
    for model, own in by_model.items():
        counts = [c for s in own if (c := count(s)) is not None]
        number = sum(counts)
        reasons = sorted({s.labels["reason"] for s in own if s.labels.get("reason") and s.value > 0})
        bad = number > (limit or 0)
        said = f" (reason {', '.join(reasons)})" if reasons else ""
        name = model.rpartition("/")[0]
        yield Finding(
            metric="serve.metrics",
            outcome="fail" if bad else "pass",
            part=model,
            value=number,
            unit="failed requests",
            expected=f"<= {limit or 0:g}",
            source=given.expect.source if limit is not None else "the server's own count",
            suspect=f"requests failed on the {name}{said}; see server log" if bad else "",
            advice="CANCELED: the client left" if bad and reasons == ["CANCELED"] else "",
        )
