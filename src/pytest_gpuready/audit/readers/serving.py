"""Inference servers: answers, health, metrics over HTTP. An input's exit code is the HTTP status, where it is one."""

from __future__ import annotations

from pytest_gpuready.audit.reader import Reader
from pytest_gpuready.audit.readers import ray_serve, triton_http, vllm_http

READERS: tuple[Reader, ...] = (*vllm_http.READERS, *triton_http.READERS, *ray_serve.READERS)
