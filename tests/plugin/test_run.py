"""A run from its options to its files: continued, kept aside, shared by workers, and read by others."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lxml import etree

from pytest_gpuready.certificate.document import json_schema
from tests.nodes import demo_results, write_recording
from tests.plugin.conftest import Accept

REPLAY = ("--gpuready-replay", "demo", "-m", "level2")
SCHEMA = Path(__file__).parents[2] / "src" / "pytest_gpuready" / "certificate" / "schema-1.json"
XSD = Path(__file__).parents[1] / "data" / "junit.xsd"


def comparable(certificate: dict[str, Any]) -> dict[str, Any]:
    """A certificate without what differs between two runs of the same: its times and number."""
    left = {"number", "started", "issued", "do_next", "environment"}
    return {key: value for key, value in certificate.items() if key not in left}


def test_workers_need_a_run_that_is_open(accept: Accept) -> None:
    """Clauses under -n without a level or option are an error, not a set of runs."""
    run = accept("-n", "1")
    assert run.code not in (0, 20)
    assert not run.out.exists()


def test_an_ini_value_opens_the_run_for_workers(accept: Accept) -> None:
    """Under -n a profile named in ini is asked for as one on the command line is: the controller opens the run."""
    run = accept("-n", "1", "-o", "gpuready_profile=h200-sxm", "-k", "present")
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert run.certificate["finished"] is True


def test_another_level_than_the_site_file_agrees_is_said(accept: Accept) -> None:
    """Wherever -m came from, ini and environment too, the certificate says both levels."""
    site = write_recording(accept.path / "node", demo_results(), gpus="2") / "site.yaml"
    site.write_text(site.read_text() + "level: 2\n")
    run = accept("--gpuready-replay", "node", "-o", "addopts=-m level1", "-k", "present")
    assert "level 1 was asked for (-m level1); the site file says 2" in run.certificate["assumptions"]


def test_an_incomplete_run_is_continued(accept: Accept) -> None:
    """What proved itself is kept; what did not is measured again, and only that."""
    results = demo_results()
    hung = [
        dataclasses.replace(r, exit_code=None, timed_out=True, stdout="")
        if r.command.argv[3:] == ("copies", "0000:00:07.0")
        else r
        for r in results
    ]
    write_recording(accept.path / "node", hung, gpus="2")
    first = accept("--gpuready-replay", "node", "-m", "level2")
    assert (first.code, first.status) == (20, "INCOMPLETE")
    stores = {p.name: p.stat().st_mtime_ns for p in (first.out / "store").glob("copies*.json")}
    _replace(accept.path / "node", results)
    second = accept("--gpuready-replay", "node", "-m", "level2")
    assert (second.code, second.status) == (0, "ACCEPTED"), second.certificate["why"]
    assert (
        second.certificate["started"] == first.certificate["started"] or not (accept.path / "gpuready-out.1").exists()
    )
    again = {p.name: p.stat().st_mtime_ns for p in (second.out / "store").glob("copies*.json")}
    assert again["copies@node01_gpu0.json"] == stores["copies@node01_gpu0.json"]
    assert again["copies@node01_gpu1.json"] != stores["copies@node01_gpu1.json"]
    assert not (accept.path / "gpuready-out.1").exists()


def test_a_finished_run_is_kept_aside(accept: Accept) -> None:
    """An ACCEPTED run is not continued: it is kept as DIR.1, and the next as DIR.2."""
    numbers = [accept(*REPLAY[:2], "-m", "level1").certificate["number"] for _ in range(3)]
    kept = [json.loads((accept.path / f"gpuready-out.{n}" / "certificate.json").read_text())["number"] for n in (1, 2)]
    assert kept == numbers[:2]


@pytest.mark.parametrize("change", ["boot", "profile", "site", "gpu"])
def test_a_run_about_something_else_is_not_continued(accept: Accept, change: str) -> None:
    """Another boot, profile, site file or GPU: the incomplete run is kept aside and a new one starts."""
    results = demo_results()
    write_recording(accept.path / "node", results, gpus="2")
    accept("--gpuready-replay", "node", "-m", "level1", "-k", "present")
    options: tuple[str, ...] = ()
    if change == "boot":
        _replace(
            accept.path / "node", [_with(r, "00000000-0000-4000-8000-0000000000b0", "other-boot") for r in results]
        )
    elif change == "gpu":
        _replace(accept.path / "node", [_with(r, "GPU-00000002-", "GPU-00000009-") for r in results])
    elif change == "site":
        site = accept.path / "node" / "site.yaml"
        site.write_text(site.read_text() + "customer: somebody\n")
    else:
        (accept.path / "mine.yaml").write_text(
            "profile: mine\nextends: h200-sxm\nversion: '1'\ntitle: Mine\npci_ids: ['10de:2335']\nclauses: {}\n"
        )
        options = ("--gpuready-profile", "mine.yaml")
    run = accept("--gpuready-replay", "node", "-m", "level1", *options)
    assert run.status == "ACCEPTED", run.result.stdout.str()[-2000:]
    assert (accept.path / "gpuready-out.1" / "certificate.json").exists()


def test_a_folder_of_somebody_else_is_not_moved(accept: Accept) -> None:
    """A directory that is no run directory is left alone."""
    (accept.path / "precious").mkdir()
    (accept.path / "precious" / "data").write_text("data")
    run = accept(*REPLAY, "--gpuready-out", "precious")
    assert run.code == 4
    assert (accept.path / "precious" / "data").read_text() == "data"


def test_a_failed_gate_blocks_and_keep_going_does_not(accept: Accept) -> None:
    """A gate that fails at level 1 leaves level 2 NOT TESTED, unless told to keep going."""
    results = [_with(r, '"recovery_action":0', '"recovery_action":2', gpu="0000:00:07.0") for r in demo_results()]
    write_recording(accept.path / "node", results, gpus="2")
    blocked = accept("--gpuready-replay", "node", "-m", "level2")
    assert (blocked.code, blocked.status) == (1, "REJECTED")
    assert blocked.cells("NOT TESTED")["PCIE-1"] == (0, 1)
    assert blocked.parts("PCIE-1")[0]["reason"] == "blocked by GPU-16 on node01 GPU 1"
    going = accept("--gpuready-replay", "node", "-m", "level2", "--gpuready-keep-going")
    assert (going.code, going.status) == (1, "REJECTED")
    assert going.cells("PASS")["PCIE-1"] == (0, 1)


def test_x_after_a_failure_leaves_the_rest_untested(accept: Accept) -> None:
    """-x stops at the first failure: REJECTED for what was found, and the rest has no verdict."""
    results = [_with(r, '"recovery_action":0', '"recovery_action":2', gpu="0000:00:07.0") for r in demo_results()]
    write_recording(accept.path / "node", results, gpus="2")
    run = accept("--gpuready-replay", "node", "-m", "level1", "-x")
    assert run.status == "REJECTED"
    assert run.code != 0
    assert "GPU-28" in run.cells("NOT TESTED")


def test_the_published_schema_is_the_documents(accept: Accept) -> None:
    """schema-1.json is made from the document's types, and a real certificate holds to it."""
    published = json.loads(SCHEMA.read_text())
    assert published == json_schema()
    run = accept.once(*REPLAY)
    jsonschema.Draft202012Validator(published).validate(run.certificate)


def test_junit_holds_to_its_schema_and_is_red_by_omission(accept: Accept) -> None:
    """JUnit validates, counts what it holds, and a run that leaves something out has an error in it."""
    run = accept.once(*REPLAY, "-k", "not test_present")
    tree = etree.parse(run.out / "junit.xml")
    etree.XMLSchema(etree.parse(XSD)).assertValid(tree)
    root = tree.getroot()
    assert int(root.get("tests")) == len(root.findall(".//testcase"))
    assert int(root.get("errors")) == len(root.findall(".//error")) > 0
    verdict = root.find(".//testcase[@name='certificate']/error")
    assert verdict is not None
    assert "would be INCOMPLETE" in verdict.get("message")


def test_a_recording_made_by_a_run_replays_to_the_same(accept: Accept) -> None:
    """`--gpuready-record` keeps what is needed to judge again: here, a machine without GPUs."""
    first = accept("-m", "level1", "--gpuready-record", "rec")
    second = accept("-m", "level1", "--gpuready-replay", "rec")
    assert (first.code, second.code) == (20, 20)
    cells = [run.cells("NOT MEASURED") for run in (first, second)]
    assert second.certificate["basis"] == "replay"
    assert cells[0] == cells[1]


def test_what_is_recorded_is_a_whole_run(accept: Accept) -> None:
    """With --gpuready-record nothing is continued: the recording holds every result, and the older run is kept."""
    first = accept("-m", "level1", "-k", "present")
    second = accept("-m", "level1", "--gpuready-record", "rec")
    assert first.code == second.code == 20
    assert (accept.path / "gpuready-out.1" / "run.json").exists()
    stored = sum(len(json.loads(p.read_text())["results"]) for p in (second.out / "store").glob("*.json"))
    assert stored == len(list((accept.path / "rec" / "results").glob("*.json"))) > 0


def test_evidence_is_there_when_the_run_ends(accept: Accept, pytester: pytest.Pytester) -> None:
    """Raw output that somebody deletes or changes while the run goes on is there again, whole, when it has ended."""
    pytester.makepyfile(
        meddling="""
        import pytest
        from pathlib import Path
        @pytest.hookimpl(wrapper=True)
        def pytest_runtestloop():
            ended = yield
            first, *others = Path("gpuready-out/evidence").iterdir()
            first.unlink()
            for path in others:
                path.write_text("nothing")
            return ended
        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish():
            next(Path("gpuready-out/evidence").iterdir()).unlink()
        """
    )
    run = accept(*REPLAY, plugins=("meddling",))
    assert run.status == "ACCEPTED"
    for entry in run.certificate["evidence"]:
        assert hashlib.sha256((run.out / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]


def test_a_stand_in_is_never_hardware(accept: Accept) -> None:
    """A GPU that names itself a stand-in sets the basis of the whole run."""
    results = [_with(r, "NVIDIA H200", "NVIDIA H200 (stand-in)") for r in demo_results()]
    write_recording(accept.path / "node", results, gpus="2")
    run = accept("--gpuready-replay", "node", "-m", "level1")
    assert run.certificate["basis"] != "hardware"


def test_the_hooks_are_called(accept: Accept, pytester: pytest.Pytester) -> None:
    """A conftest sees every verdict and the certificate."""
    pytester.makepyfile(
        listener="""
        import pathlib
        def pytest_gpuready_verdict(verdict):
            with pathlib.Path("verdicts").open("a") as file:
                file.write(f"{verdict.clause} {verdict.part} {verdict.outcome.value}\\n")
        def pytest_gpuready_certificate(certificate, directory):
            pathlib.Path("seen").write_text(f"{certificate.judged} {directory}")
        """
    )
    run = accept(*REPLAY[:2], "-m", "level1", plugins=("listener",))
    assert "GPU-1 node01/gpu0 PASS" in (accept.path / "verdicts").read_text()
    assert (accept.path / "seen").read_text() == f"ACCEPTED {run.out}"


def _with(result: Any, old: str, new: str, *, gpu: str = "") -> Any:
    """The result with a piece of its output replaced; with `gpu`, only behind that address."""
    text = result.stdout
    at = text.find(gpu) if gpu else 0
    return dataclasses.replace(result, stdout=text[:at] + text[at:].replace(old, new)) if at >= 0 else result


def _replace(directory: Path, results: list[Any]) -> None:
    """The recording as if it had been made of these results."""
    site = (directory / "site.yaml").read_text()
    for path in (directory / "results").glob("*.json"):
        path.unlink()
    (directory / "recording.json").unlink()
    write_recording(directory, results, gpus="2")
    (directory / "site.yaml").write_text(site)
