"""NCCL log messages -> what the library said about its network, paths, ranks and errors. Counts, not lines, are kept.

Only a message about a channel proves which way data went; `Using network IB` says what was chosen, and `GDR 1` in the
line about rings says nothing where no channel crosses the network. InfiniBand and RoCE are both the network "IB"; the
list of HCAs tells them apart. Sources: NCCL's own format strings, versions 2.4 to 2.28.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from pytest_gpuready.parse.nccl_lines import Message

WARNINGS_AT_MOST = 100
NAMES_AT_MOST = 10_000

_CHANNEL = re.compile(
    r"(?:Channel|Ring|Tree|CollNet)\s+\S+\s*:\s*(\d+)(?:\[[^\]]*\])?(?:\s*->\s*(\d+)(?:\[[^\]]*\])?)?"
    r"\s*(?:\[(send|receive)\])?\s+via\s+(.+)"
)
_NET = re.compile(r"(?:NET|COLLNET)/(.+?)/(\d+)(?:\((\d+)\))?((?:/[A-Za-z]\S*|\(PCI\))*)\s*$")
_HCA = re.compile(r"\[\d+\]\s*(?:=?\{)?\s*([A-Za-z]\w*):(\d+)/(\w+)|\[\d+\]\s*([A-Za-z]\w*):(\d+)/(\w+)")
_HCA_SPEED = re.compile(r"NET/IB:? *:? *\[\d+\] (\w+):\S*?:?(\d+)/(\w+) .*?speed=(\d+)")
_COMM = re.compile(
    r"comm \S+ rank (\d+) n[rR]anks (\d+)(?: nNodes (\d+) localRanks (\d+))?(?:.* cudaDev (\d+))?(?:.* busId (\w+))?"
)
_INTERFACE = re.compile(r"\[\d+\]([A-Za-z]\w*):")
_ALGORITHM = re.compile(r"(\w+): (\d+) Bytes -> Algo (\S+) proto (\S+)")
_ENVIRONMENT = re.compile(r"(NCCL_\w+) set by environment to (\S*?)\.?$")
_NVLS_CHANNELS = re.compile(r"(\d+) nvls channels")
_STATUS = re.compile(r"(?:with status=(?:\w+\()?|with error )(\d+)")
_HCA_NAMED = re.compile(r"\bhca (\w+)|on dev(?:ice)? (mlx5\w+|\w+_\d+)|\b(mlx5_\w+)\b")
_CUDA_ERROR = re.compile(r"Cuda failure (?:(\d+) )?'?([^']*)'?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """A line of level WARN: who wrote it, what it says, and the HCA and completion status where it names them."""

    host: str
    pid: int
    text: str
    hca: str = ""
    status: int | None = None


@dataclass(slots=True)
class NcclLog:
    """Everything that a log said; empty where it said nothing."""

    messages: int = 0
    hosts: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    networks: dict[str, set[str]] = field(default_factory=dict)
    hcas: dict[str, dict[str, str]] = field(default_factory=dict)
    speeds_mbit: dict[str, dict[str, int]] = field(default_factory=dict)
    no_ib: set[str] = field(default_factory=set)
    interfaces: set[str] = field(default_factory=set)
    gdr_disabled: set[str] = field(default_factory=set)
    environment: dict[str, str] = field(default_factory=dict)
    algorithms: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    algorithm_at: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    nvls_channels: set[int] = field(default_factory=set)
    paths: Counter[str] = field(default_factory=Counter)
    net: Counter[tuple[str, str, str, bool]] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    rank_host: dict[int, str] = field(default_factory=dict)
    process_ranks: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    nranks: set[int] = field(default_factory=set)
    nnodes: set[int] = field(default_factory=set)
    local_ranks: set[int] = field(default_factory=set)
    ready: set[int] = field(default_factory=set)
    rings_connected: int = 0
    warnings: list[Warn] = field(default_factory=list)
    warned: int = 0

    def take(self, message: Message) -> None:
        """Add one message."""
        self.messages += 1
        if len(self.hosts) < NAMES_AT_MOST:
            self.hosts.add(message.host)
        text = message.text
        if message.level == "WARN":
            self._warning(message)
        elif " via " in text:
            self._channel(message)
        elif " Bytes -> Algo " in text:
            self._algorithm(text)
        elif text.startswith(("NET/", "Using network", "Assigned NET", "Failed to", "Initialized NET")):
            self._network(message)
        elif "comm 0x" in text:
            self._comm(message)
        elif text.startswith("Connected all rings"):
            self.rings_connected += 1
        else:
            self._other(message)

    def version_line(self, text: str) -> None:
        """A line `NCCL version ...`, with or without a message around it."""
        said = text.partition("NCCL version")[2].split(maxsplit=1)
        if said and len(self.versions) < 100:
            self.versions.add(said[0][:80])

    @property
    def intra_network(self) -> int:
        """Channels over the network between two ranks of one host."""
        return sum(
            count
            for (a, b, _), count in self.pairs.items()
            if a != b and a in self.rank_host and self.rank_host[a] == self.rank_host.get(b)
        )

    def _channel(self, message: Message) -> None:
        found = _CHANNEL.match(message.text)
        if found is None:
            if "direct shared memory" in message.text:
                self.paths["SHM"] += 1
            return
        first, second, direction, path = int(found[1][:9]), found[2], found[3], found[4].strip()
        target = int(second[:9]) if second else first
        own = target if direction == "receive" else first
        if len(self.rank_host) < NAMES_AT_MOST * 10:
            self.rank_host.setdefault(own, message.host)
        if net := _NET.match(path):
            name, index, _, tail = net.groups()
            self.paths["NET"] += 1
            if len(self.net) < NAMES_AT_MOST:
                self.net[name, message.host, index, "/GDRDMA" in tail] += 1
            if len(self.pairs) < NAMES_AT_MOST * 10:
                self.pairs[first, target, name] += 1
        elif path.startswith("P2P"):
            self.paths["P2P"] += 1
        elif path.startswith("SHM") or "direct shared memory" in path:
            self.paths["SHM"] += 1
        else:
            self.paths[path.split("/")[0][:40] if len(self.paths) < 20 else "other"] += 1

    def _network(self, message: Message) -> None:
        text, host = message.text, message.host
        if text.startswith("Using network "):
            self._uses(host, text.removeprefix("Using network "))
        elif text.startswith("Assigned NET plugin "):
            self._uses(
                host, text.removeprefix("Assigned NET plugin ").removesuffix(" to comm").partition(" to comm")[0]
            )
        elif text.startswith("NET/IB") and "No device found" in text:
            self.no_ib.add(host)
        elif text.startswith("NET/IB") and (speed := _HCA_SPEED.search(text)):
            self.speeds_mbit.setdefault(host, {})[f"{speed[1]}:{speed[2]}"] = int(speed[4][:9])
        elif text.startswith("NET/IB") and "Using" in text:
            listed = self.hcas.setdefault(host, {})
            for found in _HCA.finditer(text.partition("OOB")[0]):
                name, port, layer = (found[1] or found[4]), (found[2] or found[5]), (found[3] or found[6])
                if len(listed) < 100:
                    listed[f"{name}:{port}"] = layer
        elif text.startswith("NET/Socket") and "Using" in text:
            self.interfaces.update(_INTERFACE.findall(text)[: 100 - len(self.interfaces)])

    def _uses(self, host: str, name: str) -> None:
        if len(self.networks) < NAMES_AT_MOST:
            self.networks.setdefault(host, set()).add(name.strip()[:80])

    def _comm(self, message: Message) -> None:
        found = _COMM.search(message.text)
        if found is None:
            return
        rank = int(found[1][:9])
        if len(self.rank_host) < NAMES_AT_MOST * 10:
            self.rank_host[rank] = message.host
            self.process_ranks.setdefault((message.host, message.pid), set()).add(rank)
        if len(self.nranks) < 100:
            self.nranks.add(int(found[2][:9]))
            if found[3]:
                self.nnodes.add(int(found[3][:9]))
                self.local_ranks.add(int(found[4][:9]))
        if "Init COMPLETE" in message.text:
            self.ready.add(rank)

    def _algorithm(self, text: str) -> None:
        if (found := _ALGORITHM.match(text)) and len(self.algorithms) < NAMES_AT_MOST:
            function, size, algorithm, protocol = found.groups()
            self.algorithms[function, algorithm, protocol] += 1
            largest = self.algorithm_at.get(function)
            if largest is None or int(size[:18]) >= largest[0]:
                self.algorithm_at[function] = (int(size[:18]), algorithm, protocol)

    def _other(self, message: Message) -> None:
        text = message.text
        if "NCCL version" in text:
            self.version_line(text)
        elif "set by environment" in text:
            if (found := _ENVIRONMENT.search(text)) and len(self.environment) < 200:
                self.environment[found[1]] = found[2][:200]
        elif "nvls channels" in text:
            if (found := _NVLS_CHANNELS.search(text)) and len(self.nvls_channels) < 100:
                self.nvls_channels.add(int(found[1][:9]))
        elif "GPU Direct RDMA Disabled" in text and len(self.gdr_disabled) < NAMES_AT_MOST:
            self.gdr_disabled.add(message.host)

    def _warning(self, message: Message) -> None:
        self.warned += 1
        if len(self.warnings) >= WARNINGS_AT_MOST:
            return
        status, hca = _STATUS.search(message.text), _HCA_NAMED.search(message.text)
        self.warnings.append(
            Warn(
                host=message.host,
                pid=message.pid,
                text=message.text.strip()[:500],
                hca=next((name for name in hca.groups() if name), "") if hca else "",
                status=int(status[1][:9]) if status else None,
            )
        )
