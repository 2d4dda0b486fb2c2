"""Our manifests keep the published schemas and our own rules; each rule is broken by one change of ours."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pytest_gpuready.errors import TransportError
from pytest_gpuready.model import Command
from pytest_gpuready.transport.kubernetes.manifests import Manifest, Shape, as_yaml, manifests
from pytest_gpuready.transport.kubernetes.rules import RULES, broken
from tests.transport.standin_kubectl import Cluster

NODES = ("gpu-001", "gpu-002.example.com")
SHAPES = [
    Shape(namespace="gpuready", image="registry.example:5000/gpuready:0.1.0"),
    Shape(
        namespace="gpuready", image="example/gpuready@sha256:" + "0" * 64, gpu_access="runtime", runtime_class="nvidia"
    ),
    Shape(
        namespace="gpuready",
        image="example/gpuready:0.1.0",
        gpu_access="privileged",
        runtime_class="nvidia",
        priority_class="system-node-critical",
        pull_secret="registry",
        node_selector={"pool": "gpu"},
        tolerations=({"operator": "Exists"},),
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.gpu_access)
def test_what_is_rendered_keeps_schemas_and_rules(shape: Shape) -> None:
    """The oldest Kubernetes that the Job needs, a middle one and the newest known take every object as it is typed."""
    made = manifests(shape, nodes=NODES)
    for manifest in made:
        versions = ("1.29", "1.33", "1.37") if manifest["kind"] == "Job" else ("1.33",)
        for version in versions:
            kubernetes_validate.validate(manifest, version, strict=True)
    assert broken(made, privileged=shape.privileged) == ()
    assert broken(manifests(shape), privileged=shape.privileged) == ()


Change = Callable[[Any], object]
"""Of the Job's spec, its pod's spec, its container; or of all manifests."""


def put(path: str, value: object) -> Change:
    """Write a value at a dotted path; a number is an index; `...` as the value deletes."""

    def change(thing: Any) -> None:
        *steps, last = [int(step) if step.isdecimal() else step for step in path.split("|")]
        for step in steps:
            thing = thing[step]
        if value is ...:
            del thing[last]
        else:
            thing[last] = value

    return change


POD = "spec|template|spec|"
BOX = f"{POD}containers|0|"
AFFINITY = f"{POD}affinity|nodeAffinity|requiredDuringSchedulingIgnoredDuringExecution|nodeSelectorTerms"
APART = f"{POD}affinity|podAntiAffinity|requiredDuringSchedulingIgnoredDuringExecution"


def term(*names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


OF_A_JOB: list[tuple[str, Change]] = [
    ("restart", put(f"{POD}restartPolicy", "Always")),
    ("restart", put(f"{POD}restartPolicy", "OnFailure")),
    ("indexed", put("spec|completionMode", "NonIndexed")),
    ("indexed", put("spec|parallelism", 1)),
    ("alone", put("spec|backoffLimit", 0)),
    ("alone", put("spec|backoffLimitPerIndex", ...)),
    ("deadline", put("spec|activeDeadlineSeconds", ...)),
    ("deadline", put(f"{POD}activeDeadlineSeconds", 0)),
    ("deadline", put("spec|ttlSecondsAfterFinished", ...)),
    ("grace", put(f"{POD}terminationGracePeriodSeconds", 20)),
    ("image", put(f"{BOX}image", "registry.example:5000/gpuready")),
    ("image", put(f"{BOX}image", "example/gpuready:latest")),
    ("image", put(f"{BOX}image", "example/gpuready@sha256:00")),
    ("quantities", put(f"{BOX}resources|requests|cpu", 4)),
    ("quantities", put(f"{BOX}resources|requests|memory", "32GB")),
    ("quantities", put(f"{BOX}resources|limits|memory", ...)),
    ("gpus", put(f"{BOX}resources|limits|nvidia.com/gpu", "7")),
    ("gpus", put(f"{BOX}resources|requests|nvidia.com/gpu", ...)),
    ("selectors", put("spec|template|metadata|labels|gpuready/pool", "another")),
    ("selectors", put(f"{APART}|0|topologyKey", "topology.kubernetes.io/zone")),
    ("selectors", put(f"{APART}|0|labelSelector", {})),
    ("selectors", put("spec|template|metadata|labels|gpuready/job", "another")),
    ("nodes", put(AFFINITY, [term("gpu-001"), term("gpu-001")])),
    ("nodes", put(AFFINITY, [term("gpu-001", "gpu-002")])),
    ("nodes", put(AFFINITY, [term("gpu-001")])),
    ("nodes", put(AFFINITY, [term("gpu-001"), term("GPU_2\n$(x)")])),
    ("nodes", put(AFFINITY, [term("gpu-001"), term("x" * 254)])),
    ("nodes", put(f"{AFFINITY}|0|matchFields|0|key", "metadata.uid")),
    ("nodes", put(AFFINITY, [term(f"n{number}") for number in range(65)])),
    ("names", put("metadata|name", "x" * 62)),
    ("names", put("metadata|name", "Job_1")),
    ("names", put("metadata|namespace", "a.b")),
    ("names", put("metadata|labels|node", "x" * 64)),
    ("names", put("spec|template|metadata|labels|node", "-a")),
    ("names", put(f"{BOX}name", "a_b")),
    ("names", put(f"{POD}serviceAccountName", "A")),
    ("host", put(f"{POD}volumes|0", {"name": "tmp", "hostPath": {"path": "/", "type": "Directory"}})),
    ("host", put(f"{POD}hostPID", True)),
    ("host", put(f"{POD}hostNetwork", True)),
    ("rights", put(f"{BOX}securityContext|privileged", True)),
    ("rights", put(f"{BOX}securityContext|allowPrivilegeEscalation", True)),
    ("rights", put(f"{BOX}securityContext|capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
    ("rights", put(f"{BOX}securityContext|readOnlyRootFilesystem", ...)),
    ("rights", put(f"{POD}securityContext|runAsNonRoot", ...)),
    ("rights", put(f"{POD}securityContext|seccompProfile|type", "Unconfined")),
    ("token", put(f"{POD}automountServiceAccountToken", ...)),
    ("mounted", put(f"{BOX}volumeMounts|0|name", "temp")),
    ("words", put(f"{BOX}command|4", "print('$(HOME)')")),
    ("words", put(f"{BOX}env|0|name", "A-B")),
    ("words", put(f"{BOX}env|1|name", "HOME")),
    ("account", put(f"{POD}serviceAccountName", "default")),
]
# Index of the object in what is rendered, the change.
OF_A_SET: list[tuple[str, int, Change]] = [
    ("namespace", 0, put("metadata|name", "Bad_Name")),
    ("namespace", 1, put("metadata|namespace", "default")),
    ("admission", 0, put("metadata|labels|pod-security.kubernetes.io/enforce", "privileged")),
    ("rbac", 3, put("rules|2|verbs", ["create"])),
    ("rbac", 3, put("rules|0|verbs", ["*"])),
    ("rbac", 3, put("rules|1|resources", ["pods", "secrets"])),
    ("rbac", 4, put("roleRef|name", "admin")),
    ("rbac", 4, put("roleRef|kind", "ClusterRole")),
    ("rbac", 4, put("subjects|0|name", "default")),
    ("rbac", 4, put("subjects", [])),
    ("rbac", 6, put("subjects|0|namespace", "kube-system")),
]


def changed(number: int, change: Change) -> list[Manifest]:
    made = copy.deepcopy(manifests(SHAPES[0], nodes=NODES))
    change(made[number])
    return made


def test_every_rule_is_broken_by_a_change() -> None:
    """Each change breaks the rule it is meant for, the line names the place, and no rule goes without a change."""
    cases = [*((rule, -1, change) for rule, change in OF_A_JOB), *OF_A_SET]
    for rule, number, change in cases:
        made = changed(number, change)
        found = broken(made, privileged=False)
        assert rule in {finding.rule for finding in found}, (rule, made[number])
        for finding in found:
            assert str(finding).isprintable()
            assert len(str(finding)) < 400
    assert {rule for rule, *_ in cases} == {*RULES, "namespace", "account", "rbac", "admission"}


@pytest.mark.parametrize("name", ["device-plugin", "privileged", "job"])
def test_the_examples_are_what_is_rendered(name: Any) -> None:
    """The files under examples/kubernetes are those of the function, and read back as the same objects."""
    access = "privileged" if name == "job" else name
    shape = Shape(
        namespace="gpuready", image="registry.example/gpuready:0.1.0", runtime_class="nvidia", gpu_access=access
    )
    made = manifests(shape, nodes=("gpu-001", "gpu-002"))[-1:] if name == "job" else manifests(shape)
    path = Path(__file__).parents[2] / "examples" / "kubernetes" / f"{name}.yaml"
    assert path.read_text() == as_yaml(made)
    assert list(yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))) == made


def test_privileged_pods_are_declared() -> None:
    """What a privileged shape renders breaks the rules of one that is not; the host's log is read only."""
    made = manifests(SHAPES[2], nodes=NODES)
    assert {"rights", "host", "admission"} <= {finding.rule for finding in broken(made, privileged=False)}
    pod = made[-1]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"][1]["readOnly"] = False
    assert [finding.rule for finding in broken(made, privileged=True)] == ["host"]


def test_a_manifest_that_lacks_everything_is_no_crash() -> None:
    """Parts that are missing or of another kind are findings."""
    for thing in ({"kind": "Job"}, {"kind": "Job", "metadata": 1, "spec": {"template": []}}, {"kind": "Namespace"}):
        assert broken([thing], privileged=False)


def test_the_transport_applies_nothing_that_breaks_a_rule(tmp_path: Path) -> None:
    """An image of whatever is latest is refused before anything is made."""
    cluster = Cluster(tmp_path)
    cluster.set({"a": {}})
    transport = cluster.transport(image="example/gpuready:latest")
    with pytest.raises(TransportError, match=r"^a: kubernetes: .* expected a tag other than latest, or a digest"):
        transport.run(Command(node="a", argv=("true",), timeout_s=5))
    assert cluster.calls("create") == []
