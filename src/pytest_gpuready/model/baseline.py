"""What healthy hardware reaches in one collective under conditions that are all stated: the limit holds there alone."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpuready.model.clause import Limit

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The least busbw, in GB/s, of a collective at one size. `limit.ceiling` is what the wire allows.

    `nvls` is "on" or "off" where NVLS was allowed or not, "" where that makes no difference. Across nodes `rails` of
    `rail_gbit_per_s` are those of each node; inside one they are 0.
    """

    name: str
    collective: str
    ranks: int
    nodes: int
    algorithm: str
    size_bytes: int
    limit: Limit
    nvls: str = ""
    rails: int = 0
    rail_gbit_per_s: float = 0.0

    @property
    def conditions(self) -> str:
        """ "all_reduce, 8 ranks, 1 node, NVLS, 8 GiB"."""
        said = [self.collective, f"{self.ranks} ranks", f"{self.nodes} node{'s' * (self.nodes > 1)}"]
        said += [self.algorithm] if self.algorithm else []
        said += [f"NVLS {self.nvls}"] if self.nvls else []
        said += [size_text(self.size_bytes)]
        said += [f"{self.rails} rails of {self.rail_gbit_per_s:g} Gbit/s"] if self.rails else []
        return ", ".join(said)


def size_text(size_bytes: int) -> str:
    """In the largest unit that divides it: "8 GiB", "65 KiB", "1000 B"."""
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size_bytes % SIZES[unit] == 0)
    return f"{size_bytes // SIZES[unit]} {unit}"


def size_of(text: str) -> int:
    """Bytes of "8GiB" or "64 KiB". Raises ValueError where it is none."""
    number = text.rstrip("BKMGi").strip()
    unit = text[len(number) :].strip() if text.startswith(number) else ""
    if not (number.isascii() and number.isdigit()) or unit not in SIZES or not int(number[:12]):
        raise ValueError(f"expected a size like 8GiB, found {text!r}")
    return int(number[:12]) * SIZES[unit]
