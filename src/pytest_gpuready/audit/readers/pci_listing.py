"""What lspci says of GPUs, network cards, bridges and NVSwitches, and what was asked and is not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_gpuready.audit.pci_judge import pci_findings
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.parse.lspci import PciDevice, lspci

_DEVICES_AT_MOST = 16384
_KINDS = ("gpu", "nic", "bridge", "nvswitch")
_ANSWERS = {
    "expected_gpus": "inventory.gpu_count",
    "gpus_per_node": "inventory.gpu_count",
    "expected_pcie_gen": "pcie.speed",
    "expected_pcie_width": "pcie.width",
    "expected_nics": "inventory.nic_present",
    "nvswitch": "inventory.nvswitch",
}
_CONTEXT = {"bare_metal", "under_load", "window_start"}


def read(given: Given) -> Reading:
    devices: list[PciDevice] = []
    findings: list[Finding] = []
    others = 0
    for device in lspci(given.lines()):
        if device.kind == "orphan":
            why = "lines about a link or ACS without the device's heading"
            findings[:1] = [Finding(metric="pci.readable", outcome="not-measured", suspect=why)]
        elif device.kind not in _KINDS and not device.gone:
            others += 1
        elif len(devices) < _DEVICES_AT_MOST:
            devices.append(device)
        else:
            why = f"more than {_DEVICES_AT_MOST} GPUs, network cards and bridges: nothing of it was judged"
            advice = "audit the listing of one machine"
            return Reading(
                findings=(Finding(metric="pci.readable", outcome="not-measured", suspect=why, advice=advice),)
            )
    seen = [device.bdf for device in devices]
    for bdf in sorted(bdf for bdf, times in Counter(seen).items() if times > 1):
        findings.append(Finding(metric="pci.readable", outcome="not-measured", part=bdf, suspect="stands there twice"))
    if not devices and not others:
        suspect = "no device in the text"
        findings.append(Finding(metric="pci.readable", outcome="not-measured", suspect=suspect))
    findings += pci_findings(devices, given.expect)
    if given.exit_code:
        findings.append(
            Finding(
                metric="pci.exit", outcome="not-measured", value=given.exit_code, expected="0", suspect="lspci failed"
            )
        )
    answered = {finding.metric for finding in findings}
    for name in given.expect.keys():  # noqa: SIM118 - not a dict
        metric = _ANSWERS.get(name, name)
        if name not in _CONTEXT and metric not in answered and not (name == "nvswitch" and not given.expect.flag(name)):
            findings.append(
                Finding(
                    metric=metric,
                    outcome="not-measured",
                    source=given.expect.source,
                    suspect=f"nothing in this text answers {name}",
                )
            )
    if not findings:
        findings.append(Finding(metric="pci.devices", outcome="observed", value=len(devices) + others))
    return Reading(findings=tuple(findings), not_covered=tuple(_not_covered(devices, given)))


def _not_covered(devices: list[PciDevice], given: Given) -> Iterator[str]:
    gpus = [device for device in devices if device.kind == "gpu"]
    if gpus and given.expect.count("expected_gpus") is None:
        yield "absent GPUs: a GPU that left the bus may be missing here; give expected_gpus"
    if gpus and given.expect.count("expected_pcie_width") is None:
        yield "PCIe width: held against what the device could do at most"
    if gpus:
        yield "load: a link may fall back or make errors only under load"
    if devices and not any(device.acs is not None for device in devices):
        yield "ACS: no setting is in this text"
