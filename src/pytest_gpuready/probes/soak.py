"""A soak (`--gpuready-burn 4h`): load that runs longer than it would, so that heat and time have a say.

The built-in burn-in takes the whole time; where DCGM is asked too, it and three tests of DCGM take a quarter each.
"""

from __future__ import annotations

import re

from pytest_gpuready.errors import InventoryError
from pytest_gpuready.model import Inventory, Node
from pytest_gpuready.probes.dcgm_tests import SHARES, SOAKED, TESTS
from pytest_gpuready.probes.stress_pieces import BURN_S

LEVEL = 4
_TIME = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")
WITH_DCGM_S = SHARES * max(test.duration_s for test in TESTS)
"""Less than that DCGM's tests take anyway."""
LONGEST_S = 14 * 24 * 3600.0


def seconds(text: str) -> float:
    """ "4h", "90m", "1h30m" or "7200s" -> seconds; 0 for "".

    Raises:
        InventoryError: it is no time, shorter than the burn-in of level 4, or longer than two weeks.
    """
    if not text:
        return 0.0
    match = _TIME.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise InventoryError(f"--gpuready-burn: expected a time such as 4h or 90m, found {text[:40]!r}; correct it")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    total = 3600.0 * hours + 60.0 * minutes + rest
    if not BURN_S <= total <= LONGEST_S:
        raise InventoryError(
            f"--gpuready-burn: expected from {BURN_S / 60:.0f}m to {LONGEST_S / 3600:.0f}h, "
            f"found {text[:40]}; correct it"
        )
    return total


def refused(text: str, inventory: Inventory, level: int) -> str:
    """Why this run cannot hold a soak; "" where it can."""
    if level < LEVEL:
        return f"--gpuready-burn {text}: expected level {LEVEL}, found level {level}; run -m level{LEVEL}"
    with_dcgm = next((node.name for node in inventory.nodes if not node.dcgm_none), "")
    if with_dcgm and seconds(text) < WITH_DCGM_S:
        least = f"at least {WITH_DCGM_S / 60:.0f}m, shared with DCGM's tests on {with_dcgm}"
        return f"--gpuready-burn {text}: expected {least}, found less; say a longer time"
    return ""


def share_s(burn_s: float, node: Node) -> float:
    """What of a soak the built-in burn-in of this node gets, in seconds; 0 for no soak."""
    return burn_s if node.dcgm_none else round(burn_s / SHARES)


def told(text: str, inventory: Inventory) -> str:
    """What the certificate says about the soak."""
    if all(node.dcgm_none for node in inventory.nodes):
        return f"soak of {text}: the burn-in runs {seconds(text):.0f} s"
    each = seconds(text) / SHARES
    return f"soak of {text}: the burn-in and DCGM's {', '.join(SOAKED)} run {each:.0f} s each"
