"""What nvidia-smi's and CUDA's sentences and exit codes mean.

Source of the exit codes: nvidia-smi's own manual page (section "return value").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.parse.smi_messages import Message

OWN = "the tool's own verdict"
_CUDA = {
    802: "nvidia-fabricmanager service (not running, wrong version, or NVSwitch training failed)",
    803: "host software: user-space driver and kernel module differ",
    804: "host software: compatibility libraries on hardware that does not take them",
    35: "host software: the driver is older than the CUDA runtime",
    100: "no GPU is visible to the program (container, CUDA_VISIBLE_DEVICES or driver)",
    214: "memory of a GPU: uncorrectable ECC error",
    46: "another process holds the GPU, or its compute mode forbids it",
}
_NOT_MEASURED_EXIT = {
    2: "an argument was wrong",
    3: "not available on this device",
    4: "no permission",
    6: "a query failed",
    9: "the driver is not loaded",
    12: "the NVML library was not found",
    13: "the driver lacks the function",
    18: "user-space library and kernel module differ",
    124: "it ran into a time limit",
    127: "the command was not found",
    137: "it was killed",
}
_FAULT_EXIT = {
    8: ("gpu.power_cables", "external power cables of a GPU"),
    10: ("gpu.interrupts", "an interrupt problem of a GPU (kernel)"),
    14: ("gpu.inforom", "InfoROM of a GPU is corrupted"),
    15: ("inventory.gpu_count", "a GPU has fallen off the bus or is inaccessible; look for Xid 79"),
}


def said_findings(messages: Sequence[Message], expect: Expectations) -> Iterator[Finding]:
    """Findings of the sentences; the same cause is one finding."""
    done: set[tuple[str, str, str]] = set()
    for message in messages:
        for finding in _one(message, expect):
            place = (finding.metric, finding.part, str(finding.value))
            if place not in done:
                done.add(place)
                yield finding
    versions = {m.what: m.why for m in messages if m.what in ("kernel module", "library version")}
    library, module = versions.get("library version"), versions.get("kernel module")
    if library and module and not any(m.what == "driver mismatch" for m in messages) and not _fits(library, module):
        yield _mismatch()


def _fits(library: str, module: str) -> bool:
    """Whether the library's version, which may lack its last number, is the module's, number by number."""
    return module.split(".")[: len(library.split("."))] == library.split(".")


def _mismatch() -> Finding:
    return Finding(
        metric="software.driver_consistency",
        outcome="fail",
        source=OWN,
        suspect="host software: driver packages upgraded without reboot",
        advice="reboot, or reload the kernel module",
    )


def _one(message: Message, expect: Expectations) -> Iterator[Finding]:
    what, why = message.what, message.why
    count = expect.count("expected_gpus")
    if what == "lost gpu":
        yield _lost(message, count)
    elif what == "driver mismatch":
        yield _mismatch()
        yield _no_inventory("NVML does not start before the reboot")
    elif what in ("library version", "kernel module"):
        yield Finding(metric=f"software.{what.replace(' ', '_')}", outcome="observed", value=why)
    elif what == "driver not loaded":
        yield Finding(
            metric="software.driver_loaded",
            outcome="fail",
            source=OWN,
            suspect="host software: the NVIDIA kernel module is not loaded",
            advice="see the kernel log for why it did not load",
        )
        yield _no_inventory("the driver is not loaded")
    elif what == "nvml refused":
        yield Finding(metric="software.nvml", outcome="not-measured", value=why[:200], suspect="NVML did not start")
        yield _no_inventory("NVML did not start")
    elif what == "no devices":
        yield Finding(
            metric="inventory.gpu_count",
            outcome="fail" if count else "not-measured" if count is None else "pass",
            value=0,
            unit="GPUs",
            expected="" if count is None else str(count),
            source=expect.source if count is not None else "",
            suspect="no GPU answers the driver: compare with lspci, read the kernel log" if count != 0 else "",
        )
    elif what in ("bad query", "no tool"):
        yield Finding(metric="smi.query", outcome="not-measured", value=why[:200], suspect="test set-up")
    elif what == "inforom":
        yield Finding(
            metric="gpu.inforom",
            outcome="fail",
            part=f"GPU {message.bdf}",
            value="corrupted",
            source=OWN,
            suspect=f"InfoROM of GPU {message.bdf}",
            advice="replace the GPU or have it reprogrammed",
        )
    elif what.startswith("cuda"):
        yield from _cuda(what, why, expect)


def _lost(message: Message, count: int | None) -> Finding:
    name = message.bdf or (str(message.index) if message.index >= 0 else "")
    hidden = "permission" in message.why.lower()
    return Finding(
        metric="inventory.gpu_count",
        outcome="not-measured" if hidden else "fail",
        part=f"GPU {name}".strip(),
        value=name or None,
        expected="" if count is None else str(count),
        source=OWN,
        suspect="test set-up: no permission"
        if hidden
        else f"GPU at {name} (fallen off the bus): check dmesg for Xid 79, power and seating",
        advice="" if hidden else "nvidia-smi lists the other GPUs again when this one is excluded or back",
    )


def _cuda(what: str, why: str, expect: Expectations) -> Iterator[Finding]:
    if what == "cuda passed":
        yield Finding(metric="cuda.init", outcome="pass", value="PASS", source=OWN)
    elif what == "cuda devices":
        count, found = expect.count("expected_gpus"), int(why)
        yield Finding(
            metric="inventory.gpu_count" if found == count else "cuda.devices",
            outcome="observed" if count is None else "pass" if found == count else "not-measured",
            value=found,
            unit="GPUs",
            expected="" if count is None else str(count),
            source=expect.source if count is not None else "",
            suspect="CUDA_VISIBLE_DEVICES, MIG or the container may hide GPUs" if count not in (None, found) else "",
        )
    else:
        code = int(why) if why.isdecimal() else None
        yield Finding(
            metric="cuda.init",
            outcome="fail",
            value=code if code is not None else why,
            unit="CUDA error" if code is not None else "",
            source=OWN,
            suspect=_CUDA.get(code or 0, "the driver's state: see the kernel log"),
        )


def _no_inventory(why: str) -> Finding:
    return Finding(metric="inventory.gpu_count", outcome="not-measured", suspect=why)


def exit_findings(given: Given, findings: Sequence[Finding]) -> Iterator[Finding]:
    """What the exit code adds to what the text says; nothing where a failure in the text explains it."""
    code = given.exit_code
    if not code or any(finding.outcome == "fail" for finding in findings):
        return
    metric, suspect = _FAULT_EXIT.get(code, ("", ""))
    smi = "nvidia-smi" in given.command
    if metric and smi:
        yield Finding(metric=metric, outcome="fail", value=f"exit code {code}", source=OWN, suspect=suspect)
    else:
        yield Finding(
            metric="smi.exit",
            outcome="not-measured",
            value=code,
            expected="0",
            suspect=_NOT_MEASURED_EXIT.get(code, "the command did not end well"),
        )
