"""A YAML file as plain data that remembers where each value stands.

Files are written by people and read by us, so the reader takes the plain part of YAML only: mappings with text keys,
lists, text, numbers, true/false, null. Aliases, anchors, tags, merge keys, a second document, a key given twice and
control characters are errors. Words keep their meaning: `on`, `no` and `2026-11-30` are text, `0000:19:00.0` is text
and not a number in base 60, `1.0e3` is a number (YAML 1.2). A file is at most 1 MiB and 32 levels deep.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pytest_gpuready.errors import GpuReadyError

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_SHOWN = 60
MIN_START = 3
"""Characters from which on the start of a word says which word is meant."""

Path_ = tuple[str | int, ...]
"""Way from the root of a file to a value: ("clauses", "GPU-3", "limit", "unit")."""

_BASE: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE):  # type: ignore[misc,valid-type]
    """Scalars by the core schema of YAML 1.2, without infinity and NaN."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol


_FLOAT = r"(?:\.[0-9]{1,18}|[0-9]{1,18}\.[0-9]{0,18}|[0-9]{1,18}(?=[eE]))(?:[eE][-+]?[0-9]{1,2})?"
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]{1,18}$", list("-+0123456789")),
    ("float", rf"^[-+]?{_FLOAT}$", list("-+.0123456789")),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)

_DIRECTION = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029}
"""Characters that turn or break a line when it is shown."""

_BLANK = {"\u2800", "\u115f", "\u1160", "\u3164", "\uffa0"}
"""Signs and letters that are drawn as nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong in a file, as one line: where, expected, found, what to do."""

    file: str
    line: int
    path: str
    says: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line} {self.path}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlFile:
    """A file as read: plain data, its digest, and the line of every value."""

    name: str
    """As people know it: the name that errors show."""
    directory: Path
    sha256: str
    data: object
    lines: dict[Path_, int] = field(default_factory=dict, repr=False)

    def line(self, path: Path_) -> int:
        """The line of a value, or of the nearest thing around it that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def finding(self, path: Path_, says: str) -> Finding:
        return Finding(self.name, self.line(path), dollar(path), says)


def dollar(path: Path_) -> str:
    """A path as errors show it: $.clauses.GPU-3.limit, $.exclude[0].reason."""
    said = "$"
    for step in path:
        if isinstance(step, int):
            said += f"[{step}]"
        else:
            said += f".{step}" if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", step) else f"[{shown(step)}]"
    return said


def shown(value: object) -> str:
    """A value in an error: quoted, escaped, on one line and short, whatever it holds."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 2] + ".."


def says_something(text: str) -> bool:
    """True where a reader sees at least one letter, digit or sign: spaces and what is not drawn are no reason."""
    return any(unicodedata.category(char)[0] in "LNPS" and char not in _BLANK for char in text)


def one_line(text: str) -> str:
    """Text without line breaks, tabs and double spaces, so that layout does not change what is said."""
    return " ".join(text.split())


def nearest_word(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known word that was probably meant, "" where none is near; first one that starts with what was written.

    `cutoff` is how much the two must have in common, 0 to 1.
    """
    words = list(known)
    start = word.strip().casefold()
    longer = [one for one in words if len(start) >= MIN_START and one.casefold().startswith(start)]
    near = difflib.get_close_matches(word[:80], longer, n=1, cutoff=0.0)
    near = near or difflib.get_close_matches(word[:80], words, n=1, cutoff=cutoff)
    return near[0] if near else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean 'ceiling'?)", or nothing where no known word is near."""
    near = nearest_word(word, known)
    return f" (did you mean {near!r}?)" if near else ""


def read_yaml(path: Path, error: type[GpuReadyError], *, name: str = "") -> YamlFile:
    """Read one file.

    Raises:
        GpuReadyError: of the class `error`; one line each, for everything that is wrong with the file as YAML.
    """
    name = name or path.name
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise error(f"{path}: expected a file to read, found something else; check the name")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as failed:
        found = getattr(failed, "strerror", None) or failed
        raise error(f"{path}: expected a file to read, found {found}; check name and permissions") from failed
    return load_yaml(raw, error, name=name, directory=path.parent)


def load_yaml(raw: bytes, error: type[GpuReadyError], *, name: str, directory: Path = Path()) -> YamlFile:
    """The same for bytes that were read already."""

    def wrong(line: int, says: str) -> GpuReadyError:
        return error(f"{name} line {line}: {says}")

    if len(raw) > MAX_BYTES:
        raise wrong(1, "expected at most 1 MiB, found more; this is not such a file")
    try:
        text = raw.decode()
    except UnicodeDecodeError as failed:
        line = raw[: failed.start].count(b"\n") + 1
        raise wrong(line, f"expected UTF-8, found byte 0x{raw[failed.start]:02x}; save the file as UTF-8") from failed
    try:
        _check_events(text, wrong)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as failed:
        mark = getattr(failed, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        if _tab_at(text, line, mark.column if mark else 0):
            raise wrong(line, "expected YAML, found a tab; indent with spaces") from failed
        problem = getattr(failed, "problem", None) or getattr(failed, "reason", None) or "something else"
        raise wrong(line, f"expected YAML, found {shown(str(problem))}; correct it") from failed
    if root is None:
        raise wrong(1, "expected a mapping, found an empty file; fill it in")
    reader = _Reader(name)
    data = reader.plain(root, ())
    if reader.findings:
        raise error("\n".join(str(found) for found in reader.findings))
    return YamlFile(
        name=name, directory=directory, sha256=hashlib.sha256(raw).hexdigest(), data=data, lines=reader.lines
    )


def _tab_at(text: str, line: int, column: int) -> bool:
    """True where the parser stopped at a tab or in a line indented by one: PyYAML words it in three ways."""
    rows = text.split("\n")
    row = rows[line - 1] if line <= len(rows) else ""
    return "\t" in (*row[column : column + 1], *row[: len(row) - len(row.lstrip(" \t"))])


def _check_events(text: str, wrong: Callable[[int, str], GpuReadyError]) -> None:
    """Refuse depth and aliases before a tree is built: a small file must not become a large one."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise wrong(line, "expected plain YAML, found an anchor or alias (&, *); write the value out")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise wrong(line, f"expected at most {MAX_DEPTH} levels, found more; flatten it")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


class _Reader:
    """Turns nodes into plain data and collects what is wrong on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path_, int] = {}
        self.findings: list[Finding] = []

    def plain(self, node: yaml.Node, path: Path_) -> object:
        """The node as plain data; its depth is bounded by `_check_events`."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.plain(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._wrong(line, path, f"expected plain YAML, found the tag {shown(node.tag)}; leave the tag out")

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, object]:
        plain: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if (
                not isinstance(key_node, yaml.ScalarNode)
                or not key_node.tag.endswith(":str")
                or not isinstance(key, str)
            ):
                self._wrong(line, path, f"expected text as key, found {shown(key)}; put it in quotes")
                continue
            if key in plain:
                self._wrong(line, (*path, key), "expected every key once, found it twice; keep one")
                continue
            if key == "<<":
                self._wrong(line, path, "expected plain YAML, found a merge key (<<); write the values out")
                continue
            self._check_text(key, line, path)
            self.lines[(*path, key)] = line
            plain[key] = self.plain(value_node, (*path, key))
        return plain

    def _scalar(self, node: yaml.ScalarNode, path: Path_) -> object:
        kind, text = node.tag.rpartition(":")[2], node.value
        if kind == "bool":
            return text.lower() == "true"
        if kind == "null":
            return None
        if kind == "int" and re.fullmatch(r"[-+]?[0-9]{1,18}", text):
            return int(text)
        if kind == "float":
            try:
                return float(text)
            except ValueError:
                kind = "unknown"
        line = node.start_mark.line + 1
        if kind != "str":
            return self._wrong(line, path, f"expected plain YAML, found the tag {shown(node.tag)}; leave the tag out")
        self._check_text(text, line, path)
        return text

    def _check_text(self, text: str, line: int, path: Path_) -> None:
        if text.isascii() and text.isprintable():
            return
        bad = next((c for c in text if c not in "\n\t" and _unprintable(c)), None)
        if bad is not None:
            self._wrong(line, path, f"expected text that can be printed, found U+{ord(bad):04X} in it; take it out")

    def _wrong(self, line: int, path: Path_, says: str) -> object:
        self.findings.append(Finding(self.name, line, dollar(path), says))
        return None


def _unprintable(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs") or ord(char) in _DIRECTION
