"""Health after the load under pytest: any order, workers, a continued run, and levels with nothing else in them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pytest_gpuready.faults.catalogue import FAULTS
from tests.judged import judged, parts
from tests.nodes import broken_recording, demo_results, write_recording
from tests.plugin.conftest import Accept

LEVEL2 = ("--gpuready-replay", "node", "-m", "level2")


def stored(out: Path) -> dict[str, int]:
    """Scope -> when it was written, of the loads and of what followed them."""
    return {p.stem: p.stat().st_mtime_ns for p in (out / "store").glob("*.json") if p.stem.startswith(("cop", "aft"))}


def taken_last(out: Path, *, gpus: int) -> bool:
    """True where the look stands behind the copies of each GPU of the node and those of all together."""
    times = {scope: written for scope, written in stored(out).items() if "@node01" in scope}
    last = times.pop("after-2@node01")
    return len(times) == gpus + 1 and all(other <= last for other in times.values())


def test_the_suites_take_it_last(accept: Accept) -> None:
    """Tests of it run behind the rest of their level, and it is measured behind all loads."""
    run = accept("--gpuready-replay", "demo", "-m", "level2", "-v")
    assert (run.code, run.status) == (0, "ACCEPTED"), run.certificate["why"]
    assert taken_last(run.out, gpus=2)
    tests = [line.split("::")[1].split("[")[0] for line in run.result.outlines if "::test_" in line]
    assert set(tests[-3:]) == {"test_gpu_after_level_2", "test_node_after_level_2"}


REVERSING = """
import pytest
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items.reverse()
"""


def test_in_any_order(accept: Accept, pytester: pytest.Pytester) -> None:
    """With the tests turned round it is asked for first and still measured last."""
    pytester.makepyfile(reversing=REVERSING)
    run = accept("--gpuready-replay", "demo", "-m", "level2", plugins=("reversing",))
    assert (run.code, run.status) == (0, "ACCEPTED"), run.certificate["why"]
    assert taken_last(run.out, gpus=2)


def test_a_continued_run_looks_again(accept: Accept) -> None:
    """What was seen after an earlier load is never kept: it is taken again, and stays as an earlier attempt."""
    results = demo_results()
    hung = [
        dataclasses.replace(r, exit_code=None, timed_out=True, stdout="") if r.command.argv[3] == "copies" else r
        for r in results
    ]
    write_recording(accept.path / "node", hung, gpus="2")
    first = accept(*LEVEL2)
    assert (first.code, first.status) == (20, "INCOMPLETE")
    assert first.cells("PASS")["AFTER-1"] == (0, 1)
    for path in (accept.path / "node" / "results").glob("*.json"):
        path.unlink()
    write_recording(accept.path / "node", results, gpus="2")
    second = accept(*LEVEL2)
    assert (second.code, second.status) == (0, "ACCEPTED"), second.certificate["why"]
    assert not (accept.path / "gpuready-out.1").exists()
    kept = json.loads((second.out / "store" / "after-2@node01.json").read_text())
    assert (len(kept["results"]), len(kept["earlier"])) == (1, 1)
    times = stored(second.out)
    assert times["after-2@node01"] == max(times.values())
    assert not any("after-2" in line for line in second.certificate["assumptions"])


def test_another_boot_after_the_load(accept: Accept) -> None:
    """A node that came back after the load under another boot id was not looked at: it rebooted."""
    results = [
        dataclasses.replace(r, stdout=json.dumps({**json.loads(r.stdout), "boot_id": "another"}))
        if r.command.argv[3] == "after"
        else r
        for r in demo_results()
    ]
    write_recording(accept.path / "node", results, gpus="2")
    run = accept(*LEVEL2)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert "found one of boot another" in run.parts("AFTER-1")[0]["line"]


def test_a_recording_without_it_is_incomplete(accept: Accept) -> None:
    """A node that nobody looked at after the load is not accepted."""
    results = [r for r in demo_results() if r.command.argv[3] != "after"]
    write_recording(accept.path / "node", results, gpus="2")
    run = accept(*LEVEL2)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert run.cells("NOT MEASURED") == {"AFTER-1": (0, 1), "AFTER-2": (-1,)}


SOFT = "profile: soft\nextends: h200-sxm\nversion: '1'\ntitle: Soft\npci_ids: ['10de:2335']\nclauses:\n"


def soft(path: Path, *out: int) -> None:
    """A profile in which these PCIE clauses and all of level 2 of DCGM and of the engine are not required."""
    names = [*(f"PCIE-{n}" for n in out), "DCGM-5", "DCGM-6", *(f"STRESS-{n}" for n in (*range(1, 10), 65))]
    path.write_text(SOFT + "".join(f"  {n}: {{required: false, gate: false, headline: ''}}\n" for n in names))


def test_no_profile_promises_the_look_alone(accept: Accept) -> None:
    """A profile that asks nothing of level 2 but health after its load does not load."""
    soft(accept.path / "soft.yaml", 1, 2, 3, 4, 5, 6, 9, 16, 17, 18, 19, 20, 21)
    run = accept("--gpuready-replay", "demo", "-m", "level2", "--gpuready-profile", "soft.yaml")
    assert run.code == 4
    said = run.result.stdout.str() + run.result.stderr.str()
    assert "expected a required clause with a limit at level 2, found none" in said


def test_a_level_of_which_only_the_look_is_left_is_not_accepted(accept: Accept) -> None:
    """Where nothing required of a level applies to the node, a look at its health accepts nothing."""
    made = []
    for result in demo_results():
        document, command = json.loads(result.stdout), result.command
        if document["probe"] in ("node", "nvml"):
            document["data"]["gpus"] = document["data"]["gpus"][:1]
        if document["probe"] == "stress":
            document["data"]["gpus"] = document["data"]["gpus"][:1]
            command = dataclasses.replace(command, argv=command.argv[:6])
        if document["probe"] == "after-2":
            document["data"]["nvml"]["gpus"] = document["data"]["nvml"]["gpus"][:1]
            document["data"]["bus"] = document["data"]["bus"][:1]
        made.append(dataclasses.replace(result, command=command, stdout=json.dumps(document)))
    write_recording(accept.path / "node", made, gpus="1")
    soft(accept.path / "soft.yaml", 1, 2, 3, 4, 5, 6, 9, 16, 17, 18, 19, 20)
    run = accept(*LEVEL2, "--gpuready-profile", "soft.yaml")
    assert run.cells("PASS")["AFTER-1"] == (0,)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert any("nothing of level 2 passed" in line for line in run.certificate["why"])


def test_keep_going_looks_after_the_load_of_a_node_that_failed(accept: Accept) -> None:
    """With keep_going the load is taken beyond a failed gate, and so is the look after it."""
    made = []
    for result in demo_results():
        document = json.loads(result.stdout)
        if document["probe"] == "nvml":
            document["data"]["gpus"][1]["remap_pending"] = 1
        made.append(dataclasses.replace(result, stdout=json.dumps(document)))
    write_recording(accept.path / "node", made, gpus="2")
    blocked = accept(*LEVEL2, "--gpuready-out", "blocked")
    assert blocked.code == 1
    assert not (accept.path / "blocked" / "store" / "after-2@node01.json").exists()
    run = accept(*LEVEL2, "--gpuready-keep-going")
    assert run.cells("FAIL") == {"GPU-12": (1,)}
    assert run.cells("PASS")["AFTER-1"] == (0, 1)
    assert taken_last(run.out, gpus=2)


def test_the_log_after_the_load_stands_beside_the_finding(tmp_path: Path) -> None:
    """The lines about a part are those of the latest log: what the load left in it is there to be read."""
    fault = next(f for f in FAULTS if f.name == "recovery-after-load")
    certificate = judged(tmp_path, broken_recording(tmp_path / "node", fault))
    (failed,) = [part for part in parts(certificate, "AFTER-1") if part.outcome == "FAIL"]
    assert "154, GPU recovery action changed" in failed.log[-1]
