"""Errors that the stand-in can report: DCGM's severity and category, and how it words them.

Wordings marked `recorded` are as dcgmi 4.6.0 printed them, advice included. Of the others the first sentence has
DCGM's wording, and the advice that follows it there is left out. An id that is not here needs `text` in the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ISOLATE = 2
CUDA_API = 51
SUPPRESSIBLE = frozenset((40, 41, 80, 81, 85, 101))
"""Ids that --ignoreErrorCodes takes."""

_CUDA = "Error using CUDA API {api} Check DCGM and system logs for errors. Reset GPU. Restart DCGM. Rerun diagnostics. "
_PERSISTENCE = (
    "Persistence mode for GPU {gpu} is disabled. "
    'Enable persistence mode by running "nvidia-smi -i <gpuId> -pm 1 " as root.'
)
_FABRIC = (
    "Fabric Manager (Cluster UUID: 00000000-0000-0000-0000-000000000000, Clique ID: 0, Health Mask: 0): "
    "training in progress. Ensure that the FabricManager is running without errors."
)
_FOLDER = (
    "No permission to create a file in directory '{folder}' Please restart the hostengine with parameter --home-dir "
    "to specify a different home directory for the diagnostic or change permissions in the current directory to allow "
    "the user to write files there."
)
_DEVICES = (
    "The number of devices NVML returns is different than the number of devices in /dev. Check for the presence of "
    "cgroups, operating system blocks, and or unsupported / older cards"
)
_REMAP_FAILED = (
    "GPU {gpu} had uncorrectable memory errors and row remapping failed. Row remapping failure indicates "
    "unrecoverable memory hardware damage. Reset the GPU or reboot the node immediately."
)
_RECOVER = (
    "GPU {gpu} requires a reset to recover from a fault. Recovery action: 1 (GPU_RESET). Terminate all GPU processes "
    "and reset the GPU."
)
_GENERATION = (
    "GPU {gpu} is running at PCI link generation {found}, which is below the minimum allowed link generation of "
    "{limit} (parameter 'min_pci_generation') Check DCGM and system configuration. This error may be eliminated with "
    "an updated configuration."
)
_WIDTH = (
    "GPU {gpu} is running at PCI link width {found}X, which is below the minimum allowed link generation of {limit} "
    "(parameter 'min_pci_width') Check DCGM and system configuration. This error may be eliminated with an updated "
    "configuration."
)
_INFOROM, _FM, _OS, _REMAP = "Inforom", "Fabric Manager", "Permissions and OS Blocks", "Page Retirement/Row Remap"

# id: (severity, category, software check that finds it, wording, values left out in the scenario)
_ROWS: dict[int, tuple[int, int, str, str, dict[str, Any]]] = {
    9: (4, 15, _INFOROM, "A corrupt InfoROM has been detected in GPU {gpu}.", {}),
    14: (4, 11, "", "GPU {gpu}'s NvLink link {link} is currently down", {"link": 0}),
    20: (5, 8, _OS, _DEVICES, {}),  # recorded
    28: (
        5,
        6,
        "Environment Variables",
        "Found CUDA performance-limiting environment variable '{name}'. "
        "Please unset this environment variable to address test failures.",  # recorded
        {"name": "NSIGHT_CUDA_DEBUGGER"},
    ),
    29: (5, 8, "Persistence Mode", _PERSISTENCE, {}),  # recorded
    30: (
        4,
        13,
        "",
        "Bandwidth of GPU {gpu} in direction {way} of {found:.2f} did not exceed minimum required bandwidth of "
        "{limit:.2f}.",
        {},
    ),
    40: (1, 9, "", "There were thermal violations totaling {seconds:.1f} seconds for GPU {gpu}", {"seconds": 3.2}),
    41: (
        1,
        9,
        "",
        "Thermal violations totaling {seconds:.1f} seconds started at {start:.1f} seconds into the test for GPU {gpu}",
        {"seconds": 7.6, "start": 12.4},
    ),
    42: (1, 9, "", "Temperature {found} of GPU {gpu} exceeded user-specified maximum allowed temperature {limit}", {}),
    43: (
        1,
        15,
        "",
        "Clocks event for GPU {gpu} because of clocks event starting {start:.1f} seconds into the test. "
        "The GPU clocks were reduced by a hardware slowdown.",
        {"start": 41.2},
    ),
    44: (4, 16, "", "There was an internal error during the test: '{detail}'", {"detail": "no sample was taken"}),
    45: (4, 13, "", _GENERATION, {}),  # recorded
    46: (5, 13, "", _WIDTH, {}),
    50: (
        4,
        1,
        "",
        "Max stress level of {found:.1f} did not reach desired stress level of {limit:.1f} for GPU {gpu}",
        {"found": 21500.0, "limit": 35625.0},
    ),
    51: (
        1,
        6,
        "",
        _CUDA + "'CUDA driver version is insufficient for CUDA runtime version' for GPU {gpu}, bus ID = {bus_id}",
        {"api": "cudaDeviceGetByPCIBusId"},
    ),  # recorded
    52: (2, 10, "", "Found {count} faulty memory elements on GPU {gpu}", {"count": 4}),
    56: (4, 8, "", "Couldn't allocate at least {asked:.1f}% of GPU memory on GPU {gpu}", {"asked": 75.0}),
    58: (
        2,
        10,
        "",
        "A memory mismatch was detected on GPU {gpu}, but no error was reported by CUDA or NVML.",
        {},
    ),
    62: (
        4,
        1,
        "",
        "GPU {gpu} only achieved a memory bandwidth of {found:.2f} GB/s, failing to meet {limit:.2f} GB/s for test 0",
        {},
    ),
    63: (
        4,
        14,
        "",
        "Max power of {found:.1f} did not reach desired power minimum target_power_min_ratio of {limit:.1f} for "
        "GPU {gpu}",
        {"found": 412.5, "limit": 525.0},
    ),
    72: (
        5,
        14,
        "",
        "Enforced power limit on GPU {gpu} set to {found:.1f}, which is too low to attempt to achieve target power "
        "{limit:.1f}",
        {},
    ),
    80: (6, 10, _REMAP, _REMAP_FAILED, {}),  # recorded
    84: (6, 10, _REMAP, "GPU {gpu} had uncorrectable memory errors and {rows} rows were remapped", {"rows": 48}),
    85: (6, 10, _REMAP, "GPU {gpu} had memory errors and row remappings are pending", {}),
    96: (5, 3, _OS, _FOLDER, {"folder": "/"}),  # recorded
    99: (4, 11, "", "Only {found} NvLinks are up out of the expected {limit}", {}),
    101: (4, 5, "", "Detected XID {xid} for GPU {gpu}", {"xid": 94}),
    104: (2, 13, "", "Detected {count} pcie_replay_counter for GPU {gpu}", {"count": 14}),
    110: (
        4,
        2,
        "",
        "Detected {found:.2f} gflops for GPU {gpu} which is below the threshold {limit:.2f}",
        {"found": 91000.0, "limit": 130000.0},
    ),
    111: (2, 10, "", "Found {count} NaN-value memory elements on GPU {gpu}", {"count": 12}),
    112: (5, 6, _FM, _FABRIC, {}),  # recorded
    118: (2, 10, "SRAM Threshold Count", "SRAM Threshold Count exceeded for GPU {gpu}", {}),
    125: (6, 15, "GPU Recovery State", _RECOVER, {}),  # recorded
    129: (6, 11, "", "Detected NCCL error: {detail}", {"detail": "all_reduce_perf exited with 3"}),
}


@dataclass(frozen=True)
class Error:
    """An error as it is printed; `check` is the software check that found it, "" for the tests above level 1."""

    id: int
    severity: int
    category: int
    text: str
    check: str = ""


def error(entry: dict[str, Any], *, test: str, old: bool, gpu: int | None = None, bus_id: str = "") -> Error:
    """The error of an entry of the scenario. 4.x puts the software check's name before its text.

    Raises:
        KeyError: the id is unknown and has no text, or a value of its wording is missing.
    """
    number = int(entry["id"])
    severity, category, check, wording, values = _ROWS.get(number, (3, 16, "", "", {}))
    if number not in _ROWS and "text" not in entry:
        raise KeyError(f"error {number} has no wording: give its text")
    shown = {"gpu": "?" if gpu is None else gpu, "bus_id": bus_id, **values, **entry.get("values", {})}
    text = str(entry["text"]) if "text" in entry else wording.format(**shown)
    if test == "software":
        check = check or "Permissions and OS Blocks"
        text = text if old or "text" in entry else f"{check}: {text}"
    return Error(id=number, severity=severity, category=category, text=text, check=check if test == "software" else "")
