"""NVLinks of the GPUs: state, version, speed, far end, error counters twice, and which peers answer over NVLink.

The counters of all GPUs are read, then after a quarter of a second again: what stands in both readings is history,
what grew is happening now. Counters come from the field values 161 to 163, as the older counter call returned small
numbers on healthy Hopper cards.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pytest_gpuready.agent.nvml_reader import Reader
from pytest_gpuready.model.agent_doc import NvLinkDoc

LINK_COUNT = 91
SPEED = 164
COUNTERS = {"replay": 161, "recovery": 162, "crc": 163}
WINDOW_S = 0.25
MOST_LINKS = 64
P2P_NVLINK = 2

# NVML's enum is not the version: 6 means NVLink 4.0.
VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
REMOTE = {0: "gpu", 1: "cpu", 2: "switch", 255: "unknown"}

Readings = dict[tuple[int, str], int]


def count(reader: Reader) -> int | None:
    """How many NVLinks the GPU has; None where it has no such thing or does not say."""
    return reader.values([("nvlink_count", LINK_COUNT, 0)]).get("nvlink_count")


def counters(reader: Reader, links: int) -> tuple[Readings, dict[tuple[int, str], str]]:
    """(link, kind) -> error count, and (link, kind) -> error name where there is none; one call for all."""
    wanted = [(link, kind) for link in range(links) for kind in COUNTERS]
    read, failed = reader.fields([(COUNTERS[kind], link) for link, kind in wanted])
    return {wanted[at]: value for at, value in read.items()}, {wanted[at]: name for at, name in failed.items()}


def watch(readers: Sequence[Reader], links: Sequence[int]) -> tuple[list[list[NvLinkDoc]], float]:
    """The links of every GPU, with counters read before and after a window, and the window in seconds."""
    started = time.monotonic()
    before = [counters(reader, n) for reader, n in zip(readers, links, strict=True)]
    states = [[_state(reader, link) for link in range(n)] for reader, n in zip(readers, links, strict=True)]
    if not any(links):
        return [[] for _ in readers], 0.0
    time.sleep(max(0.0, WINDOW_S - (time.monotonic() - started)))
    after = [counters(reader, n) for reader, n in zip(readers, links, strict=True)]
    window = time.monotonic() - started
    return [
        [_with_counters(document, before[at], after[at]) for document in documents]
        for at, documents in enumerate(states)
    ], round(window, 3)


def peers(reader: Reader, others: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """Peer's bdf -> NVML P2P status for NVLink (0 is OK); a pair that cannot be asked stands in `errors`."""
    found = {}
    for bdf, handle in others:
        status = reader.call(f"p2p_nvlink.{bdf}", "nvmlDeviceGetP2PStatus", handle, P2P_NVLINK)
        if status is not None:
            found[bdf] = int(status)
    return found


def _state(reader: Reader, link: int) -> dict[str, Any]:
    """One link without its counters, as arguments of `NvLinkDoc`."""
    asked = Reader(reader.nvml, reader.handle)
    state = asked.call("active", "nvmlDeviceGetNvLinkState", link)
    version = asked.call("version", "nvmlDeviceGetNvLinkVersion", link)
    remote = asked.call("remote", "nvmlDeviceGetNvLinkRemoteDeviceType", link)
    speed = asked.values([("speed_mb_per_s", SPEED, link)])
    address = None
    if remote == 0:
        info = asked.call("remote_bdf", "nvmlDeviceGetNvLinkRemotePciInfo", link)
        address = None if info is None else bdf_of(info)
    reader.lost = reader.lost or asked.lost
    return {
        "link": link,
        "active": None if state is None else state == 1,
        "version": None if version is None else VERSIONS.get(version, f"unknown ({version})"),
        "remote": None if remote is None else REMOTE.get(remote, f"unknown ({remote})"),
        "remote_bdf": address,
        "errors": asked.errors,
        **speed,
    }


def _with_counters(
    state: dict[str, Any],
    before: tuple[Readings, dict[tuple[int, str], str]],
    after: tuple[Readings, dict[tuple[int, str], str]],
) -> NvLinkDoc:
    found: dict[str, Any] = dict(state)
    errors: dict[str, str] = dict(state["errors"])
    for kind in COUNTERS:
        key = (state["link"], kind)
        if key in before[0] and key in after[0]:
            found[kind] = (before[0][key], after[0][key])
        else:
            errors[kind] = after[1].get(key) or before[1].get(key) or "Unknown"
    return NvLinkDoc(**{**found, "errors": errors})


def bdf_of(info: Any) -> str:
    """nvmlPciInfo_t -> "0000:19:00.0"; NVML writes the domain with eight digits."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
