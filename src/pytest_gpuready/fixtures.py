"""What a clause test asks for: the measurement of its part, and the judge.

A fixture that cannot give a measurement raises in set-up, so pytest calls it an *error* (NOT MEASURED); only `require`
raises in the test itself, so a *failure* is always a measured value outside its limit. Light on purpose: pytest loads
this module with every test suite of the machine; what does the work is imported when the first clause is collected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_gpuready.acceptance import Acceptance
    from pytest_gpuready.driving import Driving
    from pytest_gpuready.grouped import Group
    from pytest_gpuready.judge import Found
    from pytest_gpuready.model import Inventory, Part, Profile, Slot

DRIVING: pytest.StashKey[Driving] = pytest.StashKey()


@pytest.fixture(scope="session")
def acceptance(request: pytest.FixtureRequest) -> Acceptance:
    """The open acceptance run."""
    return request.config.stash[DRIVING].acceptance


@pytest.fixture(scope="session")
def profile(acceptance: Acceptance) -> Profile:
    """The profile: clauses, limits and their sources."""
    return acceptance.profile


@pytest.fixture(scope="session")
def inventory(acceptance: Acceptance) -> Inventory:
    """Expected hardware beside what was found."""
    return acceptance.inventory


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Part:
    """The expected part that this test is about; parametrised over expected, never over discovered parts.

    With many nodes a test stands for all parts of a node and is called once for each.
    """
    about: Part | Group = request.param
    if hasattr(about, "parts"):
        return about.parts[0]
    return about


@pytest.fixture
def gpu(part: Part, inventory: Inventory) -> Slot | None:
    """The expected GPU of this test and what was found in its place; None for a clause about a node."""
    return inventory.slot(part)


@pytest.fixture
def measured(request: pytest.FixtureRequest, part: Part) -> Found:
    """What was found for this clause on this part: measured now, or read from the store.

    Raises:
        NotMeasuredError: there is no value, it is above the physical ceiling, or runs disagree about the limit.
    """
    __tracebackhide__ = True
    return request.config.stash[DRIVING].measured(request.node, part)


@pytest.fixture
def require(request: pytest.FixtureRequest, part: Part) -> Callable[[Found], None]:
    """Judge a finding against the profile's limit; the one place where a clause passes or fails.

    Raises:
        OutOfSpec: the finding lies outside the limit.
    """
    driving, item = request.config.stash[DRIVING], request.node

    def judge_now(found: Found) -> None:
        __tracebackhide__ = True
        driving.judging.require(item, part, found)

    return judge_now
