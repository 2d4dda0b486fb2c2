"""Inference servers: how their answers, streams and metrics are recognised.

An input's exit code is the HTTP status, where it is one.
"""

from __future__ import annotations

import re

from pytest_gpuready.audit.late import late
from pytest_gpuready.audit.reader import Reader

_RAY_SAYS = ("This node is being drained.", "Route table is not populated yet.", "No replicas are available yet.")


def _begins_stream(start: str) -> bool:
    return start.startswith(("data:", "event:", "id:", "retry:", ":"))


def _has_metric(head: str, prefix: str) -> bool:
    return head.startswith(prefix) or f"\n{prefix}" in head or f"# TYPE {prefix}" in head


def _is_vllm(head: str) -> int:
    start = head.lstrip("\ufeff \r\n")
    if _has_metric(head, "vllm:"):
        return 92
    openai = any(word in head for word in ("chat.completion", '"text_completion"'))
    if _begins_stream(start) and openai:
        return 90
    if start.startswith("{") and '"choices"' in head and openai:
        return 85
    flat = re.match(r'\{\s*"(error"\s*:\s*\{|object"\s*:\s*"error")', start) if start.startswith("{") else None
    return 50 if flat else 0


def _is_triton(head: str) -> int:
    start = head.lstrip()
    if any(_has_metric(head, f"nv_{kind}_") for kind in ("inference", "gpu", "cpu", "energy", "cache", "pinned")):
        return 92
    if _begins_stream(start) and '"text_output"' in head and '"model_name"' in head:
        return 85
    if not start.startswith("{"):
        return 0
    if '"model_stats"' in head or ('"model_name"' in head and '"outputs"' in head):
        return 85
    if '"extensions"' in head and '"name"' in head and "triton" in head:
        return 85
    return 40 if len(start) < 5000 and re.match(r'\{\s*"error"\s*:\s*"', start) else 0


def _is_ray(head: str) -> int:
    if head.strip() in _RAY_SAYS or _has_metric(head, "ray_serve_"):
        return 90
    return 60 if head.lstrip().startswith("{") and '"applications"' in head and '"deployments"' in head else 0


READERS: tuple[Reader, ...] = (
    Reader(tool="vllm-http", recognise=_is_vllm, read=late("vllm_http")),
    Reader(tool="triton-http", recognise=_is_triton, read=late("triton_http")),
    Reader(tool="ray-serve-http", recognise=_is_ray, read=late("ray_serve")),
)
