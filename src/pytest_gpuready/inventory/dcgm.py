"""Whether DCGM is asked on a node, and what is known of it before it runs."""

from __future__ import annotations

import re

from pytest_gpuready.errors import ParseError
from pytest_gpuready.inventory.found import NodeFound
from pytest_gpuready.inventory.site import Site
from pytest_gpuready.model import Dcgm
from pytest_gpuready.model.agent_doc import DcgmDoc
from pytest_gpuready.parse.dcgm_skus import floors

TESTS = (
    "memory",
    "pcie",
    "diagnostic",
    "memory_bandwidth",
    "targeted_stress",
    "targeted_power",
    "nvbandwidth",
    "nccl_tests",
    "eud",
    "memtest",
    "pulse_test",
)
DECLARED_BUILTIN = "the site file declares diagnostics: builtin"
NOT_THERE = "no dcgmi on the PATH of the node: the built-in engine is used"
NOT_ASKED = "the node did not answer, so nobody knows whether it has DCGM"
MAJORS = {"datacenter-gpu-manager-4": "4", "nvidia-validation-suite": "3"}
"""A word of the folders that packages use -> DCGM's major version."""
_LIBRARY = re.compile(r"lib(\w+?)\.so")
_CUDA = re.compile(r"cuda(\d+)$")


def dcgm_of(site: Site | None, found: NodeFound, cuda: str, assumptions: list[str]) -> tuple[Dcgm | None, str]:
    """What is installed (None: nothing is known), and why DCGM is not asked ("" where it is)."""
    doc = found.node_doc.dcgm if found.node_doc else None
    known = _installed(doc, cuda) if doc else None
    declared = site.diagnostics if site else ""
    if declared == "builtin":
        return known, DECLARED_BUILTIN
    if declared in ("dcgm", "both"):
        return known, ""
    if found.node_doc is None and found.nvml_doc is None:
        return None, NOT_ASKED
    if doc is None:
        assumptions.append(f"diagnostics: {NOT_THERE}")
        return None, NOT_THERE
    assumptions.append(f"diagnostics: DCGM, since {doc.path} is there")
    return known, ""


def _installed(doc: DcgmDoc, cuda: str) -> Dcgm:
    problem = doc.sku_problem
    models: dict[str, dict[str, str]] = {}
    for device, entries in doc.skus.items():
        try:
            models[device] = floors(entries)
        except ParseError as error:
            problem = str(error)
    places = (*doc.plugins, doc.sku_file)
    return Dcgm(
        path=doc.path,
        version=doc.version or next((v for word, v in MAJORS.items() if any(word in place for place in places)), ""),
        root=doc.root,
        host_engine=bool(doc.host_engine),
        busy=tuple(f"{name} (pid {pid})" for pid, name in doc.diagnostics.items()),
        folders=tuple(sorted({folder.rsplit("/", 1)[-1] for folder in doc.plugins})),
        plugins=_plugins(doc, cuda),
        sku_file=f"{doc.sku_file} (sha256 {doc.sku_sha256[:12]})" if doc.sku_sha256 else doc.sku_file,
        sku_problem=problem,
        floors=models,
        environment=dict(doc.environment),
        environment_problem=doc.environment_problem,
        machine=doc.machine,
    )


def _plugins(doc: DcgmDoc, cuda: str) -> tuple[str, ...]:
    """Tests whose plug-in lies in the folder of the driver's CUDA version, or in one that needs no CUDA."""
    major = cuda.partition(".")[0]
    names: set[str] = set()
    for folder, libraries in doc.plugins.items():
        version = _CUDA.search(folder)
        if version is None or not major or version[1] == major:
            names |= {match[1].lower().replace("_", "") for name in libraries if (match := _LIBRARY.match(name))}
    return tuple(test for test in TESTS if any(_is(test, name) for name in names))


def _is(test: str, library: str) -> bool:
    plain = test.replace("_", "")
    return library == plain or plain.removesuffix("test") == library.removesuffix("test")
