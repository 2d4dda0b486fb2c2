"""The little of msgspec that the agent needs, in pure Python: it takes its name in the file that is sent to a node.

Structs with keyword fields and defaults, JSON in both directions, decoding by type, the same from and to plain objects.
What it writes, the real one reads on the controller; it is slower, which the few kilobytes of a document do not notice.
"""

from __future__ import annotations

import copy
import functools
import json as _json
import math
import types
import typing
from typing import Any


class DecodeError(ValueError):
    """What was to be read is no JSON, or not of the type that was asked for."""


class ValidationError(DecodeError):
    """It is not of the type that was asked for."""


class Raw(bytes):
    """JSON that has been encoded before."""


class _Fields(type):
    """Collects the fields of a Struct: the annotations of its bases, then its own."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        omit_defaults: bool = False,
        **_options: object,
    ) -> Any:
        new: Any = super().__new__(mcs, name, bases, namespace)
        new._fields, new._defaults = {}, {}
        new._omit = omit_defaults
        for base in reversed(new.__mro__[:-2]):  # without Struct itself and object
            for field in getattr(base, "__annotations__", {}):
                new._fields[field] = None
                if field in vars(base):
                    new._defaults[field] = vars(base)[field]
        return new

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_options: object) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=_Fields):
    """Named fields that do not change."""

    _fields: typing.ClassVar[dict[str, None]]
    _defaults: typing.ClassVar[dict[str, Any]]
    _omit: typing.ClassVar[bool]

    def __init__(self, **values: Any) -> None:
        for field in self._fields:
            if field in values:
                value = values.pop(field)
            elif field in self._defaults:
                value = copy.copy(self._defaults[field])
            else:
                raise TypeError(f"Missing required argument '{field}'")
            object.__setattr__(self, field, value)
        if values:
            raise TypeError(f"Unexpected keyword argument '{next(iter(values))}'")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"immutable type: '{type(self).__name__}'")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class json:  # noqa: N801 - msgspec.json is a module
    """Encode and decode."""

    @staticmethod
    def encode(value: Any) -> bytes:
        """The value as compact JSON."""
        return _encode(value).encode("utf-8")

    @staticmethod
    def decode(text: bytes | str, *, type: Any = Any) -> Any:
        """The value that the JSON holds, as that type.

        Raises:
            DecodeError: it is no JSON, or of another type.
        """
        try:
            value = _json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise DecodeError(str(error)) from error
        return _as(value, type)


def convert(value: Any, type: Any) -> Any:
    """What was decoded before, as that type.

    Raises:
        ValidationError: it is of another one.
    """
    return _as(value, type)


def to_builtins(value: Any) -> Any:
    """The value in dicts and lists."""
    if isinstance(value, Struct):
        return {name: to_builtins(inner) for name, inner in _shown(value).items()}
    if isinstance(value, dict):
        return {name: to_builtins(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_builtins(inner) for inner in value]
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"JSON is malformed: {word}")


def _shown(value: Struct) -> dict[str, Any]:
    """The fields that are written."""
    return {
        name: inner
        for name, inner in vars(value).items()
        if not (value._omit and name in value._defaults and inner == value._defaults[name])
    }


_hints = functools.cache(typing.get_type_hints)


def _encode(value: Any) -> str:
    if isinstance(value, Raw):
        return value.decode("utf-8")
    if isinstance(value, Struct):
        return _encode(_shown(value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{_encode(str(name))}:{_encode(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_encode, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return _json.dumps(value, ensure_ascii=False)


def _as(value: Any, wanted: Any) -> Any:  # noqa: PLR0911 - a table: kind of type, what becomes of it
    """The decoded value as a type: what msgspec checks for the agent's own documents."""
    if wanted is Any or wanted is object:
        return value
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return (
            None
            if value is None and type(None) in arguments
            else _as(value, next(a for a in arguments if a is not type(None)))
        )
    if origin is list and isinstance(value, list):
        return [_as(inner, arguments[0]) for inner in value]
    if origin is dict and isinstance(value, dict):
        return {name: _as(inner, arguments[1]) for name, inner in value.items()}
    if origin is tuple and isinstance(value, list):
        if arguments[1:] == (...,):
            return tuple(_as(inner, arguments[0]) for inner in value)
        if len(value) == len(arguments):
            return tuple(_as(inner, each) for inner, each in zip(value, arguments, strict=True))
    if isinstance(wanted, type) and issubclass(wanted, Struct) and isinstance(value, dict):
        hints = _hints(wanted)
        unknown = value.keys() - wanted._fields.keys()
        if unknown:
            raise ValidationError(f"Object contains unknown field `{min(unknown)}`")
        try:
            return wanted(**{name: _as(inner, hints[name]) for name, inner in value.items()})
        except TypeError as error:
            raise ValidationError(str(error)) from error
    if wanted is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(wanted, type) and type(value) is wanted:
        return value
    raise ValidationError(f"Expected `{getattr(wanted, '__name__', wanted)}`, got `{type(value).__name__}`")
