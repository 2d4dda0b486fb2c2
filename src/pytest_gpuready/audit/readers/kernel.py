"""Kernel logs: dmesg-xid (Xids and SXids) and dmesg-pci (links, slots, modules, AER); either tells what it finds."""

from __future__ import annotations

from pytest_gpuready.audit.late import late
from pytest_gpuready.audit.reader import Reader
from pytest_gpuready.parse.kernel_pci import pci_event
from pytest_gpuready.parse.kernel_text import kernel_record

_XID_WORDS = ("NVRM:", "Xid (", "SXid (", "nvidia-nvswitch")


def _share(head: str) -> tuple[int, int, bool, bool]:
    """Lines, lines with a kernel log's time, and whether Xid and PCI messages are among them."""
    lines = [line for line in head.split("\n", 300)[:300] if line.strip()]
    timed = xid = pci = 0
    for line in lines:
        record = kernel_record(line, None)
        dated_only = record.wall is not None or "kernel:" in line
        timed += record.timed and (record.boot_s is not None or dated_only)
        starts = record.text.startswith(("NVRM: ", "nvidia-nvswitch"))
        xid += (record.timed or starts) and any(word in record.text for word in _XID_WORDS)
        pci += record.timed and bool(pci_event(record.text)) and "NVRM" not in record.text
    return len(lines), timed, xid > 0, pci > 0


def _recognise_xid(head: str) -> int:
    lines, timed, xid, pci = _share(head)
    if not lines or (timed * 2 < lines and not (xid and timed == 0 and lines < 300)):
        return 0
    return 86 if xid else 40 if not pci and timed else 0


def _recognise_pci(head: str) -> int:
    lines, timed, xid, pci = _share(head)
    return 84 if lines and timed * 2 >= lines and pci and not xid else 0


READERS: tuple[Reader, ...] = (
    Reader(tool="dmesg-xid", recognise=_recognise_xid, read=late("kernel_log", "read_xid")),
    Reader(tool="dmesg-pci", recognise=_recognise_pci, read=late("kernel_log", "read_pci")),
)
