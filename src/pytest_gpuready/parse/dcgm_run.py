"""A `dcgmi diag` run as typed rows: what each test said of each entity, and everything that casts doubt on it.

Nothing is judged here. What DCGM writes and means are kept apart: a `Fail` of 4.x JSON may be a Warn (only the table
prints Warn); a Skip, a test that is absent, a result that is null and a GPU that is absent are four different things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum


class Status(Enum):
    """What DCGM says of one test on one entity. UNREADABLE: there was a word, or none, and it is none of these."""

    PASS = "Pass"  # noqa: S105 - a word that DCGM prints
    FAIL = "Fail"
    WARN = "Warn"
    SKIP = "Skip"
    NOT_RUN = "Not Run"
    UNREADABLE = "unreadable"


_WORDS = {status.value.lower(): status for status in Status if status is not Status.UNREADABLE}


def status_of(word: object) -> Status:
    """The status of a word; "Skip - All" is a Skip, any other addition makes it unreadable."""
    text = _ALL.sub("", word.strip().lower()) if isinstance(word, str) and len(word) < _LONGEST_WORD else ""
    return _WORDS.get(text, Status.UNREADABLE)


_ALL = re.compile(r"\s+-\s+all$")
_LONGEST_WORD = 80
_SUPPRESSED = re.compile(r"suppressed\s+errors?\b[ \t]*:?[ \t]*(.*?)(?=suppressed\s+errors?\b|$)", re.I | re.M)


def suppressed_in(text: str) -> tuple[str, ...]:
    """Errors that --ignoreErrorCodes turned into a note, wherever they stand in it, in any case."""
    return tuple(found[1].strip() for found in _SUPPRESSED.finditer(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagError:
    """An error beside a result. `id`, `category` and `severity` are DCGM's numbers, None where the format has none."""

    text: str
    id: int | None = None
    category: int | None = None
    severity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityResult:
    """One test on one entity. `entity` None: a result that names no entity; `number` None: all of this kind."""

    entity: str | None
    number: int | None
    status: Status
    errors: tuple[DiagError, ...] = ()
    info: tuple[str, ...] = ()

    @property
    def part(self) -> str:
        """ "GPU 3", "all GPUs", or "" for a result that names no entity."""
        if self.entity is None:
            return ""
        return f"all {self.entity}s" if self.number is None else f"{self.entity} {self.number}"

    @property
    def suppressed(self) -> tuple[str, ...]:
        """Errors that --ignoreErrorCodes turned into info; the status beside them reads Pass."""
        return tuple(error for text in self.info for error in suppressed_in(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """One test of one pass. `summary` None: the format has none; `errors` and `info` belong to no single entity.

    `nulls` counts results that are null: a GPU stood there and did not run.
    """

    __test__ = False  # pytest collects classes by this name

    name: str
    category: str
    results: tuple[EntityResult, ...]
    summary: Status | None = None
    errors: tuple[DiagError, ...] = ()
    info: tuple[str, ...] = ()
    nulls: int = 0

    @property
    def suppressed(self) -> tuple[str, ...]:
        """Suppressed errors of the summary that stand at no result."""
        told = {error for result in self.results for error in result.suppressed}
        return tuple(error for text in self.info for error in suppressed_in(text) if error not in told)

    @property
    def failed(self) -> bool:
        """Whether DCGM fails this test: its summary or any of its results says so."""
        bad = (Status.FAIL, Status.WARN)
        return self.summary in bad or any(result.status in bad for result in self.results)

    @property
    def software_check(self) -> bool:
        """Whether it is one of the software checks that 4.x calls "software": one result for all GPUs."""
        nameless = self.category == "Deployment" and all(result.entity is None for result in self.results)
        return is_software_check(self.name) or (nameless and self.key not in GPU_TESTS)

    @property
    def key(self) -> str:
        """The name that 4.x gives to this test, whatever version printed it."""
        return canonical(self.name)


_SOFTWARE_CHECKS = frozenset(
    (
        "blacklist",
        "denylist",
        "nvml_library",
        "cuda_main_library",
        "cuda_runtime_library",
        "cuda_toolkit_library",
        "permissions_and_os_blocks",
        "persistence_mode",
        "environment_variables",
        "page_retirement",
        "page_retirement/row_remap",
        "graphics_processes",
        "inforom",
    )
)

GPU_TESTS = frozenset(
    (
        "software",
        "memory",
        "pcie",
        "diagnostic",
        "memory_bandwidth",
        "targeted_stress",
        "targeted_power",
        "nvbandwidth",
        "eud",
        "memtest",
        "pulse_test",
        "sm_stress",
        "context_create",
    )
)
"""Tests that say nothing of a GPU that has no result of its own there."""

_OLD_NAMES = {
    "gpu_memory": "memory",
    "eud_test": "eud",
    "cpu_eud_test": "cpu_eud",
}


def is_software_check(name: str) -> bool:
    """Whether 3.x and before print this name for a software check."""
    return canonical(name) in _SOFTWARE_CHECKS


def canonical(name: str) -> str:
    """One name for a test over all versions: "GPU Memory" is memory, "Targeted Power" is targeted_power."""
    key = "_".join(name.lower().split())
    return _OLD_NAMES.get(key, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """What DCGM saw: kind, number (None in lists without numbers), PCI device id and serial ("" where not printed)."""

    kind: str
    number: int | None
    device_id: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagPass:
    """One pass over the tests. `entities` None: the output does not list what was seen, or not all of it."""

    tests: tuple[TestRun, ...]
    entities: tuple[Entity, ...] | None = None
    version: str = ""
    driver: str = ""

    def gpus(self) -> int | None:
        """How many GPUs DCGM saw, None where the output does not say."""
        return sum(entity.kind == "GPU" for entity in self.entities) if self.entities is not None else None

    def gpu_numbers(self) -> tuple[int, ...]:
        """Numbers of all GPUs that the pass is about: listed, or with a result of their own."""
        listed = [entity for entity in self.entities or () if entity.kind == "GPU"]
        numbers = {entity.number for entity in listed if entity.number is not None}
        tested = {r.number for t in self.tests for r in t.results if r.entity == "GPU" and r.number is not None}
        if listed and not numbers and tested <= set(range(len(listed))):
            numbers = set(range(len(listed)))
        return tuple(sorted(numbers | tested))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagRun:
    """All that a run printed. Empty texts and tuples mean that there was none of it. `iterated`: run by --iterations.

    `unreachable_host`: the host that was asked for and did not answer; every result then is of the machine where
    dcgmi ran. `copied`: passes that only repeat the one before (dcgmi does that when a pass ends without results);
    they are not among `passes`. `doubts`: why this is not all that was printed, one sentence each.
    """

    form: str
    passes: tuple[DiagPass, ...] = ()
    iterations_asked: int | None = None
    iterated: bool = False
    overall: str = ""
    runtime_errors: tuple[str, ...] = ()
    unreachable_host: str = ""
    copied: int = 0
    doubts: tuple[str, ...] = field(default=())
    exit_code: int | None = None

    @property
    def version(self) -> str:
        """DCGM's version, "" where the output has none."""
        return next((one.version for one in self.passes if one.version), "")

    @property
    def driver(self) -> str:
        """The driver's version, "" where the output has none."""
        return next((one.driver for one in self.passes if one.driver), "")
