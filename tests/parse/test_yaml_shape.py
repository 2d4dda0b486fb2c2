# ruff: noqa: E501 - one case a line
"""Plain data against Structs: all misfits at once, each with its place."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from pytest_gpuready.errors import ProfileError
from pytest_gpuready.parse.yaml_file import load_yaml
from pytest_gpuready.parse.yaml_shape import shape_findings, to_struct


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    unit: Literal["GB/s", "W"]
    size: Annotated[int, Meta(ge=1, le=8)] = 1


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=10)]
    inner: dict[str, Inner] = {}
    many: list[float] = []
    either: int | list[str] | None = None
    sure: bool = False
    version: Literal[1] = 1
    level: Annotated[int, Meta(ge=1, le=4)] | None = None
    share: float = 1.0


def says(text: str) -> list[str]:
    return [str(f) for f in shape_findings(load_yaml(text.encode(), ProfileError, name="x.yaml"), Outer)]


def test_what_fits_has_no_findings_and_converts() -> None:
    """A file that fits becomes the Struct."""
    file = load_yaml(b"name: a\ninner: {b: {unit: W, size: 8}}\nmany: [1, 2.5]\neither: [x]\n", ProfileError, name="x")
    assert shape_findings(file, Outer) == ()
    assert to_struct(file.data, Outer).inner["b"] == Inner(unit="W", size=8)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nam: a\n", "x.yaml line 1 $.nam: expected one of name, inner, many, either, sure, version, level, share, found the key 'nam' (did you mean 'name'?); correct it"),
        ("sure: true\n", "x.yaml line 1 $: expected the key 'name', found none; add it"),
        ("name: 1.5\n", "x.yaml line 1 $.name: expected text, found 1.5; put it in quotes"),
        ("name: ' '\n", "x.yaml line 1 $.name: expected something here, found nothing; fill it in"),
        ("name: '\u200b\u00a0\u3164'\n", "x.yaml line 1 $.name: expected something here, found nothing; fill it in"),
        ("name: abcdefghijk\n", "x.yaml line 1 $.name: expected at most 10 characters, found 11; shorten it"),
        ("name: a\ninner:\n  b: {unit: GBps}\n", "x.yaml line 3 $.inner.b.unit: expected one of GB/s, W, found 'GBps' (did you mean 'GB/s'?); correct it"),
        ("name: a\ninner: {b: {unit: W, size: 9}}\n", "x.yaml line 2 $.inner.b.size: expected 1 to 8, found 9; correct it"),
        ("name: a\nmany: [1, true]\n", "x.yaml line 2 $.many[1]: expected a number, found True; correct it"),
        ("name: a\neither: 1.5\n", "x.yaml line 2 $.either: expected a whole number or a list, found 1.5; correct it"),
        ("name: true\n", "x.yaml line 1 $.name: expected text, found True; put it in quotes"),
        ("name: a\nversion: '1'\n", "x.yaml line 2 $.version: expected the number 1, found text '1'; remove the quotes"),
        ("name: a\nversion: '2'\n", "x.yaml line 2 $.version: expected 1, found '2'; correct it"),
        ("name: a\nversion: 2\n", "x.yaml line 2 $.version: expected 1, found 2; correct it"),
        ("name: a\nlevel: '2'\n", "x.yaml line 2 $.level: expected the number 2, found text '2'; remove the quotes"),
        ("name: a\neither: '2'\n", "x.yaml line 2 $.either: expected the number 2, found text '2'; remove the quotes"),
        ("name: a\nshare: '54'\n", "x.yaml line 2 $.share: expected the number 54, found text '54'; remove the quotes"),
        ("name: a\nmany: ['5.4']\n", "x.yaml line 2 $.many[0]: expected the number 5.4, found text '5.4'; remove the quotes"),
        ("name: a\nlevel: '2.5'\n", "x.yaml line 2 $.level: expected a whole number, found '2.5'; correct it"),
        ("name: a\nsure: 'true'\n", "x.yaml line 2 $.sure: expected true or false, found 'true'; remove the quotes"),
        ("name: a\nsure: yes\n", "x.yaml line 2 $.sure: expected true or false, found 'yes'; write true"),
        ("name: a\nsure: maybe\n", "x.yaml line 2 $.sure: expected true or false, found 'maybe'; correct it"),
        ("name: a\nsure: 1\n", "x.yaml line 2 $.sure: expected true or false, found 1; correct it"),
        ("name: a\ninner: [1]\n", "x.yaml line 2 $.inner: expected a mapping, found [1]; correct it"),
        ("- a\n", "x.yaml line 1 $: expected a mapping, found ['a']; correct it"),
    ],
)  # fmt: skip
def test_a_misfit_names_place_expected_and_found(text: str, line: str) -> None:
    """One line says file, line, path, what was expected, what stood there and what to do."""
    assert line in says(text)


def test_all_misfits_come_at_once() -> None:
    """Three mistakes in one file are three findings."""
    assert len(says("name: 1\nsure: 2\nmany: x\n")) == 3
