"""`nvidia-smi -q` text: paths by indentation, both generations of titles, contradictions seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuready.parse.smi_q import smi_q

HEAD = ["==============NVSMI LOG==============", "", "Driver Version      : 580.1", "Attached GPUs      : 1"]


def test_the_same_title_in_two_sections_is_two_values() -> None:
    """Current under the link width is no current generation."""
    log = smi_q(
        [
            *HEAD,
            "GPU 00000000:1B:00.0",
            "    PCI",
            "        GPU Link Info",
            "            PCIe Generation",
            "                Current       : 5",
            "            Link Width",
            "                Current       : 8x",
        ]
    )
    (gpu,) = log.gpus
    assert (log.driver, log.attached, gpu.bdf) == ("580.1", 1, "0000:1b:00.0")
    assert (gpu.number("pcie.link.gen.current"), gpu.number("pcie.link.width.current")) == (5, 8)


def test_two_values_in_one_place_are_unreadable() -> None:
    """Neither of two different values counts; the same value twice does."""
    place = ["GPU 00000000:1B:00.0", "    Remapped Rows", "        Pending  : No"]
    assert smi_q([*HEAD, *place, "        Pending  : Yes"]).gpus[0].cells["remapped_rows.pending"].kind == "unreadable"
    assert smi_q([*HEAD, *place, "        Pending  : No"]).gpus[0].word("remapped_rows.pending") == "No"


def test_old_titles() -> None:
    """Clocks Throttle Reasons and Power Readings are what they are called now."""
    body = [
        "    Clocks Throttle Reasons",
        "        HW Slowdown  : Active",
        "    Power Readings",
        "        Power Draw  : 61.10 W",
    ]
    (gpu,) = smi_q([*HEAD, "GPU 00000000:1B:00.0", *body]).gpus
    assert gpu.word("clocks_event_reasons.hw_slowdown") == "Active"
    assert gpu.number("power.draw") == 61.1


def test_processes_are_left_out() -> None:
    """Names of processes are anybody's text and no values of the GPU."""
    body = ["    Processes", "        Process ID  : 4", "            Name  : Performance State : P8"]
    assert smi_q([*HEAD, "GPU 00000000:1B:00.0", *body]).gpus[0].cells == {}


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_text_is_read(lines: list[str]) -> None:
    """No text makes the parser raise, and no GPU is invented."""
    assert smi_q(lines).gpus == ()
    assert len(smi_q([*HEAD, "GPU 00000000:1B:00.0", *(f"    {line}" for line in lines)]).gpus) >= 1
