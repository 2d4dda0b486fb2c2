"""A compose file -> services. Every scalar is read as text, so `22:22` stays a port and no word becomes a number.

Merge keys (`<<`) are followed, aliases shared, a key given twice is an error; `${NAME}` is not filled in.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.container import (
    ALL,
    EVERY_ADDRESS,
    Container,
    GpuRequest,
    environment,
    gpu_request,
    size_bytes,
    texts,
    visible_devices,
)

BYTES_AT_MOST = 256 * 1024
DEPTH_AT_MOST = 32
_PUBLISHED = re.compile(
    r"(?:(?P<ip>\[[0-9a-fA-F:]+\]|[\d.]+|[\w$\{}:-]+?):)?(?:(?P<host>[\d$\{}\w-]*):)?(?P<port>[\d$\{}\w-]+)(?:/\w+)?"
)


def parse_compose(text: str) -> tuple[Container, ...]:
    """Every service.

    Raises:
        ParseError: it is not YAML, has no services, or a key is there twice.
    """
    if len(text) > BYTES_AT_MOST:
        raise ParseError("compose: expected at most 256 KiB, found more; audit the file itself")
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        document = _plain(node, 0, {}) if node is not None else None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        says = " ".join(str(error).split())[:160]
        raise ParseError(f"compose: expected YAML, found {says}; correct the file") from error
    services = _merged(document.get("services")) if isinstance(document, dict) else {}
    found = tuple(_service(str(n), _merged(s)) for n, s in services.items() if isinstance(s, dict))
    if not found:
        raise ParseError("compose: expected services, found none; audit the compose file or docker compose config")
    return found


def _plain(node: yaml.Node, depth: int, made: dict[int, Any]) -> Any:
    """A node as text, list or mapping; what is shared stays shared."""
    if depth > DEPTH_AT_MOST:
        raise ValueError(f"more than {DEPTH_AT_MOST} levels")
    if id(node) in made:
        return made[id(node)]
    if isinstance(node, yaml.ScalarNode):
        return "" if node.value in ("null", "~") and node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        entries: list[Any] = []
        made[id(node)] = entries
        entries += [_plain(child, depth + 1, made) for child in node.value]
        return entries
    mapping: dict[str, Any] = {}
    made[id(node)] = mapping
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None or name in mapping:
            raise ValueError(f"key {str(name)[:40]!r} twice, or no text")
        mapping[name] = _plain(value, depth + 1, made)
    return mapping


def _merged(value: Any, depth: int = 0) -> dict[str, Any]:
    """A mapping with its merge keys followed; its own keys win."""
    if not isinstance(value, dict) or depth > 8:
        return {}
    bases = value.get("<<", [])
    found: dict[str, Any] = {}
    for base in reversed((bases if isinstance(bases, list) else [bases])[:16]):
        found |= _merged(base, depth + 1)
    return found | {k: v for k, v in value.items() if k != "<<"}


def _service(name: str, service: dict[str, Any]) -> Container:
    unreadable: list[str] = []
    devices = tuple(d for d in texts(service.get("devices")))
    shm = service.get("shm_size")
    shm_bytes = size_bytes(shm) if isinstance(shm, str) else None
    if isinstance(shm, str) and shm and shm_bytes is None:
        unreadable.append(f"shm_size: {shm[:40]}")
    privileged = service.get("privileged", "false")
    if privileged not in ("true", "false", "yes", "no", ""):
        unreadable.append(f"privileged: {str(privileged)[:40]}")
    return Container(
        name=name[:128],
        image=str(service.get("image", ""))[:200],
        gpus=_gpus(service, devices),
        privileged=privileged in ("true", "yes") if not any("privileged" in u for u in unreadable) else None,
        cap_add=texts(service.get("cap_add")),
        cap_drop=texts(service.get("cap_drop")),
        security_opt=texts(service.get("security_opt")),
        read_only=service.get("read_only") in ("true", "yes"),
        user=str(service.get("user", "")),
        pid_mode=str(service.get("pid", "")),
        ipc_mode=str(service.get("ipc", "")),
        network_mode=str(service.get("network_mode", "")),
        mounts=tuple(_mount(v) for v in service.get("volumes") or () if isinstance(v, (str, dict))),
        devices=devices,
        ports=tuple(_port(p) for p in service.get("ports") or () if isinstance(p, (str, dict))),
        shm_bytes=shm_bytes,
        unreadable=tuple(unreadable),
    )


def _gpus(service: dict[str, Any], devices: tuple[str, ...]) -> GpuRequest | None:
    """By reservation, by the short `gpus` key, or by runtime and variable."""
    reserved = _merged(_merged(_merged(service.get("deploy")).get("resources")).get("reservations")).get("devices")
    requests = [_merged(r) for r in reserved if isinstance(r, dict)] if isinstance(reserved, list) else []
    found = gpu_request(requests, "device_ids", "count")
    if found is None and (short := service.get("gpus")):
        if short == ALL:
            return GpuRequest(count=ALL, how="gpus: all")
        entries = [_merged(e) for e in short if isinstance(e, dict)] if isinstance(short, list) else []
        for entry in entries:
            entry.setdefault("capabilities", ["gpu"])
        return gpu_request(entries, "device_ids", "count") or GpuRequest(count=None, how=f"gpus: {str(short)[:40]}")
    return found or visible_devices(
        environment(_merged(service.get("environment")) or service.get("environment")),
        str(service.get("runtime", "")),
        devices,
    )


def _mount(volume: str | dict[str, Any]) -> str:
    if isinstance(volume, str):
        return volume
    return f"{volume.get('source', '')}:{volume.get('target', '')}"


def _port(port: str | dict[str, Any]) -> str:
    """The published address, "127.0.0.1:8000"; no address means every one, no host port any."""
    if isinstance(port, dict):
        return f"{port.get('host_ip') or EVERY_ADDRESS}:{port.get('published') or 'any'}"
    found = _PUBLISHED.fullmatch(port)
    if not found:
        return port[:60]
    if found["host"] is None:
        return f"{EVERY_ADDRESS}:{found['ip'] or 'any'}"
    return f"{found['ip'] or EVERY_ADDRESS}:{found['host'] or 'any'}"
