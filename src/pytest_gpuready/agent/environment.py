"""Settings that bend NCCL and CUDA: variables of this process and nccl.conf files.

Only NCCL_* and CUDA_* are shown with their values; anything else in a file is named and its value left out, because
nobody knows what a stranger's setting holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pytest_gpuready.model.agent_doc import NcclConf

PREFIXES = ("NCCL_", "CUDA_")
LONGEST = 200
LARGEST_FILE = 65536


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """NCCL_* and CUDA_* variables, sorted by name, values cut at 200 characters."""
    return {name: _clean(environment[name]) for name in sorted(environment) if name.startswith(PREFIXES)}


def conf_files(environment: Mapping[str, str], root: Path = Path("/")) -> list[NcclConf]:
    """Every nccl.conf that NCCL would look at and that is there, with its settings as NAME=VALUE."""
    places = [root / "etc/nccl.conf"]
    if environment.get("HOME"):
        places.append(Path(environment["HOME"]) / ".nccl.conf")
    if environment.get("NCCL_CONF_FILE"):
        places.append(Path(environment["NCCL_CONF_FILE"]))
    found = []
    for place in dict.fromkeys(places):
        try:
            with place.open("rb") as file:
                text = file.read(LARGEST_FILE).decode("utf-8", "replace")
        except OSError:  # not there, or not readable for us: then NCCL does not read it either
            continue
        found.append(NcclConf(path=_clean(str(place)), settings=_lines(text)))
    return found


def _lines(text: str) -> list[str]:
    """NAME=VALUE of every line that sets something; comments and blank lines set nothing."""
    found = []
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        name = name.strip()
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
            continue
        found.append(f"{name}={_clean(value.strip())}" if name.startswith(PREFIXES) else f"{name}=(not shown)")
    return found


def _clean(text: str) -> str:
    """At most 200 characters that JSON can carry (a variable may hold any bytes)."""
    return text.encode("utf-8", "replace").decode("utf-8")[:LONGEST]
