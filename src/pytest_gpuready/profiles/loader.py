"""From a profile's name or file to a frozen `Profile`: read the chain, merge, lint, build, digest."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpuready.errors import ProfileError
from pytest_gpuready.model import Clause, Limit, Parameter, PeerLimit, Profile, Source
from pytest_gpuready.model.baseline import Baseline, size_of
from pytest_gpuready.parse.yaml_file import Finding, YamlFile, nearest, one_line, read_yaml, shown
from pytest_gpuready.parse.yaml_shape import to_struct
from pytest_gpuready.profiles.entries import (
    BaselineEntry,
    ClauseEntry,
    LimitEntry,
    ParameterEntry,
    PeersEntry,
    SourceEntry,
)
from pytest_gpuready.profiles.lint import lint
from pytest_gpuready.profiles.lint_baselines import ceiling_of
from pytest_gpuready.profiles.merge import Merged, merge

SHIPPED = Path(__file__).parent / "data"
MAX_ANCESTORS = 8


@functools.cache
def names() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted; `base` holds what is true for every model."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load(name_or_path: str | Path, *, relative_to: Path | None = None) -> Profile:
    """The profile with this shipped name, or from this file; `relative_to` is the directory of relative paths.

    Raises:
        ProfileError: one line for everything that is wrong with it or its ancestors.
    """
    if isinstance(name_or_path, str) and not _is_path(name_or_path):
        return _load_shipped(name_or_path)
    return _load(_read_chain(_read_file(name_or_path, relative_to or Path())))


def findings(name_or_path: str | Path) -> tuple[Finding, ...]:
    """Everything that the linter finds in a profile, in one pass; empty for one that loads.

    Raises:
        ProfileError: it, or an ancestor, cannot be read as YAML at all.
    """
    file = _read_shipped(name_or_path) if isinstance(name_or_path, str) and not _is_path(name_or_path) else None
    return tuple(_linted(_read_chain(file or _read_file(name_or_path, Path()))).findings)


def for_pci_ids(ids: Collection[str]) -> Profile | None:
    """The shipped profile that most of these PCI ids belong to; give one id per GPU.

    None where no profile knows any of them, or where two know equally many: then nobody is known to be meant.
    """
    counts = Counter({name: sum(pci_id in _shipped_ids(name) for pci_id in ids) for name in names()}).most_common(2)
    best = [(name, count) for name, count in counts if count]
    if not best or (len(best) == 2 and best[0][1] == best[1][1]):
        return None
    return load(best[0][0])


def unknown(name_or_path: str) -> str:
    """Expected, found and what to do, where this is neither a shipped name nor the name of a file; "" where it is."""
    if _is_path(name_or_path) or name_or_path in names():
        return ""
    near = nearest(name_or_path, names())
    return (
        f"expected one of {', '.join(names())}, or a file ending in .yaml, found {shown(name_or_path)}{near}; "
        "correct the name"
    )


def _shipped_ids(name: str) -> Sequence[str]:
    """Without loading the profile: one of many is asked for."""
    data = _read_shipped(name).data
    found = data.get("pci_ids", []) if isinstance(data, dict) else []
    return found if isinstance(found, list) else []


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


@functools.cache
def _load_shipped(name: str) -> Profile:
    return _load(_read_chain(_read_shipped(name)))


@functools.cache
def _read_shipped(name: str) -> YamlFile:
    if unknown(name):
        raise ProfileError(f"profile: {unknown(name)}")
    return read_yaml(SHIPPED / f"{name}.yaml", ProfileError)


def _read_file(path: str | Path, directory: Path) -> YamlFile:
    file = read_yaml(directory / path, ProfileError, name=str(path))
    data = file.data if isinstance(file.data, dict) else {}
    if data.get("profile") in names():
        found = file.finding(
            ("profile",), f"expected a name of its own, found {shown(data['profile'])}, a shipped profile"
        )
        raise ProfileError(f"{found}; rename it")
    return file


def _read_chain(leaf: YamlFile) -> list[YamlFile]:
    """The file and its ancestors, the oldest first."""
    chain, seen = [leaf], {_identity(leaf)}
    while True:
        data = chain[0].data
        extends = data.get("extends", "") if isinstance(data, dict) else ""
        if not extends or not isinstance(extends, str):
            return chain
        wrong = unknown(extends)
        if _is_path(extends) and not (chain[0].directory / extends).exists():
            wrong = f"expected a profile file, found none called {shown(extends)} beside this one; correct the name"
        if wrong:
            raise ProfileError(str(chain[0].finding(("extends",), wrong)))
        parent = _read_shipped(extends) if not _is_path(extends) else _read_file(extends, chain[0].directory)
        if _identity(parent) in seen:
            found = chain[0].finding(("extends",), f"expected ancestors that end, found {shown(extends)} again")
            raise ProfileError(f"{found}; break the circle")
        if len(chain) > MAX_ANCESTORS:
            found = chain[0].finding(("extends",), f"expected at most {MAX_ANCESTORS} ancestors, found more")
            raise ProfileError(f"{found}; merge some")
        seen.add(_identity(parent))
        chain.insert(0, parent)


def _identity(file: YamlFile) -> Path:
    return (file.directory / Path(file.name).name).resolve()


def _linted(chain: list[YamlFile]) -> Merged:
    merged = merge(chain)
    lint(merged)
    return merged


def _load(chain: list[YamlFile]) -> Profile:
    merged = _linted(chain)
    if merged.findings:
        raise ProfileError("\n".join(str(found) for found in merged.findings))
    try:
        clauses = tuple(_clause(name, entry) for name, entry in merged.clauses.items())
        head = merged.head
        profile = Profile(
            name=head["profile"],
            version=one_line(head["version"]),
            title=one_line(head["title"]),
            pci_ids=tuple(head["pci_ids"]),
            clauses=clauses,
            nvlink=head["nvlink"],
            nvswitch=head["nvswitch"],
            fp8=head["fp8"],
            fp4=head["fp4"],
            sha256="",
            notes=tuple(one_line(note) for note in head["notes"]),
            dcgm=tuple(_parameter(name, entry) for name, (entry, _) in sorted(merged.dcgm.items())),
            collectives=tuple(_baseline(merged, name) for name in sorted(merged.collectives)),
        )
    except (ValueError, msgspec.ValidationError) as failed:
        raise ProfileError(f"{merged.leaf.name}: expected a profile that fits together, found: {failed}") from failed
    return dataclasses.replace(profile, sha256=_digest(profile))


def _clause(name: str, plain: dict[str, Any]) -> Clause:
    entry = to_struct(plain, ClauseEntry)
    return Clause(
        id=name,
        suite=plain["suite"],
        level=plain["level"],
        metric=plain["metric"],
        per=plain["per"],
        gate=entry.gate,
        required=entry.required,
        hidden_in_vm=entry.hidden_in_vm,
        needs=(entry.needs,) if isinstance(entry.needs, str) else tuple(entry.needs),
        after=tuple(entry.after),
        retest=entry.retest,
        not_applicable=one_line(entry.not_applicable),
        headline=one_line(entry.headline),
        action=one_line(entry.action),
        context=tuple(entry.context),
        unit=entry.unit,
        limit=_limit(entry.limit) if isinstance(entry.limit, LimitEntry) else None,
        peers=_peers(entry.peers, entry.unit) if isinstance(entry.peers, PeersEntry) else None,
    )


def _parameter(name: str, plain: dict[str, Any]) -> Parameter:
    entry = to_struct(plain, ParameterEntry)
    return Parameter(
        name=name,
        value=entry.value,
        source=_source(entry.source),
        unit=entry.unit,
        ceiling=_number(entry.ceiling),
    )


def _baseline(merged: Merged, name: str) -> Baseline:
    plain = merged.collectives[name][0]
    entry, source = to_struct(plain, BaselineEntry), plain["source"]
    limit = Limit(
        source=_source(to_struct(source, SourceEntry)),
        unit="GB/s",
        at_least=float(entry.at_least),
        marginal=_number(entry.marginal),
        ceiling=ceiling_of(merged, plain),
        ceiling_reason=one_line(entry.ceiling_reason),
    )
    return Baseline(
        name=name,
        collective=entry.collective,
        ranks=entry.ranks,
        nodes=entry.nodes,
        algorithm=plain.get("algorithm", ""),
        size_bytes=size_of(entry.size),
        limit=limit,
        nvls=plain.get("nvls", ""),
        rails=plain.get("rails", 0),
        rail_gbit_per_s=float(plain.get("rail_gbit_per_s", 0.0)),
    )


def _source(entry: SourceEntry) -> Source:
    return Source(kind=entry.kind, cite=one_line(entry.cite), date=entry.date, sample=entry.sample)


def _limit(entry: LimitEntry) -> Limit:
    source = entry.source
    if isinstance(source, msgspec.UnsetType):
        raise ValueError("limit: expected a source, found none")
    equals = entry.equals
    if isinstance(equals, float) and equals.is_integer():
        equals = int(equals)  # 18.0 and 18 are one promise and get one digest
    return Limit(
        source=_source(source),
        unit=entry.unit,
        at_least=_number(entry.at_least),
        at_most=_number(entry.at_most),
        equals=None if isinstance(equals, msgspec.UnsetType) else equals,
        uniform=entry.uniform,
        marginal=_number(entry.marginal),
        ceiling=_number(entry.ceiling),
        ceiling_reason=one_line(entry.ceiling_reason),
    )


def _peers(entry: PeersEntry, unit: str) -> PeerLimit:
    if isinstance(entry.source, msgspec.UnsetType):
        raise ValueError("peers: expected a source, found none")
    return PeerLimit(
        source=_source(entry.source),
        among=(entry.among,) if isinstance(entry.among, str) else tuple(entry.among),
        worse=entry.worse,
        percent=float(entry.percent),
        sigmas=float(entry.sigmas),
        least=entry.least,
        resolution=float(entry.resolution),
        unit=unit,
    )


def _number(value: float | msgspec.UnsetType) -> float | None:
    return None if isinstance(value, msgspec.UnsetType) else float(value)


def _digest(profile: Profile) -> str:
    """Digest of what the profile says, not of how it is written: comments, quotes and `extends` do not count."""
    said = dataclasses.asdict(profile)
    if not profile.collectives:
        del said["collectives"]
    canonical = json.dumps(said, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
