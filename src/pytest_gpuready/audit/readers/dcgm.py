"""Readers of what `dcgmi` prints: diag (JSON, table), nvlink, health, discovery, version."""

from __future__ import annotations

from pytest_gpuready.audit.reader import Reader
from pytest_gpuready.audit.readers import dcgm_diag, dcgm_nvlink, dcgm_state

READERS: tuple[Reader, ...] = (
    Reader(tool="dcgmi-diag-json", recognise=dcgm_diag.recognise_json, read=dcgm_diag.read),
    Reader(tool="dcgmi-diag-text", recognise=dcgm_diag.recognise_text, read=dcgm_diag.read),
    Reader(tool="dcgmi-nvlink", recognise=dcgm_nvlink.recognise, read=dcgm_nvlink.read),
    Reader(tool="dcgmi-health", recognise=dcgm_state.recognise_health, read=dcgm_state.read_health),
    Reader(tool="dcgmi-discovery", recognise=dcgm_state.recognise_discovery, read=dcgm_state.read_discovery),
    Reader(tool="dcgmi-version", recognise=dcgm_state.recognise_version, read=dcgm_state.read_version),
)
