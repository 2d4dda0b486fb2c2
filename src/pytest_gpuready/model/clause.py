"""What is promised: a clause names a metric, the parts it holds for, its limit and where that comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_gpuready.model.measurement import Value
from pytest_gpuready.model.peer_limit import PeerLimit
from pytest_gpuready.model.source import Source

if TYPE_CHECKING:
    from pytest_gpuready.model.baseline import Baseline

LEVELS = (1, 2, 3, 4)
NEEDS = ("nvlink", "nvswitch", "fp8", "fp4", "peers", "dcgm", "dcgm4", "nccl_tests", "rist", "nvidia_cpu")
PER = ("node", "gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit that is applied, as it is printed: no hidden tolerance.

    Exactly one of `at_least`, `at_most`, `equals`, `uniform` is set. `marginal` is the stricter inner limit of a
    bound. `uniform` asks that the value be the same on all peers of the node. `ceiling` is what physics allows.
    """

    source: Source
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    equals: Value | None = None
    uniform: bool = False
    marginal: float | None = None
    ceiling: float | None = None
    ceiling_reason: str = ""
    """Why a limit under 10 % or above 100 % of the ceiling is meant; without it such a limit does not load."""

    def __post_init__(self) -> None:
        kinds = [self.at_least is not None, self.at_most is not None, self.equals is not None, self.uniform]
        if sum(kinds) != 1:
            raise ValueError("limit: expected exactly one of at_least, at_most, equals, uniform")
        if self.marginal is not None:
            if self.at_least is not None and self.marginal <= self.at_least:
                raise ValueError(f"limit: marginal {self.marginal:g} must lie above at_least {self.at_least:g}")
            if self.at_most is not None and self.marginal >= self.at_most:
                raise ValueError(f"limit: marginal {self.marginal:g} must lie below at_most {self.at_most:g}")
            if self.bound is None:
                raise ValueError("limit: marginal belongs to at_least or at_most")
        if self.ceiling is not None:
            if self.ceiling <= 0:
                raise ValueError(f"limit: expected a ceiling above 0, found {self.ceiling:g}")
            bound = self.bound
            if bound is not None and not self.ceiling_reason and not 0.1 * self.ceiling <= bound <= self.ceiling:
                raise ValueError(
                    f"limit: {bound:g} is not within 10 to 100 % of the physical ceiling {self.ceiling:g}; "
                    "correct it or say why in ceiling_reason"
                )

    @property
    def bound(self) -> float | None:
        return self.at_least if self.at_least is not None else self.at_most

    def __str__(self) -> str:
        """ASCII, with sign and unit: ">= 53.5 GB/s", "18", "the same on all peers"."""
        unit = f" {self.unit}" if self.unit else ""
        if self.at_least is not None:
            return f">= {self.at_least:g}{unit}"
        if self.at_most is not None:
            return f"0{unit}" if self.at_most == 0 else f"<= {self.at_most:g}{unit}"
        if self.uniform:
            return "the same on all GPUs of the node"
        return f"{self.equals:g}{unit}" if isinstance(self.equals, (int, float)) else f"{self.equals}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One promise. `limit` None means: recorded only (OBSERVED). `peers` is what is promised beside it, against others.

    `needs` names what the node must have for the clause to apply ("nvlink", "nvswitch", "peers", "dcgm", ..).
    `after` are metrics whose own clauses must hold on the node before this one is measured: nobody spends hours on a
    tool that is known not to work.
    `context` are metrics shown beside it when it fails, `action` is what to do then; it may hold the placeholders
    {node}, {gpu}, {module}, {bdf}, {upstream}.
    """

    id: str
    suite: str
    level: int
    metric: str
    per: str
    gate: bool = False
    required: bool = True
    hidden_in_vm: bool = False
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    retest: bool = False
    not_applicable: str = ""
    headline: str = ""
    """A short name; clauses that have one stand on page one of the certificate."""
    action: str = ""
    context: tuple[str, ...] = ()
    unit: str = ""
    limit: Limit | None = None
    peers: PeerLimit | None = None
    excluded: str = ""
    """Why the site file takes this clause out; shown on page one."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"{self.id}.level: expected 1 to 4, found {self.level}")
        if self.per not in PER:
            raise ValueError(f"{self.id}.per: expected one of {', '.join(PER)}, found {self.per!r}")
        for need in self.needs:
            if need not in NEEDS:
                raise ValueError(f"{self.id}.needs: expected one of {', '.join(NEEDS)}, found {need!r}")
        if self.limit and self.limit.unit != self.unit:
            raise ValueError(f"{self.id}.limit.unit: expected {self.unit!r} like the clause, found {self.limit.unit!r}")
        if self.limit and self.limit.uniform and self.per != "gpu":
            raise ValueError(f"{self.id}.limit: uniform compares GPUs, so the clause must be per gpu")
        if self.peers and not self.retest:
            raise ValueError(f"{self.id}.peers: expected retest: true, peers condemn nothing without one")
        if self.peers and self.peers.unit != self.unit:
            raise ValueError(f"{self.id}.peers.unit: expected {self.unit!r} like the clause, found {self.peers.unit!r}")
        if self.peers and self.per == "node" and (narrow := {"node", "rail"} & set(self.peers.among)):
            raise ValueError(f"{self.id}.peers.among: a clause per node has no peers {' and '.join(sorted(narrow))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter that a diagnostic tool is given, "memory_bandwidth.minimum_bandwidth": stricter than its own.

    `value` is a number or a word as the tool takes it. `ceiling` is what physics allows, in the unit of the value:
    a floor of the tool below a tenth of it proves nothing.
    """

    name: str
    value: Value
    source: Source
    unit: str = ""
    ceiling: float | None = None

    @property
    def test(self) -> str:
        """The test that takes it."""
        return self.name.partition(".")[0]

    @property
    def word(self) -> str:
        """As it stands on a command line: "memory_bandwidth.minimum_bandwidth=2700000"."""
        value = f"{self.value:.12g}" if isinstance(self.value, (int, float)) else self.value
        return f"{self.name}={value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A set of clauses for hardware known by its PCI ids ("10de:2335"). An empty one cannot exist.

    `dcgm` are parameters given to `dcgmi diag` beyond those that follow from the limits of the clauses. `collectives`
    are what healthy hardware reaches in collectives, each under its own conditions.
    """

    name: str
    version: str
    title: str
    pci_ids: tuple[str, ...]
    clauses: tuple[Clause, ...]
    nvlink: bool
    nvswitch: bool
    sha256: str
    fp8: bool = False
    fp4: bool = False
    """Whether the model multiplies FP8, and FP4 and MXFP8, in its tensor cores."""
    notes: tuple[str, ...] = field(default=())
    dcgm: tuple[Parameter, ...] = ()
    collectives: tuple[Baseline, ...] = ()

    def __post_init__(self) -> None:
        if not self.clauses:
            raise ValueError(f"profile {self.name}: expected at least one clause, found none")
        seen: set[str] = set()
        for clause in self.clauses:
            if clause.id in seen:
                raise ValueError(f"profile {self.name}: clause {clause.id} stands twice")
            seen.add(clause.id)

    def clause(self, clause_id: str) -> Clause | None:
        return next((c for c in self.clauses if c.id == clause_id), None)

    def of_metric(self, metric: str) -> tuple[Clause, ...]:
        """All clauses about a metric."""
        return tuple(c for c in self.clauses if c.metric == metric)

    def up_to(self, level: int) -> tuple[Clause, ...]:
        """Clauses of this level and below, in profile order: levels are cumulative."""
        return tuple(c for c in self.clauses if c.level <= level)
