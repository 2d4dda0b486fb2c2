"""`nvidia-smi --query-gpu=... --format=csv` -> one `SmiGpu` per row, by column name.

Units stand in the header ("power.draw [W]") or in the values. With `noheader` the names come from the command line.
With `-l` the same GPU comes again and again; each row is one sample. Both generations of names are taken
("clocks_throttle_reasons.x" is "clocks_event_reasons.x" here).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.pci_address import pci_address
from pytest_gpuready.parse.smi_values import Cell, SmiGpu, cell

_COLUMN = re.compile(r"([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)(?: \[([^\]]+)\])?")
_QUERY = re.compile(r"--query-(?:gpu|remapped-rows)[= ]['\"]?([a-z0-9_.,\s]+)")
_WELL_KNOWN = {
    "index", "name", "gpu_name", "uuid", "gpu_uuid", "serial", "gpu_serial", "count", "pstate", "driver_version",
    "gpu_bus_id", "pci.bus_id", "fan.speed", "gpu_recovery_action", "inforom.img", "vbios_version",
}  # fmt: skip
_FAMILIES = (
    "pcie.", "pci.", "ecc.", "clocks", "power.", "temperature.", "utilization.", "memory.", "remapped_rows.",
    "retired_pages.", "mig.", "fabric.", "enforced.",
)  # fmt: skip
_SAME = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.current.sm": "clocks.sm",
    "clocks.gr": "clocks.graphics",
}


def csv_header(line: str) -> tuple[str, ...]:
    """The column names of a header line, () where the line is none."""
    names: list[str] = []
    for column in line.split(","):
        match = _COLUMN.fullmatch(column.strip())
        if not match:
            return ()
        names.append(_same(match[1]))
    known = [name in _WELL_KNOWN or name.startswith(_FAMILIES) for name in names]
    return tuple(names) if any(known) and (len(names) > 1 or "." in names[0] or names[0] in ("name", "uuid")) else ()


def queried(command: str) -> tuple[str, ...]:
    """The column names that a command line asks for, () where it does not list them."""
    match = _QUERY.search(command)
    names = [name.strip() for name in match[1].split(",")] if match and "..." not in command else []
    return tuple(_same(name.split()[0]) for name in names if name)


def csv_row(line: str, names: Sequence[str]) -> SmiGpu:
    """One row.

    Raises:
        ParseError: the row has more or fewer values than the header has names, or an index or address is none.
    """
    try:
        plain = '"' not in line and "\0" not in line
        values = line.split(",") if plain else next(iter(csv.reader([line], skipinitialspace=True, strict=True)), [])
    except csv.Error as error:
        raise ParseError(f"nvidia-smi CSV: expected a row of {len(names)} values, found {line[:60]!r}") from error
    if len(values) != len(names):
        raise ParseError(f"nvidia-smi CSV: expected {len(names)} values, found {len(values)} in {line[:60]!r}")
    cells = {name: cell(value) for name, value in zip(names, values, strict=True)}
    return SmiGpu(index=_index(cells.get("index")), bdf=_bdf(cells.get("pci.bus_id")), cells=cells)


def key(gpu: SmiGpu, row: int) -> str:
    """What tells one GPU from another: UUID, address, index or serial; the row number where none is printed."""
    names = ("uuid", "pci.bus_id", "index", "serial")
    return next((f"{name} {gpu.word(name)}" for name in names if gpu.word(name)), f"row {row}")


def numbered(rows: Iterator[str], names: Sequence[str]) -> Iterator[tuple[int, SmiGpu | ParseError]]:
    """Every row with its number, read or with what is wrong with it."""
    for number, line in enumerate(rows):
        try:
            yield number, csv_row(line, names)
        except ParseError as error:
            yield number, error


def _same(name: str) -> str:
    return _SAME.get(name, name.replace("clocks_throttle_reasons", "clocks_event_reasons"))


def _index(found: Cell | None) -> int:
    if found is None:
        return -1
    if found.kind != "number" or found.unit or not found.text.isdecimal() or len(found.text) > 4:
        raise ParseError(f"nvidia-smi CSV: expected an index, found {found.text[:40]!r}")
    return int(found.text)


def _bdf(found: Cell | None) -> str:
    return pci_address(found.text) if found and found.kind == "word" else ""
