"""What the hardware can carry at most, computed from what is there, and which part of it is the narrow one.

GB/s of 10^9 bytes in one direction. Inside a node: NVLinks of a GPU times the rate of one. Across nodes, for a node:
its rails times the rate of the *slowest* (data is dealt out evenly, so that it sets the pace), or what the GPUs' PCIe
links give those rails where that is less. A measurement that needs more is a broken measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_gpuready.judge.wire import Shape, Wire, across, busbw_at, inside

PCIE_GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
PCIE_CODING = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}
"""PCI Express Base Specification: 8b/10b, 128b/130b, and 242 of the 256 bytes of a flit."""
PCIE_PAYLOAD = 256
"""Bytes of a write that GPUs take at once (MaxPayload in their PCIe capability)."""
PCIE_HEADER = {True: 24, False: 16}
"""Bytes beside them: a header of 16 for 64-bit addresses and, before flits (True), 4 of framing and 4 of LCRC."""
NVLINK_GB_PER_S = (20.0, 25.0, 50.0, 100.0)
"""Rates of a link, one direction, as they are sold. NVML prints them, or the raw rate, which is 3 to 7 % higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a node has. 0 and () where nobody could say. `rails` are the rates of its network ports in Gbit/s."""

    nvlinks: int = 0
    nvlink_mb_per_s: float = 0.0
    """Rate of a GPU's slowest link, one direction, as NVML prints it."""
    rails: tuple[float, ...] = ()
    pcie_generation: int = 0
    pcie_width: int = 0
    """Of the GPU with the narrowest link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maximum:
    """`gb_per_s` of a GPU over NVLink, or of a node over `rails` of its ports. `narrow` is which part, `says` why."""

    gb_per_s: float
    narrow: str
    says: str
    rails: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """No busbw of this shape is above `busbw_gb_per_s` on this hardware; `says` which part sets it."""

    busbw_gb_per_s: float
    narrow: str
    says: str


def sold_rate(nvlink_mb_per_s: float) -> float:
    """GB/s of a link as it is sold: 26562 and 25781 MB/s are the raw rate of a link of 25 GB/s."""
    rate = nvlink_mb_per_s / 1e3
    return next((sold for sold in NVLINK_GB_PER_S if sold <= rate <= 1.07 * sold), max(rate, 0.0))


def pcie_gb_per_s(generation: int, width: int) -> float:
    """GB/s of payload that a PCIe link carries in one direction at most; 0 where it is not known.

    Gen5 x16 is 63 GB/s of bits and 57.6 of payload in pieces of 256 bytes; healthy copies read 55.
    """
    rate = PCIE_GT_PER_S.get(generation, 0.0) * max(width, 0) / 8 * PCIE_CODING.get(generation, 0.0)
    return rate * PCIE_PAYLOAD / (PCIE_PAYLOAD + PCIE_HEADER[generation < 6])


def of_gpu(hardware: Hardware) -> Maximum | None:
    """What a GPU carries over its NVLinks; None where it has none or nobody could say."""
    rate = sold_rate(hardware.nvlink_mb_per_s)
    if hardware.nvlinks < 1 or not 0 < rate < math.inf:
        return None
    says = f"{hardware.nvlinks} NVLinks x {rate:g} GB/s"
    return Maximum(gb_per_s=hardware.nvlinks * rate, narrow="NVLink", says=says)


def rails_used(shape: Shape, rails: int) -> tuple[int, int]:
    """How many of a node's rails the data goes over, at least and at most.

    Of sendrecv one GPU of a node sends to the network. Fewer GPUs than rails need not reach all rails: a GPU goes to
    the ports that are nearest (NVIDIA/nccl-tests issue 232: one GPU, four ports, one used).
    """
    senders = 1 if shape.collective == "sendrecv" else shape.gpus
    near = max(1, math.ceil(rails / shape.gpus)) if shape.collective == "sendrecv" else rails
    return min(senders, rails), near


def of_node(shape: Shape, hardware: Hardware, rails: int = 0) -> Maximum | None:
    """What a node sends to the others over so many of its rails (0: all that it can use); None where it has none."""
    used = min(rails or rails_used(shape, len(hardware.rails))[1], len(hardware.rails))
    rate = min(hardware.rails, default=0.0) / 8
    if not used or not 0 < rate < math.inf:
        return None
    senders = 1 if shape.collective == "sendrecv" else shape.gpus
    pcie = pcie_gb_per_s(hardware.pcie_generation, hardware.pcie_width) * senders / used
    mixed = "" if len(set(hardware.rails)) == 1 else ", the slowest of them"
    says = f"{used} rail{'s' * (used > 1)} x {rate:g} GB/s{mixed}"
    if 0 < pcie < rate:
        link = f"PCIe Gen{hardware.pcie_generation} x{hardware.pcie_width} of the GPU"
        says = f"{link} gives a rail {pcie:.3g} of its {rate:g} GB/s, {used} rail{'s' * (used > 1)}"
        return Maximum(gb_per_s=used * pcie, narrow="PCIe", says=says, rails=used)
    return Maximum(gb_per_s=used * rate, narrow="rails", says=says, rails=used)


def ceiling(shape: Shape, hardware: Hardware) -> Ceiling | None:
    """The busbw above which a measurement is broken: even the least that it can put on a wire is more than that has.

    None where the hardware is not known, or the algorithm puts nobody knows how little there.
    """
    found = []
    for maximum, ways in ((of_gpu(hardware), inside(shape)), (of_node(shape, hardware), across(shape))):
        most = busbw_at(shape, ways, maximum.gb_per_s).most if maximum else math.inf
        if maximum and most < math.inf:
            where = "of a node" if maximum.rails else "of a GPU"
            says = f"{maximum.gb_per_s:.4g} GB/s {where} ({maximum.says}) are a busbw of at most {most:.4g}"
            found.append(Ceiling(busbw_gb_per_s=most, narrow=maximum.narrow, says=says))
    return min(found, key=lambda one: one.busbw_gb_per_s, default=None)


def shares(shape: Shape, wire: Wire, hardware: Hardware) -> tuple[Wire, Maximum] | None:
    """Between which shares of the maximum a wire is used, and that maximum; None where it is not known.

    Inside a node `wire` is a GPU's, across nodes a node's. Where fewer rails may have carried it, the share of those is
    the most.
    """
    if shape.nodes == 1:
        maximum = of_gpu(hardware)
        return (wire.times(1 / maximum.gb_per_s), maximum) if maximum else None
    few, many = rails_used(shape, len(hardware.rails))
    least, most = of_node(shape, hardware, few), of_node(shape, hardware, many)
    if not least or not most:
        return None
    return Wire(wire.least / most.gb_per_s, wire.most / least.gb_per_s), most
