"""A catalogue of nodes as DCGM would find them: each scenario of the dcgmi stand-in, and what must follow from it.

A run asks for every DCGM test by a command of its own: `dcgmi diag -r 1 -j`, then `dcgmi diag -r NAME -j [-p ..]`.
What follows is said for each test, as if all of them were asked for: a run that stops at a gate asks for less.

`PASSED`, `FAILED` and `UNMEASURED` are what may stand at a GPU. A GPU passes a test where its own result is a Pass
without an error, and nothing about the test as a whole speaks against it. `WHOLE` stands for what DCGM says of the
test and of no GPU. Software checks run before every test: where they fail, the stand-in does not come to the test (the
real one may), so a GPU that they blame fails there too and the others are not measured. `words` of what follows stand
in the suspect of a FAIL and in the reason of a NOT MEASURED.
"""

from __future__ import annotations

from tests.standin.case import (
    GPUS,
    LEVELS,
    OTHERS,
    PASSED,
    PROGRAM,
    STRICT,
    WHOLE,
    Case,
    Follows,
    Says,
    failed,
    install,
    on_node,
    unmeasured,
)
from tests.standin.measured import FAILS, HEALTHY, SOFTWARE
from tests.standin.not_measured import LEFT_OUT, NOTHING_RAN

__all__ = [
    "CASES",
    "FAILS",
    "GPUS",
    "HEALTHY",
    "LEFT_OUT",
    "LEVELS",
    "NOTHING_RAN",
    "OTHERS",
    "PASSED",
    "PROGRAM",
    "SOFTWARE",
    "STRICT",
    "WHOLE",
    "Case",
    "Follows",
    "Says",
    "by_name",
    "failed",
    "install",
    "on_node",
    "unmeasured",
]

CASES: tuple[Case, ...] = (*HEALTHY, *NOTHING_RAN, *LEFT_OUT, *SOFTWARE, *FAILS)


def by_name(name: str) -> Case:
    """The case of this name."""
    return next(case for case in CASES if case.name == name)
