"""`sysctl` output and its error lines -> values and keys that could not be read.

A key is compared as the path below /proc/sys: the first separator of a name decides whether dots or slashes part it,
the other character then stands for the first ("net.ipv4.conf.eth0/100.rp_filter"). The reason after a path is in the
language of the host; the path is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_gpuready.errors import ParseError

KEYS_AT_MOST = 100_000

_VALUE = re.compile(r"^(?P<key>[A-Za-z0-9_][\w./*:@-]{0,255}[\w*-])\s*=\s*(?P<value>.*?)\s*$")
_APPLYING = re.compile(r"^\* Applying \S+")
_PATH = re.compile(r"/proc/sys/([^\s:'\"’”»]{1,255})")
_QUOTED = re.compile(r"[\"'‘’“”«»]([A-Za-z0-9_][\w./*@-]{1,255})[\"'‘’“”«»]")
_PROGRAM = re.compile(r"^(?:busybox )?(?:\S*/)?sysctl[:：] ?|^error: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A key that could not be read or set. `absent`: there is no such key on this kernel; `says` as printed."""

    key: str
    absent: bool
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysctls:
    """Values by path ("vm/swappiness"), keys that are missing, paths with two values, and messages about no key."""

    values: dict[str, str]
    missing: tuple[Missing, ...]
    twice: tuple[str, ...]
    messages: tuple[str, ...]
    applied: bool


def path_of(name: str) -> str:
    """The path below /proc/sys of a name in either spelling."""
    found = re.search(r"[./]", name)
    if not found or found[0] == "/":
        return name
    return name.translate(str.maketrans("./", "/."))


def name_of(path: str) -> str:
    """The dotted name of a path."""
    return path.translate(str.maketrans("./", "/."))


def parse_sysctl(lines: Iterable[str]) -> Sysctls:
    """Every value and error of a text.

    Raises:
        ParseError: neither a value nor an error of sysctl is there, or there are far too many.
    """
    values: dict[str, str] = {}
    missing: dict[str, Missing] = {}
    twice: set[str] = set()
    messages: list[str] = []
    applied = False
    known: dict[str, str] = {}
    for line in lines:
        name, equals, rest = line.partition(" = ")
        if equals and name in known:
            path, value = known[name], " ".join(rest.split())
        elif _PROGRAM.match(line.strip()):
            _error(line.strip(), missing, messages)
            _bounded(values, missing)
            continue
        elif _APPLYING.match(line):
            applied = True
            continue
        elif found := _VALUE.match(line):
            path, value = path_of(found["key"]), " ".join(found["value"].split())
            if found["key"] == name:
                known[name] = path
        else:
            continue
        if not applied and values.get(path, value) != value:
            twice.add(path)
        values[path] = value
        _bounded(values, missing)
    if not values and not missing and not messages:
        raise ParseError("sysctl: expected 'key = value' or 'sysctl: ...', found neither; run sysctl again")
    return Sysctls(
        values=values,
        missing=tuple(missing.values()),
        twice=tuple(sorted(twice)),
        messages=tuple(messages),
        applied=applied,
    )


def _bounded(values: Mapping[str, str], missing: Mapping[str, Missing]) -> None:
    if len(values) + len(missing) > KEYS_AT_MOST:
        raise ParseError(f"sysctl: expected at most {KEYS_AT_MOST} keys, found more; audit fewer at once")


def _error(line: str, missing: dict[str, Missing], messages: list[str]) -> None:
    """The key of an error line: by its path under /proc/sys, else by the quoted name."""
    path = _PATH.search(line)
    quoted = _QUOTED.search(line)
    if path:
        missing.setdefault(
            path[1], Missing(key=path[1], absent="cannot stat" in line or "unknown" in line, says=line[:200])
        )
    elif quoted:
        key = path_of(quoted[1])
        missing.setdefault(key, Missing(key=key, absent="unknown" in line or "cannot stat" in line, says=line[:200]))
    elif len(messages) < 100:
        messages.append(line[:200])
