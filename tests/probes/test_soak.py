"""The time of a soak is read strictly, shared, and refused where it could not be kept."""

import pytest

from pytest_gpuready.errors import InventoryError
from pytest_gpuready.model import Inventory
from pytest_gpuready.probes.soak import refused, seconds, share_s, told
from tests.dcgm_runs import dcgm_node


@pytest.mark.parametrize(("text", "total"), [("4h", 14400), ("90m", 5400), ("1h30m", 5400), ("7200s", 7200), ("", 0)])
def test_times(text, total):
    """Hours, minutes and seconds add up; nothing asked is nothing."""
    assert seconds(text) == total


@pytest.mark.parametrize("text", ["4", "h", "-4h", "4d", "4h 30", "59s", "0h", "337h", "4h\n4h", "1e3s"])
def test_what_is_no_soak_is_one_line(text):
    """No unit, no number, less than a burn-in can be and more than two weeks are errors that name the option."""
    with pytest.raises(InventoryError, match="--gpuready-burn: expected") as caught:
        seconds(text)
    assert "\n" not in str(caught.value)


BUILTIN = dcgm_node(1, dcgm_none="no dcgmi on the PATH of the node: the built-in engine is used")


def test_a_soak_belongs_to_level_4():
    """Below level 4 it is refused rather than left out in silence; beside DCGM it must hold what DCGM takes anyway."""
    inventory = Inventory(nodes=(dcgm_node(1),))
    assert refused("4h", inventory, 4) == ""
    assert "expected level 4, found level 2" in refused("4h", inventory, 2)
    assert "expected at least 40m, shared with DCGM's tests on node01" in refused("39m", inventory, 4)
    assert refused("39m", Inventory(nodes=(BUILTIN,)), 4) == ""


def test_the_burn_in_takes_all_of_it_or_a_quarter():
    """Without DCGM the soak is the burn-in's; with it, three tests of DCGM get as much each."""
    assert share_s(14400, BUILTIN) == 14400
    assert share_s(14400, dcgm_node(1)) == 3600
    assert share_s(0, BUILTIN) == share_s(0, dcgm_node(1)) == 0


def test_the_certificate_says_what_ran_longer():
    """One line names the time asked for and what each test got of it."""
    both = "soak of 4h: the burn-in and DCGM's diagnostic, targeted_power, memtest run 3600 s each"
    assert told("4h", Inventory(nodes=(dcgm_node(1),))) == both
    assert told("4h", Inventory(nodes=(BUILTIN,))) == "soak of 4h: the burn-in runs 14400 s"
