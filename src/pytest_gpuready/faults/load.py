"""Faults that show only under load, or when it has ended."""

from __future__ import annotations

from typing import Any

from pytest_gpuready.faults import ABOVE_2, BAD, NODE, Documents, Fault, here

_COPIED = tuple(f"PCIE-{n}" for n in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20))
_ALL = tuple(range(8))


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


def _behind_its_peers(documents: Documents) -> None:
    """Copies to the GPU reach 84 % of what they did: more than the profile's own limit asks of any H200."""
    for copies in documents.copies(BAD):
        made = next(copy for copy in copies["copies"] if copy["kind"] == "h2d")
        made["gb_per_s"] *= 0.84
        made["repeats"] = [v * 0.84 for v in made["repeats"]]


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


LOAD: tuple[Fault, ...] = (
    Fault(
        name="xid-while-all-copy",
        says="A GPU falls off the bus while all GPUs copy at once.",
        change=_xid_together,
        reddens={"PCIE-8": _ALL, "PCIE-21": _ALL, "PCIE-22": _ALL, "AFTER-1": (BAD,)},
        blocks=ABOVE_2,
        suspect="Xid 79 of 0000:4c:00.0",
    ),
    Fault(
        name="pcie-gen3",
        says="The PCIe link of one GPU trained to Gen3.",
        change=_link("generation", 3, 0.25),
        reddens=here("PCIE-1", "PCIE-5", "PCIE-6"),
        blocks=ABOVE_2,
        suspect="found 3",
    ),
    Fault(
        name="pcie-x8",
        says="The PCIe link of one GPU has eight lanes.",
        change=_link("width", 8, 0.5),
        reddens=here("PCIE-2", "PCIE-5", "PCIE-6"),
        blocks=ABOVE_2,
        suspect="found 8",
    ),
    Fault(
        name="behind-its-peers",
        says="Copies to one GPU are 16 % slower than to the others, inside the limit of the profile.",
        change=_behind_its_peers,
        reddens=here("PCIE-5"),
        blocks=ABOVE_2,
        suspect="16 % below the median",
    ),
    Fault(
        name="bytes-differ",
        says="Bytes do not arrive at one GPU as they were sent.",
        change=_bytes_differ,
        reddens=here("PCIE-17"),
        opens=here(*(f"PCIE-{n}" for n in (*range(1, 8), *range(9, 17), 18, 19, 20))),
        blocks=ABOVE_2,
        suspect="4096",
    ),
    Fault(
        name="xid-after-copying",
        says="A hardware Xid stands in the kernel log when a GPU has copied.",
        change=_after_the_copies("NVRM: Xid (PCI:{address}): 79, GPU has fallen off the bus."),
        reddens=here("PCIE-18", "AFTER-1"),
        blocks=ABOVE_2,
        suspect="79",
    ),
    Fault(
        name="sxid-after-copying",
        says="A fatal SXid stands in the kernel log when a GPU has copied.",
        change=_after_the_copies("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
        reddens={**here("PCIE-19"), "AFTER-2": (NODE,)},
        blocks=ABOVE_2,
        suspect="20034",
    ),
    Fault(
        name="power-brake-under-load",
        says="The power brake holds the clocks of one GPU while it copies.",
        change=_brake_under_load,
        reddens=here("PCIE-20"),
        blocks=ABOVE_2,
        suspect="power brake",
    ),
    Fault(
        name="xid-while-copying",
        says="A hardware Xid appears in the kernel log while a GPU copies at full speed.",
        change=_xid_meanwhile,
        reddens=here(*_COPIED, "AFTER-1"),
        blocks=ABOVE_2,
        suspect="Xid 48",
    ),
    Fault(
        name="recovery-after-load",
        says="After the load Xid 154 stands in the kernel log and the driver asks for a reset of one GPU.",
        change=_after_load(
            "NVRM: Xid (PCI:{address}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            recovery_action=1,
        ),
        reddens=here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="GPU-16 recovery.action GPU reset, promised none (also noted: Xid 154",
    ),
    Fault(
        name="remap-pending-after-load",
        says="After the load a row of one GPU waits to be remapped.",
        change=_after_load(remap_pending=1),
        reddens=here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="GPU-12 remap.pending 1, promised 0",
    ),
    Fault(
        name="gpu-gone-after-load",
        says="One GPU is neither on the bus nor known to NVML after the load.",
        change=_gone_after_load,
        reddens=here("AFTER-1"),
        blocks=ABOVE_2,
        suspect="gone from the PCI bus",
    ),
    Fault(
        name="gpu-exchanged-after-load",
        says="Another GPU answers at the address of one after the load.",
        change=_exchanged_after_load,
        reddens=here("AFTER-1"),
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
