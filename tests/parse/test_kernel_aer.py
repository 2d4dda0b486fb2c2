"""PCIe errors out of kernel-log lines (lines made by hand after the kernel's formats)."""

from __future__ import annotations

import pytest

from pytest_gpuready.model.agent_doc import LogLine
from pytest_gpuready.parse.kernel_aer import aer_errors

GPU, PORT = "0000:3b:00.0", "0000:3a:01.0"


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(t=10.0 + i, text=text) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("text", "bdf", "kind"),
    [
        (f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)", GPU,
         "Fatal Transaction Layer"),
        (f"nvidia {GPU}: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Data Link Layer", GPU,
         "Non-Fatal Data Link Layer"),
        (f"pcieport {PORT}: AER: Uncorrected (Fatal) error received: {GPU}", GPU, "Fatal"),
        (f"pcieport {PORT}: AER: Uncorrectable (Fatal) error message received from {GPU}", GPU, "Fatal"),
        (f"pcieport {PORT}: AER: Multiple Uncorrected (Non-Fatal) error received: {GPU}", GPU, "Multiple Non-Fatal"),
        (f"pcieport {PORT}: AER: Uncorrected (Fatal) error received: id=3b00", PORT, "Fatal"),
        (f"pcieport {PORT}: AER: Uncorrected (Fatal) error received: 0000:00:00.0", PORT, "Fatal"),
        (f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x3b00", PORT, "link cut off (DPC)"),
    ],
)  # fmt: skip
def test_forms_of_an_uncorrected_error(text: str, bdf: str, kind: str) -> None:
    """Every form of the kernels names the device, and a source that is nobody's is the port that heard of it."""
    (error,) = aer_errors(lines(text))
    assert (error.bdf, error.kind, error.corrected, error.t) == (bdf, kind, False, 10.0)


def test_corrected_errors_are_told_apart() -> None:
    """Corrected errors are errors of their own kind, in the words of old and of new kernels."""
    found = aer_errors(
        lines(
            f"nvidia {GPU}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            f"pcieport {PORT}: AER: Correctable error message received from {PORT}",
        )
    )
    assert [(e.bdf, e.corrected) for e in found] == [(GPU, True), (PORT, True)]


def test_one_error_is_counted_once() -> None:
    """The port's line and the containment add nothing where the device's own line tells of it."""
    found = aer_errors(
        lines(
            f"pcieport {PORT}: AER: Uncorrected (Fatal) error received: {GPU}",
            f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
            f"nvidia {GPU}:   device [10de:2335] error status/mask=00100000/00000000",
        )
    )
    assert [(e.bdf, e.kind) for e in found] == [(GPU, "Fatal Transaction Layer")]


@pytest.mark.parametrize(
    "text",
    [
        f"nvidia {GPU}: enabling device (0000 -> 0002)",
        f"pcieport {PORT}: AER: enabled with IRQ 35",
        f"pcieport {PORT}: DPC: enabled with IRQ 35",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    ],
)
def test_other_lines_are_no_errors(text: str) -> None:
    """Lines about AER or the GPU that tell of no error count for nothing."""
    assert aer_errors(lines(text)) == ()
