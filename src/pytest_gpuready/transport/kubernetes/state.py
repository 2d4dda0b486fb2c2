"""What Kubernetes says of nodes and pods (`kubectl get -o json`), and why a pod does not run, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_gpuready.errors import TransportError
from pytest_gpuready.transport.kept import shown
from pytest_gpuready.transport.kubernetes.manifests import CONTAINER

_HOPELESS = {
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
"""Reasons of a container that waits for something which does not come by itself."""

CORDON = "node.kubernetes.io/unschedulable"
_DONE = ("Succeeded", "Failed")


class _Part(msgspec.Struct, rename="camel", frozen=True):
    """Fields that are not named are left out: Kubernetes says far more than anybody here asks."""


class Condition(_Part, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class Metadata(_Part, frozen=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Taint(_Part, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(_Part, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(_Part, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []


class Node(_Part, frozen=True):
    """A node of the cluster."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def gpus(self, resource: str) -> int:
        """How many GPUs the device plugin offers here; healthy ones, used or not."""
        count = self.status.allocatable.get(resource, "0")
        return int(count) if count.isdecimal() else 0

    def unfit(self, tolerations: Sequence[Mapping[str, Any]]) -> str:
        """Why no pod can come here, and what to do; "" where one may."""
        ready = next((one for one in self.status.conditions if one.type == "Ready"), None)
        if ready is None or ready.status != "True":
            said = ready.message or ready.reason if ready else "no word of the kubelet"
            return f"the node is not ready: {_line(said)}; look at its kubelet"
        if self.spec.unschedulable and not _tolerated(Taint(key=CORDON, effect="NoSchedule"), tolerations):
            return f"the node is cordoned; uncordon it, or tolerate {CORDON}"
        for taint in self.spec.taints:
            if taint.effect != "PreferNoSchedule" and not _tolerated(taint, tolerations):
                return f"the taint {_line(taint.key)}={_line(taint.value)}:{_line(taint.effect)}; tolerate it"
        return ""


class Waiting(_Part, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(_Part, frozen=True):
    exit_code: int
    reason: str = ""
    message: str = ""


class ContainerState(_Part, frozen=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Part, frozen=True):
    name: str
    state: ContainerState = ContainerState()


class PodSpec(_Part, frozen=True):
    node_name: str = ""


class PodStatus(_Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []


class Pod(_Part, frozen=True):
    """A pod of ours."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """True where no command will run in it any more."""
        return self.status.phase in _DONE or self.metadata.deletion_timestamp is not None

    @property
    def running(self) -> bool:
        """True where a command can run in it."""
        return self.status.phase == "Running" and not self.ended

    @property
    def hopeless(self) -> bool:
        """True where waiting for it changes nothing."""
        waiting = self._container.waiting
        return self.ended or (waiting is not None and waiting.reason in _HOPELESS)

    @property
    def _container(self) -> ContainerState:
        ours = (one.state for one in self.status.container_statuses if one.name == CONTAINER)
        return next(ours, ContainerState())

    def why(self) -> str:
        """Why no command can run in it, in one line; "" where one can."""
        if self.running:
            return ""
        if self.ended:
            return self._why_ended()
        waiting, placed = self._container.waiting, self._condition("PodScheduled", "False")
        if waiting and waiting.reason:
            return _said(waiting.reason, waiting.message)
        if placed:
            return _said(placed.reason or "not scheduled", placed.message)
        return f"the pod is still {_line(self.status.phase) or 'unknown'}"

    def _why_ended(self) -> str:
        ended, disrupted = self._container.terminated, self._condition("DisruptionTarget", "True")
        code = f", exit code {ended.exit_code}" if ended else ""
        if ended and ended.reason not in ("", "Error", "Completed"):
            return _said(ended.reason + code, ended.message)
        if self.status.reason:
            return _said(self.status.reason, self.status.message)
        if disrupted:
            return _said(disrupted.reason, disrupted.message)
        if self.metadata.deletion_timestamp is not None:
            return "the pod is being deleted"
        return f"the pod has ended ({_line(self.status.phase)}{code})"

    def _condition(self, kind: str, status: str) -> Condition | None:
        return next((one for one in self.status.conditions if (one.type, one.status) == (kind, status)), None)


class _Nodes(_Part, frozen=True):
    items: list[Node]


class _Pods(_Part, frozen=True):
    items: list[Pod]


def read_nodes(text: str) -> dict[str, Node]:
    """Name -> node. Raises: TransportError."""
    return {node.metadata.name: node for node in _read(text, _Nodes).items}


def read_pods(text: str) -> list[Pod]:
    """The pods. Raises: TransportError."""
    pods: list[Pod] = _read(text, _Pods).items
    return pods


def _read(text: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TransportError(
            f"kubectl get: expected a list as Kubernetes writes it, found {_line(text)[:60]!r} ({error})"
        ) from error


def _tolerated(taint: Taint, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    for each in tolerations:
        key, effect = each.get("key", ""), each.get("effect", "")
        same = each.get("operator", "Equal") == "Exists" or each.get("value", "") == taint.value
        if key in ("", taint.key) and effect in ("", taint.effect) and same:
            return True
    return False


def _said(reason: str, message: str) -> str:
    return f"{_line(reason)}: {_line(message)}" if message else _line(reason)


def _line(text: str) -> str:
    return shown(" ".join(text.split()).encode("utf-8", "replace"))
