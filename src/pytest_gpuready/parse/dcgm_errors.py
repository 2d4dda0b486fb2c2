"""DCGM error ids: what we make of each. The severity that counts here is ours; DCGM's own stands beside it.

DCGM grades for a fleet in service: a narrow PCIe link is only CONFIG there, a thermal violation only MONITOR. In an
acceptance both fail. Three weights are enough:
- `HARDWARE`: a part is broken or out of its limits;
- `CONFIGURATION`: the host or the diagnostic is set up wrongly; it fails, but no part is blamed;
- `UNMEASURED`: the test says that it could not do its work; nothing was measured.

Source: ids, names and DCGM's severity from dcgmlib/src/dcgm_errors.c of tag v4.6.0; weight, suspect and remedy are
ours. An id that is not in the table is kept, shown and counts as a failure: what nobody knows is nobody's excuse.
"""

from __future__ import annotations

from dataclasses import dataclass

HARDWARE, CONFIGURATION, UNMEASURED = "hardware", "configuration", "unmeasured"

SEVERITIES = ("NONE", "MONITOR", "ISOLATE", "UNKNOWN", "TRIAGE", "CONFIG", "RESET")
"""DCGM's severity enum by number."""

CATEGORIES = (
    "NONE",
    "PERF_THRESHOLD",
    "PERF_VIOLATION",
    "SOFTWARE_CONFIG",
    "SOFTWARE_LIBRARY",
    "SOFTWARE_XID",
    "SOFTWARE_CUDA",
    "SOFTWARE_EUD",
    "SOFTWARE_OTHER",
    "HARDWARE_THERMAL",
    "HARDWARE_MEMORY",
    "HARDWARE_NVLINK",
    "HARDWARE_NVSWITCH",
    "HARDWARE_PCIE",
    "HARDWARE_POWER",
    "HARDWARE_OTHER",
    "INTERNAL_OTHER",
)
"""DCGM's category enum by number."""

TOO_MANY_ERRORS = 69


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What an error id means. `suspect` may hold {gpu}; `severity` is DCGM's word, `weight` ours."""

    id: int
    name: str
    severity: str
    weight: str
    suspect: str
    remedy: str

    def suspect_of(self, gpu: str) -> str:
        """The suspect with the part's name in it; "a GPU" where no part was named."""
        return self.suspect.replace("{gpu}", gpu or "a GPU")


# Suspects and remedies that several ids share: key -> (suspect, remedy).
_SHARED: dict[str, tuple[str, str]] = {
    "memory": ("{gpu} memory", "reset the GPU and test again; where it stays, replace the GPU"),
    "ecc": ("{gpu} memory (ECC errors)", "read nvidia-smi -q -d ECC,ROW_REMAPPER; reset, test again, else replace it"),
    "retired": ("{gpu} memory (retired pages)", "replace the GPU: its spare pages run out"),
    "cooling": ("cooling of {gpu} (air path, heat sink, fans), not its memory", "check cooling, then test again"),
    "power": ("power or cooling of {gpu}", "check power supply, cables, power limit and cooling; then test again"),
    "pcie": (
        "PCIe path of {gpu} (slot, riser, retimer or link width), not GPU memory",
        "read the link's generation and width under load with lspci -vv; reseat or swap the slot",
    ),
    "replays": (
        "PCIe link of {gpu} (slot, riser or retimer), not GPU memory",
        "reseat the GPU or its riser, test again and compare the replay counters; then swap the slot",
    ),
    "nvlink": ("NVLink of {gpu} (baseboard, NVSwitch port or bridge)", "read nvidia-smi nvlink -s and -e, reseat"),
    "nvswitch": ("NVSwitch (or its port), not a GPU", "read SXid lines of the kernel log and fabric manager's log"),
    "p2p": ("path between {gpu} and its peer (NVLink, PCIe switch or ACS/IOMMU)", "test each pair alone to find it"),
    "slow": ("{gpu} (slower than asked: clocks, power limit, cooling or another process)", "read clock reasons"),
    "xid": ("{gpu} (Xid in the kernel log)", "read the Xid's number with dmesg and follow its class"),
    "gone": ("{gpu} (off the bus: seating, power, PCIe link)", "reseat it, check power; read dmesg for Xid 79"),
    "inforom": ("{gpu} InfoROM", "have the InfoROM flashed again by the vendor; replace the GPU if it comes back"),
    "recover": ("{gpu} (a fault waits for recovery)", "drain it, reset the GPU, then run the tests again"),
    "gemm": ("{gpu} (wrong results of a computation)", "replace the GPU after a second failing run"),
    "device": ("{gpu}", "read dmesg, reset the GPU and test again; then swap it with a good one"),
    "driver": ("driver installation of this host, not the GPUs", "install one matching driver and libraries"),
    "cuda": (
        "CUDA on this host (driver and runtime do not fit, or a CUDA context broke); not shown to be the GPU",
        "read the CUDA error's name; install a driver that fits the diagnostic's CUDA version, then test again",
    ),
    "host": ("host configuration, not the GPUs", "correct the setting and run the test again"),
    "rights": ("rights of the account that ran the diagnostic, not the GPUs", "run it as root or by a host engine"),
    "diag": ("the diagnostic itself, not the GPUs", "see nvvs.log and nv-hostengine.log, then run it again"),
    "eud": ("EUD's set-up, not the GPUs", "install EUD's packages and run as root"),
    "busy": ("memory held by another process on {gpu}", "stop other processes and run the test again"),
    "fabric": ("fabric manager (or NVLink fabric training), not a single GPU", "start it, wait, then test again"),
    "stopped": ("whoever stopped the run, not the GPUs", "run it again to its end"),
    "config": ("diagnostic configuration, not the GPUs", "allow the test, or use a configuration that knows this GPU"),
}

_M, _I, _U, _T, _C, _R = (SEVERITIES[n] for n in (1, 2, 3, 4, 5, 6))
_H, _S, _N = HARDWARE, CONFIGURATION, UNMEASURED

# id, name, DCGM's severity, our weight, shared suspect and remedy
_ROWS: tuple[tuple[int, str, str, str, str], ...] = (
    (1, "UNKNOWN", _U, _H, "device"),
    (2, "UNRECOGNIZED", _U, _H, "device"),
    (3, "PCI_REPLAY_RATE", _I, _H, "replays"),
    (4, "VOLATILE_DBE_DETECTED", _I, _H, "ecc"),
    (5, "VOLATILE_SBE_DETECTED", _M, _H, "ecc"),
    (6, "PENDING_PAGE_RETIREMENTS", _R, _H, "memory"),
    (7, "RETIRED_PAGES_LIMIT", _I, _H, "retired"),
    (8, "RETIRED_PAGES_DBE_LIMIT", _I, _H, "retired"),
    (9, "CORRUPT_INFOROM", _T, _H, "inforom"),
    (10, "CLOCKS_EVENT_THERMAL", _M, _H, "cooling"),
    (11, "POWER_UNREADABLE", _M, _H, "device"),
    (12, "CLOCKS_EVENT_POWER", _M, _H, "power"),
    (13, "NVLINK_ERROR_THRESHOLD", _I, _H, "nvlink"),
    (14, "NVLINK_DOWN", _T, _H, "nvlink"),
    (15, "NVSWITCH_FATAL_ERROR", _I, _H, "nvswitch"),
    (16, "NVSWITCH_NON_FATAL_ERROR", _M, _H, "nvswitch"),
    (17, "NVSWITCH_DOWN", _M, _H, "nvswitch"),
    (18, "NO_ACCESS_TO_FILE", _C, _S, "rights"),
    (19, "NVML_API", _M, _H, "device"),
    (20, "DEVICE_COUNT_MISMATCH", _C, _S, "host"),
    (21, "BAD_PARAMETER", _U, _N, "diag"),
    (22, "CANNOT_OPEN_LIB", _T, _S, "driver"),
    (23, "DENYLISTED_DRIVER", _C, _S, "driver"),
    (24, "NVML_LIB_BAD", _I, _S, "driver"),
    (25, "GRAPHICS_PROCESSES", _R, _S, "host"),
    (26, "HOSTENGINE_CONN", _M, _N, "diag"),
    (27, "FIELD_QUERY", _M, _N, "diag"),
    (28, "BAD_CUDA_ENV", _C, _S, "host"),
    (29, "PERSISTENCE_MODE", _C, _S, "host"),
    (30, "LOW_BANDWIDTH", _T, _H, "pcie"),
    (31, "HIGH_LATENCY", _T, _H, "pcie"),
    (32, "CANNOT_GET_FIELD_TAG", _M, _N, "diag"),
    (33, "FIELD_VIOLATION", _I, _H, "device"),
    (34, "FIELD_THRESHOLD", _M, _H, "device"),
    (35, "FIELD_VIOLATION_DBL", _I, _H, "device"),
    (36, "FIELD_THRESHOLD_DBL", _I, _H, "device"),
    (37, "UNSUPPORTED_FIELD_TYPE", _T, _N, "diag"),
    (38, "FIELD_THRESHOLD_TS", _I, _H, "device"),
    (39, "FIELD_THRESHOLD_TS_DBL", _I, _H, "device"),
    (40, "THERMAL_VIOLATIONS", _M, _H, "cooling"),
    (41, "THERMAL_VIOLATIONS_TS", _M, _H, "cooling"),
    (42, "TEMP_VIOLATION", _M, _H, "cooling"),
    (43, "CLOCKS_EVENT_VIOLATION", _M, _H, "power"),
    (44, "INTERNAL", _T, _N, "diag"),
    (45, "PCIE_GENERATION", _T, _H, "pcie"),
    (46, "PCIE_WIDTH", _C, _H, "pcie"),
    (47, "ABORTED", _C, _N, "stopped"),
    (48, "TEST_DISABLED", _C, _N, "config"),
    (49, "CANNOT_GET_STAT", _T, _N, "diag"),
    (50, "STRESS_LEVEL", _T, _H, "slow"),
    (51, "CUDA_API", _M, _S, "cuda"),
    (52, "FAULTY_MEMORY", _I, _H, "gemm"),
    (53, "CANNOT_SET_WATCHES", _M, _N, "diag"),
    (54, "CUDA_UNBOUND", _T, _S, "cuda"),
    (55, "ECC_DISABLED", _C, _S, "host"),
    (56, "MEMORY_ALLOC", _T, _N, "busy"),
    (57, "CUDA_DBE", _I, _H, "ecc"),
    (58, "MEMORY_MISMATCH", _I, _H, "memory"),
    (59, "CUDA_DEVICE", _T, _S, "cuda"),
    (60, "ECC_UNSUPPORTED", _C, _S, "host"),
    (61, "ECC_PENDING", _M, _S, "host"),
    (62, "MEMORY_BANDWIDTH", _T, _H, "slow"),
    (63, "TARGET_POWER", _T, _H, "slow"),
    (64, "API_FAIL", _T, _H, "device"),
    (65, "API_FAIL_GPU", _T, _H, "device"),
    (66, "CUDA_CONTEXT", _T, _S, "cuda"),
    (67, "DCGM_API", _T, _N, "diag"),
    (68, "CONCURRENT_GPUS", _C, _N, "config"),
    (TOO_MANY_ERRORS, "TOO_MANY_ERRORS", _M, _H, "device"),
    (70, "NVLINK_CRC_ERROR_THRESHOLD", _I, _H, "nvlink"),
    (71, "NVLINK_ERROR_CRITICAL", _I, _H, "nvlink"),
    (72, "ENFORCED_POWER_LIMIT", _C, _N, "host"),
    (73, "MEMORY_ALLOC_HOST", _T, _N, "host"),
    (74, "GPU_OP_MODE", _M, _N, "host"),
    (75, "NO_MEMORY_CLOCKS", _M, _N, "config"),
    (76, "NO_GRAPHICS_CLOCKS", _M, _N, "config"),
    (77, "HAD_TO_RESTORE_STATE", _T, _H, "device"),
    (78, "L1TAG_UNSUPPORTED", _C, _N, "config"),
    (79, "L1TAG_MISCOMPARE", _I, _H, "gemm"),
    (80, "ROW_REMAP_FAILURE", _R, _H, "memory"),
    (81, "UNCONTAINED_ERROR", _I, _H, "ecc"),
    (82, "EMPTY_GPU_LIST", _C, _N, "config"),
    (83, "DBE_PENDING_PAGE_RETIREMENTS", _R, _H, "memory"),
    (84, "UNCORRECTABLE_ROW_REMAP", _R, _H, "memory"),
    (85, "PENDING_ROW_REMAP", _R, _H, "memory"),
    (86, "BROKEN_P2P_MEMORY_DEVICE", _I, _H, "p2p"),
    (87, "BROKEN_P2P_WRITER_DEVICE", _I, _H, "p2p"),
    (88, "NVSWITCH_NVLINK_DOWN", _I, _H, "nvswitch"),
    (89, "EUD_BINARY_PERMISSIONS", _T, _N, "eud"),
    (90, "EUD_NON_ROOT_USER", _T, _N, "eud"),
    (91, "EUD_SPAWN_FAILURE", _T, _N, "eud"),
    (92, "EUD_TIMEOUT", _T, _N, "eud"),
    (93, "EUD_ZOMBIE", _T, _N, "eud"),
    (94, "EUD_NON_ZERO_EXIT_CODE", _T, _N, "eud"),
    (95, "EUD_TEST_FAILED", _I, _H, "device"),
    (96, "FILE_CREATE_PERMISSIONS", _C, _S, "rights"),
    (97, "PAUSE_RESUME_FAILED", _T, _N, "diag"),
    (98, "PCIE_H_REPLAY_VIOLATION", _I, _H, "replays"),
    (99, "GPU_EXPECTED_NVLINKS_UP", _T, _H, "nvlink"),
    (100, "NVSWITCH_EXPECTED_NVLINKS_UP", _T, _H, "nvswitch"),
    (101, "XID_ERROR", _T, _H, "xid"),
    (102, "SBE_VIOLATION", _I, _H, "ecc"),
    (103, "DBE_VIOLATION", _I, _H, "ecc"),
    (104, "PCIE_REPLAY_VIOLATION", _I, _H, "replays"),
    (105, "SBE_THRESHOLD_VIOLATION", _I, _H, "ecc"),
    (106, "DBE_THRESHOLD_VIOLATION", _I, _H, "ecc"),
    (107, "PCIE_REPLAY_THRESHOLD_VIOLATION", _I, _H, "replays"),
    (108, "CUDA_FM_NOT_INITIALIZED", _M, _S, "fabric"),
    (109, "SXID_ERROR", _I, _H, "nvswitch"),
    (110, "GFLOPS_THRESHOLD_VIOLATION", _T, _H, "slow"),
    (111, "NAN_VALUE", _I, _H, "gemm"),
    (112, "FABRIC_MANAGER_TRAINING_ERROR", _C, _S, "fabric"),
    (113, "BROKEN_P2P_PCIE_MEMORY_DEVICE", _I, _H, "p2p"),
    (114, "BROKEN_P2P_PCIE_WRITER_DEVICE", _I, _H, "p2p"),
    (115, "BROKEN_P2P_NVLINK_MEMORY_DEVICE", _I, _H, "p2p"),
    (116, "BROKEN_P2P_NVLINK_WRITER_DEVICE", _I, _H, "p2p"),
    (117, "TEST_SKIPPED", _C, _N, "config"),
    (118, "SRAM_THRESHOLD", _I, _H, "ecc"),
    (119, "NVLINK_EFFECTIVE_BER_THRESHOLD", _I, _H, "nvlink"),
    (120, "FALLEN_OFF_BUS", _I, _H, "gone"),
    (121, "NVLINK_SYMBOL_BER_THRESHOLD", _I, _H, "nvlink"),
    (122, "IMEX_UNHEALTHY", _I, _S, "fabric"),
    (123, "FABRIC_PROBE_STATE", _M, _H, "fabric"),
    (124, "BINARY_PERMISSIONS", _T, _N, "rights"),
    (125, "GPU_RECOVERY_RESET", _R, _H, "recover"),
    (126, "GPU_RECOVERY_REBOOT", _I, _H, "recover"),
    (127, "GPU_RECOVERY_DRAIN_P2P", _R, _H, "recover"),
    (128, "GPU_RECOVERY_DRAIN_RESET", _R, _H, "recover"),
    (129, "NCCL_ERROR", _R, _H, "nvlink"),
    (130, "RETEST_REQUESTED", _T, _N, "diag"),
    (131, "CONTAINED_ERROR", _M, _H, "ecc"),
    (132, "UNCORRECTABLE_ROW_REMAP_LIMIT", _T, _H, "memory"),
)

# Ids whose own words say more than the shared ones.
_OWN: dict[int, tuple[str, str]] = {
    14: ("NVLink of {gpu} (baseboard, NVSwitch port or bridge; or NVLink is not fitted)", "read nvidia-smi nvlink -s"),
    20: (
        "host configuration: NVML sees another number of devices than /dev (cgroup, container or device nodes)",
        "compare ls /dev/nvidia* with nvidia-smi -L; not a GPU fault by itself",
    ),
    25: ("host configuration: graphics processes on the GPUs", "stop the display server, then test again"),
    28: ("host configuration: environment variable that slows CUDA, not the GPUs", "unset it where the engine starts"),
    29: (
        "host configuration (nvidia-persistenced / persistence mode), not the GPUs",
        "enable nvidia-persistenced or nvidia-smi -pm 1, then test again",
    ),
    55: ("host configuration: ECC is off on {gpu}", "nvidia-smi -e 1, then reboot and test again"),
    72: ("power limit set on {gpu}, too low for the test", "restore the default power limit, then test again"),
    80: ("{gpu} memory (row remapping failed)", "replace the GPU: it has no spare rows left there"),
    84: ("{gpu} memory (rows remapped after uncorrectable errors)", "reset the GPU, read its row remapper, test again"),
    85: ("{gpu} memory (row remap pending; needs a GPU reset, then re-test)", "reset the GPU, then run it again"),
    96: (
        "rights of the account that ran the diagnostic (its working folder), not the GPUs",
        "run it as root, or start the host engine with --home-dir",
    ),
    101: ("{gpu} (Xid in the kernel log)", "read the Xid's number with dmesg and follow its class"),
    112: ("fabric manager (NVLink fabric still training, or failed), not a single GPU", "wait for it, then test again"),
    129: ("NCCL inside the node (NVLink, NVSwitch or the NCCL installation)", "run all_reduce_perf by hand"),
}

ERRORS: dict[int, Meaning] = {
    number: Meaning(
        id=number,
        name=name,
        severity=severity,
        weight=weight,
        suspect=_OWN.get(number, _SHARED[shared])[0],
        remedy=_OWN.get(number, _SHARED[shared])[1],
    )
    for number, name, severity, weight, shared in _ROWS
}


def meaning(number: int | None) -> Meaning:
    """What this id means; of an unknown one (or of none, in versions without ids) that it is not known."""
    known = ERRORS.get(number) if number is not None else None
    if known is not None:
        return known
    what = f"DCGM error {number}, not in our table" if number is not None else "a DCGM error without a number"
    return Meaning(
        id=-1 if number is None else number,
        name="UNLISTED",
        severity="UNKNOWN",
        weight=HARDWARE,
        suspect="{gpu} (" + what + ")",
        remedy="read the error's text and NVIDIA's list of DCGM errors",
    )
