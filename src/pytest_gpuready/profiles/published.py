# ruff: noqa: E501 - one figure a line
"""busbw of all_reduce on healthy hardware, as others have published it: figures to compare with, and no limits.

Where no size or algorithm is told, or who tells it cannot be found again, there is no limit from it in a profile.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Healthy busbw in GB/s, `low` to `high`, of all_reduce on `nodes` nodes of a model. `fabric` is "" for 400G rails of
    InfiniBand, one for each GPU."""

    model: str
    nodes: int
    algorithm: str
    low: float
    high: float
    cite: str
    gpus: int = 8
    fabric: str = ""


PUBLISHED: tuple[Published, ...] = (
    Published(model="a100-80-sxm", nodes=1, algorithm="Ring", low=228, high=235, cite="azurehpc-health-checks, ml-engineering"),
    Published(model="h100-sxm", nodes=1, algorithm="Ring", low=365, high=370, cite="nccl issue 1455, nccl-tests issues 212 and 309"),
    Published(model="h100-sxm", nodes=1, algorithm="NVLS", low=475, high=480, cite="nccl-tests issue 290, AI-benchmarking-guide"),
    Published(model="h100-sxm", nodes=2, algorithm="Ring", low=369, high=369, cite="nccl-tests issue 309"),
    Published(model="h100-sxm", nodes=2, algorithm="NVLSTree", low=467, high=484, cite="nccl-tests issue 309 and others; default algorithm"),
    Published(model="h100-sxm", nodes=4, algorithm="Ring", low=366, high=366, cite="nccl-tests issue 309"),
    Published(model="h200-sxm", nodes=1, algorithm="Ring", low=341, high=350, cite="measured here", gpus=2),
    Published(model="h200-sxm", nodes=1, algorithm="Ring", low=363, high=368, cite="ml-engineering"),
    Published(model="h200-sxm", nodes=1, algorithm="NVLS", low=473, high=482, cite="ml-engineering"),
    Published(model="h200-sxm", nodes=4, algorithm="Ring", low=365, high=365, cite="ml-engineering", fabric="EFA"),
    Published(model="h200-sxm", nodes=4, algorithm="NVLSTree", low=310, high=310, cite="ml-engineering", fabric="EFA"),
    Published(model="b200", nodes=1, algorithm="Ring", low=682, high=682, cite="ml-engineering"),
    Published(model="b200", nodes=1, algorithm="NVLS", low=838, high=845, cite="ml-engineering"),
    Published(model="b200", nodes=4, algorithm="", low=376, high=382, cite="ml-engineering", fabric="EFA"),
    Published(model="gb200", nodes=1, algorithm="NVLS", low=835, high=850, cite="coreweave/nccl-tests", gpus=72),
)  # fmt: skip
