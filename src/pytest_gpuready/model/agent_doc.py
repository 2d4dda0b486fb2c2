"""What the agent prints: the wire format between a node and us, version 1.

Every agent command prints exactly one JSON document, an `Envelope`, and nothing else on stdout. A value that NVML or
the kernel did not give is None and stands in `errors` (field name -> error name, e.g. "NotSupported"): nobody here
turns "could not read" into 0 or -1. Bus addresses are lower-case with a four-digit domain ("0000:19:00.0"), PCI ids
"10de:2335". Decoding forbids unknown fields, so a document of another version never half-fits.
"""

from __future__ import annotations

from typing import Any

import msgspec

PROTOCOL = 1

CHILD_GRACE_S = 11.0
"""How long the child of "around" has to end by itself when it was told to: `dcgmi` needs about 4 s for it."""

AROUND_GRACE_S = 20.0
"""What a transport gives to "around" (`Command.grace_s`): its child's grace, the end of the watch, the document."""


class Wire(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of all wire types."""


class Envelope(Wire, frozen=True, kw_only=True):
    """Around every document: who speaks, on which boot, in which format. `data` is the probe's own document."""

    gpuready_agent: int
    probe: str
    host: str
    boot_id: str
    data: msgspec.Raw


# --- probe "node": no NVML, no CUDA; what the kernel shows ------------------------------------------------------------


class PciLink(Wire, frozen=True, kw_only=True):
    """A PCIe link as sysfs shows it: GT/s per lane and lanes, now and at most. None where sysfs has no such file."""

    speed_gt_per_s: float | None = None
    width: int | None = None
    speed_max_gt_per_s: float | None = None
    width_max: int | None = None


class PciBridge(Wire, frozen=True, kw_only=True):
    """A bridge or switch port between a GPU and the root complex."""

    bdf: str
    link: PciLink


class PciGpu(Wire, frozen=True, kw_only=True):
    """An NVIDIA display function (class 0x03xx) on the PCI bus; `path` goes up from the GPU to the root port."""

    bdf: str
    pci_id: str
    link: PciLink
    numa_node: int = -1
    path: list[PciBridge] = []


class LogLine(Wire, frozen=True, kw_only=True):
    """One kernel-log line: seconds since boot and text. Only lines about GPUs, NVSwitches, PCIe and AER are kept."""

    t: float
    text: str


class KernelLog(Wire, frozen=True, kw_only=True):
    """The kernel log since boot. `complete` is False where the ring buffer has lost its beginning; `problem` says why
    nothing could be read. `total_lines` counts all lines read, before the filter."""

    source: str = ""
    complete: bool = False
    total_lines: int = 0
    lines: list[LogLine] = []
    problem: str = ""


class NcclConf(Wire, frozen=True, kw_only=True):
    """Settings found in an nccl.conf, one NAME=VALUE an entry."""

    path: str
    settings: list[str]


class DcgmDoc(Wire, frozen=True, kw_only=True):
    """DCGM as it is installed; no diagnostic is run for it."""

    path: str
    """Of `dcgmi`."""
    version: str = ""
    """What `dcgmi --version` says, "4.6.0"; "" where it says nothing within some seconds."""
    root: bool = False
    machine: str = ""
    """As `uname -m` says it."""
    host_engine: list[int] = []
    """Process ids of nv-hostengine."""
    diagnostics: dict[str, str] = {}
    """Process id -> command name of every diagnostic that runs now (nvvs, dcgmi diag)."""
    plugins: dict[str, list[str]] = {}
    """Plug-in folder -> libraries in it."""
    sku_file: str = ""
    """Path of diag-skus.yaml; "" where none was found."""
    sku_sha256: str = ""
    skus: dict[str, list[str]] = {}
    """PCI device id of a GPU found ("2335") -> its entries in that file, as they stand there."""
    sku_problem: str = ""
    environment: dict[str, str] = {}
    """DCGM_* variables that a diagnostic would see: of the host engine where there is one, else our own."""
    environment_problem: str = ""
    """Why they are not known."""


class NodeDoc(Wire, frozen=True, kw_only=True):
    """What a node says about itself without any NVIDIA library."""

    hostname: str
    kernel: str
    system_vendor: str = ""
    system_product: str = ""
    system_serial: str = ""
    virtual: str = ""
    """ "" on bare metal, else the hypervisor as the machine names it."""
    container: str = ""
    cpu_count: int = 0
    memory_mib: int = 0
    pci_visible: bool = True
    """False where sysfs shows no PCI bus at all (a sandbox)."""
    gpus: list[PciGpu] = []
    driver_module: str = ""
    """Version of the loaded nvidia kernel module, "" where none is loaded."""
    nvidia_devices: list[str] = []
    nouveau: bool = False
    kernel_log: KernelLog
    environment: dict[str, str] = {}
    """NCCL_* and CUDA_* variables of the agent's process; values longer than 200 characters are cut."""
    nccl_conf: list[NcclConf] = []
    dcgm: DcgmDoc | None = None
    """None where no dcgmi is on the PATH."""
    agent_version: str = ""
    python: str = ""


# --- probe "nvml" -----------------------------------------------------------------------------------------------------


class NvLinkDoc(Wire, frozen=True, kw_only=True):
    """One NVLink. `version` is "4.0" (not NVML's enum), `speed_mb_per_s` raw, per direction. Error counters are read
    twice, `window_s` apart (see NvmlDoc): before and after."""

    link: int
    active: bool | None = None
    version: str | None = None
    speed_mb_per_s: int | None = None
    remote: str | None = None
    """ "gpu", "switch", "cpu" or "unknown"."""
    remote_bdf: str | None = None
    replay: tuple[int, int] | None = None
    recovery: tuple[int, int] | None = None
    crc: tuple[int, int] | None = None
    errors: dict[str, str] = {}


class ProcessDoc(Wire, frozen=True, kw_only=True):
    """A process that uses the GPU."""

    pid: int
    name: str = ""
    used_mib: int | None = None


class GpuDoc(Wire, frozen=True, kw_only=True):
    """One GPU as NVML shows it."""

    bdf: str
    pci_id: str
    index: int
    name: str = ""
    uuid: str = ""
    serial: str = ""
    part_number: str = ""
    vbios: str | None = None
    inforom_image: str | None = None
    inforom_valid: bool | None = None
    module_id: int | None = None
    memory_total_mib: int | None = None
    memory_clock_max_mhz: int | None = None
    memory_bus_width_bit: int | None = None
    virtualization_mode: int | None = None
    gsp_version: str | None = None
    ecc_current: bool | None = None
    ecc_pending: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    ecc_corrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    remap_correctable: int | None = None
    remap_uncorrectable: int | None = None
    remap_pending: int | None = None
    remap_failure: int | None = None
    retired_pages_pending: int | None = None
    recovery_action: int | None = None
    mig_current: bool | None = None
    mig_pending: bool | None = None
    compute_mode: int | None = None
    persistence: bool | None = None
    power_enforced_mw: int | None = None
    power_default_mw: int | None = None
    power_now_mw: int | None = None
    clock_sm_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_app_sm_mhz: int | None = None
    clock_app_sm_default_mhz: int | None = None
    clock_app_memory_mhz: int | None = None
    clock_app_memory_default_mhz: int | None = None
    clock_event_reasons: int | None = None
    temperature_gpu_c: int | None = None
    temperature_memory_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_memory_max_c: int | None = None
    temperature_margin_c: int | None = None
    temperature_slowdown_tlimit_c: int | None = None
    """Slowdown as a margin (signed): slowdown is reached when `temperature_margin_c` has sunk to it."""
    processes: list[ProcessDoc] | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None
    fabric_health_mask: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    """What device and slot can both do."""
    pcie_generation_max_device: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlink_count: int | None = None
    nvlinks: list[NvLinkDoc] = []
    p2p_nvlink: dict[str, int] = {}
    """Peer's bdf -> NVML P2P status for NVLink (0 is OK)."""
    errors: dict[str, str] = {}


class NvmlDoc(Wire, frozen=True, kw_only=True):
    """All GPUs of a node as NVML shows them. `problem` is set, and `gpus` empty, where NVML itself does not answer."""

    problem: str = ""
    driver_module: str = ""
    """Version of the loaded nvidia kernel module, "" where none is loaded."""
    driver: str = ""
    nvml: str = ""
    cuda: str = ""
    """CUDA version that the driver supports, "13.0"."""
    libraries: dict[str, str] = {}
    """Library -> version in the file name that was really loaded: {"libnvidia-ml": "580.159.04", "libcuda": ...}."""
    window_s: float = 0.0
    """Seconds between the two readings of the NVLink error counters."""
    gpus: list[GpuDoc] = []
    lost: dict[str, str] = {}
    """Index or bdf of a GPU that NVML counts but could not open -> error name."""


# --- probes "copies" (one GPU) and "copies-together" (all GPUs of the node) -------------------------------------------


class WatchDoc(Wire, frozen=True, kw_only=True):
    """What was seen on one GPU around and during a load.

    `before` and `after` are counters by name (pcie_replay, pcie_nak_sent, pcie_nak_received, pcie_bad_tlp,
    pcie_receiver, pcie_lane, pcie_recovery, pcie_fatal, pcie_nonfatal, pcie_correctable, ecc_uncorrected_volatile,
    ecc_corrected_volatile, throttle_thermal_ns, throttle_power_brake_ns, ..); a counter that the GPU lacks is absent.
    `samples` are columns of equal length, a column per name; `t` is seconds since the start of the watch; None where a
    reading failed. Columns: t, power_w, sm_mhz, memory_mhz, temperature_c, memory_temperature_c, reasons, generation,
    width, utilisation.
    """

    period_s: float
    before: dict[str, int]
    after: dict[str, int]
    samples: dict[str, list[float | None]]
    phases: list[tuple[str, float, float]] = []
    """Name, start and end in the same seconds as `t`: which samples were taken under which load."""
    log: list[LogLine] = []
    """Kernel-log lines of the window, filtered as in `KernelLog`."""
    log_problem: str = ""
    errors: dict[str, str] = {}


class CopyDoc(Wire, frozen=True, kw_only=True):
    """One kind of copy: "h2d", "d2h" or "bidirectional" (GB/s of each direction, and both together as `gb_per_s`)."""

    kind: str
    gb_per_s: float
    """Median over `repeats`, 10^9 bytes per second; for bidirectional the sum of both directions."""
    repeats: list[float]
    size_bytes: int
    moved_bytes: int
    verified: bool
    """True where the bytes that arrived were compared with those sent."""
    wrong_bytes: int | None = None
    """Bytes that arrived otherwise than they were sent; "h2d" and "d2h" share one comparison. None: not counted."""
    each: dict[str, float] = {}
    """For bidirectional: "h2d" and "d2h" -> median GB/s of that direction in the same window."""


class AerDoc(Wire, frozen=True, kw_only=True):
    """AER totals summed over the GPU and its path, before and after; None where sysfs has none."""

    correctable: tuple[int, int] | None = None
    fatal: tuple[int, int] | None = None
    nonfatal: tuple[int, int] | None = None


class CopiesDoc(Wire, frozen=True, kw_only=True):
    """Host copies of one GPU. `problem` is set where CUDA did not get as far as a number."""

    bdf: str
    problem: str = ""
    cuda_device: str = ""
    copies: list[CopyDoc] = []
    numa_node: int = -1
    cpus: str = ""
    """CPUs that the copying thread was bound to, "0-15"; "" where it could not be bound."""
    watch: WatchDoc | None = None
    path: list[PciBridge] = []
    """Bridges up to the root port, read while data moved."""
    aer: AerDoc | None = None
    log_after: KernelLog | None = None
    """The whole kernel log since boot, read when the copies have ended; None where nobody read it."""
    pcie_generation_max: int | None = None
    pcie_generation_max_device: int | None = None
    packages: dict[str, str] = {}


class TogetherDoc(Wire, frozen=True, kw_only=True):
    """Copies of all GPUs of the node at the same time: first all to the device, then all to the host."""

    problem: str = ""
    gb_per_s: dict[str, float] = {}
    """Host to device: bdf -> GB/s."""
    d2h_gb_per_s: dict[str, float] = {}
    """Device to host, in the same way; empty where an older agent copied one way only."""
    seconds: float = 0.0
    log_after: KernelLog | None = None
    """As in `CopiesDoc`."""


# --- probes "after-2" to "after-4" ------------------------------------------------------------------------------------


class AfterDoc(Wire, frozen=True, kw_only=True):
    """The health of a node when all load of a level has ended: NVML, then the whole kernel log, then the PCI bus."""

    nvml: NvmlDoc
    log: KernelLog
    bus: list[PciGpu]
    """As `NodeDoc.gpus`."""


# --- probe "around": another tool, under the watch -------------------------------------------------------------------


class AroundDoc(Wire, frozen=True, kw_only=True):
    """A tool that ran as our child on the node, what it printed, and what was seen on the GPUs meanwhile.

    `exit_code` is as a shell would see it, 128 + n for signal n; None where it could not be started (`problem`).
    `ended_early` is True where it was told to end (deadline, Ctrl-C) before it, and the watch over it, had done so by
    themselves. The kernel log is one for all GPUs and stands here; the parser puts it into every `WatchDoc` as well.
    """

    argv: list[str]
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    ended_early: bool = False
    problem: str = ""
    cut: bool = False
    """True where it printed more than is kept."""
    watch: dict[str, WatchDoc] = {}
    """Bus address -> what was seen; a GPU that could not be watched is absent."""
    watch_problem: str = ""
    log: list[LogLine] = []
    """Kernel-log lines of the window, filtered as in `KernelLog`."""
    log_problem: str = ""


def encode(*, probe: str, host: str, boot_id: str, data: Any) -> bytes:
    """The envelope around a document, as one line of JSON."""
    raw = msgspec.Raw(msgspec.json.encode(data))
    return msgspec.json.encode(Envelope(gpuready_agent=PROTOCOL, probe=probe, host=host, boot_id=boot_id, data=raw))
