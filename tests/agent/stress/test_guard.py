"""Which GPUs may be loaded, and when the load has to stop."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec
import pytest

from pytest_gpuready.agent.stress import gate, xids
from pytest_gpuready.agent.stress import guard as guard_module
from pytest_gpuready.agent.stress.gate import Gate, refusal
from pytest_gpuready.agent.stress.guard import Guard
from pytest_gpuready.agent.stress.watch import READINGS, Event, Line, Row
from pytest_gpuready.model.agent_doc import ProcessDoc
from pytest_gpuready.parse.kernel_log import normal_bdf

A, B = "0000:19:00.0", "0000:29:00.0"
FREE = {"mig": False, "processes": [], "temperature_c": 40, "slowdown_c": 89, "memory_max_c": 95}
XID = "NVRM: Xid (PCI:0000:19:00): {}, pid=1, name=x, text"


def row(bdf: str = A, t: float = 0.0, *, lost: str = "", **readings: float) -> Row:
    return Row(bdf=bdf, t=t, values=[readings.get(name) for name in READINGS], lost=lost)


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Guard:
    """A watch that cannot be started: what it prints is fed by hand."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    made = Guard((A, B), 0.1, margin_c=3.0, sampled=lambda _: None)
    assert made.problem == "expected to start the watch, found No such file or directory"
    made.problem, made.ended = "", False
    feed(made, Line(gpus=[A, B]), *(Line(gate=Gate(bdf=bdf, **FREE)) for bdf in (A, B)))
    return made


def feed(guard: Guard, *lines: Line) -> None:
    guard.feed(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"problem": "NVML: NotFound"}, "expected a GPU that answers, found NVML: NotFound"),
        ({"mig": True}, "expected a whole GPU, found MIG enabled"),
        ({"mig": None, "errors": {"mig_current": "Unknown"}}, "expected to read whether MIG is enabled, found Unknown"),
        ({"processes": None, "errors": {"processes": "NoPermission"}}, "processes on the GPU, found NoPermission"),
        ({"processes": [ProcessDoc(pid=at) for at in (1, 2, 3, 4)]}, "3 (name unknown) and 1 more; end what uses it"),
        (
            {"temperature_c": None, "errors": {"temperature_gpu_c": "Unknown"}},
            "a temperature to stop at, found Unknown",
        ),
        ({"slowdown_c": None}, "expected a slowdown temperature to stop at, found none"),
        ({"temperature_c": 86}, "expected less than 86 °C (3 below slowdown) before the load, found 86 °C"),
    ],
)
def test_what_cannot_be_loaded_safely_is_refused(changed: dict[str, object], says: str) -> None:
    """One line that says what was expected, what was found, what to do."""
    assert says in refusal(msgspec.convert({"bdf": A, **FREE, **msgspec.to_builtins(changed)}, Gate), 3.0)


def test_a_free_and_cool_gpu_is_loaded() -> None:
    """One that knows no MIG too."""
    assert refusal(Gate(bdf=A, **FREE), 3.0) == ""
    assert refusal(Gate(bdf=A, **{**FREE, "mig": None}, errors={"mig_current": "NotSupported"}), 3.0) == ""


def test_a_slowdown_temperature_is_known_from_its_distance_too() -> None:
    """A GPU that says only how far away it is: 32 °C now, 55 to its limit, slowdown 2 beyond that."""
    told = {"temperature_gpu_c": 32, "temperature_margin_c": 55, "temperature_slowdown_tlimit_c": -2}
    assert gate.slowdown(told) == 89
    assert gate.slowdown({**told, "temperature_slowdown_c": 90}) == 90
    assert gate.slowdown({**told, "temperature_margin_c": None}) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (Line(row=row(temperature_c=86.0)), "86 °C, 3 below slowdown at 89 °C"),
        (Line(row=row(temperature_c=60.0, memory_temperature_c=95.0)), "memory at 95 °C, its highest is 95 °C"),
        (Line(row=row(lost="GpuIsLost")), "the GPU is lost (NVML: GpuIsLost)"),
        (Line(xid=Event(t=1.0, bdf=A, xid=63)), "Xid 63"),
        (Line(row=row(temperature_c=85.0, memory_temperature_c=94.0)), ""),
        (Line(row=row()), ""),
        (Line(xid=Event(t=1.0, bdf=A, xid=13)), ""),
    ],
)
def test_a_gpu_is_stopped_for_its_own_reason(guard: Guard, line: Line, why: str) -> None:
    """It stays stopped, whatever is read afterwards; the other one goes on."""
    feed(guard, line, Line(row=row(t=2.0, temperature_c=50.0)))
    assert (guard.stop(A), guard.stop(B)) == (why, "")


def test_a_gpu_without_a_reading_is_stopped_while_the_watch_goes_on(guard: Guard) -> None:
    """The watch says that it was there for longer than that: it is this GPU of which NVML says nothing."""
    now = time.monotonic()
    guard.guarding()
    guard._guarding_since = now - 60.0
    feed(guard, Line(row=row(t=now - 11.0, temperature_c=50.0)), Line(row=row(B, now, temperature_c=50.0)))
    assert (guard.stop(A), guard.stop(B)) == ("", "")
    feed(guard, Line(beat=now))
    assert (guard.stop(A), guard.stop(B)) == ("NVML has given no reading for 10 s", "")
    assert guard.watching


def test_a_reading_of_a_moment_to_come_keeps_nothing_fresh(guard: Guard) -> None:
    """Its time is at most that of its arrival."""
    guard.guarding()
    feed(guard, Line(row=row(t=time.monotonic() + 1e9, temperature_c=50.0)), Line(beat=1e12))
    assert guard.now[A].t <= time.monotonic()
    assert guard._beat_at <= time.monotonic()


def test_a_gpu_whose_temperature_is_not_read_any_more_is_stopped(guard: Guard) -> None:
    """Other readings come, for more than three seconds; a gap that is shorter is none, and nobody minds before."""
    zero = time.monotonic() - 100.0
    feed(guard, *(Line(row=row(t=zero + at, power_w=70.0)) for at in range(5)))
    guard.guarding()
    guard._guarding_since = zero + 10.0
    feed(guard, Line(row=row(t=zero + 12.0, temperature_c=50.0)), Line(row=row(t=zero + 14.9, power_w=700.0)))
    feed(guard, Line(row=row(t=zero + 15.0, temperature_c=50.0)), Line(row=row(t=zero + 17.9, power_w=700.0)))
    assert guard.stop(A) == ""
    feed(guard, Line(row=row(t=zero + 18.1, power_w=700.0)), Line(row=row(B, zero + 13.5, power_w=700.0)))
    assert (guard.stop(A), guard.stop(B)) == (guard_module.BLIND, guard_module.BLIND)


def test_a_watch_that_is_silent_or_gone_is_no_fault_of_the_gpus(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is stopped for a reason of its own; what was wrong with the watch is said."""
    assert guard.watching
    guard.guarding()
    assert guard.watching
    monkeypatch.setattr(guard_module, "SILENT_S", -1.0)
    assert not guard.watching
    monkeypatch.undo()
    assert not guard.watching
    assert guard.stop(A) == ""
    assert guard.close().startswith("expected the watch over the GPUs to go on, found silence for ")


def test_a_watch_whose_end_has_come_watches_no_more(guard: Guard) -> None:
    """The end of its output."""
    guard.feed(b"")
    assert not guard.watching
    assert guard.stop(B) == ""
    assert guard.close() == "expected the end of the watch, found none: NVML or the kernel log hangs"


@pytest.mark.parametrize("printed", [b"Segmentation fault\n", b"x" * (guard_module.LARGEST + 1), b'{"row": 7}\n'])
def test_a_watch_that_is_none_guards_nothing(guard: Guard, printed: bytes) -> None:
    """Other lines, an endless one: it counts as ended."""
    guard.feed(printed)
    assert not guard.watching
    assert guard.stop(A) == ""
    assert guard.close().startswith("expected lines of ")


def test_an_xid_of_an_unknown_gpu_stops_all_of_them(guard: Guard) -> None:
    """The driver names none: it may be any. One that a program can cause or one of another GPU stops none."""
    feed(guard, Line(xid=Event(t=1.0, bdf="", xid=43)), Line(xid=Event(t=1.0, bdf="0000:39:00.0", xid=79)))
    assert (guard.stop(A), guard.stop(B)) == ("", "")
    feed(guard, Line(xid=Event(t=2.0, bdf="", xid=79)), Line(xid=Event(t=2.1, bdf=B, xid=48)))
    assert (guard.stop(A), guard.stop(B)) == ("Xid 79 of a GPU that the driver does not name", "Xid 48")
    assert [(xid.bdf, xid.xid) for xid in guard.xids] == [("", 43), ("0000:39:00.0", 79), ("", 79), (B, 48)]


def test_an_address_that_nobody_said_stays_none() -> None:
    """Whoever compares it with that of a GPU finds that it is another."""
    assert normal_bdf("") == ""


def test_an_xid_that_comes_twice_is_one(guard: Guard) -> None:
    """NVML and the kernel log tell the same; a second later it is another."""
    feed(guard, *(Line(xid=Event(t=t, bdf=A, xid=79)) for t in (1.0, 1.2, 3.0)))
    assert [xid.t for xid in guard.xids] == [1.0, 3.0]


def test_xids_are_read_from_the_kernel_log_as_it_grows(tmp_path: Path) -> None:
    """Only what is new, only whole lines; a GPU off the bus counts without a number too."""
    path = tmp_path / "kmsg"
    path.write_text(f"4,1,1000000,-;{XID.format(31)}\n")
    log = xids.LiveLog(path)
    log.open()
    assert log.new() == []
    lost = "NVRM: GPU at PCI:0000:29:00: GPU-1; NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."
    with path.open("a") as more:
        more.write(f"4,2,2000000,-;{XID.format(48)}\n4,3,2000001,-;{lost}\n4,4,2000002,-;{XID.format(7)[:-20]}")
    assert log.new() == [(A, 48), (B, 79)]
    with path.open("a") as more:
        more.write("\n")
    assert log.new() == [(A, 7)]
    missing = xids.LiveLog(tmp_path / "none")
    missing.open()
    assert missing.new() == []
    assert [number for number in (13, 31, 43, 45, 48, 63, 79, 121, 154, 999) if xids.hardware(number)] == [
        48,
        63,
        79,
        999,
    ]
    os.close(log._handle or 0)
