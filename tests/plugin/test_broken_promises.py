"""Ways to a green certificate that somebody found: each stays shut."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready import accept as accepting
from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import append
from tests.nodes import demo_results, write_recording
from tests.plugin import forked
from tests.plugin.conftest import BARE, LIGHT, SUITES, Accept

LEVEL1 = ("--gpuready-replay", "node", "-m", "level1")
LEVEL2 = ("--gpuready-replay", "node", "-m", "level2")


def changed(results: list[CommandResult], probe: str, change: Any) -> list[CommandResult]:
    """The results with the documents of one probe changed in place."""
    made = []
    for result in results:
        document = json.loads(result.stdout)
        if document["probe"] == probe:
            change(document)
        made.append(dataclasses.replace(result, stdout=json.dumps(document) + "\n"))
    return made


def test_another_boot_in_one_document_is_not_measured(accept: Accept) -> None:
    """Copies of another boot than the inventory's belong to another run or machine."""
    results = changed(demo_results(), "copies", lambda d: d.update(boot_id="another-boot"))
    write_recording(accept.path / "node", results, gpus="2")
    run = accept(*LEVEL2)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert "found one of boot another-boot" in run.parts("PCIE-5")[0]["line"]


def test_an_unknown_boot_is_never_continued(accept: Accept) -> None:
    """Without a boot id nobody knows whether the machine rebooted: a new run starts."""
    results = [
        dataclasses.replace(r, stdout=r.stdout.replace('"boot_id":"', '"boot_id":"","x":"')) for r in demo_results()
    ]
    results = [dataclasses.replace(r, stdout=_without_x(r.stdout)) for r in results]
    write_recording(accept.path / "node", results, gpus="2")
    accept(*LEVEL1, "-k", "present")
    run = accept(*LEVEL1)
    assert (accept.path / "gpuready-out.1" / "certificate.json").exists()
    assert run.status == "ACCEPTED"


def _without_x(text: str) -> str:
    document = json.loads(text)
    document.pop("x", None)
    return json.dumps(document) + "\n"


def test_a_run_that_saw_a_failure_is_not_continued(accept: Accept, pytester: pytest.Pytester) -> None:
    """A FAIL that was measured before the run was killed is not measured away by the next run."""
    results = demo_results()
    bad = changed(results, "copies", lambda d: d["data"]["watch"]["samples"].update(width=_eights(d)))
    write_recording(accept.path / "node", bad, gpus="2")
    pytester.makepyfile(
        dying="""
        import os, pytest, signal
        @pytest.hookimpl(wrapper=True)
        def pytest_runtestloop():
            ended = yield
            os.kill(os.getpid(), signal.SIGKILL)
            return ended
        """
    )
    killed = accept(*LEVEL2, plugins=("dying",))
    assert killed.certificate["finished"] is False
    for path in (accept.path / "node" / "results").glob("*.json"):
        path.unlink()
    append(accept.path / "node", results)
    accept(*LEVEL2)
    assert (accept.path / "gpuready-out.1" / "run.json").exists()


def _eights(document: dict[str, Any]) -> list[int]:
    return [8 for _ in document["data"]["watch"]["samples"]["width"]]


def test_two_runs_do_not_share_a_directory(accept: Accept, pytester: pytest.Pytester) -> None:
    """A second run that would write to the same directory is told so and writes nothing."""
    pytester.makepyfile(
        slow="""
        import pathlib, time
        def pytest_runtest_setup(item):
            if "test_topology" in item.nodeid:
                pathlib.Path("reached").touch()
                while not pathlib.Path("go").exists():
                    time.sleep(0.05)
        """
    )
    words = (*LIGHT, "-p", "own_lease", "-p", "slow", "--gpuready-replay", "demo", "-m", "level2", str(SUITES))
    first = forked.start(accept.path, *words, said=(Path(os.devnull), Path(os.devnull)))
    end = time.monotonic() + 60
    while not (accept.path / "reached").exists() and time.monotonic() < end:
        time.sleep(0.05)
    second = accept("--gpuready-replay", "demo", "-m", "level2")
    (accept.path / "go").touch()
    assert second.code == 20
    said = (second.result.stdout.str() + second.result.stderr.str()).strip()
    assert said.startswith("gpuready: INCOMPLETE: expected ")
    assert said.count("found another run writing to it") == 1
    first.join(60)
    assert first.exitcode == 0
    assert not (accept.path / "gpuready-out.1").exists()


def test_another_plugins_exit_code_stays(accept: Accept, pytester: pytest.Pytester) -> None:
    """An exit code that somebody else set is not lowered to 0."""
    pytester.makepyfile(
        strict="""
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(session):
            session.exitstatus = 7
        """
    )
    assert accept("--gpuready-replay", "demo", "-m", "level1", plugins=("strict",)).code == 7


LOWERING = """
import pytest
class Last:
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        session.exitstatus = 0
class Around:
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session):
        yield
        session.exitstatus = 0
class Leaving:
    def pytest_sessionfinish(self):
        pytest.exit("enough", returncode=0)
def pytest_configure(config):
    config.pluginmanager.register({how}())
"""


@pytest.mark.parametrize("how", ["Last", "Around", "Leaving"])
def test_no_plugin_lowers_the_code(accept: Accept, pytester: pytest.Pytester, how: str) -> None:
    """Whoever sets the exit code to 0 in the end: the certificate has been written, and its code stands."""
    pytester.makepyfile(lowering=LOWERING.format(how=how))
    run = accept("--gpuready-replay", "demo", "-m", "level1", "-k", "present", plugins=("lowering",))
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert run.certificate["finished"] is True


def test_an_optional_clause_does_not_set_the_code(accept: Accept) -> None:
    """A clause that is not required and has no measurement leaves verdict and exit code alike."""

    def nothing(document: dict[str, Any]) -> None:
        for gpu in document["data"]["gpus"]:
            gpu["ecc_corrected_volatile"] = None
            gpu["errors"]["ecc_corrected_volatile"] = "NotSupported"

    write_recording(accept.path / "node", changed(demo_results(), "nvml", nothing), gpus="2")
    run = accept(*LEVEL1)
    assert (run.code, run.status) == (0, "ACCEPTED")
    assert run.cells("NOT MEASURED") == {"GPU-11": (0, 1)}


@pytest.mark.parametrize("expression", ["(level2)", " level2 ", "level2 and not nothing_like_this"])
def test_a_marker_expression_aims_as_high_as_it_says(accept: Accept, expression: str) -> None:
    """Parentheses and blanks change nothing; another expression that names level 2 does not end at level 1."""
    write_recording(accept.path / "node", demo_results(), gpus="2")
    site = accept.path / "node" / "site.yaml"
    site.write_text(site.read_text() + "level: 1\n")
    run = accept("--gpuready-replay", "node", "-m", expression, "-k", "present")
    assert run.certificate["level_asked"] == 2


def test_a_level_that_requires_nothing_is_not_accepted(accept: Accept) -> None:
    """A profile that makes every clause of a level optional gives nothing to accept at that level."""
    names = [f"PCIE-{n}" for n in (1, 2, 3, 4, 5, 6, 9, 16, 17, 18, 19, 20, 21)]
    names += ["DCGM-5", "DCGM-6", *(f"STRESS-{n}" for n in (*range(1, 10), 65))]
    clauses = "\n".join(f"  {name}: {{required: false, gate: false, headline: ''}}" for name in names)
    (accept.path / "soft.yaml").write_text(
        "profile: soft\nextends: h200-sxm\nversion: '1'\ntitle: Soft\npci_ids: ['10de:2335']\nclauses:\n"
        + clauses
        + "\n"
    )
    run = accept("--gpuready-replay", "demo", "-m", "level2", "--gpuready-profile", "soft.yaml")
    assert run.code != 0
    if run.out.exists():
        assert run.status == "INCOMPLETE"


def test_a_recording_is_made_once(accept: Accept) -> None:
    """A second visit is not mixed into a recording, and a recording of two nodes is not judged by one of them."""
    first = accept("-m", "level1", "--gpuready-record", "rec")
    second = accept("-m", "level1", "--gpuready-record", "rec")
    assert (first.code, second.code) == (20, 4)
    write_recording(accept.path / "node", demo_results(), gpus="2")
    other = [dataclasses.replace(r, command=dataclasses.replace(r.command, node="node02")) for r in demo_results()]
    append(accept.path / "node", other)
    assert accept(*LEVEL1).code == 4
    site = accept.path / "node/site.yaml"
    site.write_text(site.read_text().replace("node01:", '"node[01-02]":'))
    both = accept(*LEVEL1)  # what was recorded of node02 calls itself node01
    assert both.code == 20
    assert [node["judged"] for node in both.certificate["nodes"]] == ["ACCEPTED", "INCOMPLETE"]


def test_a_failed_start_names_the_older_certificate(accept: Accept) -> None:
    """Where a run cannot start, the line says that the certificate lying there is an earlier run's."""
    accept("--gpuready-replay", "demo", "-m", "level1")
    run = accept("--gpuready-replay", "demo", "-m", "level1", "--gpuready-profile", "no-such-profile")
    assert run.code == 4
    assert "is of an earlier run" in run.result.stdout.str() + run.result.stderr.str()


def test_a_deleted_store_is_not_believed(accept: Accept, pytester: pytest.Pytester) -> None:
    """Measurements whose files are gone at the end are gone."""
    pytester.makepyfile(
        deleting="""
        import pytest, shutil
        @pytest.hookimpl(wrapper=True)
        def pytest_runtestloop():
            ended = yield
            shutil.rmtree("gpuready-out/store")
            return ended
        """
    )
    run = accept("--gpuready-replay", "demo", "-m", "level1", plugins=("deleting",))
    assert (run.code, run.status) == (20, "INCOMPLETE")


def test_a_site_file_forbids_the_automatic_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_lease: str
) -> None:
    """`make accept` with a site file on a machine without GPUs asks that machine: exit 20, no replay."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("site: 1\nprofile: h200-sxm\nnodes: {node07: {gpus: 1}}\n")
    (tmp_path / "own_lease.py").write_text(own_lease)
    command = [sys.executable, "-m", "pytest_gpuready.accept", *LIGHT, "-p", "own_lease"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 20
    assert "REPLAY" not in done.stdout


class Here:
    """Stands for the process that `accept` starts: pytest with the same words and environment, in this process."""

    pytester: pytest.Pytester

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        assert command[:3] == [sys.executable, "-m", "pytest"]
        with pytest.MonkeyPatch.context() as patch:
            for name in env.keys() - os.environ.keys():
                patch.setenv(name, env[name])
            self._code = self.pytester.runpytest_inprocess(*BARE, *command[3:]).ret

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> int:
        return int(self._code)


@pytest.mark.parametrize(
    "where", ["ini", "environment", "dangling link", "site.yml", "profile in ini", "profile in environment"]
)
def test_what_expects_gpus_elsewhere_forbids_it_too(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    """A site file or profile in ini or PYTEST_ADDOPTS, site.yml, and a link that leads nowhere get no replay either."""
    folder = pytester.path
    (folder / "my.yaml").write_text("site: 1\nprofile: h200-sxm\nnodes: {node07: {gpus: 8}}\n")
    if where == "ini":
        (folder / "pytest.ini").write_text("[pytest]\ngpuready_site = my.yaml\n")
    elif where == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", "--gpuready-site my.yaml")
    elif where == "profile in ini":
        (folder / "pytest.ini").write_text("[pytest]\ngpuready_profile = h200-sxm\n")
    elif where == "profile in environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", "--gpuready-profile=h200-sxm")
    elif where == "site.yml":
        (folder / "site.yml").symlink_to("nowhere.yaml")
    else:
        (folder / "site.yaml").symlink_to("nowhere.yaml")
    monkeypatch.setattr(Here, "pytester", pytester, raising=False)
    monkeypatch.setattr(accepting.subprocess, "Popen", Here)
    assert accepting.main([], root=folder) == (4 if where in ("dangling link", "site.yml") else 20)
    said = capfd.readouterr().out
    assert "would be ACCEPTED" not in said
    assert "was judged instead" not in said
    assert "this run wrote no certificate" in said


def test_workers_do_not_load_a_node_together(accept: Accept) -> None:
    """Under -n 2 measurements of one node take turns, so that they do not measure each other."""
    script = (
        "import pathlib, sys\n"
        "from pytest_gpuready.campaign.store import Store\n"
        "from pytest_gpuready.model import Command\n"
        "from pytest_gpuready.transport.local import Local\n"
        "note = 'echo start $0 >> log; sleep 0.3; echo end $0 >> log'\n"
        "command = Command(node='n', argv=('sh', '-c', note, sys.argv[1]), timeout_s=20)\n"
        "Store(pathlib.Path('out'), Local()).take({sys.argv[1]: command})\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script, name], cwd=accept.path) for name in ("a", "b", "c")]
    assert [run.wait(timeout=60) for run in runs] == [0, 0, 0]
    lines = (accept.path / "log").read_text().split("\n")[:-1]
    assert all(lines[i].replace("start", "end") == lines[i + 1] for i in range(0, 6, 2))


@pytest.mark.parametrize("trace", ["proc/driver/nvidia", "sys/module/nvidia", "dev/nvidia0", "pci", "nvswitch", "smi"])
def test_a_trace_of_a_gpu_forbids_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, trace: str
) -> None:
    """Where a driver, nvidia-smi, device node or PCI function exists, an asked-for replay is refused with 20."""
    monkeypatch.chdir(tmp_path)
    if trace == "smi":
        monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin")
        (tmp_path / "usr/bin").mkdir(parents=True)
        (tmp_path / "usr/bin/nvidia-smi").touch(0o755)
    elif trace in ("pci", "nvswitch"):
        device = tmp_path / "sys/bus/pci/devices/0000:19:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x068000\n" if trace == "nvswitch" else "0x030200\n")
    else:
        (tmp_path / trace).mkdir(parents=True)
    assert accepting.traces(tmp_path)
    assert accepting.main(["--gpuready-replay", "demo"], root=tmp_path) == 20
    assert "found a replay asked for" in capsys.readouterr().out
