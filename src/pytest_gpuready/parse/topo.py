"""`nvidia-smi topo -m` and `topo -p2p` -> the matrix of GPUs and network cards.

The header is underlined with escape codes even in a file, columns are separated by tabs or, where a ticket system ate
them, by blanks. No cell of the matrix holds a blank, so the first cells of a row are told apart by counting the device
columns; what follows are affinities. Cards are NIC0, NIC1 with a legend of names, or their names themselves with
older drivers. `-mp` prints the same matrix without NVLink: its legend has no NV#.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_gpuready.errors import ParseError

_ESCAPE = re.compile(r"\x1b?\[[0-9;]{0,8}m")
_DEVICE = re.compile(
    r"GPU\d{1,3}|NIC\d{1,3}|mlx\d_[A-Za-z0-9_]+|(?:bnxt_re|irdma|efa|rocep|ibp|roce|hfi1_)[A-Za-z0-9_]*"
)
_GPU = re.compile(r"GPU(\d{1,3})")
_CELL = re.compile(r"X|NV\d{1,2}|NV#|C2C|SYS|NODE|PHB|PXB|PIX|SOC|OK|CNS|GNS|TNS|NS|DR|U|N/A|-")
_NIC_LEGEND = re.compile(r"(NIC\d{1,3}): (\S+)")
_RANGES = re.compile(r"[0-9,-]+|N/A")
P2P_CELLS = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One matrix. `cells`: by (row, column), as printed. `legend`: the words that the legend explains.

    `rows`: devices whose row was there whole. `numa`: NUMA node by GPU as printed. `wrong`: contradictions.
    """

    devices: tuple[str, ...]
    rows: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    nic_names: dict[str, str] = field(default_factory=dict)
    numa: dict[str, str] = field(default_factory=dict)
    legend: frozenset[str] = frozenset()
    wrong: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(device for device in self.devices if _GPU.fullmatch(device))

    @property
    def nics(self) -> tuple[str, ...]:
        return tuple(device for device in self.devices if not _GPU.fullmatch(device))

    @property
    def peer_to_peer(self) -> bool:
        """True for a matrix of `topo -p2p`."""
        return any(value in P2P_CELLS for value in self.cells.values())

    def between(self, a: str, b: str) -> str:
        """The word for a pair, "" where the text has none or its two halves differ."""
        told = {self.cells[pair] for pair in ((a, b), (b, a)) if pair in self.cells}
        return told.pop() if len(told) == 1 else ""


def topo_header(line: str) -> tuple[str, ...]:
    """The devices of a header line, () where the line is none."""
    words = _ESCAPE.sub("", line).split()
    devices: list[str] = []
    for word in words:
        if not _DEVICE.fullmatch(word):
            break
        devices.append(word)
    rest = words[len(devices) : len(devices) + 1]
    good = devices and _GPU.fullmatch(devices[0]) and (not rest or rest[0] in ("CPU", "NUMA", "GPU"))
    return tuple(devices) if good else ()


def topology(lines: Iterable[str]) -> Topology:
    """The first matrix of the text.

    Raises:
        ParseError: there is no header, it names a device twice, or no row belongs to it.
    """
    devices: tuple[str, ...] = ()
    rows: list[str] = []
    cells: dict[tuple[str, str], str] = {}
    numa: dict[str, str] = {}
    names: dict[str, str] = {}
    legend: set[str] = set()
    wrong: list[str] = []
    for raw in lines:
        line = _ESCAPE.sub("", raw)
        words = line.split()
        if not devices:
            devices = topo_header(raw)
            if len(set(devices)) != len(devices):
                raise ParseError("nvidia-smi topo: expected each device once in the header, found one twice")
        elif words and words[0] in devices and not line.strip().startswith(f"{words[0]}:"):
            _row(words, devices, rows, cells, wrong)
            _numa(words[0], line, len(devices), numa)
        elif match := _NIC_LEGEND.fullmatch(line.strip()):
            names.setdefault(match[1], match[2])
        elif len(words) > 2 and words[1] == "=":
            legend.add(words[0])
        elif topo_header(raw):
            break
    if not devices or not rows:
        raise ParseError("nvidia-smi topo: expected a header like 'GPU0 GPU1' and rows below it, found none")
    for (a, b), value in cells.items():
        if cells.get((b, a), value) != value and a < b:
            wrong.append(f"{a} and {b}: {value} one way, {cells[(b, a)]} the other")
    return Topology(
        devices=devices,
        rows=tuple(rows),
        cells=cells,
        nic_names=names,
        numa=numa,
        legend=frozenset(legend),
        wrong=tuple(wrong[:50]),
    )


def _row(
    words: list[str], devices: tuple[str, ...], rows: list[str], cells: dict[tuple[str, str], str], wrong: list[str]
) -> None:
    name, values = words[0], words[1 : 1 + len(devices)]
    if len(values) < len(devices) or not all(_CELL.fullmatch(value) for value in values):
        wrong.append(f"row {name} is not whole")
        return
    read = dict(zip(devices, values, strict=True))
    if (read[name] == "X") != (list(read.values()).count("X") == 1) or read[name] != "X":
        wrong.append(f"row {name} does not have its X where it belongs")
        return
    if name in rows:
        if any(cells[(name, other)] != value for other, value in read.items()):
            wrong.append(f"row {name} stands there twice, with two contents")
        return
    rows.append(name)
    cells.update({(name, other): value for other, value in read.items()})


def _numa(name: str, line: str, devices: int, numa: dict[str, str]) -> None:
    """CPU affinity, NUMA affinity, GPU NUMA ID: two values with tabs, or without."""
    if not _GPU.fullmatch(name):
        return
    columns = line.rstrip("\n").split("\t")
    if len(columns) > devices + 2:
        value = columns[devices + 2].strip()
    else:
        rest = line.split()[1 + devices :]
        value = rest[1] if len(rest) > 1 else ""
    if _RANGES.fullmatch(value):
        numa.setdefault(name, value)
