"""Rules that a profile must keep beyond its shape; all findings of one pass, each with its line.

What is asked for: every clause can be measured, every level has something that must pass, and whoever reads a failing
clause is told what to do. The rules of a limit itself are in `lint_limit`.
"""

from __future__ import annotations

import string
from typing import Any

from pytest_gpuready.parse.yaml_file import YamlFile, nearest, nearest_word, says_something, shown
from pytest_gpuready.profiles.dcgm_parameters import parameter_rules
from pytest_gpuready.profiles.lint_baselines import baseline_rules
from pytest_gpuready.profiles.lint_limit import NEVER, limit_rules
from pytest_gpuready.profiles.lint_peers import peer_rules
from pytest_gpuready.profiles.merge import Merged
from pytest_gpuready.profiles.metrics import AFTER_LOAD, METRICS, UNITS, Metric

PLACEHOLDERS = ("node", "gpu", "module", "bdf", "upstream")


NEEDED = {"nvlink.errors": "nvlink"} | {
    f"stress.{name}.wrong": need
    for need, names in (("fp8", ("fp8_e4m3", "fp8_e5m2")), ("fp4", ("mxfp8", "fp4")))
    for name in names
}
"""Metric of what a good node never shows -> what a node must have to be able to show it."""


def lint(merged: Merged) -> None:
    """Add a finding to `merged` for every rule that its content breaks."""
    if not merged.broken:
        _head(merged)
        for name, (entry, file) in merged.dcgm.items():
            _parameter(merged, file, name, entry)
        baseline_rules(merged)
    for clause, entry in merged.clauses.items():
        if clause not in merged.broken:
            _clause(merged, clause, entry)


def _head(merged: Merged) -> None:
    ids = merged.head.get("pci_ids", [])
    for index, pci_id in enumerate(ids):
        if pci_id in ids[:index]:
            merged.head_finding(("pci_ids", index), f"expected every id once, found {shown(pci_id)} twice; keep one")
    if merged.head["nvswitch"] and not merged.head["nvlink"]:
        merged.head_finding(
            ("nvswitch",), "expected nvlink: true beside nvswitch: true, found nvlink: false; correct one"
        )
    levels = [entry["level"] for entry in merged.clauses.values() if "level" in entry]
    promised = {
        entry["level"]
        for entry in merged.clauses.values()
        if "level" in entry and "limit" in entry and entry.get("required", True) and not entry.get("not_applicable")
        if entry.get("metric") not in AFTER_LOAD
    }
    for level in sorted(set(levels) - promised):
        says = f"expected a required clause with a limit at level {level}, found none; nothing would have to pass"
        merged.head_finding(("clauses",), says)
    if not merged.clauses:
        merged.head_finding(("clauses",), "expected at least one clause, found none; add one, or say extends: base")


def _parameter(merged: Merged, file: YamlFile, name: str, entry: dict[str, Any]) -> None:
    def wrong(at: tuple[str, ...], says: str) -> None:
        merged.findings.append(file.finding(("dcgm", name, *at), says))

    parameter_rules(name, entry, wrong)


def _clause(merged: Merged, clause: str, entry: dict[str, Any]) -> None:
    if clause in merged.added and not {"suite", "level", "metric"} & entry.keys():
        parent, known = merged.added[clause]
        near = nearest_word(clause, known, cutoff=0.75)  # the numbers of two ids are often the same
        new = "suite, level, metric and per"
        todo = f"did you mean {near}? A new one needs {new}" if near else f"correct the id, or give a new one {new}"
        merged.finding(clause, (), f"no clause {clause} in {parent}; {todo}")
        return
    missing = [key for key in ("suite", "level", "metric", "per") if key not in entry]
    for key in missing:
        merged.finding(clause, (), f"expected the key {key!r}, found none; add it, or correct the id of the clause")
    metric = METRICS.get(entry.get("metric", ""))
    if "metric" in entry and metric is None:
        name = entry["metric"]
        merged.finding(
            clause, ("metric",), f"expected a known metric, found {shown(name)}{nearest(name, METRICS)}; correct it"
        )
    for key in ("context", "after"):
        for index, name in enumerate(entry.get(key, [])):
            if name not in METRICS:
                near = nearest(name, METRICS)
                merged.finding(clause, (key, index), f"expected a known metric, found {shown(name)}{near}; correct it")
    for index, name in enumerate(entry.get("after", [])):
        own = [e for e in merged.clauses.values() if e.get("metric") == name]
        if name in METRICS and not any(e.get("level", 5) <= entry.get("level", 0) for e in own):
            says = f"expected a clause about {name} at this level or below, found none: nothing would ever hold; add it"
            merged.finding(clause, ("after", index), says)
    if metric:
        _metric(merged, clause, entry, metric)
    _role(merged, clause, entry)
    _action(merged, clause, entry)
    if "limit" in entry:
        limit_rules(entry["limit"], entry, metric, lambda at, says: merged.finding(clause, ("limit", *at), says))
        if metric:
            _unit(merged, clause, ("limit", "unit"), metric)
    if isinstance(entry.get("peers"), dict):
        peer_rules(entry["peers"], entry, metric, lambda at, says: merged.finding(clause, ("peers", *at), says))


def _metric(merged: Merged, clause: str, entry: dict[str, Any], metric: Metric) -> None:
    if "per" in entry and entry["per"] != metric.per:
        says = (
            f"expected {metric.per} ({entry['metric']} is measured per {metric.per}), found {entry['per']}; correct it"
        )
        merged.finding(clause, ("per",), says, against="metric")
    _unit(merged, clause, ("unit",), metric)


def _unit(merged: Merged, clause: str, at: tuple[str, ...], metric: Metric) -> None:
    entry = merged.clauses[clause]
    name = entry["metric"]
    unit = (entry["limit"] if at[0] == "limit" else entry).get("unit", "")
    if unit == metric.unit:
        return
    if unit and unit not in UNITS:
        says = f"expected one of {', '.join(UNITS)}, found {shown(unit)}{nearest(unit, UNITS)}; correct the unit"
    else:
        says = f"expected {metric.unit or 'no unit'} ({name} has it so), found {shown(unit)}; correct the unit"
    merged.finding(clause, at, says, against="metric")


def _role(merged: Merged, clause: str, entry: dict[str, Any]) -> None:
    promises = {"gate": "gate: false", "headline": 'headline: ""'}
    kept = [key for key in promises if entry.get(key)]
    if kept and not entry.get("required", True):
        say = " and ".join(promises[key] for key in kept)
        says = f"expected no {' and no '.join(kept)} on a clause that is not required, found required: false"
        merged.finding(clause, (kept[0],), f"{says}; say {say} beside it", against="required")
    why = entry.get("not_applicable", "")
    if why and not says_something(why):
        merged.finding(clause, ("not_applicable",), "expected why this model has no such thing, found nothing; say it")
    lacks = {need for need in ("nvlink", "nvswitch", "fp8", "fp4") if not merged.head.get(need)}
    if why and entry.get("metric") in NEVER and not lacks & set(_needs(entry)):
        says = f"expected a clause about {entry['metric']} to apply (it is never right), found not_applicable"
        merged.finding(clause, ("not_applicable",), f"{says}; drop it, or let the site file exclude it with a reason")
    more = set(_needs(entry)) - {NEEDED.get(entry.get("metric", ""), "")}
    if more and entry.get("metric") in NEVER:
        says = f"expected a clause about {entry['metric']} to hold on every node, found needs {', '.join(sorted(more))}"
        merged.finding(clause, ("needs",), f"{says}; drop it")
    for key in ("limit", "peers") if why else ():
        if key in entry and entry[key] != "none":
            says = f"expected no {key} beside not_applicable, found both; drop one"
            merged.finding(clause, (key,), f'{says} (a child may say not_applicable: "")')


def _needs(entry: dict[str, Any]) -> list[str]:
    needs = entry.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def _action(merged: Merged, clause: str, entry: dict[str, Any]) -> None:
    action = entry.get("action", "")
    for key in ("limit", "peers"):
        if key in entry and entry[key] != "none" and not says_something(action):
            says = "expected an action beside a limit, found none; say what to do when it fails"
            merged.finding(clause, (key,), says)
    try:
        fields = [(name, spec, as_) for _, name, spec, as_ in string.Formatter().parse(action) if name is not None]
    except ValueError:
        merged.finding(clause, ("action",), f"expected braces in pairs, found {shown(action)}; correct it")
        return
    for name, spec, conversion in fields:
        if name not in PLACEHOLDERS or spec or conversion:
            known = ", ".join(f"{{{p}}}" for p in PLACEHOLDERS)
            found = shown("{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}")
            merged.finding(clause, ("action",), f"expected one of {known}, found {found}; correct it")
