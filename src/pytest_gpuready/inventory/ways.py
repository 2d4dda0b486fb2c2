"""How a site's nodes are reached, as the site file says it. What is left out is the transport's own default."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Word = Annotated[str, Meta(max_length=400)]
Seconds = Annotated[float, Meta(gt=0, le=7 * 86400)]
TransportName = Literal["local", "ssh", "slurm", "kubernetes"]


class Way(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of the ways to a node. `python` is the node's interpreter that runs the agent."""

    python: Word = "python3"


class SshWay(Way, frozen=True, kw_only=True):
    """By ssh: an ssh_config of one's own, how many nodes at a time, and ClusterShell's file of gateways. Paths are
    relative to the site file."""

    config: Word | None = None
    gateways: Word | None = None
    fanout: Annotated[int, Meta(ge=1, le=4096)] = 64
    connect_timeout_s: Seconds = 10.0


class SlurmWay(Way, frozen=True, kw_only=True):
    """By Slurm's srun: what the allocation is asked with, and how long it may take to come (`wait_s`)."""

    partition: Word = ""
    reservation: Word = ""
    constraint: Word = ""
    account: Word = ""
    time_limit: Annotated[str, Meta(pattern=r"^[0-9:-]{0,20}$")] = ""
    wait_s: Seconds = 600.0


class KubernetesWay(Way, frozen=True, kw_only=True):
    """By kubectl: where the pods run, from what image, and how they come to all GPUs of a node. `tolerations` are those
    beside the one for nvidia.com/gpu, `hold_s` how long the pods may hold their nodes at most."""

    namespace: Word = "gpuready"
    image: Word = ""
    context: Word = ""
    kubeconfig: Word | None = None
    gpu_access: Literal["device-plugin", "runtime", "privileged"] = "device-plugin"
    runtime_class: Word = ""
    priority_class: Word = ""
    pull_secret: Word = ""
    tolerations: list[dict[Word, Word | int]] = []
    node_selector: dict[Word, Word] = {}
    fanout: Annotated[int, Meta(ge=1, le=4096)] = 64
    wait_s: Seconds = 300.0
    hold_s: Seconds = 86400.0
