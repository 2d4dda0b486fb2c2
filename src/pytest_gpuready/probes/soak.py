"""A soak (`--gpuready-burn 4h`): tests of DCGM that run longer than their default, so that heat and time have a say."""

from __future__ import annotations

import re

from pytest_gpuready.errors import InventoryError
from pytest_gpuready.model import Inventory
from pytest_gpuready.probes.dcgm_tests import SOAKED, TESTS

LEVEL = 4
_TIME = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")
SHORTEST_S = len(SOAKED) * max(test.duration_s for test in TESTS)
LONGEST_S = 14 * 24 * 3600.0


def seconds(text: str) -> float:
    """ "4h", "90m", "1h30m" or "7200s" -> seconds; 0 for "".

    Raises:
        InventoryError: it is no time, shorter than the tests take anyway, or longer than two weeks.
    """
    if not text:
        return 0.0
    match = _TIME.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise InventoryError(f"--gpuready-burn: expected a time such as 4h or 90m, found {text[:40]!r}; correct it")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    total = 3600.0 * hours + 60.0 * minutes + rest
    if not SHORTEST_S <= total <= LONGEST_S:
        raise InventoryError(
            f"--gpuready-burn: expected from {SHORTEST_S / 60:.0f}m (what the tests take anyway) to "
            f"{LONGEST_S / 3600:.0f}h, found {text[:40]}; correct it"
        )
    return total


def refused(text: str, inventory: Inventory, level: int) -> str:
    """Why this run cannot hold a soak; "" where it can."""
    if level < LEVEL:
        return f"--gpuready-burn {text}: expected level {LEVEL}, found level {level}; run -m level{LEVEL}"
    for node in inventory.nodes:
        if node.dcgm_none:
            return f"--gpuready-burn {text}: expected DCGM on {node.name}, found: {node.dcgm_none}; leave it out"
    return ""


def told(text: str) -> str:
    """What the certificate says about the soak."""
    each = seconds(text) / len(SOAKED)
    return f"soak of {text}: {', '.join(SOAKED)} of DCGM run {each:.0f} s each"
