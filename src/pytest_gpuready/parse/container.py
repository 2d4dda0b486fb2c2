"""What a container may do and which GPUs it asks for: the one kind of row for `docker inspect` and for compose files.

A request for GPUs has many spellings: a count (-1 and "all" mean every GPU), device ids, CDI names, or the `nvidia`
runtime with NVIDIA_VISIBLE_DEVICES. A value that only a later step fills in ("${GPUS}") is no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALL = "all"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a word of the text that is read, nothing is bound
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*(b|k|kb|m|mb|g|gb|t|tb)?", re.I)
_FACTOR = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_CARD = re.compile(r"/dev/nvidia\d{1,3}(?=$|:)")
_CDI = re.compile(r"nvidia\.com/gpu=(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """`count` is a number, "all", or None where the text does not say it; `how` is the spelling."""

    count: int | str | None
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container or compose service. None is what the text does not say; `gpus` None: nothing is asked for."""

    name: str
    image: str
    gpus: GpuRequest | None
    privileged: bool | None
    cap_add: tuple[str, ...]
    cap_drop: tuple[str, ...]
    security_opt: tuple[str, ...]
    read_only: bool
    user: str
    pid_mode: str
    ipc_mode: str
    network_mode: str
    mounts: tuple[str, ...]
    devices: tuple[str, ...]
    ports: tuple[str, ...]
    shm_bytes: int | None
    status: str | None = None
    oom_killed: bool = False
    exit_code: int | None = None
    health: str = ""
    unreadable: tuple[str, ...] = ()


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list, of null none."""
    return tuple(str(v) for v in value if isinstance(v, (str, int))) if isinstance(value, (list, tuple)) else ()


def size_bytes(text: str) -> int | None:
    """A size as Docker writes it ("64g" is 64 GiB), or None."""
    found = _SIZE.fullmatch(text.strip())
    return int(float(found[1]) * _FACTOR[(found[2] or "").lower()[:1]]) if found else None


def gpu_request(requests: Iterable[Mapping[str, Any]], ids_key: str, count_key: str) -> GpuRequest | None:
    """The GPUs of device requests, summed; requests for other devices are no GPUs."""
    total: int | str | None = 0
    how: list[str] = []
    for request in requests:
        if not _wants_gpu(request):
            continue
        ids, count = texts(request.get(ids_key)), request.get(count_key)
        cdi = [m[1] for i in ids if (m := _CDI.fullmatch(i))]
        if ids:
            one: int | str | None = ALL if ALL in cdi or ids == (ALL,) else len(set(ids))
            how.append(f"{ids_key}: {', '.join(ids[:16])}")
        else:
            one = _count(count)
            how.append(f"{count_key}: {count}" if count not in (None, "") else "no count")
        total = ALL if ALL in (one, total) else None if one is None or total is None else int(total) + int(one)
    return GpuRequest(count=total, how="; ".join(how)) if how else None


def _wants_gpu(request: Mapping[str, Any]) -> bool:
    capabilities = request.get("Capabilities", request.get("capabilities"))
    words: list[str] = []
    for entry in capabilities if isinstance(capabilities, (list, tuple)) else ():
        words += [entry] if isinstance(entry, str) else texts(entry)
    driver = str(request.get("Driver") or request.get("driver") or "")
    cdi = any(_CDI.fullmatch(i) for i in texts(request.get("DeviceIDs")) + texts(request.get("device_ids")))
    return "gpu" in words or (not words and driver == "nvidia") or cdi


def _count(count: Any) -> int | str | None:
    """-1, "all" and no count at all mean every GPU."""
    if count in (None, "", -1, "-1", ALL):
        return ALL
    text = str(count)
    return int(text) if re.fullmatch(r"\d{1,4}", text) and not isinstance(count, bool) else None


def visible_devices(environment: Mapping[str, str], runtime: str, devices: Sequence[str]) -> GpuRequest | None:
    """GPUs by the `nvidia` runtime and its variable, or by device files handed over one by one."""
    wanted = environment.get("NVIDIA_VISIBLE_DEVICES")
    if runtime == "nvidia" and wanted is not None:
        names = [n.strip() for n in wanted.split(",") if n.strip()]
        how = f"NVIDIA_VISIBLE_DEVICES={wanted[:60]}"
        if names and names[0] == ALL:
            return GpuRequest(count=ALL, how=how)
        none = not names or names[0] in ("none", "void")
        return GpuRequest(count=None if "$" in wanted else 0 if none else len(set(names)), how=how)
    named = [m[1] for d in devices if (m := _CDI.fullmatch(d))]
    if named:
        return GpuRequest(count=ALL if ALL in named else len(set(named)), how="CDI devices")
    cards = {m[0] for d in devices if (m := _CARD.match(d))}
    return GpuRequest(count=len(cards), how="device files") if cards else None


def environment(value: Any) -> dict[str, str]:
    """A list of NAME=VALUE, or a mapping."""
    if isinstance(value, Mapping):
        return {str(k): str(v) for k, v in value.items() if isinstance(v, (str, int))}
    return dict(entry.split("=", 1) for entry in texts(value) if "=" in entry)
