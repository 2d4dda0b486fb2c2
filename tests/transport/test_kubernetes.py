"""The kubernetes transport against a stand-in for kubectl: real keepers, a cluster that is none.

What this does not show is said in docs/kubernetes.md: no API server, no scheduler and no kubelet ran.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command, CommandResult
from pytest_gpuready.transport import LostError, ManyTransport, StoppedError
from pytest_gpuready.transport.kubernetes import Kubernetes
from pytest_gpuready.transport.kubernetes.manifests import CLUSTER_RIGHTS, RIGHTS
from tests.transport.standin_kubectl import Cluster

SRC = Path(__file__).parents[2] / "src"


def sh(node: str, script: str, timeout_s: float = 20, grace_s: float = 2) -> Command:
    return Command(node=node, argv=("sh", "-c", script), timeout_s=timeout_s, grace_s=grace_s)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "gpuready", "ready": False, "state": state}]}


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


# Node -> (what is wrong with it, what its one line says).
SICK: dict[str, tuple[dict[str, Any] | None, str]] = {
    "gone": (None, "expected a node of this name in the cluster, found none; see `kubectl get nodes`"),
    "notready": (
        {
            "node": {
                "status": {
                    "conditions": [
                        condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
                    ]
                }
            }
        },
        "the node is not ready: Kubelet stopped posting node status.; look at its kubelet",
    ),
    "cordoned": (
        {"node": {"spec": {"unschedulable": True}}},
        "the node is cordoned; uncordon it, or tolerate node.kubernetes.io/unschedulable",
    ),
    "tainted": (
        {"node": {"spec": {"taints": [{"key": "team", "value": "red", "effect": "NoExecute"}]}}},
        "the taint team=red:NoExecute; tolerate it",
    ),
    "bare": (
        {"node": {"status": {"allocatable": {"nvidia.com/gpu": "0"}}}},
        "expected nvidia.com/gpu there, found none; see whether the device plugin runs",
    ),
    "full": (
        {
            "pod": {
                "unscheduled": True,
                "phase": "Pending",
                "containerStatuses": [],
                "conditions": [
                    condition(
                        "PodScheduled",
                        "False",
                        "Unschedulable",
                        "0/16 nodes are available: 1 Insufficient nvidia.com/gpu, 15 node(s) didn't match Pod's node "
                        "affinity/selector. preemption: 0/16 nodes are available: 16 Preemption is not helpful for "
                        "scheduling.",
                    )
                ],
            }
        },
        "found Unschedulable: 0/16 nodes are available: 1 Insufficient nvidia.com/gpu, 15 node(s) didn't match",
    ),
    "pull": (
        {"pod": waiting("ImagePullBackOff", 'Back-off pulling image "example/gpuready:0.1"')},
        'found ImagePullBackOff: Back-off pulling image "example/gpuready:0.1"; see `kubectl -n gpuready describe pod',
    ),
    "config": (
        {"pod": waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")},
        "found CreateContainerConfigError: container has runAsNonRoot and image will run as root",
    ),
    "evicted": (
        {
            "pod": {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi.",
                "containerStatuses": [],
            }
        },
        "found Evicted: The node was low on resource: ephemeral-storage.",
    ),
    "admission": (
        {
            "pod": {
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
                "Requested: 8, Available: 7, which is unexpected",
                "containerStatuses": [],
            }
        },
        "found UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable",
    ),
    "nopython": (
        {
            "pod": {
                "phase": "Failed",
                "containerStatuses": [
                    {
                        "name": "gpuready",
                        "state": {
                            "terminated": {
                                "exitCode": 128,
                                "reason": "StartError",
                                "message": "failed to create containerd task: failed to create shim task: OCI runtime "
                                'create failed: exec: "python3": executable file not found in $PATH: unknown',
                            }
                        },
                    }
                ],
            }
        },
        "found StartError, exit code 128: failed to create containerd task",
    ),
    "drained": (
        {
            "pod": {
                "deleted": True,
                "conditions": [
                    condition(
                        "DisruptionTarget",
                        "True",
                        "DeletionByTaintManager",
                        "Taint manager: deleting due to NoExecute taint",
                    )
                ],
            }
        },
        "found DeletionByTaintManager: Taint manager: deleting due to NoExecute taint",
    ),
    "kubelet": (
        {
            "exec": [
                "Error from server: error dialing backend: dial tcp 10.0.0.3:10250: connect: connection refused\n",
                1,
            ]
        },
        "found error dialing backend: dial tcp 10.0.0.3:10250: connect: connection refused; see whether the node is up",
    ),
    "denied": (
        {
            "exec": [
                'Error from server (Forbidden): pods "x" is forbidden: User "jo" cannot create resource "pods/exec" in '
                'API group "" in the namespace "gpuready"\n',
                1,
            ]
        },
        'User "jo" cannot create resource "pods/exec" in API group "" in the namespace "gpuready"; give the account',
    ),
    "killed": (
        {"exec": ["command terminated with exit code 137\n", 137]},
        "expected to start a command in its pod, found command terminated with exit code 137",
    ),
}


def test_each_trouble_costs_only_its_node(cluster: Cluster) -> None:
    """Two nodes are measured beside one for every trouble; each of those has one printable line that names it."""
    cluster.set({"well-1": {}, **{name: said for name, (said, _) in SICK.items()}, "well-2": {}})
    transport = cluster.transport()
    assert isinstance(transport, ManyTransport)
    well = sh("well-1", "echo out; echo err >&2; exit 255")
    agent = Command(node="well-2", argv=("python", "-m", "pytest_gpuready.agent", "node"), timeout_s=20)
    others = [sh(name, "echo never") for name in SICK]
    hostile = sh("A;$(x)\n", "true")
    patient = sh("well-3", "true", grace_s=61)
    told = dict(transport.run_many([hostile, patient, well, *others, agent]))
    assert len(told) == len(SICK) + 4
    result, document = told[well], told[agent]
    assert isinstance(result, CommandResult)
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 255)
    assert isinstance(document, CommandResult)
    assert json.loads(document.stdout)["host"] == "well-2", document.stderr
    for command in others:
        line = str(told[command])
        assert isinstance(told[command], TransportError)
        assert line.startswith(f"{command.node}: expected "), line
        assert SICK[command.node][1] in line
        assert line.isprintable()
    assert "expected a node's name as Kubernetes has them" in str(told[hostile])
    assert "expected a grace of at most 60 s for a command in a pod, found 61 s; raise grace_s" in str(told[patient])

    # The next measurement: one Job more for the pods that had ended, nobody waits again, and what was there stays.
    before = cluster.calls("create")
    again = dict(transport.run_many([sh("well-1", "echo again"), sh("full", "true"), sh("evicted", "true")]))
    assert [str(outcome)[:14] for outcome in again.values()].count("CommandResult(") == 1
    assert len(before) == 1
    assert len(cluster.calls("create")) == 2
    jobs = sorted(path.name for path in (cluster.folder / "jobs").iterdir())
    transport.close()
    assert list((cluster.folder / "jobs").iterdir()) == []
    assert sorted(word for word in cluster.calls("delete")[0] if word.startswith("gpuready-")) == jobs

    # Nothing is asked for beyond the rights that are rendered.
    asked = {
        "create": ("batch", "jobs", "create"),
        "delete": ("batch", "jobs", "delete"),
        "get nodes": ("", "nodes", "list"),
        "get pods": ("", "pods", "list"),
        "exec": ("", "pods/exec", "create"),
    }
    calls = {" ".join(call[:2]) if call[0] == "get" else call[0] for call in cluster.calls()}
    assert {asked[call] for call in calls} <= {*RIGHTS, *CLUSTER_RIGHTS}


def test_a_pod_that_comes_late_keeps_nobody_waiting(cluster: Cluster) -> None:
    """A node whose pod runs is measured while another is still pulled; that one follows when it runs."""
    cluster.set({"a": {}, "b": {}})
    cluster.becomes("b", waiting("ContainerCreating", ""))
    first, second = sh("a", "echo a"), sh("b", "echo b")
    ended = cluster.transport(wait_s=20.0).run_many([second, first])
    assert next(ended)[0] == first
    cluster.becomes("b", {})
    (command, outcome) = next(ended)
    assert command == second
    assert isinstance(outcome, CommandResult)
    assert list(ended) == []


@pytest.mark.parametrize(
    ("call", "text", "line"),
    [
        (
            "get nodes",
            "E1130 19:30:41.118 77 memcache.go:265] couldn't get current server API group list: Get "
            '"https://10.0.0.1:6443/api?timeout=48s": dial tcp 10.0.0.1:6443: connect: connection refused\n'
            "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?\n",
            "found The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?; "
            "see that `kubectl get nodes` works",
        ),
        (
            "get nodes",
            "error: You must be logged in to the server (Unauthorized)\n",
            "found You must be logged in to the server (Unauthorized); renew your login to the cluster",
        ),
        (
            "create",
            'Error from server (NotFound): error when creating "STDIN": namespaces "gpuready" not found\n',
            "make the namespace first, see docs/kubernetes.md",
        ),
        (
            "create",
            'Error from server (Forbidden): error when creating "STDIN": jobs.batch "j" is forbidden: exceeded quota: '
            "gpus, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, limited: 4\n",
            "raise the quota of the namespace, or name fewer nodes",
        ),
        (
            "create",
            'Error from server (BadRequest): error when creating "STDIN": Job in version "v1" cannot be handled as a '
            'Job: strict decoding error: unknown field "spec.backoffLimitPerIndex"\n',
            "expected Kubernetes 1.29 or later",
        ),
        ("get pods", "Unable to connect to the server: net/http: TLS handshake timeout\n", "TLS handshake timeout"),
    ],
)
def test_what_the_cluster_refuses_is_one_line(cluster: Cluster, call: str, text: str, line: str) -> None:
    """A call that fails says for every node what was refused and what to do."""
    cluster.set({"a": {}}, fail={call: [text, 1]})
    with pytest.raises(TransportError, match=r"^a: kubectl ") as error:
        cluster.transport().run(sh("a", "true"))
    assert line in str(error.value)
    assert str(error.value).isprintable()


def test_pods_that_are_not_admitted_are_explained(cluster: Cluster) -> None:
    """Where the Job makes no pod, what the API server warned of when it was created is the reason."""
    warning = (
        'Warning: would violate PodSecurity "restricted:latest": privileged (container "gpuready" must not set '
        "securityContext.privileged=true)\n"
    )
    cluster.set({"a": {}}, warning=warning)
    cluster.becomes("a", {"unscheduled": True, "phase": "Pending", "containerStatuses": []})
    transport = cluster.transport(gpu_access="privileged")
    assert "found the pod is still Pending" in str(dict(transport.run_many([sh("a", "true")])))
    for job in (cluster.folder / "jobs").iterdir():
        job.unlink()
    line = str(dict(transport.run_many([sh("a", "true")])))
    assert 'expected a pod, found would violate PodSecurity "restricted:latest": privileged' in line


def test_a_stream_that_breaks_is_no_result(cluster: Cluster) -> None:
    """What was printed until the connection broke is kept, as the partial result of an error."""
    cluster.set({"a": {}})
    script = "echo half; sleep 0.2; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID"
    with pytest.raises(
        LostError, match="a: expected to hear how 'sh' ended, found kubectl ended with code -9"
    ) as error:
        cluster.transport().run(sh("a", script))
    assert error.value.partial.stdout == "half\n"
    assert error.value.partial.exit_code is None


def test_stop_gives_each_its_grace(cluster: Cluster) -> None:
    """What a command prints in its grace is kept; what waits for a place does not begin, and its error says why."""
    cluster.set({"a": {}, "b": {}})
    running = threading.Event()
    transport = cluster.transport(fanout=1, progress=lambda _command, _said: running.set())
    waits = "trap 'echo told; exit 5' TERM; echo begun; while :; do sleep 0.05; done"

    def stop() -> None:
        running.wait(20)
        transport.stop()

    threading.Thread(target=stop).start()
    told = {command.node: outcome for command, outcome in transport.run_many([sh("a", waits), sh("b", waits)])}
    kinds = {type(outcome) for outcome in told.values()}
    assert kinds == {CommandResult, StoppedError}
    (result,) = [outcome for outcome in told.values() if isinstance(outcome, CommandResult)]
    assert (result.stdout, result.exit_code) == ("begun\ntold\n", 5)


CONTROLLER = """
import sys
from pathlib import Path
from pytest_gpuready.model import Command
from tests.transport.standin_kubectl import Cluster

Cluster(Path(sys.argv[1])).transport().run(Command(node="a", argv=("sleep", sys.argv[2]), timeout_s=60))
"""


def test_a_command_ends_with_its_controller(cluster: Cluster) -> None:
    """Killed, the controller leaves neither the command nor a kubectl behind."""
    cluster.set({"a": {}})
    sleeps = f"43{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": f"{SRC}:{SRC.parent}"}
    controller = subprocess.Popen([sys.executable, "-c", CONTROLLER, str(cluster.folder), sleeps], env=environment)
    try:
        wait_for(lambda: alive("sleep", sleeps))
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    wait_for(lambda: not alive("sleep", sleeps) and not alive("--namespace=gpuready", str(cluster.folder)))


HOLDER = """
import pathlib, sys
source, idle_s = pathlib.Path(sys.argv[1]).read_text(), float(sys.argv[2])
print("up", flush=True)
exec(source + f"\\nmain({idle_s})\\n")
"""


def test_the_first_process_of_a_pod(tmp_path: Path) -> None:
    """It ends when nobody has come for its idle time; told to end, it tells the keepers and waits for them."""
    holder = SRC / "pytest_gpuready" / "transport" / "kubernetes" / "holder.py"
    first = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    idle = subprocess.Popen([*first, sys.executable, "-I", "-S", "-c", HOLDER, str(holder), "0.2"])
    words = [*first, sys.executable, "-I", "-S", "-c", HOLDER, str(holder), "60"]
    pod = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert pod.stdout
        assert pod.stdout.readline() == "up\n"
        (inside,) = children(pod.pid)
        enter = ["nsenter", f"--target={inside}", "--pid", "--mount", "--"]
        keeper = "trap 'sleep 0.3; echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        exec_ = subprocess.Popen([*enter, "timeout", "50", "sh", "-c", keeper], stdout=subprocess.PIPE, text=True)
        assert exec_.stdout
        assert exec_.stdout.readline() == "up\n"

        def asked_to_end() -> bool:
            # More than once: as the first process it hears nothing before it listens.
            return exec_.poll() is not None or os.kill(inside, signal.SIGTERM) is not None

        wait_for(asked_to_end)
        assert exec_.communicate(timeout=60)[0] == "told\n"
        assert exec_.returncode == 0
        assert pod.wait(60) == 0
        assert idle.wait(60) == 0
    finally:
        pod.kill()
        idle.kill()


def test_without_kubectl_it_says_so(tmp_path: Path) -> None:
    """The missing program is named at once."""
    with pytest.raises(TransportError, match="expected /none/kubectl for the kubernetes transport, found none"):
        Kubernetes(namespace="gpuready", image="example/gpuready:0.1", kubectl="/none/kubectl")


def wait_for(what: Any) -> Any:
    give_up = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return found


def alive(*words: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if set(words) <= set(line):
            return True
    return False


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
