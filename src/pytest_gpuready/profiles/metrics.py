"""Every metric that a clause may name: its unit, what it is measured on, whether it is a word, and what it says.

Metric ids are public and stable. A clause with a metric that is not in here does not load: nothing would ever
measure it, and a misspelt one must not end as a clause that nobody notices.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `word` metrics are compared by `equals` or `uniform`, never by a bound."""

    unit: str
    per: str
    says: str
    word: bool = False


def _gpu(says: str, unit: str = "") -> Metric:
    return Metric(unit, "gpu", says)


def _word(says: str) -> Metric:
    return Metric("", "gpu", says, word=True)


FORMATS = ("fp64", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "mxfp8", "fp4")
"""Number formats of matrix products."""


def _products(name: str) -> tuple[tuple[str, Metric], ...]:
    unit, shown = "TOPS" if name == "int8" else "TFLOPS", name.upper().replace("_", " ")
    return (
        (f"stress.{name}.wrong", _gpu(f"Wrong elements of {shown} products.")),
        (f"stress.{name}.sustained", _gpu(f"{shown} products, median of the second half of the load.", unit)),
        (f"stress.{name}.per_clock", _gpu(f"The same over the SM clock it ran at, {shown}.", f"{unit}/GHz")),
        (f"stress.{name}.per_watt", _gpu(f"The same over the board power, {shown}.", f"{unit}/W")),
    )


METRICS: dict[str, Metric] = {
    # what the GPU is
    "gpu.present": _word("Whether the expected GPU is on the PCI bus and answers NVML."),
    "gpu.pci_id": _word("PCI vendor and device id, 10de:2335."),
    "gpu.memory.total": _gpu("Memory that NVML counts in all.", "MiB"),
    "gpu.vbios": _word("VBIOS version."),
    "gpu.inforom.image": _word("InfoROM image version."),
    "inforom.valid": _word("Whether the checksum of the InfoROM holds."),
    "driver.agreement": Metric("", "node", "Whether kernel module, NVML, CUDA and GSP are of one version.", word=True),
    # memory errors
    "ecc.mode": _word("ECC now and after the next reboot."),
    "ecc.uncorrected.volatile": _gpu("Uncorrected ECC errors since the driver loaded."),
    "ecc.uncorrected.aggregate": _gpu("Uncorrected ECC errors in the life of the board."),
    "ecc.corrected.volatile": _gpu("Corrected ECC errors since the driver loaded."),
    "remap.pending": _gpu("Rows that wait for a reset to be remapped: 1 or 0."),
    "remap.failure": _gpu("Whether a row remap has failed: 1 or 0."),
    "remap.correctable": _gpu("Rows remapped because of corrected errors; context, no clause of its own."),
    "remap.uncorrectable": _gpu("Rows remapped because of uncorrectable errors."),
    "retired_pages.pending": _gpu("Pages that wait for retirement, before Ampere."),
    "recovery.action": _word("What the driver asks for to recover the GPU."),
    # modes and settings
    "mig.mode": _word("MIG now and after the next reset."),
    "compute.mode": _word("Who may use the GPU."),
    "persistence.mode": _word("Whether the driver stays loaded between jobs."),
    "power.limit.below_default": _gpu("How far the enforced power limit lies under the default one.", "W"),
    "power.limit.default": _gpu("Power limit that the board asks for.", "W"),
    "clock.locked": _word("Whether clocks are held away from their defaults."),
    "clock.event_reasons": _word("Clock-event reasons beyond the benign ones."),
    "temperature.gpu.margin": _gpu("Degrees between the GPU and its slowdown temperature.", "C"),
    "temperature.memory.margin": _gpu("Degrees between the memory and its maximum.", "C"),
    "processes.foreign": _gpu("Processes of others on the GPU."),
    # fabric and kernel log
    "fabric.state": _word("Registration of the GPU with the NVLink fabric."),
    "xid.hardware": _gpu("Xids of the hardware class in the kernel log since boot."),
    "xid.application": _gpu("Xids of the application class in the kernel log since boot."),
    "xid.unplaced": Metric("", "node", "Hardware Xids on an address that no expected GPU has."),
    "sxid.fatal": Metric("", "node", "Fatal SXids of NVSwitches in the kernel log since boot."),
    "sxid.nonfatal": Metric("", "node", "Other SXids of NVSwitches in the kernel log since boot."),
    "environment.foreign": Metric("", "node", "NCCL and CUDA settings that nobody allowed."),
    "nouveau.loaded": Metric("", "node", "Whether the nouveau driver is loaded.", word=True),
    "gpu.unexpected": Metric("", "node", "GPUs found that nobody expects."),
    # NVLink
    "nvlink.links.active": _gpu("NVLinks that are active."),
    "nvlink.version": _word("NVLink version of the links, 4.0."),
    "nvlink.speed": _gpu("Raw rate of the slowest link, one direction.", "MB/s"),
    "nvlink.errors": _gpu("Growth of replay, recovery and CRC counters while they were watched."),
    "nvlink.errors.total": _gpu("Replay, recovery and CRC counters since the driver loaded."),
    "nvlink.topology": _gpu("NVLinks to the worst connected peer."),
    # PCIe, read while data moves
    "pcie.link.generation": _gpu("Lowest link generation under load."),
    "pcie.link.width": _gpu("Fewest lanes under load."),
    "pcie.slot.generation": _gpu("Generation that card and slot can both do."),
    "pcie.path.bandwidth": _gpu("Theory of the narrowest link up to the root port, one direction.", "GB/s"),
    "pcie.h2d.bandwidth": _gpu("Copy from pinned host memory to the GPU.", "GB/s"),
    "pcie.d2h.bandwidth": _gpu("Copy from the GPU to pinned host memory.", "GB/s"),
    "pcie.bidirectional.bandwidth": _gpu("Both copies at once, both directions together.", "GB/s"),
    "pcie.h2d.concurrent": _gpu("Copy to this GPU while all others copy too.", "GB/s"),
    "pcie.d2h.concurrent": _gpu("Copy from this GPU while all others copy too.", "GB/s"),
    "pcie.errors.fatal": _gpu("Fatal and non-fatal PCIe errors while data moved."),
    "pcie.replays": _gpu("Replays of the link layer.", "per TB"),
    "pcie.errors.nak": _gpu("NAKs sent and received.", "per TB"),
    "pcie.errors.bad_tlp": _gpu("Bad TLPs.", "per TB"),
    "pcie.errors.receiver": _gpu("Receiver errors.", "per TB"),
    "pcie.errors.lane": _gpu("Lane errors.", "per TB"),
    "pcie.aer.correctable": _gpu("Correctable AER errors on the path.", "per TB"),
    "pcie.aer.uncorrectable": _gpu("Uncorrectable AER errors on the path while data moved."),
    "pcie.copies.corrupted": _gpu("Copied bytes that did not arrive as they were sent."),
    "pcie.log.uncorrected": _gpu("Uncorrected PCIe errors of the GPU or its path in the kernel log since boot."),
    "xid.hardware.after": _gpu("Hardware Xids of any GPU in the kernel log since boot, read after the load."),
    "sxid.fatal.after": _gpu("Fatal SXids in the kernel log since boot, read after the load."),
    # dcgmi diag, one test each
    "dcgm.ready": Metric("", "node", "Whether dcgmi diag gives results of this node.", word=True),
    "dcgm.plugins": Metric("", "node", "Diagnostic tests whose plug-in is installed.", word=True),
    "dcgm.software": _word("DCGM's software and deployment checks."),
    "dcgm.software.node": Metric("", "node", "The same checks where DCGM names no GPU.", word=True),
    "dcgm.memory": _word("DCGM test memory."),
    "dcgm.pcie": _word("DCGM test pcie, held to the profile's generation, width, NVLinks and bandwidth."),
    "dcgm.diagnostic": _word("DCGM test diagnostic: matrix products, compared on the device."),
    "dcgm.memory_bandwidth": _word("DCGM test memory_bandwidth."),
    "dcgm.targeted_stress": _word("DCGM test targeted_stress."),
    "dcgm.targeted_power": _word("DCGM test targeted_power."),
    "dcgm.nvbandwidth": _word("DCGM test nvbandwidth; it has no thresholds of its own."),
    "dcgm.eud": _word("DCGM's extended utility diagnostics (EUD)."),
    "dcgm.memtest": _word("DCGM test memtest."),
    "dcgm.pulse_test": _word("DCGM test pulse_test."),
    "dcgm.nccl_tests": Metric("", "node", "DCGM test nccl_tests.", word=True),
    "dcgm.rist": Metric("", "node", "DCGM test rist.", word=True),
    "dcgm.cpu_eud": Metric("", "node", "DCGM's extended utility diagnostics of the CPU.", word=True),
    # the built-in engine, one piece of load each
    "stress.memory.ended": _word("How the load of memory and caches ended."),
    "stress.memory.allocated": _gpu("Part of the memory that could be taken and written.", "%"),
    "stress.memory.wrong": _gpu("Words of memory that were not read as written, short patterns."),
    "stress.cache.l1.wrong": _gpu("Words of the L1 caches that changed."),
    "stress.cache.l2.wrong": _gpu("Words of the L2 cache that changed."),
    **{
        f"stress.hbm.{kernel}": _gpu(f"Bandwidth of the GPU's memory, {says}.", "GB/s")
        for kernel, says in (
            ("read", "read"),
            ("write", "written"),
            ("copy", "copied, read and written together"),
            ("triad", "triad, two reads and a write together"),
        )
    },
    "stress.hbm.share": _gpu("The slowest of these kernels, of what memory clock and bus width allow.", "%"),
    "stress.latency.host": _gpu("One read of pinned host memory that no cache holds.", "ns"),
    "stress.latency.device": _gpu("One read of the GPU's memory that no cache holds.", "ns"),
    "stress.gemm.ended": _word("How the load of matrix products ended."),
    **{metric: entry for name in FORMATS for metric, entry in _products(name)},
    "stress.gemm.digests": _word("Whether the products of all formats are bit for bit those of the peers."),
    "stress.gemm.power": _gpu("Board power under the format that draws the most.", "W"),
    "stress.gemm.reasons": _word("Clock-event reasons beyond the benign ones under matrix products."),
    "stress.patterns.ended": _word("How the memory patterns ended."),
    "stress.patterns.wrong": _gpu("Words of memory that were not read as written, all patterns."),
    "stress.patterns.rate": _gpu("Memory read and written under the slowest pattern.", "GB/s"),
    "stress.pulse.ended": _word("How the load in pulses ended."),
    "stress.pulse.wrong": _gpu("Wrong elements of products in pulses."),
    "stress.pulse.reasons": _word("Clock-event reasons beyond the benign ones under pulses."),
    "stress.pulse.swing": _gpu("How far the power moves between load and idle in slow pulses.", "W"),
    "stress.burn.ended": _word("How the burn-in ended."),
    "stress.burn.wrong": _gpu("Wrong elements of products, and wrong words of memory, in the burn-in."),
    "stress.burn.reasons": _word("Clock-event reasons beyond the benign ones in the burn-in."),
    "stress.burn.power": _gpu("Board power in the second half of the burn-in.", "W"),
    "stress.burn.margin": _gpu("Degrees between the hottest moment of the burn-in and the slowdown temperature.", "C"),
    "stress.burn.hot": _gpu("Time of the burn-in spent within 5 degrees of the slowdown temperature.", "s"),
    "stress.burn.clocks": _gpu("Spread of the SM clock in the second half of the burn-in.", "%"),
    "stress.burn.drift": _gpu("How the temperature moved in the last minute of the burn-in.", "C/min"),
    "copies.together.ended": _word(
        "How copies to all GPUs of the node at once ended, and what the kernel log said then."
    ),
    # health after all load of a level
    **{f"health.after.{n}": _word(f"Health of the GPU after all load of level {n}.") for n in (2, 3, 4)},
    **{
        f"node.after.{n}": Metric("", "node", f"Health of the node after all load of level {n}.", word=True)
        for n in (2, 3, 4)
    },
    "clock.event_reasons.load": _word("Clock-event reasons beyond the benign ones while data moved."),
}

UNITS: tuple[str, ...] = tuple(sorted({m.unit for m in METRICS.values() if m.unit}))

AFTER_LOAD: frozenset[str] = frozenset(name for name in METRICS if name.startswith(("health.after.", "node.after.")))
"""Metrics that say that a load did no harm: a level that promises nothing else promises nothing."""

WORDS: dict[str, tuple[str, ...]] = {
    "gpu.present": ("on the bus and answered by NVML",),
    "inforom.valid": ("valid",),
    "driver.agreement": ("agree",),
    "ecc.mode": ("enabled", "disabled"),
    "recovery.action": ("none",),
    "mig.mode": ("enabled", "disabled"),
    "compute.mode": ("default", "exclusive thread", "exclusive process", "prohibited"),
    "persistence.mode": ("enabled", "disabled"),
    "clock.locked": ("unlocked", "locked by application clocks"),
    "clock.event_reasons": ("none but benign",),
    "clock.event_reasons.load": ("none but benign",),
    "copies.together.ended": ("ended, kernel log quiet",),
    **{name: ("as planned",) for name in METRICS if name.startswith("stress.") and name.endswith(".ended")},
    **{name: ("none but benign",) for name in METRICS if name.startswith("stress.") and name.endswith(".reasons")},
    "stress.gemm.digests": ("equal to its peers",),
    "dcgm.ready": ("ready",),
    **{
        name: ("passed",) for name in METRICS if name.startswith("dcgm.") and name not in ("dcgm.ready", "dcgm.plugins")
    },
    "fabric.state": ("completed", "not supported"),
    "nouveau.loaded": ("not loaded",),
    **dict.fromkeys(sorted(AFTER_LOAD), ("as promised",)),
}
"""Metric -> the words that a clause may ask for: of a setting every state that the probe can say, of health the good
ones alone. Word metrics that are not in here are identities, whose words are the hardware's own."""

UNIFORM: tuple[str, ...] = ("gpu.vbios", "gpu.inforom.image", "nvlink.version")
"""Identities that may be asked to be the same on all GPUs of a node; anything else that is wrong alike is wrong."""

MORE_IS_BETTER: frozenset[str] = frozenset(
    {
        "gpu.memory.total",
        "power.limit.default",
        "temperature.gpu.margin",
        "temperature.memory.margin",
        "nvlink.links.active",
        "nvlink.speed",
        "nvlink.topology",
        "pcie.link.generation",
        "pcie.link.width",
        "pcie.slot.generation",
        "pcie.path.bandwidth",
        "pcie.h2d.bandwidth",
        "pcie.d2h.bandwidth",
        "pcie.bidirectional.bandwidth",
        "pcie.h2d.concurrent",
        "pcie.d2h.concurrent",
        "stress.memory.allocated",
        "stress.hbm.share",
        "stress.patterns.rate",
        "stress.gemm.power",
        "stress.pulse.swing",
        "stress.burn.power",
        "stress.burn.margin",
        *(name for name in METRICS if name.startswith("stress.hbm.")),
        *(name for name in METRICS if name.endswith((".sustained", ".per_clock", ".per_watt"))),
    }
)
"""Metrics of which a part that has nothing at all would keep an upper limit."""
