"""What is asked of Kubernetes: namespace, accounts, rights, and the Job whose pods hold the nodes of a pool.

The Job is indexed and has one pod a node: as many as there are nodes, each node named by its `metadata.name` (the
label `kubernetes.io/hostname` need not be the node's name), and no two pods of a pool on one host. Which pod got
which node is read back from `spec.nodeName`; the index itself says nothing about it.

A pod that fails ends alone. That is `backoffLimitPerIndex: 0`, Kubernetes 1.29 or later; a plain `backoffLimit: 0`
would have Kubernetes kill the pods of all other nodes as soon as one has failed. `backoffLimit` is the number of nodes
here, so that it never strikes.

What the agent reads on a node, and what a pod needs for it:

- the PCI bus, link states, AER counters: `/sys`, which a container sees as the host has it, read only; no hostPath. A
  sandbox (gVisor, Kata) shows its own, and the agent says so.
- the driver and NVML: `/dev/nvidia*` and the driver's libraries, which the NVIDIA container runtime puts in.
- the kernel log: `/dev/kmsg`. Only a privileged container may open it: the device rules of a container cannot be
  widened by a hostPath. Without it clauses about Xid and AER lines are NOT MEASURED.
- the serial number of the machine: `/sys/class/dmi`, root alone.
- the node's lease: `/run/lock`, given to privileged pods, so that a run by ssh and one by pods see each other. Others
  keep theirs in the pod: the GPUs that they asked for are nobody else's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_gpuready.agent.machine import NODE

Manifest = dict[str, Any]
"""One object of Kubernetes, as it stands in a YAML file."""

GpuAccess = Literal["device-plugin", "runtime", "privileged"]
"""How a pod comes by the GPUs of its node.

`device-plugin`: it asks for all that the node offers as a resource; nobody else has them meanwhile. Not privileged.
`runtime`: the container runtime puts all of them in (NVIDIA_VISIBLE_DEVICES); nothing reserves them. Not privileged.
`privileged`: asks for all that the node offers, none or some, and sees every device of the host and the kernel log.
"""

NODE_ACCOUNT = "gpuready-node"
"""The service account of the pods: it has no rights and no token."""

CONTROLLER = "gpuready"
"""The service account of whoever runs the transport, and the names of its roles."""

MOST_NODES = 64
"""Nodes of one Job: each of its pods carries the names of all, a thousand in one would be 90 MB to store and read."""

CONTAINER = "gpuready"
POOL_LABEL = "gpuready/pool"
"""On Jobs and pods: the run that made them."""

JOB_LABEL = "gpuready/job"
"""On pods: the Job that they belong to."""

GPU_TOLERATION: Mapping[str, str] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

RIGHTS = (
    ("batch", "jobs", "create"),
    ("batch", "jobs", "delete"),
    ("", "pods", "get"),
    ("", "pods", "list"),
    ("", "pods/exec", "create"),
    ("", "pods/exec", "get"),  # kubectl 1.31 and later ask for a WebSocket first, and that is a GET
)
"""(API group, resource, verb): what the transport does in its namespace."""

CLUSTER_RIGHTS = (("", "nodes", "list"),)
"""What it does outside: nodes belong to no namespace."""

_HOLDER = (Path(__file__).parent / "holder.py").read_text(encoding="utf-8")
_NOBODY = 65532


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the pods of a run are like.

    `python` is the interpreter in the image. `hold_s` is how long a pod may live, `idle_s` how long it waits for a
    command, `ttl_s` how long a finished Job can be looked at, `grace_s` how long a command may take to end when its
    pod is told to. `gpu_resource` is what the device plugin calls a GPU. `cpu` and `memory` are quantities as
    Kubernetes writes them; the memory is limited, the CPU is not: a throttled process measures the throttle.
    """

    namespace: str
    image: str
    gpu_access: GpuAccess = "device-plugin"
    python: str = "python3"
    runtime_class: str = ""
    priority_class: str = ""
    pull_secret: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = (GPU_TOLERATION,)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = "4"
    memory: str = "32Gi"
    hold_s: float = 24 * 3600.0
    idle_s: float = 600.0
    ttl_s: float = 600.0
    grace_s: float = 60.0

    @property
    def privileged(self) -> bool:
        """True where the pods are declared to be."""
        return self.gpu_access == "privileged"


def job(shape: Shape, *, name: str, pool: str, nodes: Sequence[str], gpus: int) -> Manifest:
    """The Job that holds these nodes, each of which offers so many GPUs. `pool` is the label of all Jobs of a run."""
    labels = {"app.kubernetes.io/name": "gpuready", POOL_LABEL: pool, JOB_LABEL: name}
    hold_s = math.ceil(shape.hold_s)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": shape.namespace, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": len(nodes),
            "parallelism": len(nodes),
            "backoffLimit": len(nodes),
            "backoffLimitPerIndex": 0,
            "activeDeadlineSeconds": hold_s,
            "ttlSecondsAfterFinished": math.ceil(shape.ttl_s),
            "template": {"metadata": {"labels": labels}, "spec": _pod(shape, pool=pool, nodes=nodes, gpus=gpus)},
        },
    }


def _pod(shape: Shape, *, pool: str, nodes: Sequence[str], gpus: int) -> Manifest:
    pod: Manifest = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": math.ceil(shape.hold_s),  # kept by the node itself, also when nobody else is left
        "terminationGracePeriodSeconds": math.ceil(shape.grace_s),
        "serviceAccountName": NODE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else every service of the namespace stands in the environment
        "affinity": {"nodeAffinity": _exactly(nodes), "podAntiAffinity": _apart(pool)},
        "tolerations": [dict(toleration) for toleration in shape.tolerations],
        "containers": [_container(shape, gpus)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
    }
    if shape.node_selector:
        pod["nodeSelector"] = dict(shape.node_selector)
    if shape.runtime_class:
        pod["runtimeClassName"] = shape.runtime_class
    if shape.priority_class:
        pod["priorityClassName"] = shape.priority_class
    if shape.pull_secret:
        pod["imagePullSecrets"] = [{"name": shape.pull_secret}]
    if shape.privileged:
        pod["volumes"].append({"name": "kmsg", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}})
        pod["volumes"].append({"name": "lock", "hostPath": {"path": "/run/lock", "type": "DirectoryOrCreate"}})
    else:
        pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": _NOBODY, "runAsGroup": _NOBODY}
        pod["securityContext"]["seccompProfile"] = {"type": "RuntimeDefault"}
    return pod


def _exactly(nodes: Sequence[str]) -> Manifest:
    # A field takes one value each; the terms are alternatives.
    field_is = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]
    terms = [{"matchFields": [one]} for one in field_is]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _apart(pool: str) -> Manifest:
    term = {"labelSelector": {"matchLabels": {POOL_LABEL: pool}}, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _container(shape: Shape, gpus: int) -> Manifest:
    environment: list[Manifest] = [
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - the pod's own, in memory
        {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    if shape.gpu_access == "runtime" or (shape.privileged and not gpus):
        environment.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    environment.append({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"})
    count = {shape.gpu_resource: str(gpus)} if gpus and shape.gpu_access != "runtime" else {}
    mounts: list[Manifest] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    if shape.privileged:
        mounts.append({"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True})
        mounts.append({"name": "lock", "mountPath": "/run/lock"})
        rights: Manifest = {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True}
    else:
        rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    return {
        "name": CONTAINER,
        "image": shape.image,
        "command": [shape.python, "-I", "-S", "-c", f"{_HOLDER}\nmain({float(shape.idle_s)!r})\n"],
        "env": environment,
        "resources": {
            "requests": {"cpu": shape.cpu, "memory": shape.memory, **count},
            "limits": {"memory": shape.memory, **count},
        },
        "securityContext": rights,
        "volumeMounts": mounts,
    }


def manifests(shape: Shape, *, nodes: Sequence[str] = (), gpus: int = 8) -> list[Manifest]:
    """What an administrator applies once, and with `nodes` the Job that a run would make, to look at.

    Whoever may create pods in a namespace that admits privileged ones is root on the nodes: the namespace is for this
    alone.
    """
    admitted = "privileged" if shape.privileged else "restricted"
    mine = {"app.kubernetes.io/name": "gpuready"}

    def head(api: str, kind: str, name: str, *, inside: bool = True, labels: Mapping[str, str] = mine) -> Manifest:
        where = {"namespace": shape.namespace} if inside else {}
        return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **where, "labels": dict(labels)}}

    rbac = "rbac.authorization.k8s.io"
    version = f"{rbac}/v1"
    subject = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": shape.namespace}
    cluster = f"{CONTROLLER}-{shape.namespace}"
    made = [
        head(
            "v1",
            "Namespace",
            shape.namespace,
            inside=False,
            labels={**mine, "pod-security.kubernetes.io/enforce": admitted},
        ),
        {**head("v1", "ServiceAccount", NODE_ACCOUNT), "automountServiceAccountToken": False},
        {**head("v1", "ServiceAccount", CONTROLLER), "automountServiceAccountToken": False},
        {**head(version, "Role", CONTROLLER), "rules": _rules(RIGHTS)},
        {
            **head(version, "RoleBinding", CONTROLLER),
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": CONTROLLER},
            "subjects": [subject],
        },
        {**head(version, "ClusterRole", cluster, inside=False), "rules": _rules(CLUSTER_RIGHTS)},
        {
            **head(version, "ClusterRoleBinding", cluster, inside=False),
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": cluster},
            "subjects": [subject],
        },
    ]
    if nodes:
        made.append(job(shape, name="gpuready-example-1", pool="gpuready-example", nodes=nodes, gpus=gpus))
    return made


def as_yaml(made: Sequence[Manifest]) -> str:
    """The manifests as one file for `kubectl apply -f`."""
    import yaml  # noqa: PLC0415 - who only measures renders nothing

    class Dumper(yaml.SafeDumper):
        """Texts of several lines as they are, no references to what was said before."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, data: str) -> Any:
        style = "|" if "\n" in data else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    return "".join(f"---\n{yaml.dump(each, Dumper=Dumper, sort_keys=False, width=1000)}" for each in made)


def _rules(rights: Sequence[tuple[str, str, str]]) -> list[Manifest]:
    verbs: dict[tuple[str, str], list[str]] = {}
    for group, resource, verb in rights:
        verbs.setdefault((group, resource), []).append(verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": allowed}
        for (group, resource), allowed in verbs.items()
    ]
