"""The plain table of `nvidia-smi` -> one `SmiGpu` per row, and the list of `nvidia-smi -L`.

A row is two printed lines (older drivers) or three (with MIG). The table ends with the box of the processes; without
its closing line the output was cut. Long names end in "..." and are kept so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_gpuready.parse.pci_address import PATTERN, pci_address
from pytest_gpuready.parse.smi_values import Cell, SmiGpu, cell

TITLE = re.compile(r"\| NVIDIA-SMI (\S+)")
_FIRST = re.compile(
    rf"\|\s*(\d{{1,4}})\s+(\S.*?)\s+(On|Off|N/A|ERR!|WDDM|TCC|MCDM)?\s*\|\s*({PATTERN})\s+(\S+)\s*\|(.*)\|"
)
_SECOND = re.compile(
    r"\|\s*(N/A|ERR!|\d{1,3}%|\S+)\s+(N/A|ERR!|\d{1,3} ?C?)\s+(P\d{1,2}|ERR!|N/A|\?\S*)"
    r"\s+(\S+)\s*/\s*(\S+)\s*\|\s*(.*?)\s*\|\s*(\S+)\s+(.*?)\s*\|"
)
_THIRD = re.compile(r"\|\s*\|\s*\|\s*(\S+)\s*\|")
_RULE = re.compile(r"\+[-=+]+\+")
LISTED = re.compile(r"GPU (\d{1,4}): (.*\S)\s+\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_DRIVER = re.compile(r"Driver Version: (\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiTable:
    """The table. `complete`: the box of the processes was closed; `unread`: rows that could not be read."""

    driver: str
    gpus: tuple[SmiGpu, ...]
    complete: bool
    unread: tuple[str, ...] = ()


def smi_table(lines: Iterable[str]) -> SmiTable:
    """The rows of one table."""
    driver, complete, processes = "", False, False
    rows: list[dict[str, object]] = []
    unread: list[str] = []
    for raw in lines:
        line = raw.strip()
        if not driver and (match := _DRIVER.search(line)):
            driver = match[1]
        if line.startswith("| Processes"):
            processes = True
        elif processes:
            complete = complete or bool(_RULE.fullmatch(line))
        elif match := _FIRST.fullmatch(line):
            rows.append({"index": match[1], "name": match[2], "bdf": match[4], "ecc": match[6].strip(), "lines": 1})
        elif rows and rows[-1]["lines"] == 1 and line.startswith("|"):
            rows[-1]["lines"] = 2
            if match := _SECOND.fullmatch(line):
                rows[-1].update(second=match.groups())
            else:
                unread.append(line[:120])
        elif rows and rows[-1]["lines"] == 2 and (match := _THIRD.fullmatch(line)):
            rows[-1].update(mig=match[1], lines=3)
        elif re.match(r"\|\s*\d{1,4}\s+\S", line) and "MIG" not in line and not rows:
            unread.append(line[:120])
    return SmiTable(driver=driver, gpus=tuple(_gpu(row) for row in rows), complete=complete, unread=tuple(unread))


def _gpu(row: dict[str, object]) -> SmiGpu:
    cells: dict[str, Cell] = {"name": cell(str(row["name"])), "index": cell(str(row["index"]))}
    ecc = str(row["ecc"])
    cells["ecc.errors.uncorrected.volatile.total"] = (
        Cell(text=ecc, kind="absent") if ecc == "Off" else cell(ecc.rsplit(maxsplit=1)[-1] if ecc else "")
    )
    if ecc == "Off":
        cells["ecc.mode.current"] = cell("Disabled")
    second = row.get("second")
    if isinstance(second, tuple):
        names = ("fan.speed", "temperature.gpu", "pstate", "power.draw", "power.limit", "memory", "utilization.gpu")
        cells |= {name: cell(text) for name, text in zip(names, second, strict=False)}
        del cells["memory"]
        if "lost" in second[5] or "reset" in second[5].lower():
            cells["health"] = cell(second[5])
    if "mig" in row:
        cells["mig.mode.current"] = cell(str(row["mig"]))
    return SmiGpu(index=int(str(row["index"])), bdf=pci_address(str(row["bdf"])), cells=cells)


def smi_listed(line: str) -> SmiGpu | None:
    """One line of `nvidia-smi -L`, or the heading of a GPU in `nvidia-smi nvlink`."""
    match = LISTED.fullmatch(line.strip())
    if not match:
        return None
    return SmiGpu(index=int(match[1]), cells={"name": cell(match[2]), "uuid": cell(match[3])})
