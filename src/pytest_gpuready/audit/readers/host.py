"""Settings of the host: how a `sysctl` output is recognised."""

from __future__ import annotations

import re

from pytest_gpuready.audit.late import late
from pytest_gpuready.audit.reader import Reader

_ROOTS = ("kernel", "vm", "net", "fs", "dev", "user", "debug", "abi", "sunrpc", "crypto")


def _is_sysctl(head: str) -> int:
    lines = [line for line in head[:16384].splitlines()[:200] if line.strip()]
    if not lines:
        return 0
    if lines[0].startswith("sysctl: ") and ("/proc/sys/" in lines[0] or "key" in lines[0]):
        return 90
    good = sum(_is_setting(line) for line in lines)
    return 85 if good >= 0.9 * len(lines) else 0


def _is_setting(line: str) -> bool:
    """One line is `net.core.rmem_max = 1`, in either spelling."""
    name, equals, _ = line.partition(" = ")
    root = name.replace("/", ".").partition(".")
    return bool(equals and root[2]) and root[0] in _ROOTS and re.fullmatch(r"[\w./-]+", name) is not None


READERS: tuple[Reader, ...] = (Reader(tool="sysctl", recognise=_is_sysctl, read=late("sysctl")),)
