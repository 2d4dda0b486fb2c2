"""The faults that ship, each with what it must redden. They are written for a node with at least five GPUs."""

from __future__ import annotations

from typing import Any

from pytest_gpuready.faults import NODE, Documents, Fault

BAD = 3
"""The GPU that is broken, by its index in bus order."""
ABOVE_1, ABOVE_2 = (2, 3, 4), (3, 4)
"""Levels that do not run where a gate of level 1, or of level 2, fails."""

_BY_NVML = tuple(
    f"GPU-{n}" for n in (2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)
)
_NVLINK = tuple(f"NVL-{n}" for n in range(1, 7))
_BY_LOG = ("GPU-28", "GPU-29", "GPU-36")


def _here(*clauses: str, gpu: int = BAD) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(clauses, (gpu,))


def _nvml_lost(documents: Documents) -> None:
    documents.drop_from_nvml(BAD)


def _gone(documents: Documents) -> None:
    documents.drop_from_nvml(BAD)
    documents.drop_from_bus(BAD)


def _link(column: str, value: float, share: float) -> Any:
    """The link shows `value` in every sample under load and copies reach `share` of what they did."""

    def change(documents: Documents) -> None:
        for copies in documents.copies(BAD):
            samples = copies["watch"]["samples"]
            samples[column] = [value for _ in samples[column]]
            for made in copies["copies"]:
                made["gb_per_s"] *= share
                made["repeats"] = [v * share for v in made["repeats"]]
                made["each"] = {k: v * share for k, v in made["each"].items()}

    return change


def _nvlink_down(documents: Documents) -> None:
    link = documents.gpu(BAD)["nvlinks"][11]
    link.update(active=False, version=None, speed_mb_per_s=None, remote=None, replay=None, recovery=None, crc=None)
    link["errors"] = dict.fromkeys(("version", "speed_mb_per_s", "replay", "recovery", "crc"), "NotSupported")


def _set(**values: Any) -> Any:
    def change(documents: Documents) -> None:
        documents.gpu(BAD).update(values)

    return change


def _xid(number: int, text: str) -> Any:
    def change(documents: Documents) -> None:
        documents.log(f"NVRM: Xid (PCI:{documents.bdfs[BAD].rsplit('.', 1)[0]}): {number}, {text}")

    return change


def _foreign_variable(documents: Documents) -> None:
    documents.node["environment"]["NCCL_P2P_DISABLE"] = "1"


def _mixed_vbios(documents: Documents) -> None:
    documents.gpu(BAD)["vbios"] = "96.00.74.00.01"


def _xid_meanwhile(documents: Documents) -> None:
    line = f"NVRM: Xid (PCI:{documents.bdfs[BAD].rsplit('.', 1)[0]}): 48, DBE (double bit error) ECC"
    for copies in documents.copies(BAD):
        copies["watch"]["log"].append({"t": 1.0, "text": line})
    _stays(documents, line)


def _stays(documents: Documents, text: str) -> None:
    """What the kernel log said while a load went on stands there after all load, too."""
    documents.after(2)["log"]["lines"].append({"t": 2000.0, "text": text})


def _bytes_differ(documents: Documents) -> None:
    """The last of the three comparisons found wrong bytes: all copies have a rate all the same."""
    for copies in documents.copies(BAD):
        copies["problem"] = (
            "bytes differ: expected 536870912 equal bytes after copies in both directions, found 4096 wrong"
        )
        copies["copies"][-1].update(verified=False, wrong_bytes=4096)


def _after_the_copies(text: str) -> Any:
    def change(documents: Documents) -> None:
        line = text.format(address=documents.bdfs[BAD].rsplit(".", 1)[0])
        for copies in documents.copies(BAD):
            copies["log_after"]["lines"].append({"t": 2000.0, "text": line})
        _stays(documents, line)

    return change


def _brake_under_load(documents: Documents) -> None:
    for copies in documents.copies(BAD):
        samples = copies["watch"]["samples"]
        samples["reasons"] = [0x80 for _ in samples["reasons"]]


_COPIED = tuple(f"PCIE-{n}" for n in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20))


def _xid_together(documents: Documents) -> None:
    line = f"NVRM: Xid (PCI:{documents.bdfs[BAD].rsplit('.', 1)[0]}): 79, GPU has fallen off the bus."
    documents.together["log_after"]["lines"].append({"t": 2000.0, "text": line})
    _stays(documents, line)


def _after_load(text: str = "", **values: Any) -> Any:
    """All load of level 2 has ended: this line stands in the kernel log and the GPU shows these values."""

    def change(documents: Documents) -> None:
        after, bdf = documents.after(2), documents.bdfs[BAD]
        if text:
            after["log"]["lines"].append({"t": 3000.0, "text": text.format(address=bdf.rsplit(".", 1)[0])})
        next(gpu for gpu in after["nvml"]["gpus"] if gpu["bdf"] == bdf).update(values)

    return change


def _gone_after_load(documents: Documents) -> None:
    after, bdf = documents.after(2), documents.bdfs[BAD]
    after["bus"] = [gpu for gpu in after["bus"] if gpu["bdf"] != bdf]
    after["nvml"]["gpus"] = [gpu for gpu in after["nvml"]["gpus"] if gpu["bdf"] != bdf]
    for gpu in after["nvml"]["gpus"]:
        gpu["p2p_nvlink"].pop(bdf, None)


def _exchanged_after_load(documents: Documents) -> None:
    bdf = documents.bdfs[BAD]
    gpu = next(gpu for gpu in documents.after(2)["nvml"]["gpus"] if gpu["bdf"] == bdf)
    gpu["uuid"] = "GPU-99999999-0000-4000-8000-000000000099"


def _line(text: str) -> Any:
    """A line of the kernel log since boot about the bad GPU."""

    def change(documents: Documents) -> None:
        documents.log(text.format(bdf=documents.bdfs[BAD]))

    return change


def _aer_on_the_path(documents: Documents) -> None:
    """The bridge above the GPU reports the error, as the port of a switch does."""
    bridge = "0000:4a:01.0"
    for gpu in documents.node["gpus"]:
        if gpu["bdf"] == documents.bdfs[BAD]:
            gpu["path"] = [{"bdf": bridge, "link": gpu["link"]}]
    documents.log(f"pcieport {bridge}: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer")


_ALL = tuple(range(8))

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="xid-while-all-copy",
        says="A GPU falls off the bus while all GPUs copy at once.",
        change=_xid_together,
        reddens={"PCIE-8": _ALL, "PCIE-21": _ALL, "AFTER-1": (BAD,)},
        blocks=ABOVE_2,
        suspect="Xid 79 of 0000:4c:00.0",
    ),
    Fault(
        name="gpu-lost-by-nvml",
        says="One GPU is on the bus and NVML does not know it.",
        change=_nvml_lost,
        reddens=_here("GPU-1"),
        opens=_here(*_BY_NVML, *_NVLINK),
        blocks=ABOVE_1,
        suspect="not answered by NVML",
    ),
    Fault(
        name="gpu-gone",
        says="One GPU is neither on the bus nor known to NVML; the site file expects it.",
        change=_gone,
        reddens=_here("GPU-1"),
        opens=_here(*_BY_NVML, *_NVLINK, *_BY_LOG),
        blocks=ABOVE_1,
        suspect="absent",
        site="list",
    ),
    Fault(
        name="pcie-gen3",
        says="The PCIe link of one GPU trained to Gen3.",
        change=_link("generation", 3, 0.25),
        reddens=_here("PCIE-1", "PCIE-5", "PCIE-6"),
        blocks=ABOVE_2,
        suspect="found 3",
    ),
    Fault(
        name="pcie-x8",
        says="The PCIe link of one GPU has eight lanes.",
        change=_link("width", 8, 0.5),
        reddens=_here("PCIE-2", "PCIE-5", "PCIE-6"),
        blocks=ABOVE_2,
        suspect="found 8",
    ),
    Fault(
        name="nvlink-down",
        says="One NVLink of one GPU is down.",
        change=_nvlink_down,
        reddens=_here("NVL-1", "NVL-6"),
        blocks=ABOVE_1,
        suspect="link 11",
    ),
    Fault(
        name="remap-pending",
        says="A row of one GPU waits to be remapped.",
        change=_set(remap_pending=1),
        reddens=_here("GPU-12"),
        blocks=ABOVE_1,
        suspect="reset GPU 3",
    ),
    Fault(
        name="ecc-uncorrected",
        says="One GPU counted an uncorrected memory error since the driver was loaded.",
        change=_set(ecc_uncorrected_volatile=2, ecc_uncorrected_aggregate=2),
        reddens=_here("GPU-9", "GPU-10"),
        blocks=ABOVE_1,
        suspect="GPU 3",
    ),
    Fault(
        name="xid-79",
        says="The kernel log says that one GPU fell off the bus.",
        change=_xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        reddens=_here("GPU-28"),
        blocks=ABOVE_1,
        suspect="79",
    ),
    Fault(
        name="xid-31",
        says="An application caused a page fault on one GPU: reported, nobody is condemned.",
        change=_xid(31, "pid=4711, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS faulted"),
        reddens={},
    ),
    Fault(
        name="power-brake",
        says="The power brake holds the clocks of one GPU.",
        change=_set(clock_event_reasons=0x80),
        reddens=_here("GPU-23"),
        blocks=ABOVE_1,
        suspect="power brake",
    ),
    Fault(
        name="mig-on",
        says="MIG was left on on one GPU.",
        change=_set(mig_current=True, mig_pending=True),
        reddens=_here("GPU-17"),
        blocks=ABOVE_1,
        suspect="MIG",
    ),
    Fault(
        name="foreign-process",
        says="Somebody else's process uses one GPU.",
        change=_set(processes=[{"pid": 4711, "name": "python3", "used_mib": 1024}]),
        reddens=_here("GPU-26"),
        blocks=ABOVE_1,
        suspect="4711",
    ),
    Fault(
        name="mixed-vbios",
        says="One GPU runs another VBIOS than its neighbours.",
        change=_mixed_vbios,
        reddens=_here("GPU-4"),
        blocks=ABOVE_1,
        suspect="96.00.74.00.01",
    ),
    Fault(
        name="fabric-in-progress",
        says="One GPU is still registering with its NVLink fabric.",
        change=_set(fabric_state=2),
        reddens=_here("GPU-27"),
        blocks=ABOVE_1,
        suspect="in progress",
    ),
    Fault(
        name="foreign-variable",
        says="A foreign NCCL variable stands in the environment.",
        change=_foreign_variable,
        reddens={"GPU-32": (NODE,)},
        blocks=ABOVE_1,
        suspect="NCCL_P2P_DISABLE=1",
    ),
    Fault(
        name="bytes-differ",
        says="Bytes do not arrive at one GPU as they were sent.",
        change=_bytes_differ,
        reddens=_here("PCIE-17"),
        opens=_here(*(f"PCIE-{n}" for n in (*range(1, 8), *range(9, 17), 18, 19, 20))),
        blocks=ABOVE_2,
        suspect="4096",
    ),
    Fault(
        name="xid-after-copying",
        says="A hardware Xid stands in the kernel log when a GPU has copied.",
        change=_after_the_copies("NVRM: Xid (PCI:{address}): 79, GPU has fallen off the bus."),
        reddens=_here("PCIE-18", "AFTER-1"),
        blocks=ABOVE_2,
        suspect="79",
    ),
    Fault(
        name="sxid-after-copying",
        says="A fatal SXid stands in the kernel log when a GPU has copied.",
        change=_after_the_copies("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
        reddens={**_here("PCIE-19"), "AFTER-2": (NODE,)},
        blocks=ABOVE_2,
        suspect="20034",
    ),
    Fault(
        name="power-brake-under-load",
        says="The power brake holds the clocks of one GPU while it copies.",
        change=_brake_under_load,
        reddens=_here("PCIE-20"),
        blocks=ABOVE_2,
        suspect="power brake",
    ),
    Fault(
        name="xid-while-copying",
        says="A hardware Xid appears in the kernel log while a GPU copies at full speed.",
        change=_xid_meanwhile,
        reddens=_here(*_COPIED, "AFTER-1"),
        blocks=ABOVE_2,
        suspect="Xid 48",
    ),
    Fault(
        name="gpu-not-started",
        says="The driver could not start one GPU when it was first opened.",
        change=_line("NVRM: GPU {bdf}: RmInitAdapter failed! (0x24:0xffff:1436)"),
        reddens=_here("GPU-28"),
        blocks=ABOVE_1,
        suspect="GPU initialisation failed on 0000:4c:00.0",
    ),
    Fault(
        name="aer-fatal",
        says="The kernel log holds an uncorrected PCIe error of one GPU.",
        change=_line(
            "nvidia {bdf}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
        ),
        reddens=_here("GPU-36"),
        blocks=ABOVE_1,
        suspect="Fatal Transaction Layer on 0000:4c:00.0",
    ),
    Fault(
        name="aer-on-the-path",
        says="The kernel log holds an uncorrected PCIe error of a bridge above one GPU.",
        change=_aer_on_the_path,
        reddens=_here("GPU-36"),
        blocks=ABOVE_1,
        suspect="Non-Fatal Transaction Layer on 0000:4a:01.0",
    ),
    Fault(
        name="recovery-after-load",
        says="After the load Xid 154 stands in the kernel log and the driver asks for a reset of one GPU.",
        change=_after_load(
            "NVRM: Xid (PCI:{address}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            recovery_action=1,
        ),
        reddens=_here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="GPU-16 recovery.action GPU reset, promised none (also noted: Xid 154",
    ),
    Fault(
        name="remap-pending-after-load",
        says="After the load a row of one GPU waits to be remapped.",
        change=_after_load(remap_pending=1),
        reddens=_here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="GPU-12 remap.pending 1, promised 0",
    ),
    Fault(
        name="gpu-gone-after-load",
        says="One GPU is neither on the bus nor known to NVML after the load.",
        change=_gone_after_load,
        reddens=_here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="gone from the PCI bus",
    ),
    Fault(
        name="gpu-exchanged-after-load",
        says="Another GPU answers at the address of one after the load.",
        change=_exchanged_after_load,
        reddens=_here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="another GPU at 0000:4c:00.0",
    ),
    Fault(
        name="sxid-after-load",
        says="A fatal SXid stands in the kernel log only after all load.",
        change=_after_load("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
        reddens={"AFTER-2": (NODE,)},
        blocks=ABOVE_2,
        suspect="20034",
    ),
)
