"""docker: what containers and compose services may do on the host, and which GPUs they are given."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_gpuready.audit.asked import ended_badly, unanswered, unreadable
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.compose import parse_compose
from pytest_gpuready.parse.container import ALL, Container
from pytest_gpuready.parse.docker_inspect import parse_docker_inspect

STRONG = {
    "ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "SYS_PTRACE", "SYS_TIME", "DAC_READ_SEARCH", "NET_ADMIN",
    "BPF", "PERFMON", "MAC_ADMIN", "MAC_OVERRIDE", "SYSLOG", "LINUX_IMMUTABLE",
}  # fmt: skip
"""Capabilities that open the host; IPC_LOCK and SYS_NICE are what RDMA and pinned memory need."""
_OPEN_PATHS = re.compile(
    r"/|/proc|/sys|/etc|/dev|/boot|/root|/var/lib/docker|(/var)?/run(/docker\.sock|/containerd(/.*)?|/podman/podman\.sock)?"
)
_OPEN_DEVICES = re.compile(r"/dev/(mem|kmem|port|sd[a-z]+\d*|nvme\d.*|dm-\d+)")
SMALL_SHM = 64 * 2**20
OWN = "what opens the host"
NOT_COVERED = (
    "what was asked for is here; what the processes got is in /proc/<pid>/status and in nvidia-smi inside",
    "a compose file has no end mark: a service or a setting can have been cut off without a trace",
    "how many GPUs the host has and whether they are healthy is not in this text",
)


def read(given: Given) -> Reading:
    """What an inspect document or a compose file says."""
    owed = [*unanswered(given, "docker", ("gpus",)), *ended_badly(given, "container.exit_code")]
    text, whole = given.text()
    try:
        if not whole:
            raise ParseError("docker: expected at most 32 MiB, found more; audit fewer containers")
        first = text.lstrip()[:1]
        containers = parse_docker_inspect(text) if first in ("[", "{") else parse_compose(text)
    except ParseError as error:
        return Reading(findings=(unreadable("container.output", str(error)), *owed), not_covered=NOT_COVERED)
    findings = [f for c in containers for f in _container(c)]
    findings += [*_gpus(containers, given), *owed]
    return Reading(findings=tuple(findings), not_covered=NOT_COVERED)


def _container(c: Container) -> Iterator[Finding]:
    yield _privileges(c)
    yield from _state(c)
    told: list[tuple[str, str | int | list[float | int | str] | None]] = [
        ("container.privileged", None if c.privileged is None else str(c.privileged).lower()),
        ("container.cap_drop", list(c.cap_drop) or None),
        ("container.cap_add", list(c.cap_add) or None),
        ("container.ports", list(c.ports) or None),
        ("container.shm_bytes", c.shm_bytes),
    ]
    for metric, value in told:
        if value is not None:
            yield Finding(metric=metric, outcome="observed", part=c.name, value=value, advice=_note(metric, c))
    missing = _soft(c)
    if missing:
        yield Finding(metric="container.hardening", outcome="observed", part=c.name, value=missing)
    for what in c.unreadable:
        yield unreadable("container.value", f"{what} of {c.name} is filled in later: audit docker compose config")


def _note(metric: str, c: Container) -> str:
    if metric == "container.ports" and any(p.startswith(("0.0.0.0:", "[::]:")) for p in c.ports):
        return "published on every address of the host"
    if (
        metric == "container.shm_bytes"
        and c.shm_bytes is not None
        and c.shm_bytes <= SMALL_SHM
        and c.gpus
        and c.ipc_mode != "host"
    ):
        return "64 MiB of shared memory is little for NCCL between processes"
    return ""


def _open(c: Container) -> list[str]:
    """What opens the host."""
    caps = sorted({cap.upper().removeprefix("CAP_") for cap in c.cap_add} & STRONG)
    options = {o.lower().replace("=", ":").replace(" ", "") for o in c.security_opt}
    sources = [m.split(":", 1)[0].rstrip("/") or "/" for m in c.mounts if m.startswith("/")]
    reasons = ["privileged"] if c.privileged else []
    reasons += [f"cap_add {', '.join(caps)}"] if caps else []
    reasons += [f"{o.split(':')[0]} unconfined" for o in sorted(options) if o.endswith(":unconfined")]
    reasons += ["host's process ids (pid: host)"] if c.pid_mode == "host" else []
    reasons += [f"mounts {s}" for s in dict.fromkeys(sources) if _OPEN_PATHS.fullmatch(s)]
    reasons += [f"device {d}" for d in c.devices if _OPEN_DEVICES.match(d)]
    return reasons


def _soft(c: Container) -> list[float | int | str]:
    """Hardening that is not there; each is common and none opens the host by itself."""
    options = {o.lower().replace("=", ":") for o in c.security_opt}
    missing: list[float | int | str] = []
    if "ALL" not in {cap.upper() for cap in c.cap_drop} and len(c.cap_drop) < 10:
        missing.append("capabilities not dropped")
    if not options & {"no-new-privileges", "no-new-privileges:true"}:
        missing.append("no-new-privileges not set")
    if not c.read_only:
        missing.append("root file system writable")
    if c.user.split(":")[0] in ("", "0", "root"):
        missing.append("runs as root or as the image says")
    missing += [f"host's {what}" for what, mode in (("network", c.network_mode), ("IPC", c.ipc_mode)) if mode == "host"]
    return missing


def _privileges(c: Container) -> Finding:
    reasons = _open(c)
    outcome: Outcome = "fail" if reasons else "not-measured" if c.privileged is None else "pass"
    return Finding(
        metric="container.privileges",
        outcome=outcome,
        part=c.name,
        value=list(reasons) or None,
        expected="nothing that opens the host",
        source=OWN,
        suspect=f"deployment configuration of {c.name}: {', '.join(reasons[:8])}"
        if reasons
        else "whether it is privileged is not in the text"
        if outcome == "not-measured"
        else "",
    )


def _state(c: Container) -> Iterator[Finding]:
    if c.status is None:
        return
    bad = ""
    if c.oom_killed:
        bad = f"memory limit of {c.name}: killed for memory, not GPU memory"
    elif c.status in ("dead", "restarting") or (c.status == "exited" and c.exit_code not in (0, None)):
        bad = f"container {c.name} is {c.status}" + (f" with exit code {c.exit_code}" if c.status == "exited" else "")
    elif c.health == "unhealthy":
        bad = f"health check of {c.name} fails"
    up = c.status == "running"
    yield Finding(
        metric="container.state",
        outcome="fail" if bad else "pass" if up else "observed",
        part=c.name,
        value=c.status,
        expected="running",
        source="the tool's own verdict",
        suspect=bad,
        advice="docker logs" if bad else "",
    )


def _gpus(containers: tuple[Container, ...], given: Given) -> Iterator[Finding]:
    """Containers that ask for GPUs against what was expected; where none asks, the expectation is not met."""
    wanted = given.expect.text("gpus")
    asking = [c for c in containers if c.gpus is not None]
    for c in asking:
        assert c.gpus is not None
        yield _gpu(c, c.gpus.count, c.gpus.how, wanted, given)
    if not asking and wanted is not None:
        yield _gpu(containers[0], 0, "no GPU request", wanted, given)


def _gpu(c: Container, count: int | str | None, how: str, wanted: str | None, given: Given) -> Finding:
    outcome: Outcome = "observed"
    suspect = ""
    if wanted is not None:
        if count is None or (count == ALL and wanted != ALL):
            outcome = "not-measured"
            says = "how many GPUs the host has is not in the text" if count == ALL else "filled in later"
            suspect = f"{how}: {says}"
        elif str(count) == wanted:
            outcome = "pass"
        else:
            outcome, suspect = "fail", f"deployment configuration ({how})"
            if count == 0 and c.privileged:
                suspect += ": device files are there because it is privileged, the driver's libraries are not"
    return Finding(
        metric="container.gpus",
        outcome=outcome,
        part=c.name,
        value=count,
        unit="GPUs" if isinstance(count, int) else "",
        expected=wanted or "",
        source=given.expect.source if wanted is not None else "",
        suspect=suspect,
    )
