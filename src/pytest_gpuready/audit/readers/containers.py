"""Containers: how inspect documents and compose files are recognised."""

from __future__ import annotations

import re

from pytest_gpuready.audit.late import late
from pytest_gpuready.audit.reader import WHOLE_AT_MOST, Reader


def _is_docker(head: str) -> int:
    start = head.lstrip()
    if start[:1] in ("[", "{") and '"HostConfig"' in head and ('"Config"' in head or '"State"' in head):
        return 90
    if "services:" not in head or not re.search(r"^services:\s*$", head, re.M):
        return 0
    return 80 if re.search(r"^\s{2,}(image|build|container_name):", head, re.M) else 0


READERS: tuple[Reader, ...] = (Reader(tool="docker", recognise=_is_docker, read=late("docker"), at_most=WHOLE_AT_MOST),)
