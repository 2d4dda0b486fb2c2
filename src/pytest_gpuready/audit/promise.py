"""What a profile promises, asked of an output; what it does not show; and whether it is about the profile's GPU at all.

A profile promises everything, an output shows a part: a promise that is not answered stands under "not covered". What
does answer is judged like an expectation that was given. An output about another GPU is never judged by the profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_gpuready.audit.expect import Expectations, Promise
from pytest_gpuready.audit.products import PCI_ID, ids_of_name, name_of, pci_id
from pytest_gpuready.audit.reader import Reading
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.model import Clause, Limit, Profile

_SHOWN_AT_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a clause becomes an expectation: `least` where the expectation is a lower bound, else it is met exactly.

    `words` translates the values of the clause. `without` is expected where the profile says that this hardware has no
    such thing; None where that tells nothing.
    """

    key: str
    least: bool = False
    words: Mapping[str, str] | None = None
    without: int | None = None


# By metric. Not here, because the two mean different things: NVLink errors (a profile promises that they stand still,
# an output has their sum), corrected errors per TB, memory and power limits (no expectation has those names).
RULES: dict[str, Rule] = {
    "pcie.link.generation": Rule(key="expected_pcie_gen", least=True),
    "pcie.link.width": Rule(key="expected_pcie_width", least=True),
    "nvlink.links.active": Rule(key="expected_nvlinks_per_gpu", without=0),
    "nvlink.topology": Rule(key="expected_nvlinks_per_pair", without=0),
    "mig.mode": Rule(key="expected_mig", words={"disabled": "Disabled", "enabled": "Enabled"}),
}
IDENTITY = "gpu.pci_id"

# Tools whose readers know what in their output is about GPUs; a kernel log, for one, tells links of network cards.
TOOLS = frozenset(
    {
        "nvidia-smi",
        "nvidia-smi-nvlink",
        "nvidia-smi-topo",
        "lspci",
        "dcgmi-diag-json",
        "dcgmi-diag-text",
        "dcgmi-nvlink",
    }
)


def promises(profile: Profile) -> tuple[Promise, ...]:
    """What the profile promises under a name that expectations have, in the order of its clauses."""
    found = [promise for clause in profile.clauses if (promise := _promise(profile, clause))]
    if profile.nvswitch:
        source = f"profile {profile.name}, nvswitch: true"
        found.append(Promise(key="nvswitch", value=True, clause="nvswitch", source=source))
    return tuple(found)


def _promise(profile: Profile, clause: Clause) -> Promise | None:
    rule = RULES.get(clause.metric)
    if rule is None:
        return None
    value: int | str | None = None
    if clause.not_applicable:
        value = rule.without
    elif clause.limit is not None and clause.required and _applies(profile, clause):
        value = _value(rule, clause.limit)
    return (
        None if value is None else Promise(key=rule.key, value=value, clause=clause.id, source=_source(profile, clause))
    )


def _applies(profile: Profile, clause: Clause) -> bool:
    has = {"nvlink": profile.nvlink, "nvswitch": profile.nvswitch, "peers": True}
    return all(has[need] for need in clause.needs)


def _value(rule: Rule, limit: Limit) -> int | str | None:
    """The expectation that says the same as the limit; None where none does."""
    if rule.words is not None:
        return rule.words.get(limit.equals) if isinstance(limit.equals, str) else None
    if rule.least:
        bound = limit.at_least
    elif isinstance(limit.equals, (int, float)):
        bound = float(limit.equals)
    else:
        bound = limit.at_least if limit.at_least is not None and limit.at_least == limit.ceiling else None
    return int(bound) if bound is not None and bound >= 0 and float(bound).is_integer() else None


def _source(profile: Profile, clause: Clause) -> str:
    says = (
        f"not applicable: {clause.not_applicable}"
        if clause.not_applicable
        else str(clause.limit and clause.limit.source)
    )
    return f"profile {profile.name} {clause.id}, {says}"


def contradictions(profile: Profile, expect: Expectations) -> Iterator[str]:
    """One sentence for each promise that what was given says otherwise of; what was given counts."""
    for promise in promises(profile):
        told = expect.given(promise.key)
        if told is not None and str(told).lower() != str(promise.value).lower():
            yield (
                f"profile {profile.name} promises {promise.key} {_shown(promise.value)} ({promise.clause}), "
                f"{expect.source} says {_shown(told)}: judged by {expect.source}"
            )


def uncovered(profile: Profile, expect: Expectations, findings: Sequence[Finding]) -> Iterator[str]:
    """What of the profile these findings do not answer: for no part, for some, and what no expectation asks."""
    unseen: list[str] = []
    for promise in promises(profile):
        if expect.asked(promise.key):
            continue
        says = f"{promise.key} {_shown(promise.value)} ({promise.clause})"
        answers = [f for f in findings if f.source == promise.source]
        open_parts = [*dict.fromkeys(f.part for f in answers if f.outcome == "observed")]
        if not answers:
            unseen.append(says)
        elif open_parts:
            more = f" and {len(open_parts) - _SHOWN_AT_MOST} more" if len(open_parts) > _SHOWN_AT_MOST else ""
            parts = f"{', '.join(open_parts[:_SHOWN_AT_MOST])}{more}"
            yield f"profile {profile.name} promises {says}; this output does not show it for {parts}"
    if unseen:
        yield f"profile {profile.name} promises {', '.join(unseen)}; this output does not show it"
    metrics = {*RULES, IDENTITY}
    rest = sum(c.limit is not None and c.required and c.metric not in metrics for c in profile.clauses)
    if rest:
        yield f"profile {profile.name}: {rest} more clauses with a limit, which only a run of its suites judges"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Named(NamedTuple):
    """What a part is called, and the PCI ids that this may stand for; none where it is in no table."""

    part: str
    says: str
    ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whether the GPUs of an output are the profile's. `another`: every GPU that it tells of is another one."""

    findings: tuple[Finding, ...] = ()
    says: tuple[str, ...] = ()
    another: bool = False


def identity(profile: Profile, reading: Reading) -> Identity:
    """PCI ids, else names, that a reader found, against the profile's ids; nothing for a profile that has none."""
    if not profile.pci_ids:
        return Identity()
    ours = frozenset(profile.pci_ids)
    seen = [_Named(f.part, str(f.value), frozenset({pci_id(str(f.value))})) for f in reading.findings if _names_id(f)]
    parts = {one.part for one in seen}
    known = list(dict.fromkeys([*seen, *(one for one in _named(reading) if one.part not in parts)]))
    other = [one for one in known if one.ids and not one.ids & ours]
    fits = [one for one in known if one.ids and one.ids <= ours]
    found = [_other(profile, one) for one in other]
    clause = _clause(profile)
    if clause:
        found += [
            Finding(
                metric=IDENTITY, outcome="pass", part=one.part, value=pci_id(one.says),
                expected=" or ".join(sorted(ours)), source=_source(profile, clause),
            )
            for one in fits if one.part in parts
        ]  # fmt: skip
    says: tuple[str, ...] = ()
    unknown = [one for one in known if not one.ids]
    if all(map(name_of, ours)):
        found += [_unknown(profile, one) for one in unknown]
    if not known:
        what = f"profile {profile.name} ({', '.join(sorted(ours))})"
        says = (f"that the GPUs are those of {what}: this output does not say what they are",)
    elif unknown and not found:
        names = ", ".join(sorted({one.says for one in unknown})[:_SHOWN_AT_MOST])
        says = (f"that {names} is the GPU of profile {profile.name} ({', '.join(sorted(ours))}): not known here",)
    return Identity(findings=tuple(found), says=says, another=bool(other) and not fits)


def _names_id(finding: Finding) -> bool:
    return finding.metric in (PCI_ID, "dcgm.device_id") and bool(pci_id(str(finding.value)))


def _named(reading: Reading) -> Iterator[_Named]:
    for part, name in reading.named:
        yield _Named(part, name, ids_of_name(name))
    for finding in reading.findings:
        if finding.metric in ("gpu.model", "dcgm.model", "nccl.model") and finding.value:
            for value in finding.value if isinstance(finding.value, list) else [finding.value]:
                yield _Named(finding.part, str(value), ids_of_name(str(value)))


def _clause(profile: Profile) -> Clause | None:
    return next((c for c in profile.clauses if c.metric == IDENTITY and c.limit is not None and c.required), None)


def _other(profile: Profile, one: _Named) -> Finding:
    from pytest_gpuready.profiles import for_pci_ids  # noqa: PLC0415 - reads every profile, for a mistake only

    clause = _clause(profile)
    right = for_pci_ids([*one.ids]) if len(one.ids) == 1 else None
    name = ", ".join(sorted(filter(None, map(name_of, one.ids))))
    named = f" ({name})" if name and name != one.says else ""
    return Finding(
        metric=IDENTITY,
        outcome="fail" if clause else "not-measured",
        part=one.part,
        value=pci_id(one.says) or one.says,
        expected=" or ".join(sorted(profile.pci_ids)),
        source=_source(profile, clause) if clause else f"profile {profile.name}, pci_ids",
        suspect=f"another GPU{named} than profile {profile.name} is agreed for",
        advice="compare the part with the order" + (f", or audit with --profile {right.name}" if right else ""),
    )


def _unknown(profile: Profile, one: _Named) -> Finding:
    return Finding(
        metric=IDENTITY,
        outcome="not-measured",
        part=one.part,
        value=one.says,
        expected=" or ".join(sorted(profile.pci_ids)),
        source=f"profile {profile.name}, pci_ids",
        suspect=f"a GPU of this name may not be the one that profile {profile.name} is agreed for",
        advice="give an output with its PCI id (nvidia-smi -q, lspci -nn)",
    )
