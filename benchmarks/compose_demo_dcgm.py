"""Make the built-in recording `demo-dcgm`: `python benchmarks/compose_demo_dcgm.py ONE_GPU_RECORDING RUNS ENGINE TO`.

ONE_GPU_RECORDING is a node with one H200 (identifiers replaced; results of `dcgmi` in it are left out), RUNS the folder
with recorded runs of dcgmi 4.6.0 (`tests/data/dcgm/4.6.0`), ENGINE the recording of a node whose first GPU, also an
H200, was loaded by the built-in engine: its results are put in with that GPU alone, at the address of the one here.
Each run of dcgmi is put under the command that this product gives for the test; what DCGM printed and its exit code
stay as they are, but for the serial number of the GPU. Those runs were asked for without this product's parameters and
nobody watched the GPUs meanwhile: the recording says that it is composed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import msgspec

from pytest_gpuready.inventory import NodeFound, load_site, resolve
from pytest_gpuready.model import CommandResult, Node
from pytest_gpuready.model.agent_doc import AroundDoc, DcgmDoc, Envelope, encode
from pytest_gpuready.parse.agent import envelope, node_doc, nvml_doc
from pytest_gpuready.probes.dcgm import DcgmProbe
from pytest_gpuready.probes.dcgm_tests import TESTS
from pytest_gpuready.profiles import load
from pytest_gpuready.transport.recording import SITE, append, read_meta, read_results

COMPOSED = (
    "composed: runs of dcgmi 4.6.0 on an H200, recorded one by one with DCGM's own parameters (PCIe generation 5 was "
    "asked for) and without a watch, under the commands of this product; results of the built-in engine "
    "from another H200"
)
RUNS = {
    "software": "h200x1/r1-json",
    "memory": "h200x1/r2-json",
    "pcie": "h200x1/pcie-gen5",
    "diagnostic": "h200x1/r3-json",
    "memory_bandwidth": "h200x1/r3-json",
    "targeted_stress": "h200x1/r3-json",
    "targeted_power": "h200x1/r3-json",
    "nvbandwidth": "h200x1/nvbandwidth",
    "eud": "injected/one-plugin-absent-closed-plugin-eud",
    "memtest": "h200x1/memtest-8s",
    "pulse_test": "injected/one-plugin-absent-closed-plugin",
}
"""Test -> the run that shows it; memory_bandwidth is absent from its run, as its plug-in was not installed."""
INSTALLED = DcgmDoc(
    path="/usr/bin/dcgmi",
    version="4.6.0",
    root=True,
    machine="x86_64",
    host_engine=[1],
    sku_problem="the SKU file was not recorded",
)
OLD_SERIAL = "1650000000000"
SITE_TEXT = """# What was declared when the node was recorded; the diagnostics are DCGM's.
site: 1
diagnostics: dcgm
nodes:
  node01:
    gpus: 1
    nvlink: none
    virtual: true
environment:
  NCCL_NVLS_ENABLE: "0"  # NVLink multicast is off on that machine by its owner's rule
"""


def engine(results: list[CommandResult], node: Node, head: Envelope) -> list[CommandResult]:
    """What the engine said of the first GPU of another node, as if it had been said of the one of this node."""
    bdf = next(slot.gpu.bdf for slot in node.slots if slot.gpu)
    made = []
    for result in (r for r in results if r.command.argv[3] == "stress"):
        document = json.loads(result.stdout)
        document |= {"host": head.host, "boot_id": head.boot_id}
        gpu = document["data"]["gpus"][0]
        gpu["bdf"] = gpu["ready"]["bdf"] = bdf
        document["data"]["gpus"] = [gpu]
        command = dataclasses.replace(result.command, node=node.name, argv=(*result.command.argv[:5], bdf))
        made.append(dataclasses.replace(result, command=command, stdout=json.dumps(document) + "\n"))
    return made


def main() -> None:
    """Write the recording."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recording", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("engine", type=Path)
    parser.add_argument("to", type=Path)
    arguments = parser.parse_args()
    results = [r for r in read_results(arguments.recording) if r.command.argv[3] in ("node", "nvml", "copies", "after")]
    first = next(r for r in results if r.command.argv[-1] == "node")
    head = envelope(first, "node")
    with_dcgm = msgspec.structs.replace(node_doc(first), dcgm=INSTALLED)
    text = encode(probe="node", host=head.host, boot_id=head.boot_id, data=with_dcgm).decode() + "\n"
    results = [dataclasses.replace(r, stdout=text) if r is first else r for r in results]
    arguments.to.mkdir(parents=True)
    (arguments.to / SITE).write_text(SITE_TEXT)
    site = load_site(arguments.to / SITE)
    nvml = nvml_doc(next(r for r in results if r.command.argv[-1] == "nvml"))
    found = {head.host: NodeFound(node=with_dcgm, nvml=nvml, boot_id=head.boot_id)}
    profile = load("h200-sxm")
    node = resolve(site, found, profile=profile).nodes[0]
    serial = next(slot.gpu.serial for slot in node.slots if slot.gpu)
    results += engine(read_results(arguments.engine), node, head)
    for test in TESTS:
        if test.name not in RUNS:
            continue
        command = DcgmProbe(test, profile).command(node, node.part)
        folder = arguments.runs / RUNS[test.name]
        seconds = float((folder / "seconds.txt").read_text())
        document = AroundDoc(
            argv=list(command.argv[command.argv.index("--") + 1 :]),
            exit_code=int((folder / "exit_code.txt").read_text()),
            stdout=(folder / "stdout").read_text().replace(OLD_SERIAL, serial),
            stderr=(folder / "stderr").read_text(),
            seconds=seconds,
            watch_problem="recorded without a watch",
        )
        printed = encode(probe="around", host=head.host, boot_id=head.boot_id, data=document).decode() + "\n"
        results.append(
            CommandResult(
                command=command, exit_code=0, stdout=printed, stderr="", started=first.started, duration_s=seconds
            )
        )
    meta = read_meta(arguments.recording)
    append(arguments.to, results, note=meta.note, composed=COMPOSED, recorded=meta.recorded)


if __name__ == "__main__":
    main()
