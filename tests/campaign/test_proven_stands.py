"""What a load has proven is not measured away, whatever the verdict was that it came to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import append
from tests.judged import cells, judged
from tests.nodes import demo_results, write_recording

LOST = "expected the end of the phase within 32 s, found none: it hangs"
WRONG = {"pass_number": 3, "row": 1, "col": 2, "tile": 0, "bit": 1, "expected": "0x1", "found": "0x3"}


def apart(data: dict[str, Any]) -> None:
    """Two GPUs do not compute the same bits; nobody knows which of them is wrong."""
    data["gpus"][1]["phases"][3]["gemm"]["golden"] = "00" * 16


def hung(data: dict[str, Any]) -> None:
    """A worker that hung, and no more: nobody knows whose fault that was."""
    gpu = data["gpus"][1]
    gpu["problem"] = LOST
    for phase in gpu["phases"][2:]:
        phase.pop("gemm")
        phase["problem"] = LOST


def hung_with_xid(data: dict[str, Any]) -> None:
    """The same, beside an Xid of this GPU that only the kernel log has."""
    hung(data)
    address = data["gpus"][1]["bdf"].removesuffix(".0")
    data["log"] = [{"t": 9.0, "text": f"NVRM: Xid (PCI:{address}): 94, Contained ECC error"}]


def wrong_of_another(data: dict[str, Any]) -> None:
    """Wrong elements of a worker that sat on another GPU than it was sent to."""
    gpu = data["gpus"][1]
    gpu["ready"]["bdf"] = data["gpus"][0]["bdf"]
    gpu["phases"][3]["gemm"].update(error_count=1, errors=[WRONG])


def changed(change: Callable[[dict[str, Any]], None]) -> list[CommandResult]:
    """The demo node with this in its products."""
    made = []
    for result in demo_results():
        document = json.loads(result.stdout)
        if document["probe"] == "stress" and document["data"]["plan"]["phases"][0]["kind"] == "gemm":
            change(document["data"])
        made.append(dataclasses.replace(result, stdout=json.dumps(document) + "\n"))
    return made


def healthy_again(tmp_path: Path, node: Path) -> bool:
    """Run in the same directory on the node as it was recorded; True where that began anew."""
    for path in (node / "results").glob("*.json"):
        path.unlink()
    append(node, demo_results())
    judged(tmp_path, node, level=3)
    return (tmp_path / "out.1" / "run.json").exists()


@pytest.mark.parametrize("change", [apart, wrong_of_another])
def test_wrong_bits_of_nobody_knows_whom_are_not_continued(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """Nothing FAILs, for nobody knows which GPU it was; the run that saw it is kept aside all the same."""
    node = write_recording(tmp_path / "node", changed(change), gpus="2")
    certificate = judged(tmp_path, node, level=3)
    assert (certificate.judged, cells(certificate, "FAIL")) == ("INCOMPLETE", {})
    assert healthy_again(tmp_path, node)


def test_what_proves_nothing_is_continued(tmp_path: Path) -> None:
    """A worker that hung is measured again in the same run."""
    node = write_recording(tmp_path / "node", changed(hung), gpus="2")
    assert judged(tmp_path, node, level=3).judged == "INCOMPLETE"
    assert not healthy_again(tmp_path, node)


def test_an_xid_beside_a_worker_that_hung_is_a_fail(tmp_path: Path) -> None:
    """Nothing was measured that could carry the alarm: how the load ended does, of that GPU alone."""
    node = write_recording(tmp_path / "node", changed(hung_with_xid), gpus="2")
    certificate = judged(tmp_path, node, level=3)
    assert certificate.judged == "REJECTED"
    failed = cells(certificate, "FAIL")
    assert failed["STRESS-10"] == (1,)
    assert {gpu for gpus in failed.values() for gpu in gpus} == {1}
    assert healthy_again(tmp_path, node)
