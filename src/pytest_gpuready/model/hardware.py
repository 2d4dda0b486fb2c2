"""What should be there and what is there: nodes, GPUs, and the parts that clauses are judged on."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Part:
    """Something a clause is judged on: a whole node (`index` -1) or one expected GPU of it.

    `name` is stable and goes into test ids, store and certificate: "node01" or "node01/gpu3".
    """

    node: str
    index: int = -1

    @property
    def name(self) -> str:
        # One string for all who ask: with many nodes it stands in every answer, verdict and record.
        return self.node if self.index < 0 else sys.intern(f"{self.node}/gpu{self.index}")

    @property
    def label(self) -> str:
        """For people: "node01" or "node01 GPU 3"."""
        return self.node if self.index < 0 else f"{self.node} GPU {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Identity of one GPU as found. Empty strings and -1 where nobody could say."""

    bdf: str
    pci_id: str = ""
    name: str = ""
    uuid: str = ""
    serial: str = ""
    module: int = -1
    part_number: str = ""
    vbios: str = ""
    inforom: str = ""
    memory_mib: int = 0
    numa_node: int = -1
    upstream: str = ""
    on_bus: bool = False
    by_nvml: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One expected GPU and what was found in its place (None: nothing)."""

    part: Part
    expected_bdf: str = ""
    expected_module: int = -1
    declared: str = ""
    """What the site file calls it ("serial 1650000000001"), so that a missing GPU still has a name."""
    gpu: Gpu | None = None

    @property
    def bdf(self) -> str:
        return self.gpu.bdf if self.gpu else self.expected_bdf

    @property
    def module(self) -> int:
        """The module it sits in, or should sit in; -1 where nobody could say."""
        return self.gpu.module if self.gpu and self.gpu.module >= 0 else self.expected_module

    @property
    def where(self) -> str:
        """One line to find the part with: node, GPU, first block of the UUID, address, module, serial."""
        said = [self.part.label]
        gpu = self.gpu
        if gpu and gpu.uuid:
            said.append(short_uuid(gpu.uuid))
        if self.bdf:
            said.append(self.bdf)
        if self.module >= 0:
            said.append(f"module {self.module}")
        if gpu and gpu.serial:
            said.append(f"serial {gpu.serial}")
        elif self.declared and self.declared != self.bdf:
            said.append(self.declared)
        return " ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dcgm:
    """DCGM as it is installed on a node, known before any diagnostic runs.

    `folders` are the plug-in folders found (CUDA versions), `plugins` the tests whose plug-in lies there. `floors` are
    what its SKU file says of the GPU models found: PCI device id -> parameter -> value.
    """

    path: str
    version: str = ""
    """As `dcgmi --version` says it; else "3" or "4", as where its packages lie says it; "" where nothing does."""
    root: bool = False
    host_engine: bool = False
    busy: tuple[str, ...] = ()
    """Diagnostics of others that run now: "nvvs (pid 812)"."""
    folders: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    sku_file: str = ""
    sku_problem: str = ""
    floors: dict[str, dict[str, str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    environment_problem: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One expected node: its slots in PCI order, and what it says about itself."""

    name: str
    slots: tuple[Slot, ...]
    host: str = ""
    """What the machine calls itself; "" where it did not say."""
    boot_id: str = ""
    kernel: str = ""
    driver: str = ""
    cuda: str = ""
    system: str = ""
    system_serial: str = ""
    virtual: str = ""
    """"" on bare metal, else what says that this is a virtual machine ("declared", "kvm", "NVML: passthrough")."""
    nvlink: bool = True
    nvswitch: bool = True
    fp8: bool = False
    fp4: bool = False
    """Whether the model of its GPUs multiplies FP8, and FP4 and MXFP8, as the profile says."""
    nvlink_none: str = ""
    """Why no NVLink is expected ("" where it is)."""
    dcgm: Dcgm | None = None
    dcgm_none: str = "the built-in engine is used"
    """Why DCGM is not asked ("" where it is)."""
    rack: str = ""
    """The rack it stands in, or the leaf switch that it hangs on; "" where nobody said."""
    extra_gpus: tuple[str, ...] = ()
    """GPUs found and not expected: by address, or "NVML index 2 (GpuIsLost)" where NVML gives none."""

    @property
    def part(self) -> Part:
        return Part(node=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Expected hardware beside what was found, and what was assumed because nobody declared it."""

    nodes: tuple[Node, ...]
    assumptions: tuple[str, ...] = ()
    stand_in: str = ""
    """Why this is a stand-in and no hardware ("" on real hardware): sets the basis of the whole run."""
    problems: dict[str, str] = field(default_factory=dict)
    """Node name -> why its inventory could not be taken."""
    _by_name: dict[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {node.name: node for node in self.nodes})

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def slot(self, part: Part) -> Slot | None:
        return next((s for s in self.node(part.node).slots if s.part == part), None)

    def parts(self, per: str, node: Node | None = None) -> tuple[Part, ...]:
        """Expected parts of a kind ("node" or "gpu"), of one node or of all, in order; never only the discovered
        ones."""
        nodes = (node,) if node else self.nodes
        if per == "node":
            return tuple(n.part for n in nodes)
        return tuple(s.part for n in nodes for s in n.slots)


def short_uuid(uuid: str) -> str:
    """The first block of a GPU UUID: GPU-0a1b2c3d."""
    return "-".join(uuid.split("-")[:2])
