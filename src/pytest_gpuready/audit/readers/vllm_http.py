"""Answers of vLLM and other OpenAI-style servers: streams, whole answers, errors, health, models, metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pytest_gpuready.audit.asked import ADVICE_CUT, unanswered, unreadable, within
from pytest_gpuready.audit.http_body import Body, body_of, failed_transfer, is_stream, judged_error
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.openai_answer import Answer, error_body, parse_stream, parse_whole
from pytest_gpuready.parse.prometheus import Metrics, Sample, parse_prometheus

PATH = "connection path (proxy/idle timeout) or server crash; not decided here"
ONE_ANSWER = (
    "one answer: no load, no time to first token, no gap between tokens and no second request is in it",
    "whether the text is right for the model is not judged",
)
METRICS_ONCE = (
    "counters run since the server was started: a reading says nothing about now, the difference of two does",
    "the format has no end mark: a metric that was cut off cannot be told from one that the server lacks",
)
GOOD_ENDS = {"stop", "length", "repetition"}
_CLEAN = {"stop", "length", "tool_calls", "function_call", "content_filter", "stop_sequence", "eos_token"}


def read(given: Given) -> Reading:
    """What an answer of an OpenAI-style server says."""
    owed = [*unanswered(given, "an OpenAI-style answer", ("max_tokens", "max_failures")), *failed_transfer(given)]
    body = body_of(given)
    head = body.head()
    try:
        findings, notes = _kind(body, head, given)
    except ParseError as error:
        findings, notes = [unreadable(_metric(given, head), str(error))], ONE_ANSWER
    return Reading(findings=(*findings, *owed), not_covered=notes)


def _metric(given: Given, head: str) -> str:
    command = given.command.lower()
    if "/metrics" in command or re.search(r"^(# (HELP|TYPE) |vllm:)", head, re.M):
        return "serve.metrics"
    if re.search(r"/(health|ping|healthz|ready|live)\b", command):
        return "serve.health"
    if "/models" in command:
        return "serve.models"
    return "serve.stream" if "stream" in command or is_stream(head) else "serve.completion"


def _kind(body: Body, head: str, given: Given) -> tuple[list[Finding], tuple[str, ...]]:
    metric = _metric(given, head)
    start = head.lstrip()[:1]
    if not head.strip():
        return [empty(metric, body.status, given)], ()
    if is_stream(head):
        return stream(parse_stream(body.chunks()), body.status, given), ONE_ANSWER
    if start in ("{", "["):
        return _json(body, metric, given), ONE_ANSWER
    if metric == "serve.metrics" and (body.status is None or body.status < 400):
        return metrics(parse_prometheus(body.lines(), ("vllm:",)), given), METRICS_ONCE
    return [judged_error(metric, " ".join(head.split())[:300], body.status)], ()


def empty(metric: str, status: int | None, given: Given) -> Finding:
    """An empty body: the reply of a health end point, whose status is all it says."""
    outcome: Outcome = "not-measured"
    if metric == "serve.health" and status is not None:
        outcome = "pass" if 200 <= status < 300 else "fail"
    bad = f"server answers {status}: not healthy, still loading or shut down; see server log"
    return Finding(
        metric=metric,
        outcome=outcome,
        value=status,
        expected="200" if metric == "serve.health" else "an answer",
        source="the server's health reply",
        suspect=bad if outcome == "fail" else "the body is empty" if outcome != "pass" else "",
    )


def _json(body: Body, metric: str, given: Given) -> list[Finding]:
    try:
        document = body.document()
    except ValueError as error:
        return [unreadable(metric, f"expected JSON, found {str(error)[:120]}: {PATH}")]
    if error_body(document) is None and isinstance(document, dict) and "choices" not in document:
        return _listing(document, body.status)
    answer = parse_whole(document)
    return stream(answer, body.status, given, metric="serve.completion" if answer.finish else metric)


def _listing(document: dict[str, object], status: int | None) -> list[Finding]:
    """Models, a version, or something that is no answer."""
    data = document.get("data")
    if document.get("object") == "list" and isinstance(data, list):
        names = [str(m["id"])[:100] for m in data if isinstance(m, dict) and isinstance(m.get("id"), str)]
        good = bool(names) and (status is None or status < 400)
        return [
            Finding(
                metric="serve.models",
                outcome="pass" if good else "fail",
                value=list(names[:100]),
                expected="a model",
                source="the server's own list",
                suspect="" if good else "server: no model is served",
            )
        ]
    if isinstance(document.get("version"), str):
        return [Finding(metric="serve.version", outcome="observed", value=str(document["version"])[:60])]
    raise ParseError("answer: expected choices, a list of models or an error, found none; record the answer again")


def stream(answer: Answer, status: int | None, given: Given, *, metric: str = "serve.stream") -> list[Finding]:
    """An answer: did it come whole, how did it end, how many tokens; an error in it is judged as one."""
    findings: list[Finding] = []
    if answer.errors:
        first = answer.errors[0]
        said = " ".join(f"{first.kind} {first.message}".split())
        found = judged_error(metric, said, first.code or status)
        late = answer.spoke and found.outcome == "not-measured" and not found.suspect.startswith("test config")
        findings.append(_late(found) if late else found)
    elif status is not None and status >= 400:
        findings.append(judged_error(metric, answer.text[:200] or "an answer under an error status", status))
    else:
        findings.append(_ended(answer, metric))
    findings += _tokens(answer, given)
    findings += _told(answer)
    return findings


def _late(found: Finding) -> Finding:
    """An error after the first text: the request was good and the server broke it off."""
    return Finding(
        metric=found.metric,
        outcome="fail",
        value=found.value,
        source=found.source,
        suspect="server: an error after the first tokens, under status 200; see server log",
    )


def _ended(answer: Answer, metric: str) -> Finding:
    bad = [r for r in answer.finish.values() if r in ("abort", "error", "cancelled")]
    outcome: Outcome = "pass"
    suspect = ""
    if bad:
        outcome, suspect = "fail", f"server ended the answer with {bad[0]!r}; see server log"
    elif not answer.finished:
        outcome, suspect = "not-measured", f"{_missing(answer)}: {PATH}"
    elif not answer.spoke:
        outcome, suspect = "not-measured", "no generated text in any channel"
    elif not set(answer.finish.values()) <= _CLEAN:
        outcome, suspect = "not-measured", "a finish reason that is not known"
    return Finding(
        metric=metric,
        outcome=outcome,
        value="whole" if answer.finished else "incomplete",
        expected="finish reason and end mark",
        source="the stream itself",
        suspect=suspect,
        advice=""
        if outcome == "pass"
        else "send the request again, past the proxy"
        if outcome == "not-measured"
        else "",
    )


def _missing(answer: Answer) -> str:
    if answer.partial:
        return "the last event is cut"
    if answer.unreadable:
        return f"{answer.unreadable} events are no JSON"
    return "no finish reason" if not answer.finish or None in answer.finish.values() else "no [DONE]"


def _tokens(answer: Answer, given: Given) -> Iterator[Finding]:
    limit = given.expect.number("max_tokens")
    count = answer.completion_tokens
    if not answer.usage_sound:
        yield unreadable("serve.completion_tokens", "usage contradicts itself: prompt + completion is not total")
    elif limit is not None:
        for found in within(
            count,
            limit,
            metric="serve.completion_tokens",
            part="",
            unit="tokens",
            source=given.expect.source,
            suspect="server: more tokens than asked for",
        ):
            lost = found.outcome == "not-measured"
            yield _no_usage(found) if lost else found
    elif count is not None:
        yield Finding(metric="serve.completion_tokens", outcome="observed", value=count, unit="tokens")
    if given.expect.number("max_failures") is not None:
        yield unreadable("max_failures", "one answer does not count failures: audit the server's metrics")


def _no_usage(found: Finding) -> Finding:
    return Finding(
        metric=found.metric,
        outcome="not-measured",
        expected=found.expected,
        source=found.source,
        suspect="the answer carries no usage, and an event is not a token",
        advice="ask with stream_options.include_usage",
    )


def _told(answer: Answer) -> Iterator[Finding]:
    reasons = sorted({str(r) for r in answer.finish.values() if r})
    told: list[tuple[str, str | int]] = [
        ("serve.text", answer.text[:500]),
        ("serve.events", answer.events),
        ("serve.text_events", answer.text_events),
        ("serve.done", str(answer.done).lower()),
        ("serve.partial_tail", str(answer.partial).lower()),
    ]
    for metric, value in told:
        if value != "":
            yield Finding(metric=metric, outcome="observed", value=value)
    yield Finding(metric="serve.finish_reason", outcome="observed", value=", ".join(reasons) or None)


def count(sample: Sample) -> int | None:
    """A counter as a whole number that a counter can have, or None (NaN, negative, wrapped around)."""
    value = sample.value
    return int(value) if math.isfinite(value) and 0 <= value < 2**53 and value.is_integer() else None


def total(samples: list[Sample]) -> int | None:
    """The sum, or None where one of them is no count or there is none."""
    counts = [count(s) for s in samples]
    return sum(c for c in counts if c is not None) if counts and None not in counts else None


def cut_metrics(found: Metrics) -> list[Finding]:
    """What shows that lines are missing or broken."""
    says = [f"a line is none of the format: {found.malformed[0]!r}"] if found.malformed else []
    says += ["the text ends inside a line or after the heading of a metric"] if found.cut else []
    return [Finding(metric="serve.metrics", outcome="not-measured", suspect=why, advice=ADVICE_CUT) for why in says]


def metrics(found: Metrics, given: Given) -> list[Finding]:
    """vLLM's metrics, summed over engines; complete when every engine tells running, waiting and requests."""
    running, waiting = found.named("vllm:num_requests_running"), found.named("vllm:num_requests_waiting")
    ended = found.named("vllm:request_success_total", "vllm:request_success")
    good = [s for s in ended if s.labels.get("finished_reason") in GOOD_ENDS]
    failed = [s for s in ended if s.labels.get("finished_reason") not in GOOD_ENDS]
    findings = [_complete(running, waiting, ended), *cut_metrics(found)]
    told: list[tuple[str, int | None]] = [
        ("serve.running", total(running)),
        ("serve.waiting", total(waiting)),
        ("serve.success_total", total(good)),
        ("serve.engines", len({s.labels.get("engine", "") for s in running}) or None),
        ("serve.preemptions", total(found.named("vllm:num_preemptions_total"))),
    ]
    findings += [Finding(metric=m, outcome="observed", value=v) for m, v in told if v is not None]
    for sample in found.named("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        if math.isfinite(sample.value):
            part = f"engine {sample.labels['engine']}" if "engine" in sample.labels else ""
            findings.append(Finding(metric="serve.kv_cache_usage", outcome="observed", part=part, value=sample.value))
    findings += _failures(failed, given)
    if corrupted := total(found.named("vllm:corrupted_requests_total", "vllm:corrupted_requests")):
        suspect = "GPU or weights of the server: logits that are no numbers; see server log"
        findings.append(
            Finding(metric="serve.corrupted", outcome="fail", value=corrupted, expected="0", suspect=suspect)
        )
    if given.expect.number("max_tokens") is not None:
        findings.append(unreadable("max_tokens", "metrics do not say how long an answer was: audit the answer"))
    return findings


def _complete(running: list[Sample], waiting: list[Sample], ended: list[Sample]) -> Finding:
    def engines(samples: list[Sample]) -> set[tuple[str, str]]:
        return {(s.labels.get("engine", ""), s.labels.get("model_name", "")) for s in samples}

    reasons: dict[tuple[str, str], set[str]] = {}
    for s in ended:
        key = (s.labels.get("engine", ""), s.labels.get("model_name", ""))
        reasons.setdefault(key, set()).add(s.labels.get("finished_reason", ""))
    why = ""
    if not running or not waiting or not ended:
        missing = [n for n, v in (("running", running), ("waiting", waiting), ("success", ended)) if not v]
        why = f"no sample of {', '.join(missing)} requests"
    elif engines(running) != engines(waiting) or engines(running) != set(reasons):
        why = "engines differ between the metrics: lines are missing"
    elif len({frozenset(r) for r in reasons.values()}) > 1:
        why = "finish reasons differ between the engines: lines are missing"
    elif None in (total(running), total(waiting), total(ended)):
        why = "a counter is no count (NaN, negative or wrapped around)"
    return Finding(
        metric="serve.metrics",
        outcome="not-measured" if why else "pass",
        value="incomplete" if why else "complete",
        expected="running, waiting and requests of every engine",
        source="vLLM's metrics",
        suspect=why,
    )


def _failures(failed: list[Sample], given: Given) -> Iterator[Finding]:
    """Requests that ended otherwise than by stop or length: an abort is a client that left, an error is not."""
    limit, number = given.expect.number("max_failures"), total(failed)
    errors = total([s for s in failed if s.labels.get("finished_reason") == "error"])
    if limit is not None:
        yield from within(
            number,
            limit,
            metric="serve.failures",
            part="",
            unit="requests",
            source=given.expect.source,
            suspect="requests were aborted by clients or failed in the engine; see server log",
        )
    elif number is not None:
        yield Finding(
            metric="serve.failures",
            outcome="fail" if errors else "observed",
            value=number,
            unit="requests",
            suspect="requests failed in the engine; see server log" if errors else "",
            advice="an abort is a client that left, and no success" if number and not errors else "",
        )
