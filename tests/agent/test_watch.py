"""The watch: what it reads, that nothing stops it, which kernel-log lines belong to its window."""

# ruff: noqa: N802 - the stand-in has NVML's own names
from __future__ import annotations

import errno
import sys
import types
from pathlib import Path

import pynvml
import pytest

from pytest_gpuready.agent import watch_readings
from pytest_gpuready.agent.watch import KernelWindow, Watch
from pytest_gpuready.agent.watch_readings import COLUMNS, COUNTERS, Readings

BDF = "0000:19:00.0"


class StandInNvml(types.SimpleNamespace):
    """STAND-IN for pynvml: no hardware. `fields` are field -> value, or an error number as a negative."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, **fields: int) -> None:
        super().__init__()
        self.fields = {int(k.removeprefix("f")): v for k, v in fields.items()}
        self.generation = 5

    def nvmlInit(self):
        return None

    def nvmlDeviceGetHandleByPciBusId(self, bdf):
        return bdf

    def nvmlDeviceGetFieldValues(self, _handle, numbers):
        values = []
        for number in numbers:
            found = self.fields.get(number, -3)
            union = types.SimpleNamespace(uiVal=max(found, 0))
            values.append(types.SimpleNamespace(fieldId=number, nvmlReturn=max(-found, 0), valueType=1, value=union))
        return values

    def nvmlDeviceGetPcieReplayCounter(self, _handle):
        return 7

    def nvmlDeviceGetTotalEccErrors(self, _handle, kind, _counter):
        return 10 + kind

    def nvmlDeviceGetPowerUsage(self, _handle):
        return 80_000

    def nvmlDeviceGetClockInfo(self, _handle, kind):
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetTemperature(self, _handle, _kind):
        return 38

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle):
        return 4

    def nvmlDeviceGetCurrPcieLinkGeneration(self, _handle):
        return self.generation

    def nvmlDeviceGetCurrPcieLinkWidth(self, _handle):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, _handle):
        return 5

    def nvmlDeviceGetUtilizationRates(self, _handle):
        return types.SimpleNamespace(gpu=99)


@pytest.fixture
def nvml(monkeypatch):
    stand_in = StandInNvml(f186=81_500, f82=40, f94=3, f177=2, f176=-999)
    monkeypatch.setattr(watch_readings, "pynvml", stand_in)
    return stand_in


def test_counters_hold_only_what_the_gpu_gave(nvml):
    """A field with an error is absent from the counters and stands in the errors by NVML's name, never as 0."""
    readings = Readings(BDF)
    assert readings.counters() == {
        "pcie_replay": 3,
        "pcie_nak_sent": 2,
        "ecc_corrected_volatile": 10,
        "ecc_uncorrected_volatile": 11,
    }
    assert readings.errors["pcie_bad_tlp"] == "Unknown"
    assert readings.errors["pcie_fatal"] == "NotSupported"
    assert set(readings.errors) == set(COUNTERS) - {"pcie_replay", "pcie_nak_sent"}


def test_the_replay_counter_has_a_second_source(nvml):
    """Where the replay field is not supported, the getter of older drivers answers."""
    del nvml.fields[94]
    readings = Readings(BDF)
    assert readings.counters()["pcie_replay"] == 7
    assert "pcie_replay" not in readings.errors


def test_a_sample_keeps_what_works_beside_what_fails(nvml):
    """A lost getter leaves None in its own column and its name in the errors; the other columns are read."""
    readings = Readings(BDF)
    assert readings.sample() == {
        "power_w": 81.5,
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 38,
        "memory_temperature_c": 40,
        "reasons": 4,
        "generation": 5,
        "width": None,
        "utilisation": 99,
    }
    assert readings.errors == {"width": "GpuIsLost"}


def test_power_falls_back_to_the_average(nvml):
    """A GPU without the instantaneous power field gives the power of the last second."""
    del nvml.fields[186]
    readings = Readings(BDF)
    assert readings.sample()["power_w"] == 80.0
    assert "power_w" not in readings.errors


def test_without_nvml_there_is_no_reading_and_a_reason():
    """No NVML library: no counters, empty columns, the error by name, and no exception."""
    readings = Readings(BDF)
    assert not readings.alive
    assert readings.errors == {"nvml": "LibraryNotFound"}
    with Watch(BDF, readings=readings, kmsg=Path("/nowhere/kmsg"), journal=("gpuready-no-such-journal",)) as watch:
        pass
    doc = watch.doc()
    assert doc.before == doc.after == {}
    assert doc.samples == {name: [] for name in COLUMNS}
    assert doc.log_problem == "/nowhere/kmsg: No such file or directory"


def test_columns_are_of_equal_length_and_phases_lie_in_time(nvml, tmp_path):
    """Every column has one entry per sample, times ascend, a phase has its name and its span in the same seconds."""
    (tmp_path / "kmsg").write_text("")
    reads = []
    readings = Readings(BDF)
    sample = readings.sample

    def counted():
        reads.append(1)
        return sample()

    readings.sample = counted
    with Watch(BDF, 0.001, kmsg=tmp_path / "kmsg", readings=readings) as watch, watch.phase("h2d"):
        while len(reads) < 4:
            pass
    doc = watch.doc()
    lengths = {len(column) for column in doc.samples.values()}
    assert len(lengths) == 1
    assert lengths.pop() >= 3
    assert set(doc.samples) == set(COLUMNS)
    assert doc.samples["t"] == sorted(doc.samples["t"])
    [(name, start, end)] = doc.phases
    assert name == "h2d"
    assert 0 <= start <= end
    assert watch.generation_max == 5
    assert watch.generation_max_device is None
    assert doc.errors["pcie_generation_max_device"] == "FunctionNotFound"


def test_counters_are_read_on_both_sides(nvml, tmp_path):
    """`before` is what stood there at the start and `after` what stood there at the end."""
    (tmp_path / "kmsg").write_text("")
    with Watch(BDF, kmsg=tmp_path / "kmsg") as watch:
        nvml.fields[177] = 9
    doc = watch.doc()
    assert (doc.before["pcie_nak_sent"], doc.after["pcie_nak_sent"]) == (2, 9)


def test_only_lines_written_meanwhile_belong_to_the_window(tmp_path):
    """What the kernel log held before is not read; of what came after, lines about GPUs and PCIe are kept."""
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("4,1,1000000,-;NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus.\n")
    window = KernelWindow(kmsg)
    window.open()
    with kmsg.open("a") as log:
        log.write("4,2,2500000,-;NVRM: Xid (PCI:0000:19:00): 48, pid=2, DBE\n6,3,2600000,-;EXT4-fs: mounted\n")
    lines = window.read()
    assert [(line.t, line.text) for line in lines] == [(2.5, "NVRM: Xid (PCI:0000:19:00): 48, pid=2, DBE")]
    assert window.problem == ""


def test_lost_records_are_said_and_the_rest_is_read(tmp_path, monkeypatch):
    """Where the ring went round before it was read, what it still holds is read, and that records were lost is said."""
    (tmp_path / "kmsg").write_text("")
    window = KernelWindow(tmp_path / "kmsg")
    window.open()
    xid = b"4,9,2500000,-;NVRM: Xid (PCI:0000:19:00): 48, pid=2, DBE\n"
    answers = iter([BrokenPipeError(errno.EPIPE, ""), xid, BrokenPipeError(errno.EPIPE, ""), xid, BlockingIOError()])

    def read(_handle, _size):
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("pytest_gpuready.agent.watch.os.read", read)
    assert len(window.read()) == 2
    assert window.problem == f"{tmp_path / 'kmsg'}: records were lost, overwritten before they were read"


def journal(path):
    """A program that prints this file as the journal would."""
    return (sys.executable, "-c", "import sys; print(open(sys.argv[1]).read(), end='')", str(path))


def test_without_kmsg_the_journal_gives_the_window(tmp_path):
    """Where /dev/kmsg may not be read, what the journal has got since belongs to the window, and nothing is amiss."""
    text = tmp_path / "journal"
    text.write_text("[    0.000000] h kernel: Linux version 6.1\n[    5.000000] h kernel: NVRM: before\n")
    window = KernelWindow(tmp_path / "none", journal(text))
    window.open()
    assert window.problem
    with text.open("a") as more:
        more.write("[    6.500000] h kernel: NVRM: Xid (PCI:0000:19:00): 48, pid=2, DBE\n")
    assert [(line.t, line.text) for line in window.read()] == [(6.5, "NVRM: Xid (PCI:0000:19:00): 48, pid=2, DBE")]
    assert window.problem == ""


def test_a_journal_that_is_not_whole_gives_no_window(tmp_path):
    """A journal that lost its beginning cannot stand for /dev/kmsg: that the log was not read is said."""
    text = tmp_path / "journal"
    text.write_text("[    5.000000] h kernel: NVRM: before\n")
    window = KernelWindow(tmp_path / "none", journal(text))
    window.open()
    assert window.read() == []
    assert window.problem == f"{tmp_path / 'none'}: No such file or directory"


def test_a_window_larger_than_is_read_says_so(tmp_path, monkeypatch):
    """A flood of lines is read up to the size bound, and that it was more is said."""
    monkeypatch.setattr("pytest_gpuready.agent.watch.LARGEST", 10)
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("")
    window = KernelWindow(kmsg)
    window.open()
    kmsg.write_text("4,2,2500000,-;NVRM: Xid (PCI:0000:19:00): 48, pid=2, DBE\n")
    assert len(window.read()) == 1
    assert "more than could be read" in window.problem


def test_a_malformed_address_is_refused():
    """Only a bus address is ever handed to NVML."""
    with pytest.raises(ValueError, match="expected a bus address"):
        Readings("0000:19:00.0; reboot")
