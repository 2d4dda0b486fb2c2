"""Plain data against msgspec Structs: every key and type that does not fit, each with its line, not only the first.

msgspec itself stops at the first error and does not say which key of a mapping it stood in; its types are walked
here instead, and msgspec has the last word when the walk finds nothing.
"""

from __future__ import annotations

import functools
import re
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from pytest_gpuready.parse.yaml_file import Finding, Path_, YamlFile, nearest, says_something, shown

T = TypeVar("T")

_WORDS: dict[type, str] = {
    inspect.StrType: "text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.NoneType: "nothing",
    inspect.ListType: "a list",
    inspect.DictType: "a mapping",
    inspect.StructType: "a mapping",
}


def shape_findings(file: YamlFile, kind: type, value: object = None, path: Path_ = ()) -> tuple[Finding, ...]:
    """Everything in the file (or in one value of it) that does not fit the Struct `kind`, in file order."""
    walk = _Walk(file)
    walk.check(_described(kind), file.data if not path and value is None else value, path)
    return tuple(walk.findings)


@functools.cache
def _described(kind: type) -> inspect.Type:
    """msgspec's description of a Struct: asked for once, it takes as long as walking a whole profile."""
    return inspect.type_info(kind)


def to_struct(value: object, kind: type[T]) -> T:
    """The value as Struct, after `shape_findings` found nothing.

    Raises:
        msgspec.ValidationError: it does not fit after all.
    """
    return msgspec.convert(value, kind)


class _Walk:
    def __init__(self, file: YamlFile) -> None:
        self.file = file
        self.findings: list[Finding] = []

    def wrong(self, path: Path_, says: str) -> None:
        self.findings.append(self.file.finding(path, says))

    def check(self, kind: inspect.Type, value: object, path: Path_) -> None:
        """Collect what does not fit; `kind` is msgspec's description of the type."""
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        if isinstance(kind, inspect.UnionType):
            self._union(kind, value, path)
        elif isinstance(kind, inspect.LiteralType):
            if not _is_a(kind, value):
                self._literal(kind, value, path)
        elif not _is_a(kind, value):
            self._other_kind((kind,), value, path)
        elif isinstance(kind, inspect.StructType):
            self._struct(kind, value, path)
        elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
            for key, item in value.items():
                self._bounds(kind.key_type, key, (*path, key))
                self.check(kind.value_type, item, (*path, key))
        elif isinstance(kind, inspect.ListType) and isinstance(value, list):
            self._length(kind, value, path)
            for index, item in enumerate(value):
                self.check(kind.item_type, item, (*path, index))
        else:
            self._bounds(kind, value, path)

    def _struct(self, kind: inspect.StructType, value: Any, path: Path_) -> None:
        fields = {f.encode_name: f for f in kind.fields}
        for key, item in value.items():
            if key in fields:
                self.check(fields[key].type, item, (*path, key))
            else:
                near = nearest(key, fields)
                self.wrong(
                    (*path, key), f"expected one of {', '.join(fields)}, found the key {shown(key)}{near}; correct it"
                )
        for name, fld in fields.items():
            if fld.required and name not in value:
                self.wrong(path, f"expected the key {name!r}, found none; add it")

    def _union(self, kind: inspect.UnionType, value: object, path: Path_) -> None:
        fitting = [t for t in kind.types if _is_a(t, value)]
        members = tuple(t for t in kind.types if not isinstance(t, inspect.NoneType))  # nobody means "nothing"
        if fitting:
            self.check(fitting[0], value, path)
        elif len(members) == 1:
            self.check(members[0], value, path)
        else:
            self._other_kind(members, value, path)

    def _literal(self, kind: inspect.LiteralType, value: object, path: Path_) -> None:
        """None of the values that are possible here."""
        number = _number(value, (kind,))
        words = [str(v) for v in kind.values]
        near = nearest(value, words) if isinstance(value, str) else ""
        if number:
            self.wrong(path, f"expected the number {number}, found text {shown(value)}; remove the quotes")
        elif len(words) == 1:
            self.wrong(path, f"expected {words[0]}, found {shown(value)}{near}; correct it")
        else:
            self.wrong(path, f"expected one of {', '.join(words)}, found {shown(value)}{near}; correct it")

    def _other_kind(self, kinds: tuple[inspect.Type, ...], value: object, path: Path_) -> None:
        """A value of another kind than any that is possible here; quotes are the usual reason, so they are named."""
        words = " or ".join(dict.fromkeys(_word(kind) for kind in kinds))
        number = _number(value, kinds)
        plain = [kind.type if isinstance(kind, inspect.Metadata) else kind for kind in kinds]
        hint, found = "correct it", shown(value)
        if number:
            words, found, hint = f"the number {number}", f"text {found}", "remove the quotes"
        elif isinstance(value, (int, float)) and any(isinstance(kind, inspect.StrType) for kind in plain):
            hint = "put it in quotes"
        elif isinstance(value, str) and any(isinstance(kind, inspect.BoolType) for kind in plain):
            hint = _SWITCH.get(value.casefold(), hint)
        self.wrong(path, f"expected {words}, found {found}; {hint}")

    def _bounds(self, kind: inspect.Type, value: object, path: Path_) -> None:
        low, high = getattr(kind, "ge", None), getattr(kind, "le", None)
        if isinstance(value, (int, float)):
            if (low is not None and value < low) or (high is not None and value > high):
                span = f"{low} to {high}" if low is not None and high is not None else f"at least {low}"
                self.wrong(path, f"expected {span}, found {shown(value)}; correct it")
        elif isinstance(value, str):
            self._length(kind, value, path)
            pattern = getattr(kind, "pattern", None)
            if pattern and ("\n" in value or not re.search(pattern, value)):  # $ also matches before a line break
                self.wrong(path, f"expected text of the form {pattern}, found {shown(value)}; correct it")

    def _length(self, kind: inspect.Type, value: str | list[object], path: Path_) -> None:
        shortest, longest = getattr(kind, "min_length", None), getattr(kind, "max_length", None)
        size = len(value) if not isinstance(value, str) or says_something(value) else 0
        if shortest is not None and size < shortest:
            self.wrong(path, "expected something here, found nothing; fill it in")
        elif longest is not None and len(value) > longest:
            self.wrong(path, f"expected at most {longest} characters, found {len(value)}; shorten it")


_PYTHON: dict[type, tuple[type, ...]] = {
    inspect.StrType: (str,),
    inspect.IntType: (int,),
    inspect.FloatType: (int, float),
    inspect.BoolType: (bool,),
    inspect.NoneType: (type(None),),
    inspect.ListType: (list,),
    inspect.DictType: (dict,),
    inspect.StructType: (dict,),
}


def _is_a(kind: inspect.Type, value: object) -> bool:
    """True where the value is of this kind at the top; YAML's true is no number, and no number is text."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.LiteralType):
        return value in kind.values and not isinstance(value, bool)
    expected = _PYTHON.get(type(kind), ())
    return isinstance(value, expected) and (bool in expected or not isinstance(value, bool))


_SWITCH: dict[str, str] = {
    "true": "remove the quotes",
    "false": "remove the quotes",
    "yes": "write true",
    "on": "write true",
    "no": "write false",
    "off": "write false",
}
"""Words that other readers of YAML take for true or false -> what to do."""


def _number(value: object, kinds: tuple[inspect.Type, ...]) -> str:
    """The number in a text that stands where a number is expected, "" where there is none in it."""
    text = value.strip() if isinstance(value, str) else ""
    for kind in kinds:
        plain = kind.type if isinstance(kind, inspect.Metadata) else kind
        whole = re.fullmatch(r"[-+]?[0-9]{1,18}", text)
        if isinstance(plain, inspect.LiteralType) and whole and int(text) in plain.values:
            return text
        if isinstance(plain, inspect.IntType) and whole:
            return text
        if isinstance(plain, inspect.FloatType) and (whole or re.fullmatch(r"[-+]?[0-9]{0,18}\.[0-9]{1,18}", text)):
            return text
    return ""


def _word(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(str(v) for v in kind.values)
    return _WORDS.get(type(kind), "another value")
