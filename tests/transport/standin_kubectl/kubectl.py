# A stand-in for kubectl and the cluster behind it: no cluster is asked, a scenario says what there is. For tests only.
"""What `kubectl` prints and how it ends, for the calls that the transport makes.

The folder is the first argument. In it: `scenario.json` (below), `jobs/` (what was created), `calls` (one JSON list a
call), `pods/` (whatever a test puts there overrides the pod of a node). Forms follow `kubectl` 1.32 and 1.37 against
API servers 1.29 to 1.34; texts of errors are those that people show in public reports. Every pod names the stand-in.

    {"nodes": {"n1": {"node": {..merged into the node..}, "pod": {..status of its pod, merged..},
                      "exec": ["text on stderr", exit code]}},
     "fail": {"create": ["text on stderr", exit code]}}

A pod with `"unscheduled": true` has no node. `exec` without a case runs the words for real.
"""

import json
import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
words = [word for word in sys.argv[2:] if not word.startswith(("--kubeconfig=", "--context=", "--request-timeout="))]
scenario = json.loads((folder / "scenario.json").read_text())
assert words.pop(0) == "--namespace=gpuready"
verb, *rest = words
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(words[: words.index("--")] if "--" in words else words) + "\n")


def end(text: str, code: int) -> None:
    sys.stderr.write(text)
    sys.exit(code)


def merged(base: dict, more: dict) -> dict:
    return {**base, **{k: merged(base.get(k) or {}, v) if isinstance(v, dict) else v for k, v in more.items()}}


def node(name: str, said: dict) -> dict:
    return merged(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"stand-in-{name}",
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
                "creationTimestamp": "2026-11-01T08:00:00Z",
            },
            "spec": {"podCIDR": "10.244.1.0/24", "providerID": f"stand-in://{name}"},
            "status": {
                "capacity": {"cpu": "192", "memory": "2113404532Ki", "nvidia.com/gpu": "8", "pods": "110"},
                "allocatable": {"cpu": "191", "memory": "2111307380Ki", "nvidia.com/gpu": "8", "pods": "110"},
                "conditions": [
                    {
                        "type": "MemoryPressure",
                        "status": "False",
                        "reason": "KubeletHasSufficientMemory",
                        "message": "kubelet has sufficient memory available",
                    },
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "KubeletReady",
                        "message": "kubelet is posting ready status",
                        "lastHeartbeatTime": "2026-11-30T08:00:00Z",
                    },
                ],
                "nodeInfo": {"kubeletVersion": "v1.33.1", "kernelVersion": "6.8.0-60-generic", "osImage": "stand-in"},
            },
        },
        said,
    )


def pod(job: dict, index: int, name: str) -> dict:
    own = folder / "pods" / name
    said = json.loads(own.read_text()) if own.exists() else scenario["nodes"].get(name, {}).get("pod", {})
    said = dict(said)
    if said.pop("once", False) and not job["metadata"]["name"].endswith("-1"):
        said = {}
    template = job["spec"]["template"]
    placed = {} if said.pop("unscheduled", False) else {"nodeName": name}
    deleted = {"deletionTimestamp": "2026-11-30T08:05:00Z"} if said.pop("deleted", False) else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name']}-{index}-{name[-5:].replace('.', '-')}",
            "generateName": f"{job['metadata']['name']}-{index}-",
            "namespace": "gpuready",
            "uid": f"stand-in-{index}",
            **deleted,
            "labels": {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(index)},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"]}],
        },
        "spec": {**template["spec"], **placed, "schedulerName": "default-scheduler"},
        "status": merged(
            {
                "phase": "Running",
                "qosClass": "Burstable",
                "podIP": "10.244.1.7",
                "containerStatuses": [
                    {"name": "gpuready", "ready": True, "state": {"running": {"startedAt": "2026-11-30T08:00:05Z"}}}
                ],
            },
            said,
        ),
    }


def jobs() -> list:
    return [json.loads(path.read_text()) for path in sorted((folder / "jobs").iterdir())]


def nodes_of(job: dict) -> list:
    terms = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [term["matchFields"][0]["values"][0] for term in terms]


def pods() -> list:
    return [pod(job, index, name) for job in jobs() for index, name in enumerate(nodes_of(job))]


key = f"{verb} {rest[0]}" if verb == "get" else verb
if key in scenario.get("fail", {}):
    end(*scenario["fail"][key])
if key == "get nodes":
    items = [node(name, said.get("node", {})) for name, said in scenario["nodes"].items() if said is not None]
    print(
        json.dumps({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}, indent=4)
    )
elif key == "get pods":
    time.sleep(scenario.get("slow_s", 0))
    print(json.dumps({"apiVersion": "v1", "items": pods(), "kind": "List", "metadata": {"resourceVersion": ""}}))
elif verb == "create":
    made = json.load(sys.stdin)
    name = made["metadata"]["name"]
    sys.stderr.write(scenario.get("warning", ""))
    (folder / "jobs" / name).write_text(json.dumps(made))
    print(f"job.batch/{name}")
elif verb == "delete":
    for name in [word for word in rest[1:] if not word.startswith("--")]:
        (folder / "jobs" / name).unlink(missing_ok=True)
        print(f'job.batch "{name}" deleted from gpuready namespace')
elif verb == "exec":
    there = [each for each in pods() if each["metadata"]["name"] == rest[1]]
    if not there:
        end(f'Error from server (NotFound): pods "{rest[1]}" not found\n', 1)
    where = there[0]["spec"]["nodeName"]
    case = scenario["nodes"][where].get("exec")
    if case:
        end(*case)
    os.environ["GPUREADY_NODE"] = where
    words = rest[rest.index("--") + 1 :]
    try:
        os.execvp(words[0], words)
    except FileNotFoundError:
        end(
            "error: Internal error occurred: Internal error occurred: error executing command in container: failed to "
            f"exec in container: OCI runtime exec failed: exec failed: unable to start container process: exec: "
            f'"{words[0]}": executable file not found in $PATH: unknown\n',
            1,
        )
else:
    end(f'error: unknown command "{verb}" for "kubectl"\n', 1)
