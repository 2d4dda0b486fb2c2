"""Xids under the built-in engine: whose cells they fail, and which of both sources told of them."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from pytest_gpuready.agent.stress.xids import NvmlEvents
from pytest_gpuready.model import Measurement
from tests.probes.stress_docs import BDFS, answers, says, value

OWN = BDFS[1]
NO_LOG = "/dev/kmsg: Operation not permitted"
ENDED = "stress.pulse.ended"


def alarm(found: Any) -> str:
    """What counts against a measurement. Raises: AssertionError where there is none."""
    assert isinstance(found, Measurement), found
    assert found.watch
    return found.watch.alarm


def live(data: dict[str, Any]) -> None:
    """NVML told of it."""
    data["xids"] = [{"t": 6.0, "bdf": OWN, "xid": 95}]


def logged(data: dict[str, Any]) -> None:
    """The kernel log tells of it."""
    data["log"] = [{"t": 1.0, "text": f"NVRM: Xid (PCI:{OWN[:-2]}): 95, Uncontained ECC error"}]


def both(data: dict[str, Any]) -> None:
    """Both of them do."""
    live(data)
    logged(data)


@pytest.mark.parametrize("change", [live, logged, both])
def test_an_xid_fails_the_cells_of_its_own_gpu(change: Any) -> None:
    """Every metric of the GPU that it names has the alarm, once; the other GPU is told of it and keeps its numbers."""
    found = answers("pulse", change)
    for metric in ("ended", "wrong", "swing"):
        said = alarm(found[f"stress.pulse.{metric}", 1])
        assert said.count("Xid 95") == 1
        other = found[f"stress.pulse.{metric}", 0]
        assert alarm(other) == ""
        assert other.watch.facts["meanwhile"].startswith("Xid 95")  # type: ignore[union-attr]
        assert other.watch.facts["meanwhile"].endswith("(another GPU)")  # type: ignore[union-attr]
    assert "Xid 95" in value(found[ENDED, 1])
    assert value(found[ENDED, 0]) == "as planned"


@pytest.mark.parametrize("bdf", ["", "0000:77:00.0", "nowhere"])
def test_an_xid_of_no_gpu_of_the_run_is_an_alarm_everywhere(bdf: str) -> None:
    """It may be any of them, or one that nobody counts: then no cell is its own, and nothing may hide it."""
    found = answers("pulse", lambda data: data.update(xids=[{"t": 3.0, "bdf": bdf, "xid": 79}]))
    for gpu in (0, 1):
        said = alarm(found["stress.pulse.swing", gpu])
        assert f"Xid 79 of {bdf or 'a GPU that the driver did not name'}" in said
        assert "another GPU" not in said


def test_a_fatal_error_of_a_switch_is_an_alarm_everywhere() -> None:
    """The fabric is one for all GPUs."""
    line = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 28 LTSSM fault up"
    found = answers("pulse", lambda data: data.update(log=[{"t": 1.0, "text": line}]))
    assert all("fatal SXid 20034" in alarm(found["stress.pulse.swing", gpu]) for gpu in (0, 1))


@pytest.mark.parametrize("harm", ["xid", "ecc"])
def test_what_broke_a_gpu_is_told_where_nothing_was_measured(harm: str) -> None:
    """A worker that died has measured nothing: its Xid, or ECC error, is the FAIL of how the load ended."""

    def died(data: dict[str, Any]) -> None:
        gpu = data["gpus"][1]
        gpu["problem"] = "expected it to wait, found its end: signal SIGSEGV"
        for phase in gpu["phases"]:
            phase.pop("pulse")
            phase["problem"] = gpu["problem"]
        if harm == "xid":
            logged(data)
        else:
            gpu["before"]["ecc_uncorrected_volatile"], gpu["after"]["ecc_uncorrected_volatile"] = 0, 3

    found = answers("pulse", died)
    assert "SIGSEGV" in says(found["stress.pulse.wrong", 1])
    assert ("Xid 95" if harm == "xid" else "3 uncorrected ECC errors") in value(found[ENDED, 1])
    assert value(found[ENDED, 0]) == "as planned"


# --- sources ----------------------------------------------------------------------------------------------------------


def test_the_events_of_nvml_suffice_where_the_kernel_log_is_hidden() -> None:
    """The load ended as planned, and it is said that one source alone told of it and why the other did not."""
    found = answers("pulse", lambda data: data.update(log_problem=NO_LOG))
    for gpu in (0, 1):
        ended = found[ENDED, gpu]
        assert value(ended) == "as planned"
        assert f"Xids by NVML's events alone (no kernel log: {NO_LOG})" in ended.conditions  # type: ignore[union-attr]


def test_where_both_sources_told_nothing_is_added() -> None:
    """The common case stays as it is."""
    assert "alone" not in answers("pulse")[ENDED, 0].conditions  # type: ignore[union-attr]


class _NoEvents:
    """NVML that refuses events of the second GPU, or stops to give any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
        def raise_(code: int) -> Any:
            raise pynvml.NVMLError(code)

        def register(handle: int, _kind: int, _events: object) -> None:
            if fails == "register" and handle == len(BDFS):
                raise_(pynvml.NVML_ERROR_NOT_SUPPORTED)

        def wait(*_: object) -> None:
            raise_(pynvml.NVML_ERROR_UNKNOWN)

        create = (lambda: raise_(pynvml.NVML_ERROR_NOT_SUPPORTED)) if fails == "create" else object
        handles = {bdf.encode(): at for at, bdf in enumerate(BDFS, 1)}
        monkeypatch.setattr(pynvml, "nvmlEventSetCreate", create)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByPciBusId", handles.__getitem__)
        monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", register)
        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", wait)
        self.notes: list[str] = []
        NvmlEvents(BDFS, lambda *_: None, self.notes.append).run()


@pytest.mark.parametrize("fails", ["create", "wait"])
def test_the_kernel_log_suffices_where_nvml_gives_no_events(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """What the watch notes of NVML's events is read as that, not as a watch that broke; without the log all is open."""
    problem = "; ".join(_NoEvents(monkeypatch, fails).notes)
    ended = answers("pulse", lambda data: data.update(watch_problem=problem))[ENDED, 0]
    assert value(ended) == "as planned"
    assert f"Xids by the kernel log alone ({problem})" in ended.conditions  # type: ignore[union-attr]
    found = answers("pulse", lambda data: data.update(watch_problem=problem, log_problem=NO_LOG))
    for gpu in (0, 1):
        assert "found that neither source was there to the end: no" in says(found[ENDED, gpu])
        assert NO_LOG in says(found[ENDED, gpu])


def test_events_of_one_gpu_alone_are_no_source_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML refuses the second GPU and the log is hidden: how the load of that one ended is open, of that one alone."""
    notes = _NoEvents(monkeypatch, "register").notes
    assert notes[0] == f"no Xid events from NVML for {OWN}: NotSupported"
    found = answers("pulse", lambda data: data.update(watch_problem=notes[0], log_problem=NO_LOG))
    assert notes[0] in says(found[ENDED, 1])
    assert value(found[ENDED, 0]) == "as planned"


@pytest.mark.parametrize("more", ["", "; no Xid events from NVML: NotSupported"])
def test_a_watch_that_broke_is_no_source(more: str) -> None:
    """It did not only miss Xids: how the load ended is open on every GPU, also beside a kernel log that is whole."""
    problem = "expected the end of the watch, found none: NVML or the kernel log hangs" + more
    found = answers("pulse", lambda data: data.update(watch_problem=problem))
    for gpu in (0, 1):
        assert "expected to hear of Xids until the end, found that nobody watched" in says(found[ENDED, gpu])
        assert value(found["stress.pulse.wrong", gpu]) == 0
