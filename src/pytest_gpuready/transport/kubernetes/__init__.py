"""Nodes of a Kubernetes cluster through plain `kubectl`: indexed Jobs hold them, commands come by exec.

Weighed: (a) Jobs for the whole run whose pods wait, and each command by `kubectl exec`; (b) one Job for each
measurement, its results read from the logs. This is (a), for these reasons:

- Between two measurements of (b) nobody holds the node: another pod may take the GPUs, and each measurement waits for
  the scheduler and a container anew. (a) holds all GPUs from the first measurement to the end.
- An exec has a stdin, so the keeper of the ssh transport works as it is: the deadline is kept on the node, the agent
  travels with its digest, Ctrl-C gives a command its grace and what it prints then is kept, progress is heard, and the
  command ends when the controller dies. A log is one way: (b) could only delete the Job, and the log with it.
- A log is cut: the kubelet rotates it at 10 MiB and shows only the newest file. A stream is bounded by us alone.

What it costs: the right `pods/exec` (who may create pods could do as much), one kubectl process (about 50 MB) and one
connection through the API server for each command that runs; `fanout` bounds them. A connection that breaks costs its
measurement: what has no end is a `LostError`, never half a result. A command that is silent for long keeps its
connection by a word now and then.

A pod without a command for `idle_s` ends by itself: so the GPUs of a dead controller's nodes are free again, without
anybody who looks after them; `hold_s` is the last bound, kept by the node. The Jobs are deleted at the end of the
process. Nothing else stays.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command
from pytest_gpuready.transport import Ended, StoppedError
from pytest_gpuready.transport.agent_zip import AgentZip, agent_zip
from pytest_gpuready.transport.engine import Engined
from pytest_gpuready.transport.kept import INTERRUPTED, Request
from pytest_gpuready.transport.kubernetes.execs import Execs, InPod, words
from pytest_gpuready.transport.kubernetes.kubectl import Kubectl, find
from pytest_gpuready.transport.kubernetes.manifests import CONTAINER, GPU_TOLERATION, GpuAccess, Shape
from pytest_gpuready.transport.kubernetes.pool import Pool
from pytest_gpuready.transport.local import GRACE_S, MAX_BYTES, Progress

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""A node's name in Kubernetes: a DNS-1123 subdomain."""


class Kubernetes(Engined):
    """The transport for nodes of a cluster. `progress` is called from a thread of the transport."""

    def __init__(
        self,
        *,
        namespace: str,
        image: str,
        kubectl: str = "kubectl",
        context: str = "",
        kubeconfig: str = "",
        gpu_access: GpuAccess = "device-plugin",
        python: str = "python3",
        runtime_class: str = "",
        priority_class: str = "",
        pull_secret: str = "",
        tolerations: Sequence[Mapping[str, Any]] = (GPU_TOLERATION,),
        node_selector: Mapping[str, str] | None = None,
        wait_s: float = 300.0,
        start_s: float = 60.0,
        hold_s: float = 24 * 3600.0,
        idle_s: float = 600.0,
        grace_s: float = 60.0,
        fanout: int = 64,
        max_bytes: int = MAX_BYTES,
        patience_s: float = GRACE_S,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        agent: Callable[[], AgentZip] = agent_zip,
    ) -> None:
        """How nodes are reached; nothing is asked of the cluster before the first command.

        `wait_s` is how long a node may take to get its pod, `start_s` how long a pod may take to say the first word,
        `fanout` how many commands run at a time, `environment` further variables for agent commands.
        What the pods are like (`gpu_access`, `hold_s`, `idle_s`, `grace_s`, ..) is said at `Shape`.

        Raises:
            TransportError: kubectl is not installed here.
        """
        self._shape = Shape(
            namespace=namespace,
            image=image,
            gpu_access=gpu_access,
            python=python,
            runtime_class=runtime_class,
            priority_class=priority_class,
            pull_secret=pull_secret,
            tolerations=tuple(tolerations),
            node_selector=dict(node_selector or {}),
            hold_s=hold_s,
            idle_s=idle_s,
            grace_s=grace_s,
        )
        self._kubectl = Kubectl(program=find(kubectl), namespace=namespace, context=context, kubeconfig=kubeconfig)
        self._pool = Pool(self._kubectl, self._shape, wait_s)
        self._fanout, self._start_s = fanout, start_s
        super().__init__(
            progress, python=python, agent=agent, patience_s=patience_s, max_bytes=max_bytes, environment=environment
        )
        atexit.register(self._close_quietly)

    def _open(self, commands: tuple[Command, ...]) -> tuple[list[Ended], Execs | None, Callable[[], None]]:
        named: dict[str, Command] = {}
        refused: list[Ended] = []
        for command in commands:
            if not NAME.fullmatch(command.node):
                why = f"{command.node!a}: expected a node's name as Kubernetes has them, found other characters"
                refused.append((command, TransportError(f"{why}; correct the name")))
            elif command.grace_s > self._shape.grace_s:
                why = f"{command.node}: expected a grace of at most {self._shape.grace_s:g} s for a command in a pod"
                refused.append((command, TransportError(f"{why}, found {command.grace_s:g} s; raise grace_s")))
            else:
                named[command.node] = command
        if not named:
            return refused, None, lambda: None
        execs = Execs(fanout=self._fanout, start_s=self._start_s, progress=self._progress)
        preparing = threading.Thread(
            target=self._prepare, args=(named, execs), name="gpuready-kubernetes-pods", daemon=True
        )
        return refused, execs, preparing.start

    def _prepare(self, named: Mapping[str, Command], execs: Execs) -> None:
        """Give each command to the engine when the pod of its node runs. Runs in a thread of its own."""
        left = dict(named)
        requests: dict[tuple[object, ...], Request] = {}

        def ready(node: str, pod: str) -> None:
            kept = self._kept(left.pop(node), requests)
            execs.add(kept, words(self._kubectl, pod, CONTAINER, kept))

        def failed(node: str, why: str) -> None:
            kind = StoppedError if why == INTERRUPTED else TransportError
            execs.refuse(left.pop(node), kind(f"{node}: {why}"))

        why = INTERRUPTED
        try:
            self._pool.ensure(named, ready=ready, failed=failed, stopped=lambda: execs.stopping)
        except TransportError as error:
            why = str(error)
        except Exception as error:
            # Whatever breaks here may not end as nodes that nobody hears of.
            why = f"{type(error).__name__}: {error}"
            raise
        finally:
            for node in list(left):
                failed(node, why)
            execs.no_more()

    def _kept(self, command: Command, requests: dict[tuple[object, ...], Request]) -> InPod:
        return InPod(
            command=command,
            request=self._asked(command, requests),
            max_bytes=self._max_bytes,
            said=lambda said: self._progress(command, said),
        )

    def close(self) -> None:
        """Delete the Jobs of this run, and with them its pods. It may be used again.

        Raises:
            TransportError: the cluster did not take it; the pods end by themselves when nobody uses them.
        """
        self._pool.close()

    def _close_quietly(self) -> None:
        # At the end of the process nobody reads an error any more, and the pods end by themselves.
        with contextlib.suppress(TransportError):
            self.close()
