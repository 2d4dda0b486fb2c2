"""`nvidia-smi -q -x`: hostile and broken documents cost nothing and promise nothing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.smi_xml import smi_xml

GPU = '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:01:00.0"><uuid>GPU-1</uuid>'


def test_a_document_without_its_end_is_not_complete() -> None:
    """What was said until then is there; the end is missing."""
    log = smi_xml([GPU])
    assert (log.complete, log.attached, log.gpus[0].word("uuid")) == (False, 1, "GPU-1")
    assert smi_xml([GPU + "</gpu></nvidia_smi_log>", "text after it"]).complete is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '<!DOCTYPE x [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]><nvidia_smi_log>&lol2;</nvidia_smi_log>',
            "entities",
        ),
        ("<html><body/></html>", "expected <nvidia_smi_log>, found <html>"),
        ("not xml at all", "found nothing of it"),
        ("", "found nothing of it"),
        ("<nvidia_smi_log>" + "<a>" * 40, "at most 16 levels"),
        ('<nvidia_smi_log><gpu id="nowhere"></gpu></nvidia_smi_log>', "expected a PCI address"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    """Entities, other documents and bottomless ones are refused in one line."""
    with pytest.raises(ParseError, match=says):
        smi_xml([text])


def test_no_file_is_fetched() -> None:
    """An external DTD is named in every real document and never opened."""
    head = '<!DOCTYPE nvidia_smi_log SYSTEM "file:///etc/passwd">'
    assert smi_xml([head, GPU + "</gpu></nvidia_smi_log>"]).complete is True


def test_long_lists_are_left_out() -> None:
    """Supported clocks and processes are no values of the GPU."""
    clocks = "<supported_clocks>" + "<supported_mem_clock><value>1 MHz</value></supported_mem_clock>" * 3000
    log = smi_xml([f"{GPU}{clocks}</supported_clocks></gpu></nvidia_smi_log>"])
    assert set(log.gpus[0].cells) == {"uuid"}


@given(st.text(max_size=80), st.integers(0, 120))
def test_damage_is_read_or_refused(text: str, at: int) -> None:
    """Text put anywhere into a document is survived."""
    whole = GPU + "<pci><pci_bus_id>x</pci_bus_id></pci></gpu></nvidia_smi_log>"
    with contextlib.suppress(ParseError):
        smi_xml([whole[:at] + text + whole[at:]])
