"""Floors of DCGM's SKU file are read as they stand, and a damaged entry is one line, never a floor."""

import pytest

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgm_skus import floors, lowest

H200 = """  - name: H200
    id: '2335'
    targeted_power:
      is_allowed: true
      target_power: 700.00
    pcie:
      is_allowed: true
      h2d_d2h_single_pinned:
        min_pci_generation: 3.0
        min_pci_width: 16.0
    memory_bandwidth:
      is_allowed: true
      # a remark
      minimum_bandwidth: 2333
"""


def test_an_entry_reads_as_parameters():
    """Tests, sub-tests and values come out under the names that -p takes."""
    assert floors([H200]) == {
        "memory_bandwidth.is_allowed": "true",
        "memory_bandwidth.minimum_bandwidth": "2333",
        "pcie.h2d_d2h_single_pinned.min_pci_generation": "3",
        "pcie.h2d_d2h_single_pinned.min_pci_width": "16",
        "pcie.is_allowed": "true",
        "targeted_power.is_allowed": "true",
        "targeted_power.target_power": "700",
    }


def test_variants_of_a_model_stand_side_by_side():
    """Two entries of one device id give both values, and the lowest is what a floor may be."""
    other = H200.replace("2335", "233520da").replace("2333", "2000.5")
    value = floors([H200, other])["memory_bandwidth.minimum_bandwidth"]
    assert value == "2333 or 2000.5"
    assert lowest(value) == 2000.5
    assert lowest("true") is None


@pytest.mark.parametrize(
    "entry", ["", "- name: [", "id: 3", "- 4", "- name: H200\n", "- !!python/object:os.x {}", "\x00"]
)
def test_damage_is_one_line(entry):
    """What is no entry is an error that names the file, never an empty set of floors."""
    with pytest.raises(ParseError, match=r"diag-skus\.yaml: expected") as caught:
        floors([entry])
    assert "\n" not in str(caught.value)
