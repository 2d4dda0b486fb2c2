"""What the published schemas of Kubernetes let pass and an API server, a scheduler or a careful person would not.

A schema knows types and names of fields. It passes a Job that restarts its pods, one whose first failure kills all
others, a selector that selects nobody, a quantity that is none, and an account without the rights it needs. These
rules are pure: manifests in, findings out; the transport applies nothing that has one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_gpuready.model.agent_doc import AROUND_GRACE_S
from pytest_gpuready.transport.kubernetes.manifests import CLUSTER_RIGHTS, JOB_LABEL, MOST_NODES, RIGHTS

Manifest = Mapping[str, Any]

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
HOST_PATHS = {"/dev/kmsg": "CharDevice", "/run/lock": "DirectoryOrCreate"}
"""What of the host a privileged pod may see, and as what."""

WRITABLE = ("/run/lock",)
"""What of it may be written: the node's lease."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"\d+(\.\d+)?([numkMGTPE]|[KMGTPE]i)?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RBAC = "rbac.authorization.k8s.io"


class Finding(NamedTuple):
    """A rule that a manifest breaks: which, where, and what was expected and found."""

    rule: str
    where: str
    expected: str
    found: object

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {str(self.found)[:100]!a}"


class _Job:
    """A Job and the parts of it that rules ask for; a part that is missing is empty."""

    def __init__(self, manifest: Manifest, *, privileged: bool) -> None:
        self.declared = privileged
        self.name = str(_at(manifest, "metadata.name"))
        self.namespace = str(_at(manifest, "metadata.namespace"))
        self.labels = _map(_at(manifest, "metadata.labels"))
        self.spec = _map(_at(manifest, "spec"))
        self.pod_labels = _map(_at(manifest, "spec.template.metadata.labels"))
        self.pod = _map(_at(manifest, "spec.template.spec"))
        self.containers = [_map(each) for each in _list(self.pod.get("containers"))]
        self.volumes = [_map(each) for each in _list(self.pod.get("volumes"))]
        self.completions: Any = self.spec.get("completions")

    def nodes(self) -> list[tuple[str, list[Any]]]:
        """Of each alternative of the node affinity: its key, its values."""
        terms = _at(self.pod, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
        fields = [field for term in _list(terms) for field in _list(_map(term).get("matchFields"))]
        return [(str(_map(field).get("key")), _list(_map(field).get("values"))) for field in fields]


Found = Iterator[tuple[str, str, object]]
"""Path, what is expected, what was found."""


def _restart(job: _Job) -> Found:
    policy = job.pod.get("restartPolicy")
    if policy != "Never":
        yield "restartPolicy", "Never: a command is measured once", policy


def _indexed(job: _Job) -> Found:
    spec = job.spec
    if spec.get("completionMode") != "Indexed":
        yield "completionMode", "Indexed", spec.get("completionMode")
    if not _whole(job.completions, least=1) or spec.get("parallelism") != job.completions:
        yield "parallelism", f"that of completions ({job.completions}): all at once", spec.get("parallelism")


def _alone(job: _Job) -> Found:
    if job.spec.get("backoffLimitPerIndex") != 0:
        yield "backoffLimitPerIndex", "0: what failed is not tried again", job.spec.get("backoffLimitPerIndex")
    most = job.spec.get("backoffLimit")
    if not _whole(most, least=job.completions if _whole(job.completions) else 1):
        yield "backoffLimit", f"at least {job.completions}: below, one failure ends the pods of all", most


def _deadline(job: _Job) -> Found:
    for where, seconds in (("job", job.spec), ("pod", job.pod)):
        if not _whole(seconds.get("activeDeadlineSeconds"), least=1):
            yield f"activeDeadlineSeconds of the {where}", "a deadline", seconds.get("activeDeadlineSeconds")
    if not _whole(job.spec.get("ttlSecondsAfterFinished")):
        yield "ttlSecondsAfterFinished", "a time after which it is removed", job.spec.get("ttlSecondsAfterFinished")


def _grace(job: _Job) -> Found:
    seconds = job.pod.get("terminationGracePeriodSeconds")
    if not _whole(seconds, least=int(AROUND_GRACE_S) + 1):
        yield "terminationGracePeriodSeconds", f"more than the {AROUND_GRACE_S:g} s that commands take", seconds


def _image(job: _Job) -> Found:
    for each in job.containers:
        image = str(each.get("image", ""))
        name, _, digest = image.partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        if (not re.fullmatch(r"sha256:[0-9a-f]{64}", digest) if digest else tag in ("", "latest")) or " " in image:
            yield "image", "a tag other than latest, or a digest", image


def _quantities(job: _Job) -> Found:
    for each in job.containers:
        for kind in ("requests", "limits"):
            for name, amount in _map(_at(each, f"resources.{kind}")).items():
                if not isinstance(amount, str) or not _QUANTITY.fullmatch(amount):
                    yield f"resources.{kind}.{name}", 'a quantity as text, such as "8" or "32Gi"', amount
        if not _map(_at(each, "resources.limits")).get("memory"):
            yield "resources.limits.memory", "a limit: the node's own services live beside it", None


def _gpus(job: _Job) -> Found:
    for each in job.containers:
        requests, limits = (_map(_at(each, f"resources.{kind}")) for kind in ("requests", "limits"))
        for name in sorted({name for name in (*requests, *limits) if "/" in name}):
            if requests.get(name) != limits.get(name):
                yield f"resources.requests.{name}", f"its limit ({limits.get(name)})", requests.get(name)
            elif not str(requests.get(name)).isdecimal():
                yield f"resources.requests.{name}", "a whole number", requests.get(name)


def _selectors(job: _Job) -> Found:
    path = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    terms = [_map(each) for each in _list(_at(job.pod, path))]
    chosen = [
        each
        for each in terms
        if each.get("topologyKey") == "kubernetes.io/hostname"
        and (labels := _map(_at(each, "labelSelector.matchLabels")))
        and labels.items() <= job.pod_labels.items()
    ]
    if not chosen:
        yield path, "one that keeps pods with these labels on hosts of their own", terms
    if job.pod_labels.get(JOB_LABEL) != job.name:
        yield f"template.metadata.labels.{JOB_LABEL}", f"the name of the Job ({job.name})", job.pod_labels


def _nodes(job: _Job) -> Found:
    where = "affinity.nodeAffinity"
    wanted: list[str] = []
    for key, values in job.nodes():
        if key != "metadata.name" or len(values) != 1:
            yield where, "one name of a node in each alternative", values
        wanted += [str(value) for value in values]
    if len(wanted) != job.completions or len(set(wanted)) != len(wanted):
        yield where, f"each of {job.completions} nodes once", sorted(wanted)
    if len(wanted) > MOST_NODES:
        yield where, f"at most {MOST_NODES} nodes, whose names each pod carries", len(wanted)
    for name in wanted:
        if not _subdomain(name):
            yield where, "the name of a node: a DNS-1123 subdomain", name


def _names(job: _Job) -> Found:
    room = LABEL_LENGTH - len(f"-{job.completions}")
    if not _LABEL.fullmatch(job.name) or len(job.name) > room:
        yield "metadata.name", f"a DNS-1123 label of at most {room} characters: pods get a number behind it", job.name
    names = [("metadata.namespace", job.namespace), *(("containers.name", str(c.get("name"))) for c in job.containers)]
    for where, name in names:
        if not _LABEL.fullmatch(name) or len(name) > LABEL_LENGTH:
            yield where, f"a DNS-1123 label of at most {LABEL_LENGTH} characters", name
    for key, value in (*job.labels.items(), *job.pod_labels.items()):
        if not isinstance(value, str) or len(value) > LABEL_LENGTH or not _LABEL_VALUE.fullmatch(value):
            yield f"labels.{key}", f"a label of at most {LABEL_LENGTH} characters", value
    for field in ("serviceAccountName", "runtimeClassName", "priorityClassName"):
        if field in job.pod and not _subdomain(str(job.pod[field])):
            yield field, "a DNS-1123 subdomain", job.pod[field]


def _host(job: _Job) -> Found:
    for each in job.volumes:
        if "hostPath" not in each:
            continue
        path, kind = _at(each, "hostPath.path"), _at(each, "hostPath.type")
        if HOST_PATHS.get(str(path)) != kind or not job.declared:
            yield "hostPath", f"of privileged pods alone, one of {HOST_PATHS} (a type is checked)", f"{path} ({kind})"
        for mount in _mounts(job):
            if mount.get("name") == each.get("name") and not mount.get("readOnly") and path not in WRITABLE:
                yield "volumeMounts.readOnly", "true for what belongs to the host", mount.get("readOnly")
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if job.pod.get(field):
            yield field, "none", job.pod[field]


def _rights(job: _Job) -> Found:
    pod = _map(job.pod.get("securityContext"))
    for each in job.containers:
        own = _map(each.get("securityContext"))
        if own.get("readOnlyRootFilesystem") is not True:
            yield "readOnlyRootFilesystem", "true", own.get("readOnlyRootFilesystem")
        if own.get("privileged"):
            if not job.declared:
                yield "privileged", "false: it was not declared", True
            continue
        for field, wanted, found in (
            ("allowPrivilegeEscalation", False, own.get("allowPrivilegeEscalation")),
            ("capabilities.drop", ["ALL"], _at(own, "capabilities.drop")),
            ("capabilities.add", {}, _at(own, "capabilities.add")),
            ("runAsNonRoot", True, own.get("runAsNonRoot", pod.get("runAsNonRoot"))),
            ("seccompProfile.type", "RuntimeDefault", _at(pod, "seccompProfile.type")),
        ):
            if found != wanted:
                yield field, str(wanted), found


def _token(job: _Job) -> Found:
    if job.pod.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken", "false", job.pod.get("automountServiceAccountToken")


def _mounted(job: _Job) -> Found:
    volumes = [str(each.get("name")) for each in job.volumes]
    mounted = [str(each.get("name")) for each in _mounts(job)]
    if len(set(volumes)) < len(volumes) or set(volumes) != set(mounted):
        yield "volumeMounts", f"each of the volumes ({', '.join(volumes)})", ", ".join(mounted)


def _words(job: _Job) -> Found:
    for each in job.containers:
        environment = [_map(entry) for entry in _list(each.get("env"))]
        values = [str(entry["value"]) for entry in environment if "value" in entry]
        for word in (*_list(each.get("command")), *_list(each.get("args")), *values):
            if not isinstance(word, str) or "$(" in word:
                yield "command", "words without $(..), which Kubernetes would replace", word
        names = Counter(str(entry.get("name")) for entry in environment)
        for name, count in names.items():
            if count > 1 or not _ENV_NAME.fullmatch(name):
                yield "env", "a variable once, with a name that can be one", name


RULES: Mapping[str, Callable[[_Job], Found]] = {
    "restart": _restart,
    "indexed": _indexed,
    "alone": _alone,
    "deadline": _deadline,
    "grace": _grace,
    "image": _image,
    "quantities": _quantities,
    "gpus": _gpus,
    "selectors": _selectors,
    "nodes": _nodes,
    "names": _names,
    "host": _host,
    "rights": _rights,
    "token": _token,
    "mounted": _mounted,
    "words": _words,
}
"""The rules of a Job. Those of a whole set are `namespace`, `account`, `rbac` and `admission`."""


def broken(manifests: Sequence[Manifest], *, privileged: bool) -> tuple[Finding, ...]:
    """What breaks a rule. `privileged` says whether the pods are declared to be.

    Rules about what stands in another manifest apply where the set has a Namespace: then it is the whole set.
    """
    found: list[Finding] = []
    jobs = [each for each in manifests if each.get("kind") == "Job"]
    for manifest in jobs:
        job = _Job(manifest, privileged=privileged)
        for rule, check in RULES.items():
            where = f"Job {job.name[:80]}"
            found += [Finding(rule, f"{where} {path}", expected, what) for path, expected, what in check(job)]
    if any(each.get("kind") == "Namespace" for each in manifests):
        found += [Finding(*each) for each in _set(manifests, jobs, privileged=privileged)]
    return tuple(found)


def _set(
    manifests: Sequence[Manifest], jobs: Sequence[Manifest], *, privileged: bool
) -> Iterator[tuple[str, str, str, object]]:
    space = next(each for each in manifests if each.get("kind") == "Namespace")
    name = str(_at(space, "metadata.name"))
    if not _LABEL.fullmatch(name) or len(name) > LABEL_LENGTH:
        yield "namespace", "Namespace", f"a DNS-1123 label of at most {LABEL_LENGTH} characters", name
    admits = _map(_at(space, "metadata.labels")).get("pod-security.kubernetes.io/enforce")
    wanted = "privileged" if privileged else "restricted"
    if admits != wanted:
        yield "admission", f"Namespace {name} pod-security.kubernetes.io/enforce", wanted, admits
    for each in manifests:
        kind = str(each.get("kind"))
        if kind in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            continue
        if _at(each, "metadata.namespace") != name:
            yield "namespace", f"{kind} {_at(each, 'metadata.name')}", name, _at(each, "metadata.namespace")
    accounts = {_at(each, "metadata.name") for each in manifests if each.get("kind") == "ServiceAccount"}
    for each in jobs:
        account = _at(each, "spec.template.spec.serviceAccountName")
        if account not in accounts:
            yield "account", f"Job {_at(each, 'metadata.name')} serviceAccountName", "one of the set", account
    yield from _rbac(manifests, accounts, name)


def _rbac(manifests: Sequence[Manifest], accounts: set[Any], namespace: str) -> Iterator[tuple[str, str, str, object]]:
    for kind, needed in (("Role", set(RIGHTS)), ("ClusterRole", set(CLUSTER_RIGHTS))):
        roles = {_at(each, "metadata.name"): each for each in manifests if each.get("kind") == kind}
        bound: set[tuple[str, str, str]] = set()
        for binding in (each for each in manifests if each.get("kind") == f"{kind}Binding"):
            where = f"{kind}Binding {_at(binding, 'metadata.name')}"
            reference = _map(binding.get("roleRef"))
            role = roles.get(reference.get("name")) if reference.get("kind") == kind else None
            if role is None or reference.get("apiGroup") != _RBAC:
                yield "rbac", f"{where} roleRef", f"a {kind} of the set", reference
                continue
            subjects = [_map(each) for each in _list(binding.get("subjects"))]
            for subject in subjects:
                if subject.get("name") not in accounts or subject.get("namespace") != namespace:
                    yield "rbac", f"{where} subjects", "a service account of the set", subject
            bound |= _granted(role) if subjects else set()
        if bound != needed:
            lacks, more = sorted(needed - bound), sorted(bound - needed)
            yield "rbac", kind, "the rights that the transport uses, no more", f"lacks {lacks}, has {more} beyond"


def _granted(role: Manifest) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in (_map(each) for each in _list(role.get("rules")))
        for group in _list(rule.get("apiGroups"))
        for resource in _list(rule.get("resources"))
        for verb in _list(rule.get("verbs"))
    }


def _mounts(job: _Job) -> list[Manifest]:
    return [_map(mount) for each in job.containers for mount in _list(each.get("volumeMounts"))]


def _at(thing: Any, path: str) -> Any:
    """What stands at a dotted path; an empty map where nothing does."""
    for step in path.split("."):
        thing = _map(thing).get(step, {})
    return thing


def _map(thing: Any) -> Manifest:
    return thing if isinstance(thing, Mapping) else {}


def _list(thing: Any) -> list[Any]:
    return thing if isinstance(thing, list) else []


def _whole(thing: Any, *, least: int = 0) -> bool:
    return isinstance(thing, int) and not isinstance(thing, bool) and thing >= least


def _subdomain(name: str) -> bool:
    return len(name) <= SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(name) is not None
