"""What a profile file may say. Every field of a clause is optional here: a child gives only what it changes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Text = Annotated[str, Meta(max_length=400)]
FilledText = Annotated[str, Meta(min_length=1, max_length=400)]
ClauseId = Annotated[str, Meta(pattern="^[A-Z][A-Z0-9]{0,15}-[0-9]{1,4}$")]
PciId = Annotated[str, Meta(pattern="^[0-9a-f]{4}:[0-9a-f]{4}$")]
Name = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Need = Literal["nvlink", "nvswitch", "fp8", "fp4", "peers", "dcgm", "dcgm4", "nccl_tests", "rist", "nvidia_cpu"]

Among = Literal["node", "rail", "rack", "all"]


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of all parts of a profile file."""


class SourceEntry(Entry, frozen=True, kw_only=True):
    """Where a limit comes from."""

    kind: Literal["datasheet", "contract", "baseline", "rule", "declared"]
    cite: FilledText
    date: Text = ""
    sample: Annotated[int, Meta(ge=0)] = 0


class LimitEntry(Entry, frozen=True, kw_only=True):
    """A limit, always whole: a child that gives one replaces the inherited one."""

    source: SourceEntry | UnsetType = UNSET
    unit: Text = ""
    at_least: float | UnsetType = UNSET
    at_most: float | UnsetType = UNSET
    equals: int | float | str | UnsetType = UNSET
    uniform: bool = False
    marginal: float | UnsetType = UNSET
    ceiling: float | UnsetType = UNSET
    ceiling_reason: Text = ""


class PeersEntry(Entry, frozen=True, kw_only=True):
    """A limit against peers, always whole: a child that gives one replaces the inherited one."""

    source: SourceEntry | UnsetType = UNSET
    among: Among | Annotated[list[Among], Meta(min_length=1)]
    worse: Literal["lower", "higher", "both"]
    percent: float = 0.0
    sigmas: float = 6.0
    least: int = 4
    resolution: float = 0.0


class ClauseEntry(Entry, frozen=True, kw_only=True):
    """A clause, or the part of it that a child adds or changes."""

    suite: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,63}$")] | UnsetType = UNSET
    level: Annotated[int, Meta(ge=1, le=4)] | UnsetType = UNSET
    metric: FilledText | UnsetType = UNSET
    per: Literal["node", "gpu"] | UnsetType = UNSET
    gate: bool = False
    required: bool = True
    hidden_in_vm: bool = False
    needs: Need | list[Need] = []
    after: list[FilledText] = []
    retest: bool = False
    not_applicable: Text = ""
    headline: Text = ""
    action: Text = ""
    context: list[FilledText] = []
    unit: Text = ""
    limit: LimitEntry | UnsetType = UNSET
    peers: PeersEntry | Literal["none"] | UnsetType = UNSET


class ParameterEntry(Entry, frozen=True, kw_only=True):
    """A parameter of `dcgmi diag`, always whole."""

    value: int | float | str
    source: SourceEntry
    unit: Text = ""
    ceiling: float | UnsetType = UNSET


class BaselineEntry(Entry, frozen=True, kw_only=True):
    """What healthy hardware reaches in a collective, always whole; `at_least` and `marginal` are GB/s of busbw."""

    collective: Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]
    ranks: Annotated[int, Meta(ge=2, le=1_000_000)]
    size: Annotated[str, Meta(pattern="^[1-9][0-9]{0,5} ?(B|KiB|MiB|GiB)$")]
    at_least: float
    source: SourceEntry | UnsetType = UNSET
    nodes: Annotated[int, Meta(ge=1, le=100_000)] = 1
    algorithm: Literal["Ring", "Tree", "NVLS", "NVLSTree", "CollnetDirect", "CollnetChain", "PAT"] | UnsetType = UNSET
    nvls: Literal["on", "off"] | UnsetType = UNSET
    rails: Annotated[int, Meta(ge=1, le=1024)] | UnsetType = UNSET
    rail_gbit_per_s: float | UnsetType = UNSET
    marginal: float | UnsetType = UNSET
    ceiling_reason: Text = ""


class ProfileEntry(Entry, frozen=True, kw_only=True):
    """A profile file. `extends` names a shipped profile, or a file relative to this one."""

    profile: Name
    version: FilledText
    title: FilledText
    extends: Text = ""
    pci_ids: list[PciId] = []
    nvlink: bool | UnsetType = UNSET
    nvswitch: bool | UnsetType = UNSET
    fp8: bool | UnsetType = UNSET
    fp4: bool | UnsetType = UNSET
    notes: list[FilledText] = []
    dcgm: dict[Annotated[str, Meta(pattern="^[a-z0-9_]{1,40}([.][a-z0-9_]{1,40}){1,2}$")], ParameterEntry] = {}
    collectives: dict[Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_.-]{0,63}$")], BaselineEntry] = {}
    clauses: dict[ClauseId, ClauseEntry] = {}
