"""The stand-in for dcgmi really runs under the agent: deadline, Ctrl-C, and what is left on disk and running."""

from __future__ import annotations

import json
import os
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.dcgm_scenarios import install, on_node
from tests.nodes import BDFS, write_recording
from tests.plugin import forked
from tests.plugin.conftest import LIGHT, SUITES, Accept
from tests.plugin.mixed import MIXED
from tests.plugin.test_dcgm_scenarios import DRIVER, node_results

HANGS = {"state_file": "diag-is-running", "tests": {"pcie": {"hang": True}}}
SERIALS = tuple(f"16500000000{number:02d}" for number in range(1, len(BDFS) + 1))


@pytest.fixture
def live(accept: Accept, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the recorded 8-GPU node, and a `dcgmi` first on the PATH whose pcie test never ends."""
    write_recording(accept.path / "node", list(node_results(DRIVER, "4.6.0")), composed="composed for a test")
    folder = accept.path / "bin"
    folder.mkdir()
    install(folder, on_node(HANGS, serials=SERIALS, driver=DRIVER))
    pytester.makepyfile(mixed=MIXED)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return accept.path


def start(folder: Path, **environment: str) -> BaseProcess:
    words = (*LIGHT, "-p", "own_lease", "-p", "mixed", "--gpuready-replay", "node", "-m", "level2", str(SUITES))
    return forked.start(folder, *words, said=(folder / "said", folder / "said-too"), environment=environment)


def certificate(folder: Path) -> dict[str, dict[str, str]]:
    """Clause -> part -> outcome, from the certificate on disk, and what it was judged under ""."""
    loaded: dict[str, Any] = json.loads((folder / "gpuready-out/certificate.json").read_text())
    clauses = {c["id"]: {p["part"]: p["outcome"] for p in c["parts"]} for s in loaded["suites"] for c in s["clauses"]}
    return {"": {"judged": loaded["judged"]}, **clauses}


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)


def test_ctrl_c_ends_dcgmi_and_keeps_what_was_known(live: Path) -> None:
    """Interrupted in pcie: memory and the software checks stay known, dcgmi has ended, the run says INCOMPLETE."""
    process = start(live)
    wait_for(live / "gpuready-out/store/dcgm-memory@node01.json")
    wait_for(live / "bin/diag-is-running")
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    output = (live / "said").read_text()
    found = certificate(live)
    assert process.exitcode == 2, output[-2000:]
    assert found[""]["judged"] == "INCOMPLETE"
    assert set(found["DCGM-5"].values()) == {"PASS"}
    assert not {"PASS", "FAIL"} & set(found["DCGM-6"].values())
    assert "pytest ended with code 2: the run was interrupted" in output
    assert "DCGM-6 NOT TESTED on GPU 0 to 7: its measurement was interrupted" in output
    assert not (live / "bin/diag-is-running").exists(), "its diagnostic still runs in the host engine"
    stored = json.loads((live / "gpuready-out/store/dcgm-pcie@node01.json").read_text())
    assert "killed by a signal" in json.dumps(stored), "what dcgmi said on its way out is evidence"


def test_a_deadline_ends_dcgmi_and_the_others_go_on(live: Path) -> None:
    """pcie never ends: it is told to end, nothing was measured by it, and the clauses behind it are judged."""
    process = start(live, TEST_DEADLINE_S="4")
    process.join(120)
    output = (live / "said").read_text()
    found = certificate(live)
    assert process.exitcode == 20, output[-2000:]
    assert set(found["DCGM-6"].values()) == {"NOT MEASURED"}
    assert set(found["DCGM-5"].values()) == {"PASS"}
    assert set(found["PCIE-5"].values()) == {"PASS"}
    assert not (live / "bin/diag-is-running").exists()
    assert "found it running after" in output or "stopped the run" in output
