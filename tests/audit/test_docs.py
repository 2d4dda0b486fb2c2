"""The audit's manual lists every expectation and every tool family that there is."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_gpuready.audit.expect import VOCABULARY

DOC = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_every_expectation_stands_in_the_manual() -> None:
    """The table of the manual is the vocabulary, kinds included."""
    rows = dict(re.findall(r"^\| `([a-z0-9_]+)` \| (.+) \|$", DOC.split("## Expectations")[1], re.MULTILINE))
    assert rows == VOCABULARY
