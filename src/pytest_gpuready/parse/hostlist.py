"""Slurm's lists of nodes, node[001-512,600],login1, as names."""

from __future__ import annotations

import itertools
import re

from pytest_gpuready.errors import ParseError

MOST = 100_000
"""Names in one list; more than any cluster has."""

_WORD = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9,-]+\])+")
_PART = re.compile(r"[A-Za-z0-9._-]+|\[[0-9,-]+\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str) -> tuple[str, ...]:
    """The names of a list in its order; none of an empty list and of "(null)".

    Raises:
        ParseError: the text is no such list, or one of far too many names.
    """
    if text in ("", "(null)"):
        return ()
    names: list[str] = []
    for word in re.split(r",(?![^\[]*\])", text):
        if not _WORD.fullmatch(word):
            raise _wrong(text, f"{word[:40]!a} in it")
        parts = [_numbers(part, text) if part.startswith("[") else [part] for part in _PART.findall(word)]
        size = 1
        for part in parts:
            size *= len(part)
        if len(names) + size > MOST:
            raise _wrong(text, f"more than {MOST} names")
        names += map("".join, itertools.product(*parts))
    return tuple(names)


def _numbers(inside: str, text: str) -> list[str]:
    numbers: list[str] = []
    for each in inside[1:-1].split(","):
        found = _RANGE.fullmatch(each)
        if found is None:
            raise _wrong(text, f"{each[:40]!a} in it")
        first, last = found[1], found[2] or found[1]
        if not int(first) <= int(last) < int(first) + MOST:
            raise _wrong(text, f"the range {each} in it")
        numbers += (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return numbers


def _wrong(text: str, what: str) -> ParseError:
    return ParseError(f"Slurm: expected a list of nodes like node[001-512], found {text[:60]!a} with {what}")
