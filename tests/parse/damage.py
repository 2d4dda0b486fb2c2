"""Texts as they come after an accident: lines lost, doubled, cut, characters turned into others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError

_LETTERS = "019 aXx:{}[]()\"'\n\t=-.,#\x00é"


def damages(text: str) -> st.SearchStrategy[str]:
    """The text after up to four accidents."""
    step = st.tuples(st.sampled_from("dcrlx"), st.floats(0, 1), st.sampled_from(_LETTERS))
    return st.lists(step, max_size=4).map(lambda steps: _after(text, steps))


def _after(text: str, steps: list[tuple[str, float, str]]) -> str:
    for kind, where, letter in steps:
        lines = text.split("\n")
        line = min(int(where * len(lines)), len(lines) - 1)
        at = int(where * len(text))
        if kind == "d":
            text = "\n".join([*lines[:line], lines[line], *lines[line:]])
        elif kind == "l":
            text = "\n".join([*lines[:line], *lines[line + 1 :]])
        elif kind == "c":
            text = text[:at]
        elif kind == "r":
            text = text[:at] + letter + text[at + 1 :]
        else:
            text = text[:at] + letter + text[at:]
    return text


def read_or_refused(parse: Callable[[], Any]) -> Any:
    """What the parser gives, or None where it refuses the text; any other exception comes through."""
    try:
        return parse()
    except ParseError:
        return None
