"""lspci audited: the cases, other styles, sleeping links, GPUs that are gone, ACS where it matters, damage survived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.audit.report import Finding
from tests.audit.case_reading import CASES, check_case, outcome, read_text, survives, suspects, values

GPU = (
    "{bdf} 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
    "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
    "\t\tLnkSta:\tSpeed {speed}GT/s{flag}, Width x{width}\n\tKernel driver in use: {driver}\n\n"
)
BRIDGE = (
    "{bdf} PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n"
    "\tBus: primary=00, secondary={first}, subordinate={last}, sec-latency=0\n"
    "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{on} CmpltRedir{on} UpstreamFwd{on} EgressCtrl- DirectTrans-\n\n"
)


def gpu(bdf: str = "17:00.0", speed: str = "32", width: int = 16, flag: str = "", driver: str = "nvidia") -> str:
    return GPU.format(bdf=bdf, speed=speed, width=width, flag=flag, driver=driver)


def read(tmp_path: Path, text: str, expect: dict[str, Any] | None = None) -> tuple[Finding, ...]:
    return read_text(tmp_path, "lspci", text, expect or {}).findings


def outcomes(found: tuple[Finding, ...], metric: str) -> list[str]:
    return [f.outcome for f in found if f.metric == metric]


def test_one_of_three_gpus_is_narrow() -> None:
    """Case 048: numbers decide, with or without the words in brackets; LnkCap2 and LnkSta2 are not read."""
    found = check_case("048")
    width = {f.part: f.value for f in found if f.metric == "pcie.width"}
    assert width == {"GPU 0000:0f:00.0": 16, "GPU 0000:47:00.0": 8, "GPU 0000:b7:00.0": 16}
    assert values(found, "pcie.speed") == [16, 16, 16]
    assert suspects(found) == "slot, riser or connector of 0000:47:00.0"


def test_redirection_is_read_from_what_is_switched_on() -> None:
    """Case 050: one port redirects, two only validate the source, one is off; what could be on does not count."""
    found = check_case("050")
    assert {f.part: f.value for f in found if f.metric == "pcie.acs"} == {
        "0000:15:01.0": "off",
        "0000:26:01.0": "SrcValid only",
        "0000:37:01.0": "redirect on",
        "0000:48:01.0": "SrcValid only",
    }
    assert suspects(found) == "BIOS/kernel setting (ACS on switch port 0000:37:01.0)"


def test_without_root_nothing_is_known_of_the_link() -> None:
    """Case 051: the device is there, width and speed are not measured, and that is the set-up's fault."""
    found = check_case("051")
    assert [f.part for f in found if f.metric == "inventory.pci_present"] == ["GPU 0000:17:00.0"]
    assert "test setup (needs root or CAP_SYS_ADMIN)" in suspects(found)


@pytest.mark.parametrize(
    ("speed", "expect", "result"),
    [
        ("32", {"expected_pcie_gen": 5}, "pass"),
        ("2.5", {"expected_pcie_gen": 5}, "not-measured"),
        ("2.5", {"expected_pcie_gen": 5, "under_load": True}, "fail"),
        ("16", {"expected_pcie_gen": 5}, "fail"),
        ("16", {"expected_pcie_gen": 5, "under_load": False}, "not-measured"),
        ("2.5", {}, "observed"),
        ("16", {}, "fail"),
        ("64", {"expected_pcie_gen": 5}, "pass"),
        ("7", {"expected_pcie_gen": 5}, "not-measured"),
        ("32", {"expected_pcie_gen": 6}, "fail"),
    ],
)
def test_speed_of_a_gpu_that_may_sleep(tmp_path: Path, speed: str, expect: dict[str, Any], result: str) -> None:
    """The lowest generations of a GPU say nothing without load; one in between, or a weak LnkCap, is a fault."""
    assert outcomes(read(tmp_path, gpu(speed=speed, flag=" (downgraded)"), expect), "pcie.speed") == [result]


def test_a_gpu_that_left_the_bus_reads_all_ones(tmp_path: Path) -> None:
    """Revision ff and header type 7f: listed, and gone; it does not count."""
    gone = (
        "3b:00.0 3D controller: NVIDIA Corporation GH100 [H100] (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f\n\n"
    )
    found = read(tmp_path, gpu() + gone, {"expected_gpus": 2})
    assert [(f.part, f.outcome) for f in found if f.metric == "inventory.pci_present"] == [
        ("GPU 0000:17:00.0", "pass"),
        ("GPU 0000:3b:00.0", "fail"),
    ]
    assert [(f.value, f.outcome) for f in found if f.metric == "inventory.gpu_count"] == [(1, "fail")]
    assert outcomes(read(tmp_path, gone, {"expected_pcie_width": 16}), "pcie.width") == ["not-measured"]


@pytest.mark.parametrize(
    "text",
    [
        "0000:17:00.0 3D controller: NVIDIA Corporation GH100 (rev a1)\n",
        "17:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100] [10de:2330] (rev a1)\n",
        "17:00.0 0302: 10de:2330 (rev a1)\n",
        '17:00.0 "3D controller" "NVIDIA Corporation" "GH100 [H100 SXM5 80GB]" -ra1 "NVIDIA" "Device 16c1"\n',
        '0000:17:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GH100 [2330]" -ra1 "" ""\n',
        "Slot:\t17:00.0\nClass:\t3D controller\nVendor:\tNVIDIA Corporation\nDevice:\tGH100\nRev:\ta1\n\n",
        "Slot:\t17:00.0\nClass:\t3D controller [0302]\nVendor:\tNVIDIA Corporation [10de]\nDevice:\tGH100\n",
    ],
)
def test_styles_of_a_listing(tmp_path: Path, text: str) -> None:
    """Every style lists the GPU; what it does not print of the link is not measured where it was asked for."""
    others = "00:1f.2 SATA controller: Intel Corporation Device a282\n"
    found = read(tmp_path, others + text, {"expected_gpus": 1})
    assert [f.part for f in found if f.metric == "inventory.pci_present"] == ["GPU 0000:17:00.0"]
    assert outcomes(found, "inventory.gpu_count") == ["pass"]
    assert outcomes(read(tmp_path, text, {"expected_pcie_width": 16}), "pcie.width") == ["not-measured"]


def test_acs_counts_above_gpus_only(tmp_path: Path) -> None:
    """Where the text shows which bridge leads to which bus, a bridge to other devices may redirect."""
    above = BRIDGE.format(bdf="10:01.0", first="17", last="17", on="-")
    beside = BRIDGE.format(bdf="10:02.0", first="20", last="2f", on="+")
    found = read(tmp_path, above + beside + gpu(), {"bare_metal": True})
    assert [(f.part, f.outcome) for f in found if f.metric == "pcie.acs"] == [("0000:10:01.0", "observed")]
    bad = read(tmp_path, BRIDGE.format(bdf="10:01.0", first="11", last="1f", on="+") + gpu(), {"bare_metal": True})
    assert outcomes(bad, "pcie.acs") == ["fail"]
    virtual = read(tmp_path, BRIDGE.format(bdf="10:01.0", first="11", last="1f", on="+"), {"bare_metal": False})
    assert outcomes(virtual, "pcie.acs") == ["observed"]


def test_acs_without_root_is_not_measured(tmp_path: Path) -> None:
    """On bare metal a bridge whose capabilities are hidden has not been shown to be off."""
    text = "10:01.0 PCI bridge: Broadcom / LSI PEX890xx (rev b0)\n\tCapabilities: <access denied>\n"
    assert outcomes(read(tmp_path, text, {"bare_metal": True}), "pcie.acs") == ["not-measured"]


def test_other_devices_are_no_gpus(tmp_path: Path) -> None:
    """A BMC's VGA controller and an NVIDIA audio function do not count; an NVSwitch is no GPU."""
    text = (
        "03:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)\n"
        "65:00.1 Audio device: NVIDIA Corporation Device 22ba (rev a1)\n"
        "87:00.0 Bridge: NVIDIA Corporation GH100 [H100 NVSwitch] (rev a1)\n" + gpu()
    )
    found = read(tmp_path, text, {"expected_gpus": 1, "nvswitch": True})
    assert outcomes(found, "inventory.gpu_count") == outcomes(found, "inventory.nvswitch") == ["pass"]


def test_a_foreign_driver_fails(tmp_path: Path) -> None:
    """nouveau on a GPU is host software in the way."""
    assert outcomes(read(tmp_path, gpu(driver="nouveau")), "software.driver_bound") == ["fail"]


@pytest.mark.parametrize("text", ["", "hello\n", "lspci: Unable to load libkmod resources: error -2\n"])
def test_no_device_is_not_measured(tmp_path: Path, text: str) -> None:
    """A text without devices proves nothing."""
    assert outcome(read_text(tmp_path, "lspci", text, {"expected_gpus": 8})) == "not-measured"


@pytest.mark.parametrize("number", ["048", "050", "051"])
def test_damage_never_makes_these_pass(tmp_path: Path, number: str) -> None:
    """Cut or damaged, the faults of these cases are never passed over while their line is there."""
    mark = {"048": "Width x8", "050": "ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- ", "051": "access denied"}[number]
    whole = (CASES / number / "lspci-vvv.txt").read_text().count(mark)
    survives(tmp_path, number, lambda text: text.count(mark) < whole, seeds=80)
