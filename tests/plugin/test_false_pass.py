"""Every way to a green certificate that is none: not one of them is ACCEPTED or exits 0."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.nodes import demo_results, write_recording
from tests.plugin import forked
from tests.plugin.conftest import LIGHT, SUITES, Accept

REPLAY = ("--gpuready-replay", "demo", "-m", "level2")


def test_the_whole_replay_would_be_accepted(accept: Accept) -> None:
    """The yardstick of this file: untouched, the demo node would be ACCEPTED and exits 0, and says REPLAY."""
    run = accept.once(*REPLAY)
    assert (run.code, run.status, run.certificate["basis"]) == (0, "ACCEPTED", "replay")
    assert run.certificate["verdict"] == "REPLAY: would be ACCEPTED"
    run.result.stdout.fnmatch_lines(["*REPLAY*certifies no hardware*", "REPLAY*would be ACCEPTED*"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "test_present"),
        ("-k", "not test_present"),
        ("-k", "nothing_has_this_name"),
        ("--rootdir", str(SUITES.parent), "--deselect", "suites/test_gpu_health.py::test_present"),
        ("--ignore", f"{SUITES}/test_nvlink.py"),
        ("--setup-plan",),
        ("--maxfail", "1", "-k", "PCIE or pcie"),
    ],
    ids=lambda a: " ".join(a)[:40],
)
def test_a_selection_is_not_an_acceptance(accept: Accept, arguments: tuple[str, ...]) -> None:
    """Whatever is left out has no verdict: INCOMPLETE, never exit 0."""
    run = accept.once(*REPLAY, *arguments)
    assert run.code != 0
    assert run.status == "INCOMPLETE"
    assert run.cells("NOT TESTED")


def test_another_marker_expression_aims_at_the_whole_profile(accept: Accept) -> None:
    """`-m "level2 and not level1"` is a selection: level 1 is NOT TESTED."""
    run = accept("--gpuready-replay", "demo", "-m", "level2 and not level1")
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert "GPU-1" in run.cells("NOT TESTED")


ONLY_DCGM = """profile: only-dcgm
version: "1"
title: Level 2 by DCGM alone
pci_ids: ["10de:2335"]
nvlink: true
clauses:
  GPU-1:
    {suite: gpu_health, level: 1, per: gpu, metric: gpu.present, action: look,
     limit: {equals: on the bus and answered by NVML, source: {kind: declared, cite: site file}}}
  DCGM-5:
    {suite: dcgm_levels, level: 2, per: gpu, needs: dcgm, metric: dcgm.memory, action: look,
     limit: {equals: passed, source: {kind: rule, cite: it passes}}}
"""


def test_a_level_of_which_nothing_applies_is_not_accepted(accept: Accept) -> None:
    """A level whose clauses all need what the node does not have cannot be reached by passing nothing."""
    (accept.path / "only.yaml").write_text(ONLY_DCGM)
    run = accept("--gpuready-replay", "demo", "-m", "level2", "--gpuready-profile", "only.yaml")
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert any("nothing of level 2 passed" in why for why in run.certificate["why"])


CONFTESTS = {
    "skipped": """
        import pytest
        def pytest_collection_modifyitems(items):
            for item in items:
                if "test_ecc_mode" in item.nodeid:
                    item.add_marker(pytest.mark.skip(reason="flaky"))
    """,
    "xfailed": """
        import pytest
        def pytest_collection_modifyitems(items):
            for item in items:
                if "test_ecc_mode" in item.nodeid:
                    item.add_marker(pytest.mark.xfail(reason="known", run=False))
    """,
    "removed": """
        def pytest_collection_modifyitems(items):
            items[:] = [item for item in items if "test_ecc_mode" not in item.nodeid]
    """,
    "body replaced": """
        def pytest_collection_modifyitems(items):
            for item in items:
                if "test_ecc_mode" in item.nodeid:
                    item.obj = lambda measured, require: None
    """,
    "call skipped": """
        def pytest_runtest_call(item):
            pass
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):
            return True
    """,
    "protocol swallowed": """
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            return True if "test_ecc_mode" in item.nodeid else None
    """,
    "report forced": """
        import pytest
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            if "test_ecc_mode" in item.nodeid and report.when == "setup":
                report.outcome = "failed"
                report.longrepr = "forced"
            return report
    """,
}


@pytest.mark.parametrize("name", CONFTESTS)
def test_a_conftest_that_takes_a_clause_out(accept: Accept, pytester: pytest.Pytester, name: str) -> None:
    """A clause that another plug-in skips, removes or stubs has no verdict."""
    pytester.makepyfile(meddler=CONFTESTS[name])
    run = accept(*REPLAY[:2], "-m", "level1", plugins=("meddler",))
    assert run.code not in (0, None)
    assert run.status == "INCOMPLETE"
    assert "GPU-8" in run.cells("NOT TESTED", "NOT MEASURED")


def test_a_fixture_that_is_overridden_does_not_count(accept: Accept, pytester: pytest.Pytester) -> None:
    """A suite whose `require` was replaced by one that judges nothing has no verdict."""
    pytester.makepyfile(
        test_own="""
        import pytest
        pytestmark = pytest.mark.level(1)
        @pytest.fixture
        def require():
            return lambda found: None
        @pytest.mark.clause("GPU-8")
        def test_ecc_mode(measured, require):
            require(measured)
        """
    )
    run = accept("--gpuready-replay", "demo", "-m", "level1", suites=False)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert run.cells("PASS", "MARGINAL") == {}
    run.result.stdout.fnmatch_lines(["*GPU-8: expected a verdict, found none*"])


def test_another_finding_is_not_judged(accept: Accept, pytester: pytest.Pytester) -> None:
    """`require` refuses a finding of another clause or part."""
    pytester.makepyfile(
        test_own="""
        import dataclasses, pytest
        pytestmark = pytest.mark.level(1)
        @pytest.mark.clause("GPU-8")
        def test_ecc_mode(measured, require):
            require(dataclasses.replace(measured, part="elsewhere/gpu0"))
        """
    )
    run = accept("--gpuready-replay", "demo", "-m", "level1", suites=False)
    assert (run.code, run.status) == (20, "INCOMPLETE")
    run.result.stdout.fnmatch_lines(["*expected ecc.mode of node01/gpu0 to judge, found*elsewhere/gpu0*"])


def test_an_invented_value_is_not_believed(accept: Accept, pytester: pytest.Pytester) -> None:
    """A test that judges another value than the store holds does not change the certificate."""
    pytester.makepyfile(
        test_own="""
        import dataclasses, pytest
        pytestmark = pytest.mark.level(2)
        @pytest.mark.clause("PCIE-1")
        def test_generation(measured, require):
            require(dataclasses.replace(measured, value=3))
        """
    )
    run = accept("--gpuready-replay", "demo", "-m", "level2", suites=False)
    assert run.code != 0
    assert "PCIE-1" in run.cells("NOT MEASURED")
    assert "the store says PASS" in run.parts("PCIE-1")[0]["reason"]


@pytest.mark.parametrize("how", ["ini", "environment"])
def test_a_replay_is_not_asked_for_in_passing(
    accept: Accept, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A replay comes from the command line alone, never from an ini file or the environment."""
    ini = pytester.makeini("[pytest]\naddopts = --gpuready-replay demo" if how == "ini" else "[pytest]")
    if how == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", "--gpuready-replay demo")
    run = accept("-m", "level2", "-c", str(ini))
    assert run.code == 4
    assert not run.out.exists()
    run.result.stderr.fnmatch_lines(["*--gpuready-replay: expected on the command line only*"])


def test_a_misspelt_profile_key_does_not_load(accept: Accept) -> None:
    """A profile with a misspelt key ends the run before anything is measured."""
    (accept.path / "mine.yaml").write_text(
        "profile: mine\nextends: h200-sxm\nversion: '1'\ntitle: Mine\npci_ids: ['10de:2335']\n"
        "clauses:\n  PCIE-5: {limit: {at_leest: 50.0, unit: GB/s, source: {kind: contract, cite: x}}}\n"
    )
    run = accept(*REPLAY, "--gpuready-profile", "mine.yaml")
    assert run.code == 4
    assert "at_leest" in run.result.stdout.str() + run.result.stderr.str()
    assert not (run.out / "certificate.json").exists()


def test_no_gpu_at_all(accept: Accept) -> None:
    """Without a replay, a machine without GPUs is INCOMPLETE: it is asked, and it has nothing."""
    run = accept("-m", "level1")
    assert (run.code, run.status, run.certificate["basis"]) == (20, "INCOMPLETE", "hardware")
    assert "GPU-1" in run.cells("NOT MEASURED")


def test_no_clause_collected_is_not_green(accept: Accept, pytester: pytest.Pytester) -> None:
    """An option of ours without any clause collected never exits 0."""
    pytester.makepyfile("def test_other(): assert True")
    run = accept("--gpuready-replay", "demo", suites=False)
    assert (run.code, run.status) == (20, "INCOMPLETE")


def test_other_tests_that_fail_keep_the_code(accept: Accept, pytester: pytest.Pytester) -> None:
    """An accepted node beside a failing test of the person's own does not exit 0."""
    path = pytester.makepyfile(test_other="def test_other(): assert False")
    write_recording(accept.path / "node", demo_results(), gpus="2")
    with (accept.path / "node" / "site.yaml").open("a") as site:
        site.write("level: 2\n")
    run = accept("--gpuready-replay", "node", str(path))
    assert run.status == "ACCEPTED"
    assert run.code == 1


SLOW = """
    import pathlib, time
    def pytest_runtest_setup(item):
        if "test_topology" in item.nodeid:
            pathlib.Path("reached").touch()
            time.sleep(60)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_killed_says_incomplete(accept: Accept, pytester: pytest.Pytester, signum: int) -> None:
    """At every moment before the end, and after a killed run, the certificate on disk says INCOMPLETE."""
    pytester.makepyfile(slow=SLOW)
    accept(*REPLAY[:2], "-m", "level1")
    nowhere = (Path(os.devnull), Path(os.devnull))
    process = forked.start(accept.path, *LIGHT, "-p", "own_lease", "-p", "slow", *REPLAY, str(SUITES), said=nowhere)
    reached = accept.path / "reached"
    end = time.monotonic() + 60
    while not reached.exists() and time.monotonic() < end:
        time.sleep(0.05)
    before = Path(accept.path / "gpuready-out" / "certificate.json").read_text()
    os.kill(process.pid, signum)
    process.join(60)
    after = (accept.path / "gpuready-out" / "certificate.json").read_text()
    page = (accept.path / "gpuready-out" / "certificate.html").read_text()
    assert process.exitcode not in (0, None)
    assert '"judged": "INCOMPLETE"' in before
    assert '"judged": "INCOMPLETE"' in after
    assert "INCOMPLETE" in page.split("</title>")[0]
    assert (accept.path / "gpuready-out.1" / "certificate.json").exists()


def test_a_full_disk_at_the_end_leaves_incomplete(accept: Accept, pytester: pytest.Pytester) -> None:
    """Where the certificate cannot be written, what lies there still says INCOMPLETE, and the exit code is 20."""
    pytester.makepyfile(
        full="""
        import pytest, resource, signal
        @pytest.hookimpl(wrapper=True)
        def pytest_runtestloop():
            ended = yield
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
            return ended
        """
    )
    run = accept(*REPLAY, plugins=("full",))
    assert (run.code, run.status) == (20, "INCOMPLETE")
    assert not list(run.out.rglob("*.tmp"))
    run.result.stdout.fnmatch_lines(["INCOMPLETE*expected to write the certificate*make room*"])
