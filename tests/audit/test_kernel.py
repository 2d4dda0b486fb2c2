"""Kernel logs audited: the cases, formats of time, the test window, classes of Xids, AER, damage, bounded memory."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given
from pytest_gpuready.audit.readers import readers
from pytest_gpuready.audit.report import Finding
from tests.audit.case_reading import CASES, case, check_case, outcome, read_text, reader, survives, suspects, values

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "nvidia-smi" / "580.159.04" / "h200x2" / "dmesg-tail.txt"
WINDOW = {"window_start": "2025-11-10T08:00:00"}


def read(tmp_path: Path, text: str, expect: dict[str, Any] | None = None, tool: str = "dmesg-xid") -> list[Finding]:
    return list(read_text(tmp_path, tool, text, expect or {}).findings)


def outcomes(found: list[Finding], metric: str) -> list[str]:
    return [f.outcome for f in found if f.metric == metric]


def test_a_gpu_that_never_answered_prints_no_number() -> None:
    """Case 053: three lines, one time, no Xid; both ways of keeping the log name the GPU and its device id."""
    found = check_case("053")
    assert values(found, "dmesg.xid") == [79, 79]
    assert values(found, "gpu.pci_device_id") == ["26b9", "26b9"]
    assert {f.part for f in found if f.metric == "dmesg.xid"} == {"GPU 0000:d1:00.0"}
    assert all("without an Xid number" in f.advice for f in found if f.metric == "dmesg.xid")
    assert "GPU 0000:d1:00.0 (seating, power, riser)" in suspects(found)


def test_recorded_and_failed_remap_differ() -> None:
    """Case 054: 63 needs a reset, 64 a new GPU; device numbers of a virtual machine are addresses like others."""
    found = check_case("054")
    events = {(f.value, f.part): f.advice for f in found if f.metric == "dmesg.xid"}
    assert set(events) == {(63, "GPU 0000:20:1c.0"), (64, "GPU 0000:a0:1d.0"), (94, "GPU 0000:a0:1d.0")}
    assert "reset" in events[63, "GPU 0000:20:1c.0"]
    assert "replace" in events[64, "GPU 0000:a0:1d.0"]
    assert "GPU 0000:a0:1d.0 memory (RMA)" in suspects(found)
    assert "GPU 0000:20:1c.0 needs a reset and re-test" in suspects(found)


def test_old_crashes_of_a_program() -> None:
    """Case 055: before the window and a program's: counted, one warning, no fault."""
    found = check_case("055")
    counts = {f.metric: f.value for f in found if f.metric.endswith("_count")}
    assert counts == {"dmesg.xid_13_count": 6, "dmesg.xid_31_count": 1, "dmesg.xid_43_count": 1}
    assert values(found, "dmesg.events_in_window") == [0]
    assert values(found, "dmesg.warnings") == [1]
    assert "application (user program), not hardware" in {f.suspect for f in found if f.metric == "dmesg.xid"}


def test_a_storm_is_one_finding() -> None:
    """Case 057: one finding with a lower bound, by address; the processes in the lines are not blamed."""
    found = check_case("057")
    assert [(f.value, f.part) for f in found if f.metric == "dmesg.xid"] == [(119, "GPU 0000:4d:00.0")]
    assert values(found, "dmesg.xid_119_count") == [4]
    assert values(found, "gpu.index_in_text") == [2]
    assert "GPU 0000:4d:00.0 firmware (GSP)" in suspects(found)
    assert not any("dcgm-exporter" in f.suspect for f in found)


def test_an_nvswitch_event_is_no_gpus() -> None:
    """Case 059: three lines, one event of a switch's port, no GPU at its address."""
    found = check_case("059")
    assert [(f.value, f.part) for f in found if f.metric == "dmesg.sxid"] == [(12028, "NVSwitch 0000:86:00.0 port 44")]
    assert values(found, "dmesg.warnings") == [1]
    assert not any("GPU 0000:86" in f.part for f in found)


def test_network_cards_and_their_slots() -> None:
    """Case 061: three cards, three kinds of trouble, each once; the small device on the board is not judged."""
    found = check_case("061")
    assert {(f.metric, f.part): f.value for f in found if f.outcome == "fail"} == {
        ("nic.pcie_width", "NIC 0000:5e:00.0"): 8,
        ("nic.slot_power", "0000:9a:00.0"): 27,
        ("nic.module", "0000:c3:00.0"): "Power budget exceeded",
    }
    told = {(f.metric, f.part): f.value for f in found if f.outcome == "observed"}
    assert told["nic.pcie_bandwidth", "NIC 0000:5e:00.0"] == 252.056
    assert told["nic.pcie_capable_width", "NIC 0000:5e:00.0"] == 16
    assert told["nic.module", "0000:c3:00.1"] == "unplugged"
    assert not any("0000:03:00.0" in f.part for f in found if f.outcome != "observed")
    assert "transceiver in 0000:c3:00.0" in suspects(found)
    assert "cable" not in suspects(found)


def test_a_log_without_events_is_observed(tmp_path: Path) -> None:
    """Recorded on a healthy machine: no Xid, and since a log can be cut without a trace, no pass."""
    assert outcome(read_text(tmp_path, "dmesg-xid", RECORDED.read_text(), {})) == "observed"
    asked = read_text(tmp_path, "dmesg-xid", RECORDED.read_text(), {"expected_gpus": 2})
    assert outcome(asked) == "not-measured"


XID = "NVRM: Xid (PCI:0000:38:00): {n}, pid=1, name=x, text"


@pytest.mark.parametrize(
    ("prefix", "inside"),
    [
        ("[Mon Nov 10 09:00:00 2025] ", True),
        ("[Sat Nov  8 09:00:00 2025] ", False),
        ("2025-11-10T09:00:00,123456+00:00 ", True),
        ("2025-11-10T07:59:59+0000 node kernel: ", False),
        ("2025-11-10T08:00:01Z node kernel: ", True),
        ("2025-11-10 07:00:00 node kernel: ", False),
        ("Nov 10 09:00:00 node kernel: ", True),
        ("Nov  8 09:00:00 node kernel: [  12.345678] ", False),
        ("Jan  5 09:00:00 node kernel: ", True),
        ("kern  :err   : [Mon Nov 10 09:00:00 2025] ", True),
        ("<3>[Mon Nov 10 09:00:00 2025] ", True),
    ],
)
def test_formats_of_time(tmp_path: Path, prefix: str, inside: bool) -> None:
    """Whatever the format of its time, an event before the window is history and one in it counts."""
    found = read(tmp_path, f"{prefix}{XID.format(n=79)}\n", WINDOW)
    assert outcomes(found, "dmesg.xid") == ["fail" if inside else "pass"]


def test_events_without_a_date_and_a_window(tmp_path: Path) -> None:
    """Seconds since boot cannot be placed against a date: not measured, and named."""
    found = read(tmp_path, f"[ 4711.123456] {XID.format(n=79)}\n", WINDOW)
    assert outcomes(found, "dmesg.xid") == ["not-measured"]
    assert "GPU 0000:38:00.0" in suspects(found)


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        ([(0, 31)], "marginal"),
        ([(0, 13), (1, 13), (2, 13)], "marginal"),
        ([(0, 31), (20, 31)], "fail"),
    ],
)
def test_a_programs_xids_in_the_window(tmp_path: Path, lines: list[tuple[int, int]], result: str) -> None:
    """With the suite as the only load one crash needs a look, and a second one minutes later fails."""
    text = "".join(f"[Mon Nov 10 09:{minute:02d}:00 2025] {XID.format(n=n)}\n" for minute, n in lines)
    spread = text if result == "fail" else text.replace("09:01", "09:00").replace("09:02", "09:00")
    assert outcome(read_text(tmp_path, "dmesg-xid", spread, WINDOW)) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (XID.format(n=13), "pass"),
        (XID.format(n=121), "pass"),
        (XID.format(n=48), "fail"),
        (XID.format(n=119), "fail"),
        (XID.format(n=149), "fail"),
        (XID.format(n=999), "fail"),
        (
            "NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "fail",
        ),
        (
            "NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
            "pass",
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "fail"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Non-fatal, Link 30 sourcetrack timeout", "pass"),
        ("NVRM: GPU 0000:38:00.0: RmInitAdapter failed! (0x26:0x65:1427)", "fail"),
        ("NVRM: No NVIDIA GPU found.", "fail"),
        ("NVRM: API mismatch: the client has the version 570.211.01, but", "fail"),
        (
            "nvidia 0000:38:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
            "fail",
        ),
        ("nvidia 0000:38:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "observed"),
        ("pcieport 0000:37:01.0: pciehp: Slot(12): Link Down", "fail"),
        ("pcieport 0000:37:01.0: DPC: containment event, status:0x1f01 source:0x0000", "fail"),
        ("mlx5_core 0000:5e:00.0: poll_health:800: device's health compromised - reached miss count", "fail"),
        ("sunrpc: xid 0x4f reply", "observed"),
    ],
)
def test_classes_of_events(tmp_path: Path, text: str, result: str) -> None:
    """Each kind of event has its outcome without any expectation."""
    assert outcome(read_text(tmp_path, "dmesg-xid", f"[   12.345678] {text}\n", {})) == result


def test_the_link_of_an_nvlink_event_is_named(tmp_path: Path) -> None:
    """A GPU's NVLink Xid and a switch's SXids name their links, and two ports of one switch are two parts."""
    xid = "[ 1.0] NVRM: Xid (PCI:0000:41:00): 74, pid=1, name=x, NVLink: fatal error detected on link 11(0x0, 0x0)\n"
    assert "GPU 0000:41:00.0 NVLink 11" in suspects(read(tmp_path, xid))
    sxid = "[ 2.{n}] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link {n} LTSSM Fault Up\n"
    found = read(tmp_path, sxid.format(n=28) + sxid.format(n=30))
    assert [f.part for f in found if f.outcome == "fail"] == [
        "NVSwitch 0000:c1:00.0 port 28",
        "NVSwitch 0000:c1:00.0 port 30",
    ]


def test_corrected_errors_against_a_limit(tmp_path: Path) -> None:
    """Corrected errors count per device, by the lines that name it; a rate-limited log proves no small number."""
    pair = (
        "[ {n}.000000] pcieport 0000:37:01.0: AER: Corrected error received: 0000:38:00.0\n"
        "[ {n}.000001] nvidia 0000:38:00.0: PCIe Bus Error: severity={word}, type=Physical Layer, (Receiver ID)\n"
        "[ {n}.000002] nvidia 0000:38:00.0:   device [10de:2330] error status/mask=00000001/0000e000\n"
        "[ {n}.000003] nvidia 0000:38:00.0:    [ 0] RxErr                  (First)\n"
    )
    text = "".join(pair.format(n=n, word="Corrected" if n % 2 else "Correctable") for n in range(10, 15))
    for limit, result in ((10, "pass"), (5, "pass"), (4, "fail")):
        found = read(tmp_path, text, {"max_corrected_per_run": limit}, "dmesg-pci")
        assert [(f.part, f.value, f.outcome) for f in found if f.metric == "pcie.aer_corrected"] == [
            ("0000:38:00.0", 5, result)
        ]
    limited = text + "[   99.000000] aer_print_error: 25 callbacks suppressed\n"
    assert outcomes(read(tmp_path, limited, {"max_corrected_per_run": 10}, "dmesg-pci"), "pcie.aer_corrected") == [
        "not-measured"
    ]
    empty = read(tmp_path, "[   12.345678] usb 1-1: new device\n", {"max_corrected_per_run": 10}, "dmesg-pci")
    assert outcomes(empty, "pcie.aer_corrected") == ["not-measured"]


def test_a_card_whose_cable_came_back(tmp_path: Path) -> None:
    """Unplugged and plugged again is no fault; unplugged to the end is, where a cable is expected."""
    out = "[   31.5] mlx5_core 0000:c3:00.0: Port module event: module 0, Cable unplugged\n"
    back = "[   99.5] mlx5_core 0000:c3:00.0: Port module event: module 0, Cable plugged\n"
    expect = {"expected_nics": ["0000:c3:00.0"]}
    assert outcomes(read(tmp_path, out, expect, "dmesg-pci"), "nic.module") == ["fail"]
    assert outcomes(read(tmp_path, out + back, expect, "dmesg-pci"), "nic.module") == ["observed"]


def test_a_refused_log_is_not_measured(tmp_path: Path) -> None:
    """Without permission there is no log."""
    text = "dmesg: read kernel buffer failed: Operation not permitted\n"
    assert outcome(read_text(tmp_path, "dmesg-xid", text, {}, exit_code=1)) == "not-measured"
    assert outcome(read_text(tmp_path, "dmesg-xid", "", {})) == "not-measured"


@pytest.mark.parametrize("number", ["053", "054", "055", "057", "059", "061"])
def test_damage(tmp_path: Path, number: str) -> None:
    """Cut or damaged, a log passes only for events that are still in it, and never with a fault in it."""
    fail = case(number)["correct_reading"]["verdict"] == "fail"
    hard = re.compile(
        r"Xid (\([^)]*\)|\S+): (?!13|31|43|45|69|121)|off the bus|limited by 32|insufficient power|Cable error"
    )

    def may_pass(text: str) -> bool:
        return "Xid" in text if not fail else not hard.search(text)

    survives(tmp_path, number, may_pass, seeds=80)


def test_a_big_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """A storm of thousands of Xids among other lines is one finding, the one line about another GPU is kept."""
    path = tmp_path / "dmesg.txt"
    with path.open("w") as file:
        for n in range(2_500):
            file.write(f"[{n:6d}.000000] {XID.format(n=119)} number {n} {'x' * 100}\n[{n:6d}.000001] usb 1-1: noise\n")
            if n == 2_000:
                file.write("[  2000.5] NVRM: Xid (PCI:0000:91:00): 64, pid=1, Row Remapper Error\n")
    tracemalloc.start()
    reading = reader("dmesg-xid").read(Given(path=path, expect=Expectations({}, source="test")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found = list(reading.findings)
    assert {(f.value, f.part) for f in found if f.metric == "dmesg.xid"} == {
        (119, "GPU 0000:38:00.0"),
        (64, "GPU 0000:91:00.0"),
    }
    assert values(found, "dmesg.xid_119_count") == [2_500]
    assert peak < 2**21, peak


def test_what_spans_two_chunks_is_one_event(tmp_path: Path) -> None:
    """The three lines of a silent GPU are read together wherever the log is cut for reading."""
    for fill in (1996, 1997, 1998, 1999, 2000):
        lines = [f"[ {n}.0] NVRM: line {n}" for n in range(fill)]
        lines += [
            "[ 5000.0] NVRM: The NVIDIA GPU 0000:c4:00.0",
            "[ 5000.1] NVRM: (PCI ID: 10de:2335) installed in this system has",
            "[ 5000.2] NVRM: fallen off the bus and is not responding to commands.",
        ]
        found = read(tmp_path, "\n".join(lines) + "\n")
        assert [(f.value, f.part) for f in found if f.metric == "dmesg.xid"] == [(79, "GPU 0000:c4:00.0")], fill


def test_logs_are_recognised() -> None:
    """Each log of these cases is recognised; a benchmark's table with a quoted Xid is no kernel log."""
    for number in ("053", "054", "055", "057", "059", "061"):
        told = case(number)
        for entry in told["inputs"]:
            head = (CASES / number / entry["file"]).read_text()
            assert max(readers(), key=lambda r: r.recognise(head)).tool == told["tool"], (number, entry["file"])
    quoted = "# nThread 1 nGpus 8\n" * 30 + "NVRM: Xid (PCI:0000:38:00): 79\n" + "  8  2  float\n" * 400
    assert reader("dmesg-xid").recognise(quoted) == 0
