"""The tests of `dcgmi diag`: level, usual time, deadline, and what each is given beyond DCGM's own defaults.

Levels, default durations and parameter names: DCGM 4.6.0, nvvs sources; usual times: one H200 with that version, seen;
of the closed plug-ins (memory_bandwidth, pulse_test, eud) nobody here has seen a run. Deadlines are generous, for a
test that is cut off has measured nothing: memtest's own duration says little about how long it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_gpuready.model import Node, Parameter, Profile, Source
from pytest_gpuready.parse.dcgm_skus import lowest
from pytest_gpuready.profiles.dcgm_parameters import DERIVED, FLOORS

START_S = 12.0
"""What DCGM needs before a test begins, where it starts an engine of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmTest:
    """One test. `duration_s` is the default of its parameter test_duration, 0 where it has none."""

    name: str
    level: int
    typical_s: float
    timeout_s: float
    duration_s: float = 0.0
    per: str = "gpu"

    @property
    def metric(self) -> str:
        """The metric that it answers."""
        return f"dcgm.{self.name}"

    @property
    def words(self) -> str:
        """What `-r` takes: the software checks have no name of their own in 4.x, level 1 is what runs them."""
        return "1" if self.name == SOFTWARE else self.name


SOFTWARE = "software"
TESTS = (
    DcgmTest(name=SOFTWARE, level=1, typical_s=2, timeout_s=300),
    DcgmTest(name="memory", level=2, typical_s=3, timeout_s=600),
    DcgmTest(name="pcie", level=2, typical_s=15, timeout_s=1200),
    DcgmTest(name="diagnostic", level=3, typical_s=185, timeout_s=1500, duration_s=180),
    DcgmTest(name="memory_bandwidth", level=3, typical_s=30, timeout_s=1200),
    DcgmTest(name="targeted_stress", level=3, typical_s=35, timeout_s=1200, duration_s=30),
    DcgmTest(name="targeted_power", level=3, typical_s=125, timeout_s=1200, duration_s=120),
    DcgmTest(name="nvbandwidth", level=3, typical_s=25, timeout_s=1800),
    DcgmTest(name="eud", level=3, typical_s=900, timeout_s=5400),
    DcgmTest(name="nccl_tests", level=3, typical_s=60, timeout_s=1800, per="node"),
    DcgmTest(name="rist", level=3, typical_s=600, timeout_s=5400, per="node"),
    DcgmTest(name="cpu_eud", level=3, typical_s=900, timeout_s=5400, per="node"),
    DcgmTest(name="memtest", level=4, typical_s=700, timeout_s=14400, duration_s=600),
    DcgmTest(name="pulse_test", level=4, typical_s=600, timeout_s=14400),
)
CLOSED = ("memory_bandwidth", "pulse_test", "eud", "cpu_eud")
"""Tests whose plug-ins are closed and come in a package of their own."""
SOAKED = ("diagnostic", "targeted_power", "memtest")
"""Tests that share the time of a soak: arithmetic, power, memory."""
SHARES = len(SOAKED) + 1
"""The built-in burn-in takes the same."""
BURN = Source(kind="declared", cite="--gpuready-burn")
DEFAULT = Source(kind="rule", cite="the default of DCGM 4.6.0, or its SKU file")


def package_of(test: str) -> str:
    """The package that brings the plug-in of a test."""
    return f"datacenter-gpu-manager-4-{'proprietary' if test in CLOSED else 'cuda13 (or that of its CUDA)'}"


def given(test: DcgmTest, node: Node, profile: Profile, burn_s: float) -> tuple[Parameter, ...]:
    """What this test is given on this node: the profile's own parameters, what follows from its clauses, the soak."""
    chosen = {p.name: p for p in profile.dcgm if p.test == test.name}
    chosen |= {p.name: p for p in _derived(node, profile) if p.test == test.name}
    chosen = {name: p for name, p in chosen.items() if name not in (*FLOORS, *DERIVED) or _stricter(p, node)}
    if test.duration_s:
        # Said even where it is the default: what was asked for can be held against how long it took.
        name = f"{test.name}.test_duration"
        own = max(test.duration_s, lowest(floors(node).get(name, "")) or 0.0)
        if name not in chosen or float(chosen[name].value) < own:
            chosen[name] = Parameter(name=name, value=own, unit="s", source=DEFAULT)
        share = round(burn_s / SHARES)
        if test.name in SOAKED and share > float(chosen[name].value):
            chosen[name] = Parameter(name=name, value=share, unit="s", source=BURN)
    return tuple(chosen[name] for name in sorted(chosen))


def duration_s(test: DcgmTest, parameters: tuple[Parameter, ...]) -> float:
    """How long the test is asked to run; 0 where it cannot be asked."""
    return max((float(p.value) for p in parameters if p.name == f"{test.name}.test_duration"), default=0.0)


def floors(node: Node) -> dict[str, str]:
    """What DCGM's SKU file says of the GPU models of this node: parameter -> value."""
    models = node.dcgm.floors if node.dcgm else {}
    here = {slot.gpu.pci_id.partition(":")[2] for slot in node.slots if slot.gpu}
    return {name: value for device in sorted(here) for name, value in models.get(device, {}).items()}


def _stricter(parameter: Parameter, node: Node) -> bool:
    """Whether what the profile asks for lies above DCGM's own, which it would take the place of."""
    own = lowest(floors(node).get(parameter.name, ""))
    return own is None or float(parameter.value) > own


def _derived(node: Node, profile: Profile) -> Iterator[Parameter]:
    for name, metric in DERIVED.items():
        if metric == "nvlink.links.active" and not node.nvlink:
            continue
        for clause in profile.of_metric(metric):
            limit = clause.limit
            if limit is None or clause.excluded or clause.not_applicable:
                continue
            value = limit.at_least if limit.at_least is not None else limit.equals
            if metric == "pcie.h2d.bandwidth":
                # One floor serves both directions, so it is the lower of the two.
                floors = [c.limit.at_least for c in profile.of_metric("pcie.d2h.bandwidth") if c.limit]
                value = min([v for v in (value, *floors) if isinstance(v, (int, float))], default=None)
            if isinstance(value, (int, float)) and value > 0:
                yield Parameter(name=name, value=value, unit=limit.unit, source=limit.source)
