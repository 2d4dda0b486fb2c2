"""Large inputs: what is read in one piece is refused beyond its bound, what is read by lines is read to its end, and
what there is more of than is kept is said. Sizes are a few megabytes: the bounds are lowered, not the machine filled.
"""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from pytest_gpuready.audit import run, smi_read
from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given
from pytest_gpuready.audit.readers import pci_listing, readers
from pytest_gpuready.audit.report import InputReport
from pytest_gpuready.audit.smi_gpu import gpu_findings, shown, state
from pytest_gpuready.parse import launcher, nccl_tests
from pytest_gpuready.parse.dcgm_diag import LARGEST
from pytest_gpuready.parse.smi_csv import csv_header, csv_row
from tests.audit.case_reading import CASES, read_text

WHOLE = ("dcgmi-diag-json", "dcgmi-diag-text", "dcgmi-health", "docker", "iperf3", "nccl-tests-json", "nvbandwidth")
NOTHING = Expectations({}, source="test")


def audited(path: Path, tool: str = "") -> InputReport:
    return run.audit([path], tool=tool, expect=NOTHING, exit_code=None).inputs[0]


@pytest.mark.parametrize("tool", WHOLE)
def test_an_output_read_in_one_piece_is_refused_beyond_its_bound(tmp_path: Path, tool: str) -> None:
    """One byte more than the bound: one finding, not measured, that says so; nothing else is said of the content."""
    bound = next(reader.at_most for reader in readers() if reader.tool == tool)
    path = tmp_path / "input"
    path.write_text("{")
    assert "input.size" not in {f.metric for f in audited(path, tool).findings}
    os.truncate(path, bound + 1)  # a hole in a file takes no room
    report = audited(path, tool)
    assert [(f.metric, f.outcome, f.value) for f in report.findings] == [("input.size", "not-measured", bound + 1)]
    assert report.findings[0].suspect == f"too long for one output of {tool}: nothing of it was read"


def test_bounds_of_readers_are_those_of_their_parsers() -> None:
    """What the parser of dcgmi diag would refuse is refused before it is read."""
    assert {reader.at_most for reader in readers() if "diag" in reader.tool} == {LARGEST}


def test_a_long_reply_is_no_health(tmp_path: Path) -> None:
    """ "success", many blanks and something else: more than is looked at, so it is not healthy."""
    whole = read_text(tmp_path, "ray-serve-http", "success" + " " * 70_000, {}, command="GET /-/healthz")
    assert [f.outcome for f in whole.findings] == ["not-measured"]


def test_no_other_reader_takes_its_input_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that are not marked so never ask for the text as a whole, but for a JSON body or counters of dcgmi."""
    assert {reader.tool for reader in readers() if reader.at_most} == set(WHOLE)
    asked: list[str] = []

    def text(given: Given) -> tuple[str, bool]:
        asked.append(given.path.parent.name)
        return given.path.read_text(encoding="utf-8"), True

    monkeypatch.setattr(Given, "text", text)
    for folder in sorted(CASES.iterdir()):
        report = run.audit([folder], tool="", expect=NOTHING, exit_code=None)
        if {entry.tool for entry in report.inputs} <= {*WHOLE, "triton-http", "ray-serve-http", "vllm-http"}:
            asked = [name for name in asked if name != folder.name]
    assert asked == []


@pytest.mark.parametrize(
    ("tool", "line", "last", "metric"),
    [
        (
            "dmesg-xid",
            "[    1.0] systemd[1]: Started Session {n}.\n",
            "[ 9.0] NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.\n",
            "dmesg.xid",
        ),
        ("sysctl", "net.ipv4.conf.eth{m}.rp_filter = 1\n", "vm.swappiness = 60\n", "sysctl.vm.swappiness"),
        (
            "launcher",
            "step {n}: loss 2.5 at {n} samples\n",
            "srun: error: node01: task 3: Exited with exit code 1\n",
            "launch",
        ),
    ],
)
def test_lines_are_read_to_the_end(tmp_path: Path, tool: str, line: str, last: str, metric: str) -> None:
    """Two megabytes of harmless lines before the one that counts: it is found; reading takes less than the file has."""
    wish = {"vm.swappiness": "<=10"} if tool == "sysctl" else {}
    reader = next(r for r in readers() if r.tool == tool)

    def found_behind(size: int) -> None:
        path = tmp_path / f"input-{size}"
        with path.open("w") as file:
            for n in range(size // len(line)):
                file.write(line.format(n=n, m=n % 10))
            file.write(last)
        findings = reader.read(Given(path=path, expect=Expectations(wish, source="test"))).findings
        assert [f.outcome for f in findings if f.metric.startswith(metric)]
        assert {"fail", "not-measured"} & {f.outcome for f in findings}

    found_behind(2_000_000)
    tracemalloc.start()  # it makes reading slow
    found_behind(200_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000, peak


def test_runs_beyond_the_bound_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth run of nccl-tests where three are kept: not measured, for it may be the slow one."""
    text = (CASES / "017" / "all_reduce.txt").read_text(encoding="utf-8")
    monkeypatch.setattr(nccl_tests, "RUNS_AT_MOST", 3)
    three = read_text(tmp_path, "nccl-tests-text", text * 3, {})
    assert "nccl.readable" not in {f.metric for f in three.findings}
    four = read_text(tmp_path, "nccl-tests-text", text * 4, {})
    said = [f for f in four.findings if f.metric == "nccl.readable"]
    assert [f.outcome for f in said] == ["not-measured"]
    assert "1 more than the first" in said[0].suspect


def test_events_beyond_the_bound_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More different messages of srun than are kept: not measured, and the number of the others is said."""
    monkeypatch.setattr(launcher, "EVENTS_AT_MOST", 2)
    text = "".join(f"srun: error: node0{n}: task {n}: Exited with exit code 1\n" for n in range(5))
    reading = read_text(tmp_path, "launcher", text, {})
    assert [f.suspect[:21] for f in reading.findings if f.metric == "nccl.readable"] == ["3 more than the first"]


def test_too_many_devices_are_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More PCI devices than a machine has: one finding, and none of the first ones passes."""
    monkeypatch.setattr(pci_listing, "_DEVICES_AT_MOST", 2)
    text = "".join(f"0{n}:00.0 3D controller: NVIDIA Corporation GH100 [H200 SXM 141GB]\n" for n in range(3))
    reading = read_text(tmp_path, "lspci", text, {})
    assert [(f.metric, f.outcome) for f in reading.findings] == [("pci.readable", "not-measured")]


def test_the_same_output_for_days_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix printed a hundred times: the findings stay few, and the one time that a link was down is not lost."""
    monkeypatch.setattr(smi_read, "_FINDINGS_AT_MOST", 50)
    good = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n\nLegend:\n  X = Self\n  NV# = Connection\n\n"
    bad = good.replace("NV18", "PIX ")
    wish = {"expected_nvlinks_per_pair": 18}
    reading = read_text(tmp_path, "nvidia-smi-topo", good * 50 + bad + good * 50, wish)
    assert len(reading.findings) <= 100
    mesh = {f.outcome for f in reading.findings if f.metric == "topo.nvlink_mesh"}
    assert mesh == {"pass", "fail"}


def test_too_many_different_findings_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even folding leaves too many, what follows is not read, and that is not measured."""
    monkeypatch.setattr(smi_read, "_FINDINGS_AT_MOST", 4)
    monkeypatch.setattr(smi_read, "_FOLDED_AT_MOST", 4)
    good = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n\nLegend:\n  X = Self\n  NV# = Connection\n\n"
    reading = read_text(tmp_path, "nvidia-smi-topo", good * 3, {})
    assert "more than 4 different findings" in "".join(f.suspect for f in reading.findings)
    assert "not-measured" in {f.outcome for f in reading.findings}


def test_equal_states_are_judged_alike() -> None:
    """Two samples with one state have the same findings but for what is shown; a busy GPU is another state."""
    names = csv_header("index, name, pstate, pcie.link.gen.current, utilization.gpu, temperature.gpu, power.draw")
    rows = ["0, NVIDIA H200, P0, 5, 0 %, 30, 80.1 W", "0, NVIDIA H200, P0, 5, 49 %, 61, 310 W"]
    a, b = (csv_row(row, names) for row in rows)
    busy = csv_row("0, NVIDIA H200, P0, 5, 51 %, 61, 310 W", names)
    lost = csv_row("0, NVIDIA H200, P0, 5, 49 %, [GPU requires reset], 310 W", names)
    assert state(a) == state(b)
    assert state(a) != state(busy)
    assert state(a) != state(lost)

    def judged(row: object) -> list[str]:
        assert row in (a, b)
        one = a if row is a else b
        hidden = {(f.metric, str(f.value)) for f in shown(one)}
        return [str(f) for f in gpu_findings(one, NOTHING) if (f.metric, str(f.value)) not in hidden]

    assert judged(a) == judged(b)


def test_a_fault_between_many_samples_is_found(tmp_path: Path) -> None:
    """One sample of ten thousand with a thermal slowdown fails; the last temperature is the one that is shown."""
    head = "timestamp, index, clocks_event_reasons.active, temperature.gpu\n"
    rows = [f"t{n}, 0, 0x0000000000000000, {n % 50 + 30}\n" for n in range(10_000)]
    rows[5000] = "t5000, 0, 0x0000000000000040, 91\n"
    reading = read_text(tmp_path, "nvidia-smi", head + "".join(rows), {})
    assert [f.outcome for f in reading.findings if f.metric == "gpu.clocks"] == ["fail"]
    assert [f.value for f in reading.findings if f.metric == "gpu.temperature"] == [9_999 % 50 + 30]
