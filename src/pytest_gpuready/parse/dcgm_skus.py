"""Entries of DCGM's diag-skus.yaml -> the floors that its tests use for a GPU model.

A GPU that is not in that file makes most tests Skip, with exit code 0. Values are roughly 60 to 75 % of what a card can
do, some are a factor of ten or a thousand too low: they are recorded beside every result.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import yaml

from pytest_gpuready.errors import ParseError

MOST = 400


def floors(entries: Sequence[str]) -> dict[str, str]:
    """Parameter ("pcie.h2d_d2h_single_pinned.min_pci_generation") -> value as text, over all entries of one model.

    Where entries differ (variants by subsystem id, which nobody asked for), the value is "850 or 1000".

    Raises:
        ParseError: an entry is no YAML mapping with an id.
    """
    found: dict[str, list[str]] = {}
    for entry in entries:
        for name, value in _one(entry).items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {name: " or ".join(values) for name, values in sorted(found.items())[:MOST]}


def lowest(floor: str) -> float | None:
    """The lowest number of a floor, None where it holds none."""
    numbers = []
    for word in floor.split(" or "):
        try:
            numbers.append(float(word))
        except ValueError:
            continue
    return min(numbers, default=None)


def _one(entry: str) -> dict[str, str]:
    try:
        data = yaml.safe_load(textwrap.dedent(entry))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = " ".join(str(error).split())[:120]
        raise ParseError(
            f"diag-skus.yaml: expected an entry of a GPU, found {line}; reinstall DCGM's configuration"
        ) from error
    if not (isinstance(data, list) and len(data) == 1 and isinstance(data[0], dict) and "id" in data[0]):
        raise ParseError("diag-skus.yaml: expected one entry with an id, found none; reinstall DCGM's configuration")
    flat: dict[str, str] = {}
    for test, parameters in data[0].items():
        if isinstance(parameters, dict):
            _flatten(str(test), parameters, flat)
    return flat


def _flatten(prefix: str, parameters: dict[Any, Any], flat: dict[str, str]) -> None:
    for name, value in parameters.items():
        path = f"{prefix}.{name}"
        if isinstance(value, dict) and path.count(".") < 3:
            _flatten(path, value, flat)
        elif isinstance(value, bool):
            flat[path] = "true" if value else "false"
        elif isinstance(value, (int, float)):
            flat[path] = f"{value:.12g}"
        elif isinstance(value, str):
            flat[path] = value[:80]
