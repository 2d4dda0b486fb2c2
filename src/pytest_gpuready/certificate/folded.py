"""Many names in few words, as ClusterShell and Slurm write them: node[001-512,514].

A pure function of the names, for any text: whoever reads the certificate needs no ClusterShell, and a name is never
parsed as a set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PIECE = re.compile(r"([^0-9]*)([0-9]*)")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL)


def folded(names: Iterable[str], at_most: int = 0) -> str:
    """The names, each once, those that differ in their last number alone in one word; ranges ascend.

    With `at_most` no more than so many names and ranges are told, and the rest is counted: "node[001-007,012] and 40
    more". Zeros in front count: node1 and node01 are two names.
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name, key, number in _keyed(dict.fromkeys(names)):
        groups.setdefault(key or (name, "", -1), []).append(number)
    words: list[str] = []
    told = left = 0
    for (before, after, width), numbers in groups.items():
        ranges = _ranges(sorted(numbers))
        kept = ranges[: max(at_most - told, 0)] if at_most else ranges
        told += len(kept)
        left += sum(last - first + 1 for first, last in ranges[len(kept) :])
        if kept:
            words.append(before if width < 0 else f"{before}{_bracketed(kept, width)}{after}")
    return ",".join(words) + (f" and {left} more" if left else "")


def natural(name: str) -> tuple[tuple[str, int, str], ...]:
    """The key by which people sort names: gpu2 before gpu10."""
    found = (m.groups() for m in _PIECE.finditer(name))
    return tuple((text, len(digits.lstrip("0")), digits.lstrip("0") + digits) for text, digits in found)


def folded_lines(lines: Iterable[str], names: Iterable[str]) -> list[str]:
    """Lines of which many begin with one of several names ("node01: ..") and go on alike, each told once."""
    known = set(names)
    groups: dict[str, list[str]] = {}
    for line in lines:
        name, colon, text = line.partition(": ")
        if len(known) > 1 and colon and name in known:
            groups.setdefault(text, []).append(name)
        else:
            groups.setdefault(line, [])
    return [f"{folded(named)}: {text}" if named else text for text, named in groups.items()]


def _keyed(names: Iterable[str]) -> list[tuple[str, tuple[str, str, int] | None, int]]:
    """Each name with what it shares with others: the text before and after its last number, and to how many digits
    numbers are filled up with zeros (0: not at all)."""
    split = [(name, _NUMBERED.fullmatch(name)) for name in names]
    filled: dict[tuple[str, str], set[int]] = {}
    for _, m in split:
        if m and m.group(2).startswith("0") and len(m.group(2)) > 1:
            filled.setdefault((m.group(1), m.group(3)), set()).add(len(m.group(2)))
    keyed: list[tuple[str, tuple[str, str, int] | None, int]] = []
    for name, m in split:
        if m is None:
            keyed.append((name, None, 0))
            continue
        around, digits = (m.group(1), m.group(3)), m.group(2)
        width = max((w for w in filled.get(around, ()) if w <= len(digits)), default=0)
        keyed.append((name, (*around, width), int(digits)))
    return keyed


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _bracketed(ranges: list[tuple[int, int]], width: int) -> str:
    said = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges]
    return said[0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else f"[{','.join(said)}]"
