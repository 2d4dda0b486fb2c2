"""Which GPU an output names: PCI ids in the spellings of the tools, and names that stand for one id.

A name counts only where it is, as a whole, the name of a product in these tables; a name that a table cut short may be
any product that begins like it. Everything else is a GPU that nobody here knows.
"""

from __future__ import annotations

import re

PCI_ID = "gpu.pci_device_id"
"""Metric under which a reader shows the PCI id of a GPU, as "10de:2335" or its device half."""

NVIDIA = "10de"

# Product names by PCI device id, as nvidia-smi prints them.
PRODUCTS: dict[str, str] = {
    "1eb8": "Tesla T4",
    "20b0": "NVIDIA A100-SXM4-40GB",
    "20b2": "NVIDIA A100-SXM4-80GB",
    "20b5": "NVIDIA A100 80GB PCIe",
    "20b7": "NVIDIA A30",
    "20f1": "NVIDIA A100-PCIE-40GB",
    "2235": "NVIDIA A40",
    "2321": "NVIDIA H100 NVL",
    "2330": "NVIDIA H100 80GB HBM3",
    "2331": "NVIDIA H100 PCIe",
    "2335": "NVIDIA H200",
    "233b": "NVIDIA H200 NVL",
    "26b5": "NVIDIA L40",
    "26b9": "NVIDIA L40S",
    "27b8": "NVIDIA L4",
    "2901": "NVIDIA B200",
    "2941": "NVIDIA GB200",
    "3182": "NVIDIA B300",
}
# Names in square brackets by PCI device id, as the list of PCI ids has them that lspci reads.
LSPCI: dict[str, str] = {
    "1eb8": "Tesla T4",
    "20b0": "A100 SXM4 40GB",
    "20b2": "A100 SXM4 80GB",
    "20b5": "A100 PCIe 80GB",
    "20f1": "A100 PCIe 40GB",
    "2330": "H100 SXM5 80GB",
    "2331": "H100 PCIe",
    "2335": "H200 SXM 141GB",
    "26b5": "L40",
    "26b9": "L40S",
    "27b8": "L4",
    "2901": "B200",
}
_BY_LSPCI = {name: device for device, name in LSPCI.items()}
_WHOLE = re.compile(rf"\[?{NVIDIA}:([0-9a-f]{{4}})\]?", re.IGNORECASE)
_TURNED = re.compile(rf"(?:0x)?([0-9a-f]{{4}}){NVIDIA}", re.IGNORECASE)
_HALF = re.compile(r"(?:0x)?([0-9a-f]{4})", re.IGNORECASE)
_IN_LSPCI = re.compile(rf"\b{NVIDIA}:([0-9a-f]{{4}})\b|\bDevice ([0-9a-f]{{4}})\b", re.IGNORECASE)
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")


def pci_id(text: str) -> str:
    """The id "10de:2335" from "0x233510DE" (nvidia-smi), "10de:2335" or "2335"; "" where the text is none of them."""
    found = next((m for p in (_WHOLE, _TURNED, _HALF) if (m := p.fullmatch(text.strip()))), None)
    return f"{NVIDIA}:{found[1].lower()}" if found else ""


def lspci_id(text: str) -> str:
    """The id of an NVIDIA device from what lspci says of it, by number or by name; "" where it says neither."""
    found = _IN_LSPCI.search(text)
    if found:
        return f"{NVIDIA}:{(found[1] or found[2]).lower()}"
    device = next((_BY_LSPCI[name] for name in _BRACKETS.findall(text) if name in _BY_LSPCI), "")
    return f"{NVIDIA}:{device}" if device else ""


def ids_of_name(name: str) -> frozenset[str]:
    """PCI ids that a product of this name, as nvidia-smi prints it, may have; none where no product is known by it.

    Older drivers leave the maker out.
    """
    short = name.removeprefix("NVIDIA ")
    begins = short.removesuffix("...") if name.endswith("...") else None
    return frozenset(
        f"{NVIDIA}:{device}"
        for device, known in PRODUCTS.items()
        if (plain := known.removeprefix("NVIDIA ")) == short or (begins and plain.startswith(begins))
    )


def name_of(device: str) -> str:
    """ "NVIDIA H200" for "10de:2335"; "" for one that is not known."""
    return PRODUCTS.get(device.rpartition(":")[2], "")
