"""The site file: what customer and provider declare to be there. What is not declared is assumed, and printed.

This version knows no waivers, fabric, host role, containers or serving endpoints: a file that names one of these does
not load, so nobody believes that they were looked at.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pytest_gpuready import profiles
from pytest_gpuready.errors import InventoryError, ProfileError
from pytest_gpuready.inventory.found import bdf_of
from pytest_gpuready.inventory.nodeset import expand
from pytest_gpuready.inventory.ways import KubernetesWay, SlurmWay, SshWay, TransportName
from pytest_gpuready.model import Clause, Profile
from pytest_gpuready.parse.yaml_file import Path_, YamlFile, nearest, one_line, read_yaml, shown
from pytest_gpuready.parse.yaml_shape import shape_findings, to_struct
from pytest_gpuready.profiles.metrics import AFTER_LOAD

Text = Annotated[str, Meta(max_length=400)]
Filled = Annotated[str, Meta(min_length=1, max_length=400)]
NodeNames = Annotated[str, Meta(pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._,\[\]/-]{0,199}$")]
Variable = Annotated[str, Meta(pattern="^(NCCL|CUDA)_[A-Z0-9_]{1,80}$")]
Setting = Annotated[str, Meta(max_length=200)]  # a node reports no more of a value
Module = Annotated[int, Meta(ge=0, le=255)]
UUID = r"[Gg][Pp][Uu]-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
Uuid = Annotated[str, Meta(min_length=1, max_length=400, extra_json_schema={"pattern": f"^{UUID}$"})]
PRESENT = "gpu.present"
Count = Annotated[int, Meta(ge=1, le=256)]
Rack = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,63}$")]


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all parts of a site file."""


class GpuEntry(Entry, frozen=True, kw_only=True):
    """One expected GPU, named by exactly one of address, UUID and serial number, and the module it sits in."""

    bdf: Filled | None = None
    uuid: Uuid | None = None
    serial: Filled | None = None
    module: Module | None = None


class NodeEntry(Entry, frozen=True, kw_only=True):
    """One expected node, or many that are alike. `gpus` is a count or a list, `host` what it calls itself."""

    host: Filled | None = None
    gpus: Count | Annotated[list[GpuEntry], Meta(min_length=1, max_length=256)] | None = None
    nvlink: Literal["full", "none"] | None = None
    virtual: bool | None = None
    rack: Rack | None = None


class ExcludeEntry(Entry, frozen=True, kw_only=True):
    """A clause that is taken out, and why; both stand on page one of the certificate."""

    clause: Filled
    reason: Filled


class SiteEntry(Entry, frozen=True, kw_only=True):
    """A site file, format version 1."""

    site: Literal[1]
    provider: Text = ""
    customer: Text = ""
    agreement: Text = ""
    profile: Filled | None = None
    level: Annotated[int, Meta(ge=1, le=4)] | None = None
    diagnostics: Literal["dcgm", "builtin", "both"] | None = None
    nodes: dict[NodeNames, NodeEntry] = {}
    transport: TransportName | None = None
    ssh: SshWay = SshWay()
    slurm: SlurmWay = SlurmWay()
    kubernetes: KubernetesWay = KubernetesWay()
    environment: dict[Variable, Setting] = {}
    exclude: list[ExcludeEntry] = []
    stand_in: Filled = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGpu:
    """One GPU that the site file names: `key` is "bdf", "uuid" or "serial"."""

    key: str
    value: str
    module: int = -1

    def __str__(self) -> str:
        return self.value if self.key == "bdf" else f"{self.key} {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredNode:
    """One node that the site file names. `count` is 0 where the file leaves the number open, `host` "" where what it
    calls itself is its name, `rack` "" where the file names none; `key` is what the file says, "node[001-512]"."""

    name: str
    key: str
    host: str = ""
    count: int = 0
    gpus: tuple[DeclaredGpu, ...] = ()
    nvlink: str = ""
    virtual: bool | None = None
    rack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A clause taken out by the site file, and why."""

    clause: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What was declared. Empty text and 0 where nothing was; `sha256` is of the file's bytes."""

    name: str
    sha256: str
    provider: str = ""
    customer: str = ""
    agreement: str = ""
    profile: str = ""
    level: int = 0
    diagnostics: str = ""
    nodes: tuple[DeclaredNode, ...] = ()
    transport: str = ""
    ssh: SshWay = field(default_factory=SshWay)
    slurm: SlurmWay = field(default_factory=SlurmWay)
    kubernetes: KubernetesWay = field(default_factory=KubernetesWay)
    environment: dict[str, str] = field(default_factory=dict)
    exclude: tuple[Exclusion, ...] = ()
    stand_in: str = ""
    file: YamlFile = field(repr=False)

    @property
    def directory(self) -> Path:
        """Where relative names in the file start."""
        return self.file.directory

    def wrong(self, path: Path_, says: str) -> str:
        """An error line about a place in this file."""
        return str(self.file.finding(path, says))


def load_site(path: Path) -> Site:
    """The site file at this path.

    Raises:
        InventoryError: one line for everything that is wrong with it, by itself or against the profile that it names.
    """
    file = read_yaml(path, InventoryError)
    lines = [str(found) for found in shape_findings(file, SiteEntry)]
    entry = to_struct(_what_fits(file) if lines else file.data, SiteEntry)
    nodes = _nodes(file, entry, lines)
    _duplicates(file, entry, lines)
    site = _site(file, entry, nodes)
    if lines:
        raise InventoryError("\n".join([*lines, *_against_profile(site)]))
    return site


def _what_fits(file: YamlFile) -> dict[str, Any]:
    """The parts of a file that can be read: one that cannot hides nothing about the others."""

    def fits(key: str, value: object) -> bool:
        return not shape_findings(file, SiteEntry, {"site": 1, key: value})

    data = file.data if isinstance(file.data, dict) else {}
    kept = {key: value for key, value in data.items() if key == "nodes" or fits(key, value)}
    nodes = kept.pop("nodes", None)
    if isinstance(nodes, dict):
        kept["nodes"] = {name: node for name, node in nodes.items() if fits("nodes", {name: node})}
    return {**kept, "site": 1}


def _against_profile(site: Site) -> list[str]:
    """What a file that is wrong already says against the profile that it names."""
    if not site.profile:
        return []
    if unknown := profiles.unknown(site.profile):
        return [site.wrong(("profile",), unknown)]
    try:
        profile = profiles.load(site.profile, relative_to=site.directory)
    except ProfileError as error:
        return [str(error)]
    return [line for line in (*contradictions(site, profile), level_unknown(site, profile)) if line]


def _site(file: YamlFile, entry: SiteEntry, nodes: tuple[DeclaredNode, ...]) -> Site:
    return Site(
        name=file.name,
        sha256=file.sha256,
        provider=one_line(entry.provider),
        customer=one_line(entry.customer),
        agreement=one_line(entry.agreement),
        profile=entry.profile or "",
        level=entry.level or 0,
        diagnostics=entry.diagnostics or "",
        nodes=nodes,
        transport=entry.transport or "",
        ssh=entry.ssh,
        slurm=entry.slurm,
        kubernetes=entry.kubernetes,
        environment=dict(entry.environment),
        exclude=tuple(Exclusion(clause=e.clause, reason=one_line(e.reason)) for e in entry.exclude),
        stand_in=one_line(entry.stand_in),
        file=file,
    )


def contradictions(site: Site, profile: Profile) -> tuple[str, ...]:
    """Everything that the site file says against its profile, one line each."""
    lines = []
    known = {clause.id: clause for clause in profile.clauses}
    for index, excluded in enumerate(site.exclude):
        at = ("exclude", index, "clause")
        if excluded.clause not in known:
            says = f"expected a clause of the profile {profile.name}, found {shown(excluded.clause)}"
            lines.append(site.wrong(at, f"{says}{nearest(excluded.clause, known)}; correct it"))
        elif known[excluded.clause].metric == PRESENT:
            says = f"expected every declared GPU to be looked for, found {excluded.clause} ({PRESENT}) excluded"
            lines.append(site.wrong(at, f"{says}; declare fewer GPUs instead"))
    for node in site.nodes:
        if node.nvlink == "full" and not profile.nvlink:
            says = f"expected nvlink: none, found full: {profile.title} ({profile.name}) has no NVLink; correct one"
            lines.append(site.wrong(("nodes", node.key, "nvlink"), says))
    out = {excluded.clause for excluded in site.exclude}
    for level in sorted({c.level for c in profile.clauses if _may_apply(site, c)}) if out else ():
        if not any(_must_pass(site, clause, out) for clause in profile.clauses if clause.level == level):
            says = f"expected a required clause with a limit to remain at level {level}, found all excluded; keep one"
            lines.append(site.wrong(("exclude",), says))
    return tuple(dict.fromkeys(lines))


def _must_pass(site: Site, clause: Clause, out: Collection[str]) -> bool:
    """True where a level can be accepted by this clause; that a load did no harm is nothing to accept by itself."""
    promised = clause.required and clause.limit is not None and clause.metric not in AFTER_LOAD
    return promised and not clause.not_applicable and clause.id not in out and _may_apply(site, clause)


def _may_apply(site: Site, clause: Clause) -> bool:
    """False for what the site file itself takes away: DCGM's clauses where it declares the built-in engine."""
    return not (site.diagnostics == "builtin" and "dcgm" in clause.needs)


def level_unknown(site: Site, profile: Profile) -> str:
    """An error line where the site file aims at a level that the profile has no clause of, "" where it does not."""
    levels = sorted({c.level for c in profile.clauses if c.metric not in AFTER_LOAD and _may_apply(site, c)})
    if not site.level or site.level in levels:
        return ""
    without = " without DCGM (diagnostics: builtin)" if site.diagnostics == "builtin" else ""
    has = f"profile {profile.name} has clauses up to level {levels[-1]}{without}, found level: {site.level}"
    return site.wrong(("level",), f"expected {' or '.join(map(str, levels))}: {has}; correct one")


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the site file."""
    schema: dict[str, Any] = msgspec.json.schema(SiteEntry)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpuready-site/1", **schema}


def _nodes(file: YamlFile, entry: SiteEntry, lines: list[str]) -> tuple[DeclaredNode, ...]:
    """Every node of every set of names, each once."""
    nodes: dict[str, DeclaredNode] = {}
    for key, said in entry.nodes.items():
        try:
            names = expand(key)
        except InventoryError as error:
            lines.append(str(file.finding(("nodes", key), str(error))))
            continue
        twice = next((name for name in names if name in nodes), None)
        if twice is not None:
            lines.append(str(file.finding(("nodes", key), f"expected every node once, found {twice} twice; keep one")))
        alone = len(names) == 1
        if not alone and (said.host or isinstance(said.gpus, list)):
            what = "host" if said.host else "a list of gpus"
            says = f"expected {what} for one node, found it for {len(names)}; declare that node by itself"
            lines.append(str(file.finding(("nodes", key), says)))
        declared = _node(file, key, said, lines)
        nodes |= {name: dataclasses.replace(declared, name=name) for name in names}
    hosts: dict[str, str] = {}
    for node in nodes.values():
        host = (node.host or node.name).lower().rstrip(".")
        other = hosts.setdefault(host, node.name)
        if other != node.name and (node.host or nodes[other].host):
            says = f"expected a host of its own, found {shown(host)} for {other} as well; correct one"
            at = ("nodes", node.key, "host") if node.host else ("nodes", node.key)
            lines.append(str(file.finding(at, says)))
    return tuple(nodes.values())


def _node(file: YamlFile, name: str, entry: NodeEntry, lines: list[str]) -> DeclaredNode:
    gpus: list[DeclaredGpu] = []
    if isinstance(entry.gpus, list):
        for index, gpu in enumerate(entry.gpus):
            at = ("nodes", name, "gpus", index)
            declared = _gpu(file, at, gpu, lines)
            if declared and any(_same(declared, other) for other in gpus):
                lines.append(str(file.finding(at, f"expected every GPU once, found {declared} twice; keep one")))
            elif declared and declared.module >= 0 and any(declared.module == other.module for other in gpus):
                says = f"expected one GPU per module, found module {declared.module} twice; correct one"
                lines.append(str(file.finding((*at, "module"), says)))
            elif declared:
                gpus.append(declared)
    return DeclaredNode(
        name=name,
        key=name,
        host=entry.host or "",
        count=entry.gpus if isinstance(entry.gpus, int) else len(gpus),
        gpus=tuple(gpus),
        nvlink=entry.nvlink or "",
        virtual=entry.virtual,
        rack=entry.rack or "",
    )


def _gpu(file: YamlFile, at: Path_, entry: GpuEntry, lines: list[str]) -> DeclaredGpu | None:
    given = {key: value for key in ("bdf", "uuid", "serial") if (value := getattr(entry, key)) is not None}
    if len(given) != 1:
        found = " and ".join(given) or "none"
        lines.append(str(file.finding(at, f"expected exactly one of bdf, uuid, serial, found {found}; keep one")))
        return None
    ((key, value),) = given.items()
    text = bdf_of(value) if key == "bdf" else value.strip()
    if key == "uuid" and not re.fullmatch(UUID, text):
        says = "expected a UUID like GPU-0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9 (the GPU- belongs to it)"
        lines.append(str(file.finding((*at, key), f"{says}, found {shown(value)}; correct it")))
        return None
    if not text:
        says = f"expected a PCI address like 0000:19:00.0, found {shown(value)}; correct it"
        lines.append(str(file.finding((*at, key), says)))
        return None
    return DeclaredGpu(key=key, value=text, module=-1 if entry.module is None else entry.module)


def _same(one: DeclaredGpu, other: DeclaredGpu) -> bool:
    return (one.key, one.value.lower()) == (other.key, other.value.lower())


def _duplicates(file: YamlFile, entry: SiteEntry, lines: list[str]) -> None:
    seen: set[str] = set()
    for index, excluded in enumerate(entry.exclude):
        if excluded.clause in seen:
            says = f"expected every clause once, found {shown(excluded.clause)} twice; keep one"
            lines.append(str(file.finding(("exclude", index, "clause"), says)))
        seen.add(excluded.clause)
