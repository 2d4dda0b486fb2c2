"""What hardware carries at most, and which part of it is the narrow one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.judge.maximum import (
    Hardware,
    ceiling,
    of_gpu,
    of_node,
    pcie_gb_per_s,
    rails_used,
    sold_rate,
)
from pytest_gpuready.judge.wire import Shape, node_wire, nvlink_wire
from pytest_gpuready.model.busbw import ALGORITHMS

HOPPER = Hardware(nvlinks=18, nvlink_mb_per_s=26562, rails=(400.0,) * 8, pcie_generation=5, pcie_width=16)


def shape(algorithm: str = "Ring", nodes: int = 2, gpus: int = 8, collective: str = "all_reduce") -> Shape:
    return Shape(collective=collective, ranks=nodes * gpus, nodes=nodes, algorithm=algorithm)


@pytest.mark.parametrize(
    ("printed", "sold"), [(26562, 25), (25781, 25), (25000, 25), (53125, 50), (50000, 50), (20000, 20), (12345, 12.345)]
)
def test_raw_and_sold_rates_of_a_link_are_one(printed: float, sold: float) -> None:
    """NVML prints the raw rate or the sold one; what nobody sells is taken as it is."""
    assert sold_rate(printed) == pytest.approx(sold)


@pytest.mark.parametrize(("links", "rate", "is_"), [(12, 25781, 300), (18, 26562, 450), (18, 53125, 900)])
def test_nvlink_of_a_gpu(links: int, rate: float, is_: float) -> None:
    """A100 300, Hopper 450, Blackwell 900 GB/s, as the datasheets say."""
    maximum = of_gpu(Hardware(nvlinks=links, nvlink_mb_per_s=rate))
    assert maximum
    assert maximum.gb_per_s == pytest.approx(is_)


def test_unknown_hardware_has_no_maximum() -> None:
    """Without links or rails there is no maximum, and no measurement is called broken."""
    assert of_gpu(Hardware()) is None
    assert of_node(shape(), Hardware()) is None
    assert ceiling(shape(), Hardware()) is None


def test_the_slowest_rail_counts() -> None:
    """Seven rails of 400 and one of 200 are eight of 200, and it says so."""
    maximum = of_node(shape(), Hardware(rails=(400.0,) * 7 + (200.0,)))
    assert maximum
    assert maximum.gb_per_s == 200
    assert maximum.says == "8 rails x 25 GB/s, the slowest of them"


def test_pcie_is_named_where_it_is_the_narrow_part() -> None:
    """A GPU at Gen5 x8 gives a 400G rail 28.8 of its 50 GB/s; at x16 the rail is the narrow one."""
    narrow = of_node(shape(), Hardware(rails=(400.0,) * 8, pcie_generation=5, pcie_width=8))
    wide = of_node(shape(), HOPPER)
    assert narrow
    assert wide
    assert (narrow.narrow, round(narrow.gb_per_s)) == ("PCIe", 230)
    assert "PCIe Gen5 x8 of the GPU gives a rail 28.8 of its 50 GB/s" in narrow.says
    assert (wide.narrow, wide.gb_per_s) == ("rails", 400)


@pytest.mark.parametrize(
    ("generation", "width", "bits", "measured"),
    [(3, 16, 15.75, 0), (4, 16, 31.5, 26.3), (5, 16, 63.0, 55.4), (6, 16, 121.0, 0), (9, 16, 0.0, 0), (5, 0, 0.0, 0)],
)
def test_payload_of_pcie_lies_between_bits_and_what_was_measured(
    generation: int, width: int, bits: float, measured: float
) -> None:
    """No link carries more payload than bits, and none less than a healthy copy reached."""
    assert measured <= pcie_gb_per_s(generation, width) <= bits


def test_sendrecv_goes_over_one_rail() -> None:
    """One GPU of a node sends to the next node, so that one rail is all that it can use."""
    one = shape(collective="sendrecv")
    assert rails_used(one, 8) == (1, 1)
    maximum = of_node(one, HOPPER)
    assert maximum
    assert maximum.gb_per_s == 50


def test_the_one_gpu_of_sendrecv_has_one_pcie_link() -> None:
    """What one GPU sends over one rail is held by its own PCIe link, not by those of all eight."""
    maximum = of_node(shape(collective="sendrecv"), Hardware(rails=(400.0,) * 8, pcie_generation=5, pcie_width=8))
    assert maximum
    assert (maximum.narrow, round(maximum.gb_per_s, 1)) == ("PCIe", 28.8)


def test_one_gpu_with_four_ports_may_use_one() -> None:
    """How many of its ports a GPU uses is not known: one at least."""
    assert rails_used(shape(gpus=1), 4) == (1, 4)


def test_the_ceiling_names_its_part() -> None:
    """On two Hopper nodes a ring is held by the rails, a tree by NVLink."""
    ring, tree = ceiling(shape("Ring"), HOPPER), ceiling(shape("Tree"), HOPPER)
    assert ring
    assert tree
    assert (ring.narrow, ring.busbw_gb_per_s) == ("rails", pytest.approx(400))
    assert (tree.narrow, round(tree.busbw_gb_per_s)) == ("NVLink", 482)


@given(st.sampled_from(("", *ALGORITHMS)), st.integers(1, 64), st.integers(1, 16), st.floats(1, 2000))
def test_a_busbw_above_the_ceiling_does_not_fit_the_wire(algorithm: str, nodes: int, gpus: int, busbw: float) -> None:
    """Above the ceiling even the least wire is more than NVLink or rails have; below it, it fits both."""
    one = shape(algorithm, nodes, gpus)
    most = ceiling(one, HOPPER)
    if most is None:
        return
    node = of_node(one, HOPPER)
    assert node
    fits = nvlink_wire(one, busbw).least <= 450 * (1 + 1e-9) and node_wire(one, busbw).least <= node.gb_per_s * (
        1 + 1e-9
    )
    if abs(busbw - most.busbw_gb_per_s) > 1e-6 * busbw:
        assert fits is (busbw < most.busbw_gb_per_s)
