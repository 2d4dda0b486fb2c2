"""The time of a soak is read strictly, shared, and refused where it could not be kept."""

import pytest

from pytest_gpuready.errors import InventoryError
from pytest_gpuready.model import Inventory
from pytest_gpuready.probes.soak import refused, seconds, told
from tests.dcgm_runs import dcgm_node


@pytest.mark.parametrize(("text", "total"), [("4h", 14400), ("90m", 5400), ("1h30m", 5400), ("7200s", 7200), ("", 0)])
def test_times(text, total):
    """Hours, minutes and seconds add up; nothing asked is nothing."""
    assert seconds(text) == total


@pytest.mark.parametrize("text", ["4", "h", "-4h", "4d", "4h 30", "29m", "0h", "337h", "4h\n4h", "1e3s"])
def test_what_is_no_soak_is_one_line(text):
    """No unit, no number, less than the tests take anyway and more than two weeks are errors that name the option."""
    with pytest.raises(InventoryError, match="--gpuready-burn: expected") as caught:
        seconds(text)
    assert "\n" not in str(caught.value)


def test_a_soak_belongs_to_level_4_and_to_dcgm():
    """Below level 4, or where DCGM is not asked, it is refused rather than left out in silence."""
    node = dcgm_node(1)
    inventory = Inventory(nodes=(node,))
    assert refused("4h", inventory, 4) == ""
    assert "expected level 4, found level 2" in refused("4h", inventory, 2)
    builtin = dcgm_node(1, dcgm_none="no dcgmi on the PATH of the node: the built-in engine is used")
    assert "expected DCGM on node01" in refused("4h", Inventory(nodes=(builtin,)), 4)


def test_the_certificate_says_what_ran_longer():
    """One line names the time asked for and what each test got of it."""
    assert told("4h") == "soak of 4h: diagnostic, targeted_power, memtest of DCGM run 4800 s each"
