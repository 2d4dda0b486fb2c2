"""sysctl: kernel settings of the host against what was expected of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_gpuready.audit.asked import unanswered, unreadable
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding, Outcome
from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.sysctl import Missing, Sysctls, name_of, parse_sysctl, path_of

SHOWN_AT_MOST = 50
MODULES: tuple[tuple[str, str], ...] = (
    ("net/bridge/", "br_netfilter not loaded"),
    ("net/netfilter/", "nf_conntrack not loaded"),
    ("net/nf_conntrack", "nf_conntrack not loaded"),
    ("net/ipv6/", "IPv6 is switched off"),
)
"""Keys that exist only while a module is loaded."""
NOT_COVERED = (
    "values at one moment: what the host sets at its next start is in its configuration files",
    "keys that are not in the text were not looked at",
)
_LIMIT = re.compile(r"(<=|>=)?\s*(.*)")
_INTEGER = re.compile(r"-?\d{1,20}")


def read(given: Given) -> Reading:
    """What `sysctl` says."""
    owed = unanswered(given, "sysctl", (), sysctls=True)
    try:
        found = parse_sysctl(given.lines())
    except ParseError as error:
        return Reading(findings=(unreadable("sysctl.output", str(error)), *owed), not_covered=NOT_COVERED)
    asked = {path_of(key): wanted for key, wanted in given.expect.sysctls().items()}
    missing = {m.key for m in found.missing}
    errors_only = not found.values
    findings = [
        _judged(path, wanted, found, given) for path, wanted in asked.items() if path in missing or not errors_only
    ]
    findings += [_missing(m) for m in found.missing if m.key not in asked]
    findings += [unreadable("sysctl.message", text) for text in found.messages]
    findings += list(_others(found, asked))
    findings += _exit(given, found)
    notes = list(NOT_COVERED)
    if errors_only and set(asked) - missing:
        names = ", ".join(name_of(p) for p in asked if p not in missing)
        notes.append(f"this input holds error messages only: {names} is not answered here")
    return Reading(findings=(*findings, *owed), not_covered=tuple(notes))


def _judged(path: str, wanted: str, found: Sysctls, given: Given) -> Finding:
    missing = {m.key: m for m in found.missing}
    value = found.values.get(path)
    suspect = ""
    outcome: Outcome = "not-measured"
    if path in missing and value is None:
        return _missing(missing[path], expected=wanted, source=given.expect.source)
    if value is None:
        suspect = "the key is not in the output"
    elif path in found.twice:
        suspect = "the key is there with two values"
    else:
        kept = _kept(value, wanted)
        if kept is None:
            suspect = f"{value[:40]!r} cannot be held against {wanted[:40]!r}"
        else:
            outcome = "pass" if kept else "fail"
            suspect = "" if kept else f"host configuration ({name_of(path)})"
    return Finding(
        metric=f"sysctl.{name_of(path)}",
        outcome=outcome,
        value=_number(value) if value is not None else None,
        expected=wanted,
        source=given.expect.source,
        suspect=suspect,
        advice=f"sysctl -w {name_of(path)}=..., and in /etc/sysctl.d for the next start" if outcome == "fail" else "",
    )


def _number(value: str) -> int | str:
    return int(value) if _INTEGER.fullmatch(value) else value[:200]


def _kept(value: str, wanted: str) -> bool | None:
    """Whether a value is as wanted; None where the two cannot be compared."""
    found = _LIMIT.fullmatch(wanted.strip())
    if not found:
        return None
    sense, bound = found[1], " ".join(found[2].split())
    if not sense:
        return value == bound or (
            bool(_INTEGER.fullmatch(value) and _INTEGER.fullmatch(bound)) and int(value) == int(bound)
        )
    if not _INTEGER.fullmatch(value) or not re.fullmatch(r"-?\d{1,20}(\.\d{1,9})?", bound):
        return None
    return int(value) <= float(bound) if sense == "<=" else int(value) >= float(bound)


def _missing(missing: Missing, *, expected: str = "", source: str = "") -> Finding:
    module = next((says for start, says in MODULES if missing.key.startswith(start)), "")
    name = name_of(missing.key)
    why = f"no such key on this kernel: {name}" if missing.absent else f"{name} could not be read or set (permission?)"
    return Finding(
        metric=f"sysctl.{name}",
        outcome="not-measured",
        value="missing" if missing.absent else "unread",
        expected=expected,
        source=source,
        suspect=module or why,
        advice=missing.says,
    )


def _others(found: Sysctls, asked: dict[str, str]) -> Iterator[Finding]:
    """Values that nobody asked for, the first of them."""
    rest = [path for path in found.values if path not in asked]
    for path in rest[:SHOWN_AT_MOST]:
        if path in found.twice:
            yield unreadable(f"sysctl.{name_of(path)}", "the key is there with two values")
        else:
            yield Finding(metric=f"sysctl.{name_of(path)}", outcome="observed", value=_number(found.values[path]))
    if len(rest) > SHOWN_AT_MOST:
        yield Finding(metric="sysctl.keys", outcome="observed", value=len(found.values), unit="keys")


def _exit(given: Given, found: Sysctls) -> list[Finding]:
    """A bad exit code without an error line beside it: something was not read and this text does not say what."""
    if given.exit_code in (None, 0) or found.missing or found.messages:
        return []
    return [
        Finding(
            metric="sysctl.exit_code",
            outcome="not-measured",
            value=given.exit_code,
            expected="0",
            source="the tool's own verdict",
            suspect="a key was not read; the error output says which",
        )
    ]
