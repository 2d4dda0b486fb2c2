"""PCIe arithmetic: what a link can carry, and which hop between a GPU and its root port carries least."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.model.agent_doc import PciBridge

SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""PCIe generation -> GT/s per lane."""


def payload_share(speed_gt_per_s: float) -> float:
    """Bits of data per bit on the wire: 8b/10b to 5 GT/s, 128b/130b to 32, FLITs of 242 in 256 bytes at 64."""
    if speed_gt_per_s <= 5.0:
        return 0.8
    return 128 / 130 if speed_gt_per_s <= 32.0 else 242 / 256


def gb_per_s(speed_gt_per_s: float, width: int) -> float:
    """What a link carries in one direction at most, 10^9 bytes per second."""
    return speed_gt_per_s * width / 8 * payload_share(speed_gt_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One link of the path: the port that names it, its speed and lanes."""

    name: str
    speed_gt_per_s: float
    width: int

    @property
    def gb_per_s(self) -> float:
        return gb_per_s(self.speed_gt_per_s, self.width)

    def __str__(self) -> str:
        return f"{self.name} {self.speed_gt_per_s:g} GT/s x{self.width}"


def hops(generation: int, width: int, path: list[PciBridge]) -> list[Hop] | str:
    """Links from the GPU up, the GPU's own first; a line about the first link that cannot be read."""
    if generation not in SPEEDS:
        return f"expected PCIe generation 1 to {max(SPEEDS)} under load, found {generation}"
    found = [Hop(name="GPU", speed_gt_per_s=SPEEDS[generation], width=width)]
    for bridge in path:
        speed, lanes = bridge.link.speed_gt_per_s, bridge.link.width
        if not speed or not lanes:
            return f"expected speed and width of the link at {bridge.bdf} in sysfs, found none; read `lspci -vv` there"
        found.append(Hop(name=bridge.bdf, speed_gt_per_s=speed, width=lanes))
    return found
