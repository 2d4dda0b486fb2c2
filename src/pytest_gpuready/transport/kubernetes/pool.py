"""The pods that hold the nodes of a run: made where there are none, looked at before each measurement.

Nodes whose pod runs get their command at once; nobody waits for a slow one. What Kubernetes would only show by a pod
that stays Pending (no such node, not ready, cordoned, tainted, no GPU offered) is read from the node before anything is
made. A node whose pod did not come in time is looked at again by the next measurement, but not waited for again. A pod
that has ended (evicted, deleted, its idle time over) is replaced by that of a new Job.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from pytest_gpuready.errors import TransportError
from pytest_gpuready.transport.kubernetes.kubectl import Kubectl
from pytest_gpuready.transport.kubernetes.manifests import JOB_LABEL, MOST_NODES, POOL_LABEL, Shape, job
from pytest_gpuready.transport.kubernetes.rules import broken
from pytest_gpuready.transport.kubernetes.state import Pod, read_nodes, read_pods

FIRST_S = 0.5
"""After how long it looks for the first time; then ever less often."""

SELDOM_S = 5.0
TICK_S = 0.1

Ready = Callable[[str, str], None]
"""Is told a node and the pod that a command can run in."""

Failed = Callable[[str, str], None]
"""Is told a node and why there is no pod."""


class Pool:
    """All pods of one run."""

    def __init__(self, kubectl: Kubectl, shape: Shape, wait_s: float) -> None:
        self.name = f"gpuready-{secrets.token_hex(4)}"
        self.jobs: list[str] = []
        self._kubectl, self._shape, self._wait_s = kubectl, shape, wait_s
        self._job_of: dict[str, str] = {}
        self._given_up: set[str] = set()
        self._warned: dict[str, str] = {}
        self._lock = threading.Lock()

    def ensure(self, nodes: Iterable[str], *, ready: Ready, failed: Failed, stopped: Callable[[], bool]) -> None:
        """Call `ready` or `failed` once for every node, as soon as it is known; returns early where `stopped`.

        Raises:
            TransportError: the cluster cannot be asked at all, or our own manifest breaks a rule.
        """
        with self._lock:
            left = dict.fromkeys(nodes)
            self._look_again(left, ready, failed)
            self._make([node for node in left if node not in self._job_of], left, failed)
            self._wait(left, ready, failed, stopped)

    def _look_again(self, left: dict[str, None], ready: Ready, failed: Failed) -> None:
        """What has become of the pods that were there before."""
        known = [node for node in left if node in self._job_of]
        if not known:
            return
        pods = self._pods()
        for node in known:
            pod = self._pod_of(node, pods)
            if pod and pod.running:
                ready(node, pod.metadata.name)
                self._given_up.discard(node)
                del left[node]
            elif pod and pod.ended:
                del self._job_of[node]
                self._given_up.discard(node)
            elif node in self._given_up:
                failed(node, self._why(node, pods))
                del left[node]
            elif pod is None:
                del self._job_of[node]

    def _make(self, fresh: Sequence[str], left: dict[str, None], failed: Failed) -> None:
        """Ask for a pod on each of these nodes: a Job for those that offer as many GPUs."""
        if not fresh:
            return
        text, _ = self._kubectl.call("get", "nodes", "--output=json")
        there = read_nodes(text)
        pools: dict[int, list[str]] = {}
        for name in fresh:
            node = there.get(name)
            gpus = node.gpus(self._shape.gpu_resource) if node else 0
            if node is None:
                why = "expected a node of this name in the cluster, found none; see `kubectl get nodes`"
            elif unfit := node.unfit(self._shape.tolerations):
                why = f"expected a node that takes a pod, found {unfit}"
            elif not gpus and self._shape.gpu_access == "device-plugin":
                why = f"expected {self._shape.gpu_resource} there, found none; see whether the device plugin runs"
            else:
                pools.setdefault(gpus, []).append(name)
                continue
            failed(name, why)
            del left[name]
        for gpus, names in pools.items():
            for start in range(0, len(names), MOST_NODES):
                self._create(names[start : start + MOST_NODES], gpus, left, failed)

    def _create(self, nodes: list[str], gpus: int, left: dict[str, None], failed: Failed) -> None:
        name = f"{self.name}-{len(self.jobs) + 1}"
        manifest = job(self._shape, name=name, pool=self.name, nodes=nodes, gpus=gpus)
        found = broken([manifest], privileged=self._shape.privileged)
        if found:
            raise TransportError(f"kubernetes: expected a manifest that keeps our rules, found {found[0]}; correct it")
        self.jobs.append(name)  # also where the answer is lost: it may have been made
        try:
            _, self._warned[name] = self._kubectl.call(
                "create", "--filename=-", "--output=name", stdin=json.dumps(manifest)
            )
        except TransportError as error:
            for node in nodes:
                failed(node, str(error))
                del left[node]
            return
        self._job_of |= dict.fromkeys(nodes, name)
        self._given_up -= set(nodes)

    def _wait(self, left: dict[str, None], ready: Ready, failed: Failed, stopped: Callable[[], bool]) -> None:
        give_up, pause_s = time.monotonic() + self._wait_s, FIRST_S
        why: dict[str, str] = {}
        while left and not stopped():
            try:
                pods = self._pods()
            except TransportError as error:  # may be back in a moment
                why = dict.fromkeys(left, str(error))
            else:
                for node in list(left):
                    pod = self._pod_of(node, pods)
                    if pod and pod.running:
                        ready(node, pod.metadata.name)
                    elif pod and pod.hopeless:
                        failed(node, self._why(node, pods))
                        self._given_up.add(node)
                    else:
                        why[node] = self._why(node, pods)
                        continue
                    del left[node]
            if not left:
                return
            if time.monotonic() > give_up:
                for node in left:
                    failed(node, why[node])
                    self._given_up.add(node)
                return
            wake = time.monotonic() + pause_s
            while not stopped() and time.monotonic() < wake:
                time.sleep(TICK_S)
            pause_s = min(1.5 * pause_s, SELDOM_S)

    def _pods(self) -> list[Pod]:
        text, _ = self._kubectl.call("get", "pods", f"--selector={POOL_LABEL}={self.name}", "--output=json")
        return read_pods(text)

    def _pod_of(self, node: str, pods: list[Pod]) -> Pod | None:
        """The pod that this node was given, the one that can be used if there are several."""
        ours = [pod for pod in pods if pod.spec.node_name == node and self._is_of(pod, node)]
        return min(ours, key=lambda pod: (not pod.running, pod.ended, pod.metadata.name), default=None)

    def _is_of(self, pod: Pod, node: str) -> bool:
        return pod.metadata.labels.get(JOB_LABEL) == self._job_of.get(node)

    def _why(self, node: str, pods: list[Pod]) -> str:
        look = f"see `kubectl -n {self._shape.namespace} describe"
        pod = self._pod_of(node, pods)
        if pod is None:
            ours = [each for each in pods if self._is_of(each, node)]
            pod = next((each for each in ours if not each.spec.node_name), None)
            if pod is None:
                name = self._job_of[node]
                found = "its pod on another node" if ours else (self._warned[name] or "that none was made")
                return f"expected a pod, found {found}; {look} job {name}`"
        return f"expected a running pod, found {pod.why()}; {look} pod {pod.metadata.name}`"

    def close(self) -> None:
        """Delete what was made; waits for nothing. Raises: TransportError."""
        if self.jobs:
            words = ("delete", "jobs", *self.jobs)
            self._kubectl.call(*words, "--cascade=background", "--wait=false", "--ignore-not-found=true")
        self.jobs.clear()
        self._job_of.clear()
        self._given_up.clear()
