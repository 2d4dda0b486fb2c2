"""What a test says of each GPU in one pass: from the scenario, and from its figures held against the limits.

Limits are the parameters given by -p, else what DCGM's packaged configuration demands of an H200: PCIe generation 3
and width 16, 525 W, and no bandwidth worth the name. Software checks run before every other test.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .arguments import Asked
from .errors import CUDA_API, SUPPRESSIBLE, Error, error
from .scenario import Scenario

PASS, FAIL, WARN, SKIP, NOT_RUN = "Pass", "Fail", "Warn", "Skip", "Not Run"
NULL, ABSENT = "null", "absent"

CATEGORIES = {
    "software": "Deployment", "pcie": "Integration", "targeted_stress": "Stress", "targeted_power": "Stress",
    "memory_bandwidth": "Stress", "memtest": "Stress", "eud": "Stress",
}  # fmt: skip
"""Category of each test where it is not Hardware."""

LEVEL_OF = {
    "memory": 2, "pcie": 2, "diagnostic": 3, "nvbandwidth": 3, "nccl_tests": 3, "rist": 3, "targeted_stress": 3,
    "targeted_power": 3, "memory_bandwidth": 3, "eud": 3, "memtest": 4, "pulse_test": 4,
}  # fmt: skip
"""Level that adds a test; context_create runs by name only."""

SECONDS = {
    "software": 0.9, "memory": 1.0, "pcie": 3.3, "diagnostic": 180.0, "nvbandwidth": 22.6, "targeted_stress": 30.0,
    "targeted_power": 120.0, "memory_bandwidth": 10.0, "memtest": 600.0, "pulse_test": 60.0, "eud": 120.0,
    "context_create": 1.0, "nccl_tests": 20.0, "rist": 60.0,
}  # fmt: skip
"""How long a test takes without `seconds` in the scenario; those of closed tests are made up."""

ALLOWED_WITHOUT_ENTRY = ("memtest", "context_create")
"""Tests that run on a GPU which the packaged configuration does not know."""


@dataclass(frozen=True)
class Result:
    """One test on one GPU. `null`: printed as null; `written`: the word printed, where it is no status of DCGM."""

    gpu: int
    status: str
    errors: tuple[Error, ...] = ()
    info: tuple[str, ...] = ()
    null: bool = False
    written: str = ""


@dataclass(frozen=True)
class TestSaid:
    """One test of one pass, as it is printed and how it went."""

    __test__ = False

    name: str
    results: tuple[Result, ...]
    summary: str
    summary_errors: tuple[Error, ...] = ()
    seconds: float = 0.0
    hang: str = ""
    killed: bool = False
    runtime_error: str = ""

    @property
    def category(self) -> str:
        """DCGM's category of the test."""
        return CATEGORIES.get(self.name, "Hardware")

    @property
    def failed(self) -> bool:
        """Whether DCGM's exit code counts it as failed."""
        return self.summary in (FAIL, WARN)

    @property
    def errors(self) -> tuple[Error, ...]:
        """All errors of the test, each once: those of GPUs, then those of none."""
        return tuple(dict.fromkeys([*(e for r in self.results for e in r.errors), *self.summary_errors]))


@dataclass
class Pass:
    """All tests of one pass in the order of running."""

    tests: list[TestSaid] = field(default_factory=list)


def tests_of(asked: Asked, scenario: Scenario) -> list[str]:
    """Names of the tests to run, software checks first; those without a plug-in are left out of a level."""
    if asked.names:
        wanted = [name for name in scenario.every_test if name in asked.names]
    else:
        wanted = [name for name in scenario.every_test if LEVEL_OF.get(name, 9) <= asked.level]
        wanted = [name for name in wanted if name in scenario.plugins and (name != "eud" or scenario.root)]
    return ["software", *wanted]


def said(name: str, number: int, gpus: list[int], asked: Asked, scenario: Scenario) -> TestSaid | None:
    """What a test says in pass `number` (from 0); None where it is absent from the output."""
    told = scenario.test(name, number)
    if told.get("absent"):
        return None
    gflops = [float(scenario.measured(gpu)["gflops"]) for gpu in gpus]
    mean = sum(gflops) / max(len(gflops), 1)
    found = [_result(name, gpu, told, asked, scenario, mean_gflops=mean) for gpu in gpus]
    results = tuple(_suppressed(one, asked.ignored) for one in found if one is not None)
    entries = list(told.get("summary_errors", []))
    rights = name == "software" and not scenario.root and scenario.host_engine == "embedded"
    entries += [{"id": 96}] if rights else []
    summary_errors = tuple(error(entry, test=name, old=scenario.old) for entry in entries)
    # A CUDA error beside a Skip fails the test, as seen; for other errors beside a Skip or a Pass nothing was seen.
    cuda = [one for one in results if one.status == SKIP and any(error.id == CUDA_API for error in one.errors)]
    bad = [one for one in results if one.status in (FAIL, WARN)] + cuda
    statuses = {one.status for one in results if not one.null}
    summary = FAIL if bad or rights else PASS if PASS in statuses else SKIP if SKIP in statuses else NOT_RUN
    if bad and all(one.status == WARN for one in bad):
        summary = WARN
    hang = told.get("hang", "")
    return TestSaid(
        name=name,
        results=results,
        summary=str(told.get("summary", summary)),
        summary_errors=summary_errors,
        seconds=float(told.get("seconds", asked.of_test(name).get("test_duration", SECONDS[name]))),
        hang="yes" if hang is True else str(hang or ""),
        killed=bool(told.get("killed", False)),
        runtime_error=str(told.get("runtime_error", "")),
    )


def _result(
    name: str, gpu: int, told: dict[str, Any], asked: Asked, scenario: Scenario, *, mean_gflops: float
) -> Result | None:
    """The result of one GPU; None where there is none of it."""
    own = told.get("gpus", {})
    entry = own.get(gpu, own.get(str(gpu), told.get("all", {})))
    if entry == ABSENT:
        return None
    if entry == NULL or entry is None:
        return Result(gpu=gpu, status=NOT_RUN, null=True)
    parameters = asked.of_test(name)
    refused = parameters.get("is_allowed", "").lower() == "false"
    unknown = not scenario.sku_known and not asked.generic and parameters.get("is_allowed", "").lower() != "true"
    told_status = entry.get("status")
    if name != "software" and told_status is None and (refused or (unknown and name not in ALLOWED_WITHOUT_ENTRY)):
        return Result(gpu=gpu, status=SKIP)
    bus_id = scenario.bus_ids[gpu]
    figures = scenario.measured(gpu)
    skipped = told_status in (SKIP, NOT_RUN)
    entries = [] if skipped else judged(name, figures, parameters, mean_gflops)
    status = SKIP if any(one["id"] == 72 for one in entries) else FAIL if entries else PASS
    entries = [*entry.get("errors", []), *entries]
    return Result(
        gpu=gpu,
        status=str(told_status or (FAIL if entry.get("errors") else status)),
        errors=tuple(error(one, test=name, old=scenario.old, gpu=gpu, bus_id=bus_id) for one in entries),
        info=tuple(entry["info"]) if "info" in entry else () if skipped else info(name, gpu, figures, parameters),
        written=str(entry.get("written", "")),
    )


def _suppressed(result: Result, ignored: str) -> Result:
    """The result with errors turned into info where --ignoreErrorCodes names them; its status then is Pass."""
    numbers: set[int] = set()
    for part in ignored.split(";"):
        entity, colon, listed = part.rpartition(":")
        if not colon or entity.strip() in ("*", f"gpu{result.gpu}"):
            numbers |= SUPPRESSIBLE if listed.strip() == "*" else {int(n) for n in listed.split(",") if n.strip()}
    hidden = [one for one in result.errors if one.id in numbers]
    if not hidden:
        return result
    left = tuple(one for one in result.errors if one.id not in numbers)
    info_lines = (*result.info, *(f"Suppressed error:  {one.text}" for one in hidden))
    return replace(result, errors=left, info=info_lines, status=result.status if left else PASS)


def info(name: str, gpu: int, figures: dict[str, Any], parameters: dict[str, str]) -> tuple[str, ...]:
    """What a test that ran says of its figures, as recorded; closed tests were never seen and say nothing."""
    if name == "memory":
        return (f"Allocated {figures['memory_bytes']} bytes ({figures['memory_percent']:.1f}%)",)
    if name == "pcie":
        return (
            f"GPU to Host bandwidth:\t\t{figures['d2h']:.2f} GB/s",
            f"Host to GPU bandwidth:\t\t{figures['h2d']:.2f} GB/s",
            f"bidirectional bandwidth:\t{figures['bidir']:.2f} GB/s",
            f"GPU to Host latency:\t\t{figures['d2h_us']:.3f} us",
            f"Host to GPU latency:\t\t{figures['h2d_us']:.3f} us",
            f"bidirectional latency:\t\t{figures['bidir_us']:.3f} us",
        )
    if name == "diagnostic":
        return (
            "Allocated space for 4007 double precision output matrices from 134601729638 bytes available.",
            f"Running with precisions: {precisions(parameters)}",
            f"GPU {gpu} calculated at approximately {figures['gflops']:.2f} gigaflops during this test",
        )
    if name == "targeted_stress":
        return (f"GPU {gpu} relative stress level\t{figures['stress']:.0f}",)
    if name == "targeted_power":
        return (
            f"GPU {gpu} max power: {figures['power_max']:.1f} W average power usage: {figures['power_mean']:.1f} W",
        )
    return ()


def precisions(parameters: dict[str, str]) -> str:
    """Number formats that run: only the letters h, s, d count, and a word without one of them loses FP64."""
    word = parameters.get("precision")
    letters = "hsd" if word is None else "".join(c for c in word.lower() if c in "hsd") or "hs"
    return f"FP64 {int('d' in letters)}, FP32 {int('s' in letters)}, FP16 {int('h' in letters)}"


def judged(name: str, figures: dict[str, Any], parameters: dict[str, str], mean_gflops: float) -> list[dict[str, Any]]:
    """Errors of a GPU's figures against the limits in force."""
    if name == "pcie":
        return _pcie(figures, parameters)
    if name == "memory_bandwidth":
        floor = float(parameters.get("minimum_bandwidth", "2333")) / 1000  # MB/s; 2333 is what is packaged for 2335
        found = float(figures["memory_bandwidth"])
        return [_held(62, found, floor)] if found < floor else []
    if name == "diagnostic":
        tolerance = float(parameters.get("gflops_tolerance_pcnt", "0"))
        floor = mean_gflops * (1 - tolerance / 100)
        found = float(figures["gflops"])
        return [_held(110, found, floor)] if tolerance and found < floor else []
    if name == "targeted_power":
        target = float(parameters.get("target_power", "700"))
        floor = target * float(parameters.get("target_power_min_ratio", "0.75"))
        if float(figures["power_limit"]) <= 0.75 * target:
            return [_held(72, float(figures["power_limit"]), target)]
        found = float(figures["power_max"])
        return [_held(63, found, floor)] if found < floor else []
    return []


def _held(number: int, found: float, limit: float, **more: Any) -> dict[str, Any]:
    return {"id": number, "values": {"found": found, "limit": limit, **more}}


def _pcie(figures: dict[str, Any], parameters: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    limits: dict[str, list[float]] = {"min_pci_generation": [], "min_pci_width": [], "min_bandwidth": []}
    for key, value in parameters.items():
        name = key.rpartition(".")[2]
        if name in limits:
            limits[name].append(float(value))
    if figures["p0"]:
        generation = max(limits["min_pci_generation"], default=3.0)
        if figures["generation"] < generation:
            found.append(_held(45, int(figures["generation"]), int(generation)))
        width = max(limits["min_pci_width"], default=16.0)
        if figures["width"] < width:
            found.append(_held(46, int(figures["width"]), int(width)))
    bandwidth = max(limits["min_bandwidth"], default=0.0)
    for way in ("h2d", "d2h", "bidir"):
        if figures[way] < bandwidth:
            found.append(_held(30, float(figures[way]), bandwidth, way=way))
    expected = int(float(parameters.get("gpu_nvlinks_expected_up", "0")))
    if expected and figures["nvlinks_up"] != expected:
        found.append(_held(99, int(figures["nvlinks_up"]), expected))
    if parameters.get("test_nvlink_status", "true").lower() != "false":
        found += [{"id": 14, "values": {"link": link}} for link in figures["nvlinks_down"]]
    return found
