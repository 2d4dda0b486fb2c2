"""The serving readers: streams, answers, errors, health and metrics of vLLM, Triton and Ray Serve."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.audit.case_reading import CASES, check_case, outcome, read_text, survives, suspects, values

STREAM = (CASES / "086" / "stream.txt").read_text(encoding="utf-8")
VLLM = (CASES / "089" / "metrics.txt").read_text(encoding="utf-8")
TRITON = (CASES / "092" / "metrics.txt").read_text(encoding="utf-8")


def test_tokens_are_counted_by_usage_and_text_may_ride_with_the_end() -> None:
    """Case 086: the last text comes with the finish reason, usage without choices, [DONE] is no JSON."""
    found = check_case("086")
    assert values(found, "serve.text") == ["The link is up"]
    assert values(found, "serve.finish_reason") == ["length"]
    assert values(found, "serve.completion_tokens") == [5]
    assert values(found, "serve.events") == [5]
    assert values(found, "serve.text_events") == [3]
    assert values(found, "serve.done") == ["true"]


def test_a_stream_cut_inside_an_event_is_not_measured() -> None:
    """Case 088: three events came, the fourth did not end, nobody can say whose fault it is."""
    found = check_case("088")
    assert values(found, "serve.events") == [3]
    assert values(found, "serve.partial_tail") == ["true"]
    assert values(found, "serve.done") == ["false"]
    assert values(found, "serve.finish_reason") == [None]
    assert "connection path (proxy/idle timeout) or server crash; not decided here" in suspects(found)


def test_engines_are_summed() -> None:
    """Case 089: an idle engine beside a busy one; stop and length are successes, abort is none."""
    found = check_case("089")
    assert values(found, "serve.running") == [8]
    assert values(found, "serve.waiting") == [0]
    assert values(found, "serve.success_total") == [256]
    assert values(found, "serve.engines") == [2]


def test_a_wrong_end_point_is_the_test_and_not_the_model() -> None:
    """Case 091: a JSON error without outputs under 400."""
    found = check_case("091")
    assert "decoupled" in str(values(found, "serve.infer"))
    assert "test configuration (wrong end point for this model), not the GPU" in suspects(found)


def test_an_ensemble_and_its_members_are_not_added() -> None:
    """Case 092: 300 requests and not 600, two failures with their reason, each GPU for itself."""
    found = check_case("092")
    success = {f.part.split()[0]: f.value for f in found if f.metric == "serve.success" and "GPU" not in f.part}
    assert success == {"ensemble/1": 300}
    assert [f.value for f in found if f.metric == "serve.success" and "GPU" in f.part] == [151, 149]
    assert [(f.part, f.value) for f in found if f.outcome == "fail"] == [("ensemble/1", 2)]
    assert "requests failed on the ensemble (reason OTHER); see server log" in suspects(found)


def test_a_healthy_proxy_says_success() -> None:
    """Case 093: plain text, no JSON, no end of line."""
    assert values(check_case("093"), "serve.health") == ["success"]


def event(document: Any) -> str:
    return f"data: {document if isinstance(document, str) else json.dumps(document)}\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
    return event(
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    )


USAGE = {"usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}}
BROKE = event({"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}})


@pytest.mark.parametrize(
    ("text", "expect", "is_", "says"),
    [
        (chunk({"content": "a"}) + chunk({"content": "b"}, "stop") + event("[DONE]"), {}, "pass", ""),
        (
            chunk({"content": "a"}) + chunk({"content": "b"}, "stop") + event("[DONE]"),
            {"max_tokens": 2},
            "not-measured",
            "no usage",
        ),
        (chunk({"content": "a"}) + chunk({}, "stop"), {}, "not-measured", "no [DONE]"),
        (chunk({"content": "a"}) + chunk({}, "stop", **USAGE), {"max_tokens": 2}, "pass", ""),
        (chunk({"content": "a"}, **USAGE) + chunk({}, "stop", **USAGE), {}, "not-measured", "no [DONE]"),
        (chunk({"content": "a"}) + event("[DONE]"), {}, "not-measured", "no finish reason"),
        (
            chunk({"role": "assistant", "content": ""}) + chunk({}, "stop") + event("[DONE]"),
            {},
            "not-measured",
            "no generated",
        ),
        (chunk({"reasoning": "a", "content": None}) + chunk({}, "length") + event("[DONE]"), {}, "pass", ""),
        (chunk({"content": "a"}) + BROKE + event("[DONE]"), {}, "fail", "engine of the server died"),
        (chunk({"content": "a"}) + event({"error": "overloaded"}), {}, "fail", "after the first tokens"),
        (chunk({"content": "a"}) + chunk({}, "abort") + event("[DONE]"), {}, "fail", "abort"),
        (chunk({"content": "a"}) + event("{oops") + chunk({}, "stop") + event("[DONE]"), {}, "not-measured", "no JSON"),
        (STREAM, {"max_tokens": 4}, "fail", "more tokens than asked for"),
        (STREAM.replace("\n", "\r\n").replace("data: ", "data:"), {"max_tokens": 5}, "pass", ""),
        (": ping\n\n" + STREAM.rstrip("\n"), {"max_tokens": 5}, "pass", ""),
        (STREAM.replace('"total_tokens":26', '"total_tokens":27'), {"max_tokens": 5}, "not-measured", "contradicts"),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + STREAM, {"max_tokens": 5}, "pass", ""),
        (STREAM, {"max_failures": 0}, "not-measured", "does not count failures"),
    ],
)
def test_a_stream_is_whole_or_not(tmp_path: Path, text: str, expect: dict[str, int], is_: str, says: str) -> None:
    """Finish reason and end mark make a stream whole; an error in it fails it; tokens are what usage says."""
    reading = read_text(tmp_path, "vllm-http", text, expect, command="POST /v1/chat/completions stream=true")
    assert outcome(reading) == is_
    assert says in suspects(list(reading.findings))


ANSWER = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}],
    **USAGE,
}
GONE = {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}


@pytest.mark.parametrize(
    ("body", "status", "command", "is_", "metric"),
    [
        (json.dumps(ANSWER), 200, "POST /v1/chat/completions", "pass", "serve.completion"),
        (json.dumps(ANSWER)[:-9], 200, "POST /v1/chat/completions", "not-measured", "serve.completion"),
        (json.dumps(ANSWER), 500, "POST /v1/chat/completions", "fail", "serve.completion"),
        (json.dumps(ANSWER), 28, "curl", "not-measured", "serve.transfer"),
        (json.dumps(GONE), 404, "POST /v1/completions", "not-measured", "serve.completion"),
        (
            '{"error":{"message":"CUDA out of memory","code":500}}',
            500,
            "POST /v1/completions",
            "fail",
            "serve.completion",
        ),
        ("Internal Server Error", 500, "POST /v1/completions", "fail", "serve.completion"),
        ("<html>502 Bad Gateway</html>", 502, "POST /v1/completions", "fail", "serve.completion"),
        ("", 200, "GET /health", "pass", "serve.health"),
        ("", 503, "GET /health", "fail", "serve.health"),
        ("", None, "GET /health", "not-measured", "serve.health"),
        ("", 200, "POST /v1/completions", "not-measured", "serve.completion"),
        ('{"object":"list","data":[{"id":"m"}]}', 200, "GET /v1/models", "pass", "serve.models"),
        ('{"object":"list","data":[]}', 200, "GET /v1/models", "fail", "serve.models"),
    ],
)
def test_answers_and_replies_of_an_openai_server(
    tmp_path: Path, *, body: str, status: int | None, command: str, is_: str, metric: str
) -> None:
    """Whole answers, errors with their cause, health by its status."""
    reading = read_text(tmp_path, "vllm-http", body, {}, exit_code=status, command=command)
    assert outcome(reading) == is_
    assert values(list(reading.findings), metric) or metric in {f.metric for f in reading.findings}


@pytest.mark.parametrize(
    ("old", "new", "expect", "is_"),
    [
        ("x", "x", {"max_failures": 0}, "pass"),
        ('abort",model_name="llama-70b"} 0.0', 'abort",model_name="llama-70b"} 3.0', {"max_failures": 2}, "fail"),
        ('abort",model_name="llama-70b"} 0.0', 'abort",model_name="llama-70b"} 3.0', {}, "pass"),
        ('waiting{engine="1",model_name="llama-70b"} 0.0\n', "waiting", {}, "not-measured"),
        (
            'running{engine="0",model_name="llama-70b"} 8.0',
            'running{engine="0",model_name="llama-70b"} NaN',
            {},
            "not-measured",
        ),
        ('vllm:num_requests_waiting{engine="1",model_name="llama-70b"} 0.0\n', "", {}, "not-measured"),
        ('engine="1",', 'engine="0",', {}, "not-measured"),
        ("# HELP", "vllm:corrupted_requests_total 1\n# HELP", {}, "fail"),
        ("x", "x", {"max_tokens": 5}, "not-measured"),
    ],
)
def test_vllm_metrics(tmp_path: Path, old: str, new: str, expect: dict[str, int], is_: str) -> None:
    """Aborts count only when failures were asked for; an engine or a reason that is missing is seen."""
    text = VLLM.replace(old, new)
    assert outcome(read_text(tmp_path, "vllm-http", text, expect, exit_code=200, command="GET /metrics")) == is_


def test_older_metrics_have_no_engine(tmp_path: Path) -> None:
    """Without the engine label there is one engine."""
    text = "".join(line + "\n" for line in VLLM.splitlines() if 'engine="1"' not in line).replace('engine="0",', "")
    reading = read_text(tmp_path, "vllm-http", text, {}, exit_code=200, command="GET /metrics")
    assert outcome(reading) == "pass"
    assert values(list(reading.findings), "serve.engines") == [1]


INFER = "POST /v2/models/m/infer"
COUNTS = '{"model_stats":[{"name":"m","version":"1","inference_stats":{"success":{"count":9},"fail":{"count":1}}}]}'
OUT = '{"model_name":"m","outputs":[{"name":"o","shape":[1,2],"data":[1,2]}]}'
TEXT = event({"model_name": "m", "text_output": "a"})
NO_FAILURES = re.sub("nv_inference_request_failure.*\n", "", TRITON)


@pytest.mark.parametrize(
    ("body", "status", "command", "expect", "is_"),
    [
        (TRITON.replace('"OTHER"} 2', '"OTHER"} 0'), 200, "GET :8002/metrics", {"max_failures": 0}, "pass"),
        (TRITON.replace('"OTHER"} 2', '"OTHER"} 2e+00'), 200, "GET :8002/metrics", {"max_failures": 2}, "pass"),
        (NO_FAILURES, 200, "GET /metrics", {"max_failures": 0}, "not-measured"),
        (TRITON.replace("300.000000", "1.8e19"), 200, "GET /metrics", {"max_failures": 2}, "not-measured"),
        ("", 200, "GET /v2/health/ready", {}, "pass"),
        ("", 400, "GET /v2/health/ready", {}, "fail"),
        (OUT, 200, INFER, {}, "pass"),
        (OUT.replace("[1,2]}]", "[1]}]"), 200, INFER, {}, "not-measured"),
        ('{"model_name":"m","outputs":[]}', 200, INFER, {}, "not-measured"),
        ('{"error":"Request for unknown model: \'m\' is not found"}', 404, INFER, {}, "not-measured"),
        ('{"error":"CUDA error: an illegal memory access was encountered"}', 500, INFER, {}, "fail"),
        (TEXT, 200, "POST /v2/models/m/generate_stream", {}, "pass"),
        (TEXT, None, "", {}, "observed"),
        (TEXT + event({"error": "no"}), 200, "generate_stream", {}, "fail"),
        (TEXT[:-1] + "dat", 200, "generate_stream", {}, "not-measured"),
        ('[{"name":"m","version":"1","state":"READY"}]', 200, "POST /v2/repository/index", {}, "pass"),
        ('[{"name":"m","state":"UNAVAILABLE","reason":"no such file"}]', 200, "POST /v2/repository/index", {}, "fail"),
        (COUNTS, 200, "GET /v2/models/m/stats", {}, "fail"),
    ],
)
def test_answers_of_triton(
    tmp_path: Path, *, body: str, status: int | None, command: str, expect: dict[str, int], is_: str
) -> None:
    """Inference, streams without an end mark, errors, health, index, statistics, metrics: each to its outcome."""
    assert outcome(read_text(tmp_path, "triton-http", body, expect, exit_code=status, command=command)) == is_


@pytest.mark.parametrize(
    ("body", "status", "command", "is_", "says"),
    [
        ("success", None, "GET /-/healthz", "pass", ""),
        ("success", 503, "GET /-/healthz", "not-measured", "contradict"),
        ("This node is being drained.", 503, "GET /-/healthz", "fail", "being drained"),
        ("This node is being drained.", 503, "GET /-/routes", "fail", "being drained"),
        ("Route table is not populated yet.", 503, "GET /-/healthz", "fail", "starting"),
        ("No replicas are available yet.", 503, "GET /-/healthz", "fail", "no replica"),
        ("succes", 200, "GET /-/healthz", "not-measured", "neither"),
        ("<html>success</html>", 200, "GET /-/healthz", "not-measured", "neither"),
        ("", 200, "GET /-/healthz", "not-measured", "neither"),
        ('{"/":"app"}', 200, "GET /-/routes", "pass", ""),
        ("{}", 200, "GET /-/routes", "fail", "no application"),
        ("Internal Server Error", 500, "POST /", "fail", "server"),
        (
            '{"applications":{"a":{"status":"RUNNING","deployments":{"d":{"status":"UNHEALTHY"}}}}}',
            200,
            "",
            "fail",
            "a/d",
        ),
        ('{"applications":{"a":{"status":"DEPLOYING","deployments":{}}}}', 200, "", "not-measured", "not settled"),
        ("ray_serve_num_http_requests_total 9.0\n", 200, "GET /metrics", "pass", ""),
        ("ray_node_cpu 9.0\n", 200, "GET /metrics", "not-measured", "ray_serve_"),
    ],
)
def test_answers_of_ray_serve(
    tmp_path: Path, *, body: str, status: int | None, command: str, is_: str, says: str
) -> None:
    """Only "success" under a good status is healthy; every message of Serve has its meaning."""
    reading = read_text(tmp_path, "ray-serve-http", body, {}, exit_code=status, command=command)
    assert outcome(reading) == is_
    assert says in suspects(list(reading.findings))


def test_cut_or_damaged_never_pass_unearned(tmp_path: Path) -> None:
    """A stream passes only with its finish reason, usage and end mark; metrics only with every engine."""
    survives(tmp_path, "086", lambda b: "[DONE]" in b and '"completion_tokens":' in b and '"finish_reason":"' in b)
    survives(tmp_path, "088", lambda b: False)
    each = re.compile(r'(running|waiting)\{engine="(\d)"')
    survives(tmp_path, "089", lambda b: {("running", "1"), ("waiting", "1")} <= set(each.findall(b)))
    survives(tmp_path, "091", lambda b: False)
    survives(tmp_path, "092", lambda b: re.search(r'"\}\s+0*2\s*$', b, re.M) is None)
    survives(tmp_path, "093", lambda b: b.strip() == "success")
