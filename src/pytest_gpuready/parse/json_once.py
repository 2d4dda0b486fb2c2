"""JSON objects in which a key has one value: of two nobody knows which was meant."""

from __future__ import annotations

from typing import Any


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs, for `json.loads(.., object_pairs_hook=once)`.

    Raises:
        ValueError: a key stands twice.
    """
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key that is there twice")
    return made


def one_value(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The same for output of tools that repeat a key with its value.

    Raises:
        ValueError: a key stands twice with two values.
    """
    made = dict(pairs)
    twice = next((key for key, value in pairs if made[key] != value), None)
    if twice is not None:
        raise ValueError(f"key {twice[:40]!r} twice with two values")
    return made
