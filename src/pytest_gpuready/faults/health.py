"""Faults that level 1 hears: a GPU that is gone, its memory, links, settings, and what the kernel log says of it."""

from __future__ import annotations

from typing import Any

from pytest_gpuready.faults import ABOVE_1, BAD, NODE, Documents, Fault, here

_BY_NVML = tuple(
    f"GPU-{n}" for n in (2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)
)
_NVLINK = tuple(f"NVL-{n}" for n in range(1, 7))
_BY_LOG = ("GPU-28", "GPU-29", "GPU-36")


def _nvml_lost(documents: Documents) -> None:
    documents.drop_from_nvml(BAD)


def _gone(documents: Documents) -> None:
    documents.drop_from_nvml(BAD)
    documents.drop_from_bus(BAD)


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


HEALTH: tuple[Fault, ...] = (
    Fault(
        name="gpu-lost-by-nvml",
        says="One GPU is on the bus and NVML does not know it.",
        change=_nvml_lost,
        reddens=here("GPU-1"),
        opens=here(*_BY_NVML, *_NVLINK),
        blocks=ABOVE_1,
        suspect="not answered by NVML",
    ),
    Fault(
        name="gpu-gone",
        says="One GPU is neither on the bus nor known to NVML; the site file expects it.",
        change=_gone,
        reddens=here("GPU-1"),
        opens=here(*_BY_NVML, *_NVLINK, *_BY_LOG),
        blocks=ABOVE_1,
        suspect="absent",
        site="list",
    ),
    Fault(
        name="nvlink-down",
        says="One NVLink of one GPU is down.",
        change=_nvlink_down,
        reddens=here("NVL-1", "NVL-6"),
        blocks=ABOVE_1,
        suspect="link 11",
    ),
    Fault(
        name="remap-pending",
        says="A row of one GPU waits to be remapped.",
        change=_set(remap_pending=1),
        reddens=here("GPU-12"),
        blocks=ABOVE_1,
        suspect="reset GPU 3",
    ),
    Fault(
        name="ecc-uncorrected",
        says="One GPU counted an uncorrected memory error since the driver was loaded.",
        change=_set(ecc_uncorrected_volatile=2, ecc_uncorrected_aggregate=2),
        reddens=here("GPU-9", "GPU-10"),
        blocks=ABOVE_1,
        suspect="GPU 3",
    ),
    Fault(
        name="xid-79",
        says="The kernel log says that one GPU fell off the bus.",
        change=_xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        reddens=here("GPU-28"),
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
        reddens=here("GPU-23"),
        blocks=ABOVE_1,
        suspect="power brake",
    ),
    Fault(
        name="mig-on",
        says="MIG was left on on one GPU.",
        change=_set(mig_current=True, mig_pending=True),
        reddens=here("GPU-17"),
        blocks=ABOVE_1,
        suspect="MIG",
    ),
    Fault(
        name="foreign-process",
        says="Somebody else's process uses one GPU.",
        change=_set(processes=[{"pid": 4711, "name": "python3", "used_mib": 1024}]),
        reddens=here("GPU-26"),
        blocks=ABOVE_1,
        suspect="4711",
    ),
    Fault(
        name="mixed-vbios",
        says="One GPU runs another VBIOS than its neighbours.",
        change=_mixed_vbios,
        reddens=here("GPU-4"),
        blocks=ABOVE_1,
        suspect="96.00.74.00.01",
    ),
    Fault(
        name="fabric-in-progress",
        says="One GPU is still registering with its NVLink fabric.",
        change=_set(fabric_state=2),
        reddens=here("GPU-27"),
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
        name="gpu-not-started",
        says="The driver could not start one GPU when it was first opened.",
        change=_line("NVRM: GPU {bdf}: RmInitAdapter failed! (0x24:0xffff:1436)"),
        reddens=here("GPU-28"),
        blocks=ABOVE_1,
        suspect="GPU initialisation failed on 0000:4c:00.0",
    ),
    Fault(
        name="aer-fatal",
        says="The kernel log holds an uncorrected PCIe error of one GPU.",
        change=_line(
            "nvidia {bdf}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
        ),
        reddens=here("GPU-36"),
        blocks=ABOVE_1,
        suspect="Fatal Transaction Layer on 0000:4c:00.0",
    ),
    Fault(
        name="aer-on-the-path",
        says="The kernel log holds an uncorrected PCIe error of a bridge above one GPU.",
        change=_aer_on_the_path,
        reddens=here("GPU-36"),
        blocks=ABOVE_1,
        suspect="Non-Fatal Transaction Layer on 0000:4a:01.0",
    ),
)
