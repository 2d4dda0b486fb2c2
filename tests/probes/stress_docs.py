"""Recorded documents of the built-in engine, and the node that they are of."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_gpuready.model import CommandResult, Gpu, Inventory, Measurement, Node, Part, Problem, Slot
from pytest_gpuready.model.agent_doc import PROTOCOL
from pytest_gpuready.probes.stress import stress_probes
from pytest_gpuready.transport.recording import read_results
from pytest_gpuready.transport.replay import DEMO

DATA = Path(__file__).parents[1] / "data/stress"
BDFS = ("0000:00:06.0", "0000:00:07.0")
PROBES = {probe.name.partition("-")[2]: probe for probe in stress_probes()}
Change = Callable[[dict[str, Any]], None]


def node(gpus: int = 2) -> Node:
    """The node of the recordings, or one with an expected GPU more that was not found."""
    bdfs = [*BDFS, ""][:gpus]
    slots = [Slot(part=Part(node="n1", index=i), gpu=Gpu(bdf=bdf) if bdf else None) for i, bdf in enumerate(bdfs)]
    return Node(name="n1", slots=tuple(slots), fp8=True)


@functools.cache
def _recorded(piece: str) -> str:
    if (DATA / f"{piece}.json").exists():
        return json.dumps(json.loads((DATA / f"{piece}.json").read_text())["data"])
    kind = {"memory": "alloc"}.get(piece, piece)
    documents = (json.loads(result.stdout) for result in read_results(DEMO))
    found = [d["data"] for d in documents if d["probe"] == "stress" and d["data"]["plan"]["phases"][0]["kind"] == kind]
    return json.dumps(found[0])


def document(piece: str) -> dict[str, Any]:
    """What was recorded of this piece, to be changed."""
    found: dict[str, Any] = json.loads(_recorded(piece))
    return found


def result(piece: str, data: dict[str, Any], of: Node, *, timed_out: bool = False) -> CommandResult:
    """The answer to the command of this piece."""
    envelope = {"gpuready_agent": PROTOCOL, "probe": "stress", "host": "n1", "boot_id": "b", "data": data}
    return CommandResult(
        command=PROBES[piece].command(of, of.part),
        exit_code=0,
        stdout=json.dumps(envelope),
        stderr="",
        started="2026-11-30T12:00:00+00:00",
        duration_s=9.0,
        timed_out=timed_out,
    )


def answers(piece: str, *changes: Change, gpus: int = 2) -> dict[tuple[str, int], Measurement | Problem]:
    """Metric and GPU -> what a run says in which all these changes were made; each change is a run of its own."""
    of = node(gpus)
    results = []
    for change in changes or (lambda _: None,):
        data = copy.deepcopy(document(piece))
        change(data)
        results.append(result(piece, data, of))
    found = PROBES[piece].read(Inventory(nodes=(of,)), of, of.part, results)
    return {(one.metric, int(one.part.rpartition("gpu")[2])): one for one in found}


def value(found: Measurement | Problem) -> Any:
    """The value. Raises: AssertionError with the problem where there is none."""
    assert isinstance(found, Measurement), found
    return found.value


def says(found: Measurement | Problem) -> str:
    """Why there is none. Raises: AssertionError with the value where there is one."""
    assert isinstance(found, Problem), found
    return found.says
