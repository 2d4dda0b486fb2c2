"""What a kernel log says, event by event, and what was asked and is not in it."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gpuready.audit.kernel_events import KernelEvents
from pytest_gpuready.audit.kernel_judge import xid_findings
from pytest_gpuready.audit.kernel_pci_judge import pci_log_findings
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.report import Finding
from pytest_gpuready.parse.kernel_text import kernel_records, moment

_ANSWERS = {
    "expected_gpus": ("inventory.gpu_count",),
    "expected_nics": ("nic.",),
    "expected_pcie_width": ("nic.pcie_width",),
    "expected_pcie_gen": ("nic.pcie_speed",),
    "max_corrected_per_run": ("pcie.aer_corrected",),
}
_CONTEXT = {"window_start", "bare_metal", "under_load"}


def read_xid(given: Given) -> Reading:
    return _read(given, asked=True)


def read_pci(given: Given) -> Reading:
    return _read(given, asked=False)


def _read(given: Given, *, asked: bool) -> Reading:
    start = given.expect.text("window_start")
    window = moment(start) if start else None
    events = KernelEvents(window=window)
    events.read(kernel_records(given.lines(), window))
    findings = [*xid_findings(events, given.expect, asked=asked), *pci_log_findings(events, given.expect)]
    findings += _unsure(events, given, start, readable=window is not None)
    told = {finding.metric for finding in findings}
    for name in given.expect.keys():  # noqa: SIM118 - not a dict
        answers = _ANSWERS.get(name, (name,))
        if name not in _CONTEXT and not any(metric.startswith(answers) for metric in told):
            findings.append(
                Finding(
                    metric=answers[0].rstrip(".") if name != "expected_nics" else "nic.seen",
                    outcome="not-measured",
                    source=given.expect.source,
                    suspect=f"nothing in this log answers {name}",
                )
            )
    if not findings:
        findings.append(Finding(metric="dmesg.pci", outcome="observed", value=0, unit="messages about PCI devices"))
    return Reading(findings=tuple(findings), not_covered=tuple(_not_covered(events)))


def _unsure(events: KernelEvents, given: Given, start: str | None, *, readable: bool) -> Iterator[Finding]:
    metric = "dmesg.readable"
    if not events.timed and not events.xids and not events.sxids and not events.pci:
        yield Finding(metric=metric, outcome="not-measured", suspect="no line of a kernel log in the text")
    if events.refused:
        yield Finding(metric=metric, outcome="not-measured", value=events.refused, suspect="test setup: needs root")
    if events.too_many:
        yield Finding(metric=metric, outcome="not-measured", suspect="more kinds of events than a machine has parts")
    if start and not readable:
        yield Finding(metric="window_start", outcome="not-measured", value=start[:60], suspect="no ISO time")
    if given.exit_code and "grep" not in given.command:
        yield Finding(metric="dmesg.exit", outcome="not-measured", value=given.exit_code, expected="0")


def _not_covered(events: KernelEvents) -> Iterator[str]:
    yield "the whole log: it has no end mark and the ring loses its beginning, so what is absent here may have happened"
    if events.limited:
        yield "counts: the kernel or driver left lines out, so they are lower bounds"
    if events.window is not None and not any(t.inside for t in events.xids.values()):
        yield "the test window: no event lies in it, and nothing shows that the log reaches it"
