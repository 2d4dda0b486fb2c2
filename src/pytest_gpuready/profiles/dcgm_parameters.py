"""Parameters that a profile may give to `dcgmi diag`, and rules for them: they make a test stricter, never blind.

What follows from a clause of the profile (PCIe generation and width, NVLinks, host copy bandwidth) is not said twice:
it is derived from that clause's limit. Nothing in here turns a test off or shortens it. A precision is checked by its
letters, for DCGM takes any word and runs its default where it knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_gpuready.parse.yaml_file import nearest, says_something, shown

PRECISIONS = {"h": "FP16", "s": "FP32", "d": "FP64"}

# Name -> unit, and the least and most that make sense (None: a word). Defaults: DCGM 4.6.0, plug-in sources.
TWO_WEEKS_S = 14 * 24 * 3600
PARAMETERS: dict[str, tuple[str, tuple[float, float] | None]] = {
    "diagnostic.gflops_tolerance_pcnt": ("%", (1, 25)),
    "diagnostic.precision": ("", None),
    "diagnostic.temperature_max": ("C", (30, 120)),
    "diagnostic.test_duration": ("s", (180, TWO_WEEKS_S)),
    "memory.minimum_allocation_percentage": ("%", (75, 100)),
    "memory_bandwidth.minimum_bandwidth": ("MB/s", (50_000, 100_000_000)),
    "memtest.test_duration": ("s", (600, TWO_WEEKS_S)),
    "pcie.h2d_d2h_concurrent_pinned.min_bandwidth": ("GB/s", (1, 460)),
    "pcie.nvswitch_nvlinks_expected_up": ("", (1, 1024)),
    "targeted_power.target_power": ("W", (50, 5000)),
    "targeted_power.temperature_max": ("C", (30, 120)),
    "targeted_power.test_duration": ("s", (120, TWO_WEEKS_S)),
    "targeted_stress.target_stress": ("GFLOP/s", (100, 10_000_000)),
    "targeted_stress.temperature_max": ("C", (30, 120)),
    "targeted_stress.test_duration": ("s", (30, TWO_WEEKS_S)),
}
FLOORS = frozenset(
    (
        "memory_bandwidth.minimum_bandwidth",
        "pcie.h2d_d2h_concurrent_pinned.min_bandwidth",
        "targeted_power.target_power",
        "targeted_stress.target_stress",
    )
)
"""What a GPU has to reach: these need a physical ceiling, and never take the place of a higher value of DCGM's."""
DERIVED: dict[str, str] = {
    "pcie.h2d_d2h_single_pinned.min_pci_generation": "pcie.link.generation",
    "pcie.h2d_d2h_single_pinned.min_pci_width": "pcie.link.width",
    "pcie.h2d_d2h_single_pinned.min_bandwidth": "pcie.h2d.bandwidth",
    "pcie.h2d_d2h_single_unpinned.min_pci_generation": "pcie.link.generation",
    "pcie.h2d_d2h_single_unpinned.min_pci_width": "pcie.link.width",
    "pcie.gpu_nvlinks_expected_up": "nvlink.links.active",
}
"""Parameter -> the metric whose clause gives its value."""
NO_SUCH_FORMAT = ("fp8", "bf16", "fp4", "tf32", "int8")

Wrong = Callable[[tuple[str, ...], str], None]


def parameter_rules(name: str, entry: dict[str, Any], wrong: Wrong) -> None:
    """Call `wrong` with a place in the entry and what is wrong there, for every rule that a parameter breaks."""
    if name in DERIVED:
        says = f"expected no {name}: it follows from the clause about {DERIVED[name]}; change that limit instead"
        wrong((), says)
        return
    if name not in PARAMETERS:
        known = ", ".join(sorted(PARAMETERS))
        wrong((), f"expected one of {known}, found {shown(name)}{nearest(name, PARAMETERS)}; correct it")
        return
    unit, bounds = PARAMETERS[name]
    if entry.get("unit", "") != unit:
        wrong(("unit",), f"expected {unit or 'no unit'}, found {shown(entry.get('unit', ''))}; correct the unit")
    if not says_something(str(entry["source"].get("cite", ""))):
        wrong(("source", "cite"), "expected where the value comes from, found nothing; say it")
    value = entry["value"]
    if bounds is None:
        _precision(value, wrong)
    elif isinstance(value, (str, bool)):
        wrong(("value",), f"expected a number of {unit or 'pieces'}, found {shown(value)}; correct it")
    else:
        _number(name, float(value), bounds, entry, wrong)


def precision_refused(value: object) -> str:
    """Why DCGM cannot be asked for this precision; "" where it can."""
    text = str(value)
    if text.lower() in NO_SUCH_FORMAT:
        return (
            f"DCGM has no {text.upper()}: it takes the word, runs its default and passes; "
            "that number format belongs to the built-in engine's clauses"
        )
    if not text or set(text) - set(PRECISIONS):
        return "DCGM looks for the letters h, s and d (FP16, FP32, FP64) and passes over every other word"
    return ""


def _precision(value: object, wrong: Wrong) -> None:
    refused = precision_refused(value)
    if refused:
        wrong(("value",), f"expected letters out of h, s, d, found {shown(value)}: {refused}")


def _number(name: str, value: float, bounds: tuple[float, float], entry: dict[str, Any], wrong: Wrong) -> None:
    unit = f" {entry.get('unit')}" if entry.get("unit") else ""
    least, most = bounds
    if not least <= value <= most:
        says = f"expected a number from {least:g} to {most:g}{unit}, found {value:g}"
        wrong(("value",), f"{says}: anything else makes the test blind or impossible; correct it")
    ceiling = entry.get("ceiling")
    if ceiling is None and name in FLOORS:
        wrong((), f"expected a physical ceiling beside {name}, found none; say what the model can do at most")
    elif ceiling is not None and not 0.1 * ceiling <= value <= ceiling:
        says = f"expected a value within 10 to 100 % of the physical ceiling {ceiling:g}, found {value:g}; correct it"
        wrong(("value",), says)
