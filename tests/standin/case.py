"""A case of the catalogue: a scenario of the dcgmi stand-in, and what must follow from it, test by test."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "dcgmi"
GPUS = 8
WHOLE = "whole"
OTHERS = "others"
"""Every GPU that is not named."""

LEVELS: dict[int, tuple[str, ...]] = {
    1: ("software",),
    2: ("memory", "pcie"),
    3: ("diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power", "nvbandwidth", "eud"),
    4: ("memtest", "pulse_test"),
}
"""Level -> tests that it adds, DCGM 4.x; 3.3.9 has no nvbandwidth. nccl_tests and rist need a variable."""

SUBTESTS = tuple(
    f"h2d_d2h_{how}_{kind}" for how in ("single", "concurrent", "latency") for kind in ("pinned", "unpinned")
)
STRICT: dict[str, dict[str, str]] = {
    "pcie": {
        **{f"pcie.{sub}.min_pci_generation": "5" for sub in SUBTESTS},
        **{f"pcie.{sub}.min_pci_width": "16" for sub in SUBTESTS},
        "pcie.h2d_d2h_single_pinned.min_bandwidth": "50",
        "pcie.gpu_nvlinks_expected_up": "18",
    },
    "diagnostic": {"diagnostic.gflops_tolerance_pcnt": "10"},
    "memory_bandwidth": {"memory_bandwidth.minimum_bandwidth": "3600000"},
}
"""Parameters under which what follows holds: stricter than DCGM's own. A run with others may find more or less."""


@dataclass(frozen=True, kw_only=True)
class Says:
    """What must stand at a GPU (or at the test as a whole): the outcome, and words that its reason holds."""

    outcome: str
    words: str = ""


PASSED = Says(outcome="PASS")


def failed(words: str) -> Says:
    """FAIL with this suspect."""
    return Says(outcome="FAIL", words=words)


def unmeasured(words: str) -> Says:
    """NOT MEASURED for this reason."""
    return Says(outcome="NOT MEASURED", words=words)


Follows = dict[int | str, Says]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One scenario.

    `follows` has the tests that do not pass on all GPUs: GPU number, OTHERS (else they pass) or WHOLE -> what follows.
    `words` are words that the command of a test has beside -r, -j and -p. `parameters` are given beside STRICT.
    `hangs` is the test that ends by no other means than the caller's deadline.
    `left_behind`: a diagnostic of a client that was killed still runs when the first command starts.
    """

    name: str
    trap: str
    scenario: dict[str, Any] = field(default_factory=dict)
    follows: dict[str, Follows] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: dict[str, dict[str, str]] = field(default_factory=dict)
    hangs: str = ""
    left_behind: bool = False

    @property
    def version(self) -> str:
        """DCGM's version."""
        return str(self.scenario.get("version", "4.6.0"))

    @property
    def tests(self) -> tuple[str, ...]:
        """Tests of levels 1 to 4 of this version."""
        every = [test for tests in LEVELS.values() for test in tests]
        return tuple(test for test in every if test != "nvbandwidth" or not self.version.startswith("3."))

    def follow(self, test: str, gpu: int) -> Says:
        """What follows for one GPU in one test."""
        told = self.follows.get(test, {})
        return told.get(gpu, told.get(OTHERS, PASSED))

    def argv(self, test: str) -> tuple[str, ...]:
        """The command of one test."""
        given = {**STRICT.get(test, {}), **self.parameters.get(test, {})}
        listed = ";".join(f"{name}={value}" for name, value in given.items())
        name = "1" if test == "software" else test
        return ("dcgmi", "diag", "-r", name, "-j", *(("-p", listed) if listed else ()), *self.words.get(test, ()))


def install(folder: Path, scenario: dict[str, Any], *, left_behind: bool = False) -> Path:
    """A `dcgmi` in this folder that plays the scenario; put the folder first on the PATH."""
    told = folder / "dcgmi-scenario.json"
    told.write_text(json.dumps(scenario), encoding="utf-8")
    if left_behind:
        (folder / str(scenario["state_file"])).write_text("0\n", encoding="ascii")
    program = folder / "dcgmi"
    lines = (
        "#!/bin/sh",
        "# A stand-in for NVIDIA's dcgmi: no GPU is touched, a scenario file says what it finds. For tests only.",
        f"GPUREADY_DCGMI_SCENARIO={shlex.quote(str(told))}",
        "export GPUREADY_DCGMI_SCENARIO",
        f'exec {shlex.quote(sys.executable)} -E -S -B {shlex.quote(str(PROGRAM))} "$@"',
    )
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def on_node(scenario: dict[str, Any], *, serials: Sequence[str], driver: str) -> dict[str, Any]:
    """The scenario with the serials of a node's GPUs, in order, and its driver.

    The stand-in prints " stand-in" after a driver that does not have it: a node that shall be the same machine has to
    say so as well, which makes its inventory that of a stand-in.
    """
    gpus = {**scenario.get("gpus", {})}
    count = int(gpus.get("count", len(serials)))
    return {**scenario, "driver": driver, "gpus": {**gpus, "count": count, "serials": list(serials)[:count]}}


def on(test: str, gpu: int, **result: Any) -> dict[str, Any]:
    """A scenario: one result of one GPU."""
    return {"tests": {test: {"gpus": {str(gpu): result}}}}


def shows(gpu: int, **figures: Any) -> dict[str, Any]:
    """A scenario: figures of one GPU."""
    return {"measured": {"gpus": {str(gpu): figures}}}


def everywhere(says: Says, *, but: tuple[str, ...] = (), version: str = "4.6.0") -> dict[str, Follows]:
    """The same for every GPU in every test."""
    tests = Case(name="", trap="", scenario={"version": version}).tests
    return {test: {OTHERS: says} for test in tests if test not in but}


def by_software(told: Follows, *, version: str = "4.6.0") -> dict[str, Follows]:
    """What follows where software checks fail: each test runs them first, and is not reached.

    A GPU that they blame fails in every test, the others are not measured.
    """
    blamed = {gpu: says for gpu, says in told.items() if says.outcome == "FAIL" and gpu != WHOLE}
    others = everywhere(unmeasured(""), but=("software",), version=version)
    return {"software": told, **{test: {**left, **blamed} for test, left in others.items()}}


NO_RESULT = unmeasured("result of")
UNBLAMED = unmeasured("")
"""DCGM fails all GPUs together, and no error names this one."""
CLOSED = ("memory_bandwidth", "pulse_test", "eud")
NOT_ALLOWED = unmeasured("diagnostic configuration")
OLD = {"version": "3.3.9", "driver": "550.90.07"}
AROUND = {"before": "Note: an engine of its own was started.\n", "after": "Successfully ran diagnostic for group.\n"}
EVERY_TEST = Case(name="", trap="").tests
