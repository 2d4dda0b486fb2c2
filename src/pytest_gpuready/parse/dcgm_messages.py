"""What the words of a DCGM message say: which error it is, which GPU it names, which numbers it carries.

Needed where the format has no ids (the table, and JSON up to 3.1), and for the numbers, which stand nowhere else.
Source of the wordings: dcgmlib/dcgm_errors.h, tags v2.4.7 to v4.6.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# Wording -> id; the first that is found counts, so the narrower stand first.
_WORDINGS: tuple[tuple[str, int], ...] = (
    (r"fallen off the bus", 120),
    (r"row remapping failed", 80),
    (r"row remappings? (?:are|is) pending", 85),
    (r"exceeded uncorrectable row remap limit", 132),
    (r"uncorrectable memory errors and \d+ rows", 84),
    (r"SRAM Threshold Count exceeded", 118),
    (r"pending page retirements together with", 83),
    (r"pending retired page", 6),
    (r"retired pages due to DBEs", 8),
    (r"retired pages have been detected", 7),
    (r"CUDA APIs have indicated that a double-bit", 57),
    (r"volatile double-bit ECC", 4),
    (r"single-bit ECC error", 5),
    (r"corrupt InfoROM", 9),
    (r"totaling [\d.]+ seconds started at", 41),
    (r"thermal violations totaling", 40),
    (r"(?:clocks event|clock throttling) due to thermal", 10),
    (r"(?:clocks event|clock throttling) due to power", 12),
    (r"exceeded user-specified maximum allowed temperature", 42),
    (r"Clocks event for GPU|throttling for GPU|clocks throttling", 43),
    (r"NvSwitch[^.]*NvLinks are up out of the expected", 100),
    (r"NvLinks are up out of the expected", 99),
    (r"NVSwitch \d+'s NvLink \d+ is down", 88),
    (r"NvSwitch physical ID \d+'s NvLink", 17),
    (r"NvLink link \d+ is currently down", 14),
    (r"nonfatal errors on NvSwitch", 16),
    (r"fatal errors on NvSwitch", 15),
    (r"fatal NvSwitch SXID", 109),
    (r"NvLink errors found occuring per second", 70),
    (r"NvLink errors on GPU \d+'s NVLink \(should be 0\)", 71),
    (r"NvLink errors on GPU \d+'s NVLink which exceeds", 13),
    (r"effective BER .* exceeds", 119),
    (r"symbol BER .* exceeds", 121),
    (r"PCIe replays per minute", 3),
    (r"host-side PCIe replay violation", 98),
    (r"pcie_replay_counter .* above the threshold", 107),
    (r"pcie_replay_counter", 104),
    (r"running at PCI link generation", 45),
    (r"running at PCI link width", 46),
    (r"did not exceed minimum required bandwidth", 30),
    (r"exceeded maximum allowed latency", 31),
    (r"only achieved a memory bandwidth", 62),
    (r"did not reach desired stress level", 50),
    (r"did not reach desired power minimum", 63),
    (r"too low to attempt to achieve target power", 72),
    (r"GFLOPs?.* below the threshold|below the threshold", 110),
    (r"NaN-value memory elements", 111),
    (r"faulty memory elements", 52),
    (r"memory mismatch was detected", 58),
    (r"miscompare failure in the L1 cache", 79),
    (r"over PCIe in a peer-to-peer test", 113),
    (r"over NVLink in a peer-to-peer test", 115),
    (r"in a peer-to-peer test", 86),
    (r"Detected XID \d+", 101),
    (r"uncontained error", 81),
    (r"had a contained error", 131),
    (r"Persistence mode for GPU", 29),
    (r"performance-limiting environment variable", 28),
    (r"devices NVML returns is different", 20),
    (r"graphics contexts open", 25),
    (r"driver on the denylist|driver on the blacklist", 23),
    (r"Cannot open library", 22),
    (r"Cannot get pointer to .* from libnvidia-ml", 24),
    (r"Fabric Manager \(Cluster UUID", 112),
    (r"o permissions? to create a file|permissions to create a file", 96),
    (r"requires a reset to recover from a fault", 125),
    (r"NODE_REBOOT", 126),
    (r"DRAIN_P2P", 127),
    (r"Detected NCCL error", 129),
    (r"DRAIN_AND_RESET", 128),
    (r"allocate at least [\d.]+% of GPU memory", 56),
    (r"ECC is not enabled on GPU", 55),
    (r"ECC Memory is not turned on or is unsupported", 60),
    (r"aborted early due to user signal", 47),
    (r"failed to create a CUDA context", 66),
    (r"Unable to find a corresponding CUDA device", 59),
    (r"using CUDA API", 51),
    (r"calling NVML API", 19),
    (r"using DCGM API", 67),
    (r"internal error during the test", 44),
    (r"Fabric State is", 123),
    (r"\bIMEX\b.*status is", 122),
)
_GPU = re.compile(r"\bGPU\s?#?(\d{1,4})(?!\d)")
_LINK_DOWN = re.compile(r"GPU (\d{1,4})'s NvLink link (\d{1,3}) is currently down")


@lru_cache(maxsize=1024)
def error_id(text: str) -> int | None:
    """The id that DCGM gives to such a message, None where the words are not known."""
    return next((number for words, number in _WORDINGS if re.search(words, text, re.IGNORECASE)), None)


def gpu_of(text: str) -> int | None:
    """The first GPU that the text names, None where it names none."""
    found = _GPU.search(text)
    return int(found[1]) if found else None


def gpus_of(text: str) -> tuple[int, ...]:
    """All GPUs that the text names, each once, in its order."""
    return tuple(dict.fromkeys(int(number) for number in _GPU.findall(text)))


def links_down(text: str) -> dict[int, tuple[int, ...]]:
    """GPU -> NVLinks that the text calls down; one message may hold a sentence for each."""
    found: dict[int, set[int]] = {}
    for gpu, link in _LINK_DOWN.findall(text):
        found.setdefault(int(gpu), set()).add(int(link))
    return {gpu: tuple(sorted(links)) for gpu, links in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of a message. `limit` is what it was held against, None where the text gives none."""

    name: str
    value: float
    unit: str = ""
    limit: float | None = None
    floor: bool = True


_NUM = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"


@dataclass(frozen=True, slots=True)
class _Shape:
    pattern: str
    name: str
    unit: str
    floor: bool = True


# Group 1 is the value, group 2 (where there is one) the limit; a group called "which" goes into the name.
_SHAPES: tuple[_Shape, ...] = (
    _Shape(
        rf"in direction (?P<which>\w+) of {_NUM} did not exceed minimum required bandwidth of {_NUM}",
        "{which}.bandwidth",
        "GB/s",
    ),
    _Shape(
        rf"Latency type (?P<which>\w+) of GPU \d+ value {_NUM} exceeded maximum allowed latency of {_NUM}",
        "{which}.latency",
        "us",
        floor=False,
    ),
    _Shape(rf"hermal violations totaling {_NUM} seconds", "thermal_violation", "s"),
    _Shape(rf"started at {_NUM} seconds into the test", "violation_start", "s"),
    _Shape(rf"starting {_NUM} seconds into the test", "violation_start", "s"),
    _Shape(
        rf"link generation {_NUM}, which is below the minimum allowed link generation of {_NUM}",
        "link.generation",
        "",
    ),
    _Shape(rf"link width {_NUM}X, which is below the minimum allowed link \w+ of {_NUM}", "link.width", ""),
    _Shape(rf"memory bandwidth of {_NUM} GB/s, failing to meet {_NUM} GB/s", "memory.bandwidth", "GB/s"),
    _Shape(rf"stress level of {_NUM} did not reach desired stress level of {_NUM}", "stress_level", ""),
    _Shape(rf"Max power of {_NUM} did not reach desired power minimum \S+ of {_NUM}", "power", "W"),
    _Shape(
        rf"Detected {_NUM} (?P<which>[A-Za-z_][\w ]*?) for GPU \d+(?: which is above the threshold {_NUM})?",
        "{which}",
        "",
        floor=False,
    ),
    _Shape(rf"Found {_NUM} faulty memory elements", "faulty_elements", ""),
    _Shape(rf"Only {_NUM} NvLinks are up out of the expected {_NUM}", "nvlinks_up", ""),
    _Shape(rf"allocate at least {_NUM}% of GPU memory", "allocation_asked", "%"),
    # What passing tests say of themselves (info).
    _Shape(rf"GPU to Host bandwidth:\s*{_NUM} GB/s", "d2h.bandwidth", "GB/s"),
    _Shape(rf"Host to GPU bandwidth:\s*{_NUM} GB/s", "h2d.bandwidth", "GB/s"),
    _Shape(rf"bidirectional bandwidth:\s*{_NUM} GB/s", "bidirectional.bandwidth", "GB/s"),
    _Shape(rf"GPU to Host latency:\s*{_NUM} us", "d2h.latency", "us"),
    _Shape(rf"Host to GPU latency:\s*{_NUM} us", "h2d.latency", "us"),
    _Shape(rf"bidirectional latency:\s*{_NUM} us", "bidirectional.latency", "us"),
    _Shape(rf"Allocated \d+ bytes \({_NUM}%\)", "allocated", "%"),
    _Shape(rf"calculated at approximately {_NUM} gigaflops", "gflops", "GFLOP/s"),
    _Shape(rf"max power: {_NUM} W", "power.max", "W"),
    _Shape(rf"average power usage: {_NUM} W", "power.mean", "W"),
    _Shape(rf"relative stress level\s+{_NUM}", "stress_level", ""),
)


def numbers(text: str) -> tuple[Number, ...]:
    """Every number of a message or info that we know by its words, in the table's order; a name comes once.

    The row count of error 84 is not among them: DCGM prints another one than NVML has.
    """
    found: dict[str, Number] = {}
    for shape in _SHAPES:
        match = re.search(shape.pattern, text)
        if match is None:
            continue
        which = match.groupdict().get("which")
        values = [value for value in match.groups() if value is not None and value != which]
        name = shape.name.replace("{which}", which.replace(" ", "_")) if which else shape.name
        limit = float(values[1]) if len(values) > 1 else None
        found.setdefault(
            name, Number(name=name, value=float(values[0]), unit=shape.unit, limit=limit, floor=shape.floor)
        )
    return tuple(found.values())
