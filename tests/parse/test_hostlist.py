"""`parse.hostlist`: Slurm's lists of nodes."""

from __future__ import annotations

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("login", ("login",)),
        ("gr[1-2,5],x", ("gr1", "gr2", "gr5", "x")),
        ("n[09-11]", ("n09", "n10", "n11")),
        ("r[1-2]n[1-2].ib", ("r1n1.ib", "r1n2.ib", "r2n1.ib", "r2n2.ib")),
        ("b[1-2]", ("b1", "b2")),
    ],
)
def test_lists_as_slurm_writes_them(text: str, names: tuple[str, ...]) -> None:
    """Ranges, leading noughts, several brackets and several words come out in Slurm's order."""
    assert expand(text) == names


@pytest.mark.parametrize("text", ["a[1-", "a[2-1]", "a[]", "a b", "a,,b", "a[1-999999999]", "a[0-999]b[0-999]", "$(x)"])
def test_what_is_no_list_is_refused(text: str) -> None:
    """Half a list, a range that runs backwards or without end, and other text are one line, at once."""
    with pytest.raises(ParseError, match="expected a list of nodes"):
        expand(text)
