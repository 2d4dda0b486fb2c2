"""Faults that break a recorded node in one known way, to hear every alarm.

A fault changes the documents of a recording and declares what must follow: exactly these clauses red on these parts,
exactly these without a measurement, these levels blocked, and a word that the finding must name. A test applies each
and compares; what is not declared must not happen.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gpuready.model import CommandResult

NODE = -1
"""Index that stands for the node as a whole."""
BAD = 3
"""The GPU that is broken, by its index in bus order."""
ABOVE_1, ABOVE_2, ABOVE_3 = (2, 3, 4), (3, 4), (4,)
"""Levels that do not run where a gate of level 1, 2 or 3 fails."""


def here(*clauses: str, gpu: int = BAD) -> dict[str, tuple[int, ...]]:
    """These clauses, red on one GPU."""
    return dict.fromkeys(clauses, (gpu,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to be broken. `reddens` and `opens` map a clause to the GPU indices (`NODE` for the node) on which it
    FAILs or has no measurement; `blocks` are the levels that do not run then; `suspect` must stand in the finding.
    `site` is a site file that the fault needs ("" for none): it declares what would be assumed otherwise."""

    name: str
    says: str
    change: Callable[[Documents], None]
    reddens: dict[str, tuple[int, ...]]
    opens: dict[str, tuple[int, ...]] = field(default_factory=dict)
    blocks: tuple[int, ...] = ()
    suspect: str = ""
    site: str = ""


class Documents:
    """The documents of one recorded node, to be changed in place; GPUs by their index in bus order."""

    def __init__(self, results: Sequence[CommandResult]) -> None:
        self._results = list(results)
        self._documents: list[dict[str, Any]] = [json.loads(r.stdout) for r in results]
        self.bdfs: list[str] = sorted(gpu["bdf"] for gpu in self.node["gpus"])

    def results(self) -> list[CommandResult]:
        """The changed results, to be recorded again."""
        return [
            dataclasses.replace(result, stdout=json.dumps(document) + "\n")
            for result, document in zip(self._results, self._documents, strict=True)
        ]

    @property
    def node(self) -> dict[str, Any]:
        """The node document."""
        return self._one("node")

    @property
    def nvml(self) -> dict[str, Any]:
        """The NVML document."""
        return self._one("nvml")

    def gpu(self, index: int) -> dict[str, Any]:
        """A GPU in the NVML document."""
        found: dict[str, Any] = next(g for g in self.nvml["gpus"] if g["bdf"] == self.bdfs[index])
        return found

    def copies(self, index: int) -> list[dict[str, Any]]:
        """The copies documents of a GPU: the first run and recorded retests."""
        return [d["data"] for d in self._documents if d["probe"] == "copies" and d["data"]["bdf"] == self.bdfs[index]]

    @property
    def together(self) -> dict[str, Any]:
        """The document of copies to all GPUs at once."""
        return self._one("copies-together")

    def after(self, level: int) -> dict[str, Any]:
        """The document of the health after all load of a level."""
        return self._one(f"after-{level}")

    def stress(self, piece: str) -> dict[str, Any]:
        """The document of one piece of the built-in engine."""
        first = {"memory": "alloc", "patterns": "pattern"}.get(piece, piece)
        pieces = (d["data"] for d in self._documents if d["probe"] == "stress")
        found: dict[str, Any] = next(d for d in pieces if d["plan"]["phases"][0]["kind"] == first)
        return found

    def dcgm(self, test: str) -> dict[str, Any]:
        """The document around the run of one DCGM test."""
        asked = "1" if test == "software" else test
        around = (d["data"] for d in self._documents if d["probe"] == "around")
        found: dict[str, Any] = next(d for d in around if d["argv"][3] == asked)
        return found

    def log(self, text: str) -> None:
        """Add a line to the kernel log since boot."""
        self.node["kernel_log"]["lines"].append({"t": 1000.0, "text": text})

    def drop_from_nvml(self, index: int) -> None:
        """NVML does not show this GPU any more; its peers do not list it either."""
        bdf = self.bdfs[index]
        self.nvml["gpus"] = [g for g in self.nvml["gpus"] if g["bdf"] != bdf]
        for gpu in self.nvml["gpus"]:
            gpu["p2p_nvlink"].pop(bdf, None)

    def drop_from_bus(self, index: int) -> None:
        """The PCI bus does not show this GPU any more."""
        self.node["gpus"] = [g for g in self.node["gpus"] if g["bdf"] != self.bdfs[index]]

    def _one(self, probe: str) -> dict[str, Any]:
        found: dict[str, Any] = next(d["data"] for d in self._documents if d["probe"] == probe)
        return found


def break_node(results: Sequence[CommandResult], fault: Fault) -> list[CommandResult]:
    """The results of a recorded node with this fault in them."""
    documents = Documents(copy.deepcopy(list(results)))
    fault.change(documents)
    return documents.results()
