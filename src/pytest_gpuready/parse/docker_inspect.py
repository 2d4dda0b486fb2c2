"""`docker inspect` (and podman's) of containers -> rows. Null lists are empty; the document is a list or one object."""

from __future__ import annotations

import json
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.container import EVERY_ADDRESS, Container, environment, gpu_request, texts, visible_devices
from pytest_gpuready.parse.json_once import one_value

CONTAINERS_AT_MOST = 1000


def parse_docker_inspect(text: str) -> tuple[Container, ...]:
    """Every container of the document.

    Raises:
        ParseError: it is not JSON, a key is there twice with two values, or an object is no container.
    """
    try:
        document = json.loads(text, object_pairs_hook=one_value)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"docker inspect: expected JSON, found {str(error)[:120]}; take the output again") from error
    entries = document if isinstance(document, list) else [document]
    if not entries:
        raise ParseError("docker inspect: expected a container, found []: there is none of that name; correct the name")
    if len(entries) > CONTAINERS_AT_MOST:
        raise ParseError(f"docker inspect: expected at most {CONTAINERS_AT_MOST} containers, found more; audit fewer")
    return tuple(_container(entry) for entry in entries)


def _container(entry: Any) -> Container:
    host = entry.get("HostConfig") if isinstance(entry, dict) else None
    if not isinstance(host, dict):
        raise ParseError("docker inspect: expected a container with HostConfig, found none; inspect a container")
    config = _object(entry, "Config")
    state = _object(entry, "State")
    devices = tuple(str(d.get("PathOnHost", d) if isinstance(d, dict) else d) for d in (host.get("Devices") or ()))
    requests = [r for r in host.get("DeviceRequests") or () if isinstance(r, dict)]
    gpus = gpu_request(requests, "DeviceIDs", "Count") or visible_devices(
        environment(config.get("Env")), str(host.get("Runtime") or ""), devices
    )
    shm = host.get("ShmSize")
    code = state.get("ExitCode")
    return Container(
        name=str(entry.get("Name") or "").lstrip("/")[:128],
        image=str(config.get("Image") or "")[:200],
        gpus=gpus,
        privileged=host["Privileged"] if isinstance(host.get("Privileged"), bool) else None,
        cap_add=texts(host.get("CapAdd")),
        cap_drop=texts(host.get("CapDrop")),
        security_opt=texts(host.get("SecurityOpt")),
        read_only=host.get("ReadonlyRootfs") is True,
        user=str(config.get("User") or ""),
        pid_mode=str(host.get("PidMode") or ""),
        ipc_mode=str(host.get("IpcMode") or ""),
        network_mode=str(host.get("NetworkMode") or ""),
        mounts=(*texts(host.get("Binds")), *_mounts(entry.get("Mounts"))),
        devices=devices,
        ports=_ports(host.get("PortBindings")),
        shm_bytes=shm if isinstance(shm, int) and not isinstance(shm, bool) and shm >= 0 else None,
        status=str(state["Status"]) if isinstance(state.get("Status"), str) else None,
        oom_killed=state.get("OOMKilled") is True,
        exit_code=code if isinstance(code, int) else None,
        health=str(_object(state, "Health").get("Status") or ""),
    )


def _object(entry: dict[str, Any], key: str) -> dict[str, Any]:
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def _mounts(mounts: Any) -> tuple[str, ...]:
    """Bind mounts as "source:target"."""
    return tuple(
        f"{m.get('Source')}:{m.get('Destination')}"
        for m in (mounts if isinstance(mounts, list) else ())
        if isinstance(m, dict) and m.get("Type") == "bind"
    )


def _ports(bindings: Any) -> tuple[str, ...]:
    """Published addresses, "127.0.0.1:8000"; no address means every one."""
    if not isinstance(bindings, dict):
        return ()
    return tuple(
        f"{at.get('HostIp') or EVERY_ADDRESS}:{at.get('HostPort') or 'any'}"
        for ats in bindings.values()
        for at in (ats or ())
        if isinstance(at, dict)
    )
