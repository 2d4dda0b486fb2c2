"""Who says of itself that it is no hardware: the whole run, where the site file or everybody says so, or one node.

A node that names itself a stand-in among others that do not costs itself alone: nothing that it says counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_gpuready.inventory.found import NodeFound
from pytest_gpuready.inventory.site import Site
from pytest_gpuready.parse.yaml_file import shown

STAND_IN = "stand-in"


def whole_run(site: Site | None, docs: Mapping[str, NodeFound]) -> str:
    """Why this run is about no real hardware, "" where it is about some."""
    if site and site.stand_in:
        return site.stand_in
    named = _named(docs)
    return f"{shown(next(iter(named.values())))} names itself a stand-in" if named and not _hardware(docs) else ""


def among_hardware(site: Site | None, docs: Mapping[str, NodeFound]) -> dict[str, str]:
    """Nodes that name themselves stand-ins, and why they do not count, where others are hardware."""
    if (site and site.stand_in) or not _hardware(docs):
        return {}
    return {
        name: f"expected hardware as on the other nodes, found {shown(word)}, which names itself a stand-in; "
        "see what that node is, or leave it out"
        for name, word in _named(docs).items()
    }


def _named(docs: Mapping[str, NodeFound]) -> dict[str, str]:
    """Node -> the word by which it names itself a stand-in."""
    return {
        name: word
        for name, found in docs.items()
        if (word := next((word for word in _words(found) if STAND_IN in word.lower()), ""))
    }


def _hardware(docs: Mapping[str, NodeFound]) -> bool:
    """True where NVML of some node shows GPUs, and none of its names says stand-in."""
    return any(
        found.nvml_doc and found.nvml_doc.gpus and not any(STAND_IN in word.lower() for word in _words(found))
        for found in docs.values()
    )


def _words(found: NodeFound) -> list[str]:
    words = [found.node_doc.driver_module] if found.node_doc else []
    if found.nvml_doc:
        words += [found.nvml_doc.driver, found.nvml_doc.nvml, *(gpu.name for gpu in found.nvml_doc.gpus)]
    return words
