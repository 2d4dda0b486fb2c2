"""A retest never takes back what a clause without one has failed, and no run that saw a FAIL is continued."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import append
from tests.judged import cells, judged, parts
from tests.nodes import demo_results, write_recording

GPU = "0000:00:06.0"


def narrow(data: dict[str, Any]) -> None:
    """Eight lanes, and a third of the bandwidth: the one asks for a retest, the other needs none."""
    slow(data, 3)
    samples = data["watch"]["samples"]
    samples["width"] = [8 for _ in samples["width"]]


def fatal(data: dict[str, Any]) -> None:
    """Fatal errors of the link beside bandwidth that asks for a retest."""
    slow(data, 1.5)
    data["watch"]["before"].update(pcie_fatal=0, pcie_nonfatal=0)
    data["watch"]["after"].update(pcie_fatal=2, pcie_nonfatal=1)
    data["aer"] = {"correctable": [0, 5], "fatal": [0, 2], "nonfatal": [0, 1]}


def uncorrected(data: dict[str, Any]) -> None:
    """Uncorrected ECC errors while data moved, at full speed."""
    data["watch"]["before"]["ecc_uncorrected_volatile"] = 0
    data["watch"]["after"]["ecc_uncorrected_volatile"] = 3


def slow(data: dict[str, Any], times: float) -> None:
    for copy in data["copies"]:
        copy["gb_per_s"] /= times
        copy["repeats"] = [rate / times for rate in copy["repeats"]]


def clean(data: dict[str, Any]) -> None:
    data["aer"] = {"correctable": [5, 5], "fatal": [2, 2], "nonfatal": [1, 1]}


def crashed(result: CommandResult) -> CommandResult:
    return dataclasses.replace(result, exit_code=1, stdout="", stderr="CUDA_ERROR_UNKNOWN")


def hung(result: CommandResult) -> CommandResult:
    return dataclasses.replace(result, exit_code=None, timed_out=True, stdout="")


def well(result: CommandResult) -> CommandResult:
    return changed(result, clean)


def changed(result: CommandResult, change: Callable[[dict[str, Any]], None]) -> CommandResult:
    document = json.loads(result.stdout)
    change(document["data"])
    return dataclasses.replace(result, stdout=json.dumps(document) + "\n")


def recording(
    path: Path, first: Callable[[dict[str, Any]], None], retest: Callable[[CommandResult], CommandResult]
) -> Path:
    """The demo node whose first GPU shows this in its copies, and then this when they are repeated."""
    made: list[CommandResult] = []
    for result in demo_results():
        if result.command.argv[3:] != ("copies", GPU):
            made.append(result)
            continue
        again = retest(result)
        made += [changed(result, first), dataclasses.replace(again, command=_repeated(again))]
    return write_recording(path, made, gpus="2")


def _repeated(result: CommandResult) -> Any:
    return dataclasses.replace(result.command, repeat=1)


@pytest.mark.parametrize(
    ("first", "retest", "clause", "value"),
    [
        (narrow, crashed, "PCIE-2", 8),
        (fatal, well, "PCIE-9", 3),
        (fatal, well, "PCIE-16", 3),
        (fatal, hung, "PCIE-16", 3),
    ],
)
def test_what_one_run_found_stands(
    tmp_path: Path,
    first: Callable[[dict[str, Any]], None],
    retest: Callable[[CommandResult], CommandResult],
    clause: str,
    value: int,
) -> None:
    """A clause without a retest keeps the FAIL of the first run, and says which run it was; one with it is open."""
    node = recording(tmp_path / "node", first, retest)
    certificate = judged(tmp_path, node)
    part = parts(certificate, clause)[0]
    assert (certificate.judged, part.outcome, part.value) == ("REJECTED", "FAIL", value)
    assert part.conditions.startswith("run 1 of 2")
    assert "PCIE-5" in cells(certificate, "UNSTABLE", "NOT MEASURED")
    for path in (node / "results").glob("*.json"):
        path.unlink()
    append(node, demo_results())
    judged(tmp_path, node)
    assert (tmp_path / "out.1" / "run.json").exists(), "the run that saw it is kept aside"


def test_an_alarm_in_any_run_stands_for_every_clause(tmp_path: Path) -> None:
    """Uncorrected ECC errors of the first run fail all that was measured then, though the second never ended."""
    certificate = judged(tmp_path, recording(tmp_path / "node", uncorrected, hung))
    for clause in ("PCIE-1", "PCIE-2", "PCIE-5", "PCIE-6"):
        part = parts(certificate, clause)[0]
        assert (part.outcome, part.reason) == ("FAIL", "3 uncorrected ECC errors meanwhile")
        assert part.conditions.startswith("run 1 of 2")


def test_a_fail_in_one_run_of_two_is_not_continued(tmp_path: Path) -> None:
    """Two runs that disagree leave the run open; it is kept aside all the same: nobody measures until it fits."""
    node = recording(tmp_path / "node", lambda data: slow(data, 3), well)
    certificate = judged(tmp_path, node)
    assert certificate.judged == "INCOMPLETE"
    assert {"PCIE-5", "PCIE-6"} <= cells(certificate, "UNSTABLE").keys()
    for path in (node / "results").glob("*.json"):
        path.unlink()
    append(node, demo_results())
    assert judged(tmp_path, node).judged == "ACCEPTED"
    assert (tmp_path / "out.1" / "run.json").exists()


def test_a_fail_among_earlier_attempts_is_not_continued(tmp_path: Path) -> None:
    """Also a result that was set aside as an earlier attempt condemns: what is in the store was seen."""
    node = write_recording(tmp_path / "node", demo_results(), gpus="2")
    judged(tmp_path, node)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    (tmp_path / "out" / "run.json").write_text(json.dumps({**run, "ended": ""}))
    path = next((tmp_path / "out" / "store").glob("copies@*gpu0.json"))
    stored = json.loads(path.read_text())
    earlier = json.loads(json.dumps(stored["results"][0]))
    document = json.loads(earlier["stdout"])
    narrow(document["data"])
    earlier["stdout"] = json.dumps(document)
    path.write_text(json.dumps({**stored, "earlier": [earlier]}))
    judged(tmp_path, node)
    assert (tmp_path / "out.1" / "run.json").exists()
