"""Which level a run has reached where the site file takes clauses out."""

from __future__ import annotations

import msgspec
import pytest

from pytest_gpuready.certificate.rule import Asked, rule
from pytest_gpuready.profiles.metrics import AFTER_LOAD
from tests.certificate import samples

ASKED = Asked(level=2, finished=True, profile="h200-sxm", levels=frozenset({1, 2}))


@pytest.mark.parametrize(("kept", "judged", "reached"), [("PCIE-5", "ACCEPTED", 2), ("", "INCOMPLETE", 1)])
def test_a_level_of_which_all_is_excluded_is_not_reached(kept: str, judged: str, reached: int) -> None:
    """One clause that was measured makes the level one that was reached; health after a load alone does not."""
    cells = []
    for suite in samples.accepted().suites:
        for clause in suite.clauses:
            for part in clause.parts:
                out = clause.level == 2 and clause.required and clause.id != kept and clause.metric not in AFTER_LOAD
                why = {"outcome": "NOT APPLICABLE", "reason": "excluded by the site file: known", "value": None}
                cells.append((clause, msgspec.structs.replace(part, **why) if out else part))
    ruling = rule(cells, ASKED)
    assert (ruling.judged, ruling.level_reached) == (judged, reached)
