"""A run over several nodes that goes on: what a node says today counts, and a FAIL of an optional clause holds up
nothing and is not forgotten."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import append
from tests.nodes import as_another, demo_results
from tests.plugin.conftest import Accept, Outcome
from tests.plugin.test_many_nodes import LEVEL2, Change, judged, record, said_of
from tests.plugin.test_not_continued import REBOOTED, slow, with_xid

OPTIONAL = "STRESS-66"
BOTH = "STRESS-66 on node02/gpu0, STRESS-66 on node02/gpu1"
DBE = "NVRM: Xid (PCI:0000:00:06): 48, DBE (double bit error) ECC"


def changed(probe: str, change: Callable[[dict[str, Any]], None]) -> Change:
    """A change of what this probe's documents say."""

    def of(result: CommandResult) -> CommandResult:
        if result.command.argv[3] != probe:
            return result
        document = json.loads(result.stdout)
        change(document["data"])
        return dataclasses.replace(result, stdout=json.dumps(document) + "\n")

    return of


def late(data: dict[str, Any]) -> None:
    """Twice the latency of its peers: that fails a clause that is not required."""
    for gpu in data["gpus"]:
        for phase in gpu["phases"]:
            if phase["kind"] == "latency":
                phase["latency"]["seconds"] *= 2
                phase["latency"]["host_ns"] = [value * 2 for value in phase["latency"]["host_ns"]]


def ecc(data: dict[str, Any]) -> None:
    data["gpus"][0]["ecc_uncorrected_volatile"] = 7


def after_load(data: dict[str, Any]) -> None:
    data["log"]["lines"].append({"t": 3000.0, "text": DBE})


def late_and_lost(data: dict[str, Any]) -> None:
    """One GPU is late, and of the other the latency was lost: both in one measurement."""
    late(data)
    for phase in data["gpus"][1]["phases"]:
        if phase["kind"] == "latency":
            del phase["latency"]
            phase["problem"] = "expected the end of the phase within 32 s, found none: it hangs"


LATE = changed("stress", late)


def both(one: Change, other: Change) -> Change:
    def of(result: CommandResult) -> CommandResult | None:
        made = one(result)
        return made and other(made)

    return of


def gone(_result: CommandResult) -> None:
    """The node does not answer."""


def lost(*probes: str) -> Change:
    return lambda result: None if result.command.argv[3] in probes else result


def recorded(accept: Accept, **changes: Change) -> None:
    """Other nodes, or the same on another day, in the place of those that were recorded."""
    shutil.rmtree(accept.path / "nodes", ignore_errors=True)
    record(accept.path / "nodes", level=2, **changes)


def run_file(run: Outcome) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run.out / "run.json").read_text())
    return loaded


def assumed(run: Outcome) -> list[str]:
    return [line for line in run.certificate["assumptions"] if line.startswith("continued:")]


_BEGUN: list[Path] = []


@pytest.fixture
def late_and_away(accept: Accept, tmp_path_factory: pytest.TempPathFactory) -> Accept:
    """A run that ended INCOMPLETE for node04 was away, in which node02 failed an optional clause: made once."""
    if not _BEGUN:
        recorded(accept, node02=LATE, node04=gone)
        first = accept(*LEVEL2)
        assert (first.code, judged(first)["node02"], judged(first)["node04"]) == (20, "ACCEPTED", "INCOMPLETE")
        assert said_of(first, "node02")[OPTIONAL] == ["FAIL", "FAIL"]
        assert (run_file(first)["failed"], run_file(first)["optional"]) == ([], BOTH.split(", "))
        kept = tmp_path_factory.mktemp("begun")
        shutil.move(first.out, kept / "out")
        _BEGUN.append(kept / "out")
    shutil.copytree(_BEGUN[0], accept.path / "gpuready-out")
    return accept


@pytest.mark.parametrize(
    ("today", "clause"),
    [
        (with_xid, "GPU-28"),
        (changed("nvml", ecc), "GPU-9"),
        (changed("after", after_load), "AFTER-1"),
    ],
    ids=["Xid", "ECC", "Xid after the load"],
)
def test_what_a_node_says_today_is_judged(late_and_away: Accept, today: Change, clause: str) -> None:
    """A node that failed something optional before is REJECTED for what it shows now, and the first FAIL stays."""
    recorded(late_and_away, node02=both(today, LATE))
    second = late_and_away(*LEVEL2)
    assert (second.code, judged(second)["node02"], judged(second)["node04"]) == (1, "REJECTED", "ACCEPTED")
    assert "FAIL" in said_of(second, "node02")[clause]
    assert said_of(second, "node02")[OPTIONAL] == ["FAIL", "FAIL"]
    assert not (late_and_away.path / "gpuready-out.1").exists()


def test_an_optional_fail_of_a_rebooted_node_is_told(late_and_away: Accept) -> None:
    """All of it is measured anew and nothing fails: what did before is an assumption of this certificate, and of the
    next."""
    recorded(late_and_away, node02=REBOOTED, node04=gone)
    for _ in range(2):
        again = late_and_away(*LEVEL2)
        assert (again.code, said_of(again, "node02")[OPTIONAL]) == (20, ["OBSERVED", "OBSERVED"])
        assert f"continued: not required, failed before and measured again: {BOTH}" in assumed(again)


def test_what_was_lost_beside_an_optional_fail_is_measured(accept: Accept) -> None:
    """Copies that were lost are taken when the node answers again; the optional FAIL still stands on the
    certificate, for it was measured whole."""
    recorded(accept, node02=both(lost("copies", "copies-together"), LATE))
    assert judged(accept(*LEVEL2))["node02"] == "INCOMPLETE"
    recorded(accept)
    second = accept(*LEVEL2)
    assert (second.code, second.status) == (0, "ACCEPTED"), second.certificate["why"]
    assert said_of(second, "node02")[OPTIONAL] == ["FAIL", "FAIL"]
    assert assumed(second) == ["continued: node[01,03-04] kept, of node02 what proved nothing measured again"]


def test_an_optional_fail_beside_something_lost_is_told(accept: Accept) -> None:
    """Where one measurement holds both it is taken again, and the FAIL that is gone with it is an assumption."""
    recorded(accept, node02=changed("stress", late_and_lost), node04=gone)
    first = accept(*LEVEL2)
    assert (first.code, said_of(first, "node02")[OPTIONAL]) == (20, ["FAIL", "NOT MEASURED"])
    recorded(accept)
    second = accept(*LEVEL2)
    assert (second.code, said_of(second, "node02")[OPTIONAL]) == (0, ["OBSERVED", "OBSERVED"])
    told = "continued: not required, failed before and measured again: STRESS-66 on node02/gpu0"
    assert told in assumed(second)


def test_a_node_that_failed_is_judged_by_both_days(accept: Accept) -> None:
    """A node whose two measurements disagree keeps that and is not measured again, of which the certificate says what
    the same command will do and what measures it; a hardware Xid that it shows on the next day rejects it."""
    recorded(accept, node02=slow)
    healthy = (as_another(result, 2, "node02") for result in demo_results() if result.command.argv[3] == "copies")
    append(
        accept.path / "nodes",
        [dataclasses.replace(one, command=dataclasses.replace(one.command, repeat=1)) for one in healthy],
    )
    first = accept(*LEVEL2)
    assert (first.code, run_file(first)["failed"]) == (20, ["node02"])
    says, command = first.certificate["do_next"]
    assert says.startswith("node02: something failed, so what it said stands, and the same command does not measure it")
    assert says.endswith("choose another --gpuready-out")
    assert "choose another --gpuready-out" in " ".join(first.result.outlines)
    assert command.endswith("-m level2")
    recorded(accept)
    second = accept(*LEVEL2)
    assert (second.code, judged(second)["node02"]) == (20, "INCOMPLETE")
    assert second.certificate["do_next"] == [says, command]
    assert assumed(second) == [
        "continued: node[01,03-04] kept, node02 failed and not measured again (another --gpuready-out measures it anew)"
    ]
    recorded(accept, node02=with_xid)
    third = accept(*LEVEL2)
    assert (third.code, judged(third)["node02"]) == (1, "REJECTED")
    assert "FAIL" in said_of(third, "node02")["GPU-28"]
