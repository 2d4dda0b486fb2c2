"""A profile and its ancestors laid over each other; every field remembers the file that said it last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_gpuready.parse.yaml_file import Finding, Path_, YamlFile, shown
from pytest_gpuready.parse.yaml_shape import shape_findings
from pytest_gpuready.profiles.entries import ProfileEntry

SUBJECT = ("metric", "per", "suite")
"""Fields of a clause that no child may change."""


@dataclass(slots=True)
class Merged:
    """The merged content of a chain of files as plain data. `broken` are places whose shape is wrong already."""

    leaf: YamlFile
    head: dict[str, Any]
    clauses: dict[str, dict[str, Any]] = field(default_factory=dict)
    dcgm: dict[str, tuple[dict[str, Any], YamlFile]] = field(default_factory=dict)
    """Parameter of `dcgmi diag` -> its entry and the file that said it last."""
    collectives: dict[str, tuple[dict[str, Any], YamlFile]] = field(default_factory=dict)
    """Baseline of a collective -> its entry and the file that said it last."""
    findings: list[Finding] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    added: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Clause that a child adds -> name of its parent, and the clauses known there."""
    _said: dict[tuple[str, str], YamlFile] = field(default_factory=dict)
    _last: dict[str, YamlFile] = field(default_factory=dict)
    _chain: list[YamlFile] = field(default_factory=list)

    def finding(self, clause: str, steps: Path_, says: str, *, against: str = "") -> None:
        """Add a finding about a clause, at the line that said the field last.

        `against` is the field that it does not fit with: where a younger file said that one, the line is there.
        """
        key = str(steps[0]) if steps else ""
        file = self._said.get((clause, key), self._last[clause])
        other = self._said.get((clause, against))
        if other and self._chain.index(other) > self._chain.index(file):
            file, steps = other, (against,)
        self.findings.append(file.finding(("clauses", clause, *steps), says))

    def head_finding(self, path: Path_, says: str) -> None:
        self.findings.append(self.leaf.finding(path, says))


def merge(chain: list[YamlFile]) -> Merged:
    """Lay the files over each other, the oldest ancestor first.

    A clause that a child calls not applicable loses its inherited limit, and that against peers. Notes add up; PCI ids
    are the child's alone.
    What a clause is about (`SUBJECT`) is said once: its id and sentence stand for that, whoever inherits it.
    """
    head: dict[str, Any] = {"nvlink": False, "nvswitch": False, "fp8": False, "fp4": False, "notes": []}
    merged = Merged(leaf=chain[-1], head=head, _chain=chain)
    for file in chain:
        parent = str(merged.head.get("profile", "")), tuple(merged.clauses)
        wrong = shape_findings(file, ProfileEntry)
        merged.findings.extend(wrong)
        data: dict[str, Any] = file.data if isinstance(file.data, dict) else {}
        if any(not found.path.startswith("$.clauses.") for found in wrong):
            merged.broken.add("")
        else:
            notes = merged.head["notes"] + data.get("notes", [])
            merged.head = {**merged.head, "pci_ids": [], **data, "notes": notes}
            for name, entry in data.get("dcgm", {}).items():
                known = merged.dcgm[name][0] if name in merged.dcgm else {}
                # What physics allows does not change with an agreement.
                merged.dcgm[name] = ({**{k: known[k] for k in ("ceiling",) if k in known}, **entry}, file)
            merged.collectives.update({name: (entry, file) for name, entry in data.get("collectives", {}).items()})
        entries = data.get("clauses", {})
        for clause, entry in entries.items() if isinstance(entries, dict) else ():
            at = file.finding(("clauses", clause), "").path
            if not isinstance(entry, dict) or any(
                f.path == at or f.path.startswith((f"{at}.", f"{at}[")) for f in wrong
            ):
                merged.broken.add(clause)
                continue
            if file is not chain[0] and clause not in merged.clauses:
                merged.added[clause] = parent
            inherited = dict(merged.clauses.get(clause, {}))
            said = _kept(merged, file, clause, entry)
            if said.get("not_applicable"):
                inherited.pop("limit", None)
                inherited.pop("peers", None)
            merged.clauses[clause] = {**inherited, **said}
            merged._last[clause] = file
            for key in said:
                merged._said[clause, key] = file
    return merged


def _kept(merged: Merged, file: YamlFile, clause: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry of a child without what it must not change; a finding for each such field."""
    known = merged.clauses.get(clause, {})
    changed = [key for key in SUBJECT if key in entry and key in known and entry[key] != known[key]]
    for key in changed:
        says = f"expected {shown(known[key])} ({clause} is about that wherever it is inherited), found "
        merged.findings.append(
            file.finding(
                ("clauses", clause, key), f"{says}{shown(entry[key])}; drop it, or give a clause of another id"
            )
        )
    # What else is said about another metric (unit, limit) fits that one, and would only be told as further mistakes.
    return {} if "metric" in changed else {key: value for key, value in entry.items() if key not in changed}
