"""Recorded nodes for tests: the demo node as it is, and an 8-GPU node composed from it (which says so)."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any

from pytest_gpuready.faults import Fault, break_node
from pytest_gpuready.model import CommandResult, Gpu, Node, Part, Slot
from pytest_gpuready.probes.stress import stress_probes
from pytest_gpuready.transport.recording import append, read_meta, read_results
from pytest_gpuready.transport.replay import DEMO

BDFS = tuple(f"0000:{bus}:00.0" for bus in ("19", "2a", "3b", "4c", "9b", "ab", "bb", "cb"))
MODULES = (2, 4, 1, 3, 7, 5, 8, 6)
JUDGED = ("t", "power_w", "sm_mhz", "temperature_c", "reasons")
STRESS = Path(__file__).parent / "data/stress"
COMPOSED = "composed: eight GPUs made of the two of the demo recording, addresses and identifiers numbered"


def demo_results() -> list[CommandResult]:
    """The demo node as recorded."""
    return list(_recorded())


@functools.cache
def _recorded() -> tuple[CommandResult, ...]:
    return tuple(read_results(DEMO))


def eight_gpus() -> list[CommandResult]:
    """The results of a node with eight GPUs: GPU i is the demo's GPU i % 2 at another address."""
    return list(_composed())


@functools.cache
def _composed() -> tuple[CommandResult, ...]:
    results = demo_results()
    documents = [json.loads(result.stdout) for result in results]
    old = sorted(gpu["bdf"] for gpu in _data(documents, "node")["gpus"])
    made: list[CommandResult] = []
    for result, document in zip(results, documents, strict=True):
        probe, data = document["probe"], document["data"]
        if probe == "node":
            data["gpus"] = [{**_at(data["gpus"], old[i % 2]), "bdf": bdf} for i, bdf in enumerate(BDFS)]
        elif probe == "nvml":
            data["gpus"] = [_nvml_gpu(_at(data["gpus"], old[i % 2]), i) for i in range(8)]
        elif probe.startswith("after-"):
            seen = data["nvml"]["gpus"]
            data["nvml"]["gpus"] = [_nvml_gpu(_at(seen, old[i % 2]), i) for i in range(8)]
            data["bus"] = [{**_at(data["bus"], old[i % 2]), "bdf": bdf} for i, bdf in enumerate(BDFS)]
        elif probe == "stress":
            data["gpus"] = [_loaded(_at(data["gpus"], old[i % 2]), bdf) for i, bdf in enumerate(BDFS)]
            made.append(_as(result, document, (*result.command.argv[:5], *BDFS)))
            continue
        elif probe == "copies-together":
            for way in ("gb_per_s", "d2h_gb_per_s"):
                data[way] = {bdf: data[way][old[i % 2]] for i, bdf in enumerate(BDFS)}
            argv = (*result.command.argv[:4], *BDFS)
            made.append(_as(result, document, argv))
            continue
        elif probe == "copies":
            made += [
                _as(result, _moved(document, bdf), (*result.command.argv[:4], bdf))
                for i, bdf in enumerate(BDFS)
                if old[i % 2] == data["bdf"]
            ]
            continue
        made.append(_as(result, document, result.command.argv))
    return tuple(made)


def level_4(results: list[CommandResult], bdfs: tuple[str, ...]) -> list[CommandResult]:
    """What level 4 of the engine says of these GPUs: GPU i is the recorded GPU i % 2 of a run of its own.

    The look after the load of level 4 is the last one of `results`, which nothing changed meanwhile.
    """
    slots = [Slot(part=Part(node="node01", index=i), gpu=Gpu(bdf=bdf)) for i, bdf in enumerate(bdfs)]
    node = Node(name="node01", slots=tuple(slots), fp8=True)
    looked = [r for r in results if r.command.argv[3] == "after"][-1]
    level = looked.command.argv[-1]
    head = json.loads(looked.stdout)
    made = []
    for probe in stress_probes():
        path = STRESS / f"{probe.name.partition('-')[2]}.json"
        if path.exists():
            data = json.loads(path.read_text())["data"]
            old = data["gpus"]
            data["gpus"] = [_loaded(copy.deepcopy(old[i % 2]), bdf) for i, bdf in enumerate(bdfs)]
            document = {**head, "probe": "stress", "data": data}
            made.append(dataclasses.replace(_as(looked, document, ("_",)), command=probe.command(node, node.part)))
    command = dataclasses.replace(looked.command, argv=(*looked.command.argv[:-1], "4"))
    text = looked.stdout.replace(f'"after-{level}"', '"after-4"')
    return [*results, *made, dataclasses.replace(looked, command=command, stdout=text)]


@functools.cache
def as_another(result: CommandResult, number: int, name: str) -> CommandResult:
    """The same result of another node: its own name, boot id, UUIDs and serial numbers, by its number."""
    document = json.loads(result.stdout)
    text = result.stdout.replace(json.dumps(document["host"]), json.dumps(name))
    text = text.replace(document["boot_id"], f"{document['boot_id'][:-6]}{number:06x}")
    text = re.sub("GPU-[0-9a-f]{8}", lambda found: f"GPU-{number:04x}{found.group()[-4:]}", text)
    text = re.sub(r'(?<="serial":)( ?)"(\d+)"', lambda found: f'{found[1]}"{int(found[2]) + 100 * number}"', text)
    return dataclasses.replace(result, command=dataclasses.replace(result.command, node=name), stdout=text)


SITE = """site: 1
nodes:
  node01:
    gpus: {gpus}
    nvlink: full
    virtual: true
environment:
  NCCL_NVLS_ENABLE: "0"
"""


def write_recording(directory: Path, results: list[CommandResult], *, composed: str = "", gpus: str = "8") -> Path:
    """A recording of these results with a site file that declares so many GPUs, to be replayed."""
    append(directory, results, composed=composed, recorded=read_meta(DEMO).recorded)
    (directory / "site.yaml").write_text(SITE.format(gpus=gpus))
    return directory


def broken_recording(directory: Path, fault: Fault) -> Path:
    """The 8-GPU node with this fault in it."""
    gpus = "[" + ", ".join(f'{{bdf: "{bdf}"}}' for bdf in BDFS) + "]" if fault.site == "list" else "8"
    composed = f"{COMPOSED}; fault {fault.name}"
    return write_recording(directory, break_node(eight_gpus(), fault), composed=composed, gpus=gpus)


def _nvml_gpu(gpu: dict[str, Any], index: int) -> dict[str, Any]:
    number = index + 1
    made = copy.deepcopy(gpu)
    made.update(
        bdf=BDFS[index],
        index=index,
        module_id=MODULES[index],
        uuid=f"GPU-{number:08d}-0000-4000-8000-{number:012d}",
        serial=f"16500000000{number:02d}",
        p2p_nvlink={bdf: 0 for bdf in BDFS if bdf != BDFS[index]},
    )
    return made


def _loaded(gpu: dict[str, Any], bdf: str) -> dict[str, Any]:
    """A GPU of the engine at another address, with what is judged of its samples: eight such are read in many tests."""
    gpu["bdf"] = gpu["ready"]["bdf"] = bdf
    for phase in gpu["phases"]:
        samples = phase.get("seen", {}).get("samples", {})
        step = 4 if len(samples.get("t", ())) > 80 else 1
        if samples:
            phase["seen"]["samples"] = {name: samples[name][::step] for name in JUDGED if name in samples}
        if "burn" in phase:
            phase["burn"]["windows"] = phase["burn"]["windows"][::60]
    return gpu


def _moved(document: dict[str, Any], bdf: str) -> dict[str, Any]:
    made = copy.deepcopy(document)
    made["data"]["bdf"] = bdf
    return made


def _as(result: CommandResult, document: dict[str, Any], argv: tuple[str, ...]) -> CommandResult:
    command = dataclasses.replace(result.command, argv=argv)
    return dataclasses.replace(result, command=command, stdout=json.dumps(document) + "\n")


def _at(gpus: list[dict[str, Any]], bdf: str) -> dict[str, Any]:
    return copy.deepcopy(next(gpu for gpu in gpus if gpu["bdf"] == bdf))


def _data(documents: list[dict[str, Any]], probe: str) -> dict[str, Any]:
    found: dict[str, Any] = next(d["data"] for d in documents if d["probe"] == probe)
    return found
