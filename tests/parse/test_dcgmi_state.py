"""Parsers of `dcgmi nvlink`, `dcgmi health` and `dcgmi discovery`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.dcgmi_discovery import discovery
from pytest_gpuready.parse.dcgmi_health import health
from pytest_gpuready.parse.dcgmi_nvlink import DISABLED, DOWN, NONE, UP, link_counters, link_states

DATA = Path(__file__).parents[1] / "data"
RUNS = DATA / "dcgm" / "4.6.0"
CASE_016 = (DATA / "cases" / "016" / "nvlink.txt").read_text()
FULL_STATES = """+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U D _
    Link Entities: 0:0000000001 1:0000010001 2:0000020001
                   3:0000030001
NvSwitches:
    physicalId 11:
        U X U D
    Link Entities: N/A

Key: Up=U, Down=D, Disabled=X, Not Supported=_
"""
COUNTERS = """+-----------------------------+------------------------------------------------+
| NVLINK Error Counts                                                          |
| GPU 1                                                                        |
+=============================+================================================+
| Link 0                      |                                                |
| -> CRC FLIT Error           | 0                                              |
| -> Replay Error             | 12                                             |
| -> Recovery Error           | 3                                              |
| Link 1                      |                                                |
| -> CRC FLIT Error           | 7                                              |
+-----------------------------+------------------------------------------------+
"""
SICK = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 1                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> Driver           | Failure                                                  |
|                           | GPU 1 requires a reset to recover from a fault.          |
|                           | Recovery action: 1 (GPU_RESET).                          |
| -> 3                      | Warning                                                  |
|    -> Errors              |                                                          |
|       -> PCIe system      | Warning                                                  |
|                           | Detected more than 8 PCIe replays per minute for GPU 3   |
+---------------------------+----------------------------------------------------------+
"""


def test_states_by_their_place() -> None:
    """The place is the link's number; an underscore is neither up nor down, and no GPU is left out."""
    seen = link_states(CASE_016.splitlines())
    assert seen.complete
    assert [row.numbers(DOWN) for row in seen.gpus] == [(4,), (8,), ()]
    assert [row.numbers(DISABLED) for row in seen.gpus] == [(), (10, 11), ()]
    assert [len(row.numbers(UP)) for row in seen.gpus] == [11, 9, 12]
    assert seen.gpus[2].numbers(NONE) == (12, 13, 14, 15, 16, 17)


def test_switches_and_entity_lines() -> None:
    """Switches are rows of their own kind; the lines with entity ids of 4.6 say nothing about states."""
    seen = link_states(FULL_STATES.splitlines())
    assert [(row.kind, row.number, row.states) for row in seen.rows] == [
        ("GPU", 0, ("U", "U", "D", "_")),
        ("NVSwitch", 11, ("U", "X", "U", "D")),
    ]
    assert (seen.complete, seen.errors) == (True, ())


def test_states_that_cannot_be_read_are_told() -> None:
    """A row with another letter, a GPU without a row and a GPU that stands twice make the list incomplete."""
    for bad in (CASE_016.replace("U U U U D", "U U U Q D"), CASE_016.replace("gpuId 1:", "gpuId 0:")):
        seen = link_states(bad.splitlines())
        assert not seen.complete
        assert seen.errors
    lines = CASE_016.splitlines()
    del lines[5]
    assert link_states(lines).errors == ("GPU 0: no states",)
    with pytest.raises(ParseError, match="expected rows of U, D, X and _"):
        link_states(["nothing"])


def test_error_counters_of_table_and_json() -> None:
    """Each counter keeps its GPU, link and name; JSON says the same."""
    seen = link_counters(COUNTERS)
    assert [(c.gpu, c.link, c.name, c.value) for c in seen.counters] == [
        (1, 0, "CRC FLIT Error", 0.0),
        (1, 0, "Replay Error", 12.0),
        (1, 0, "Recovery Error", 3.0),
        (1, 1, "CRC FLIT Error", 7.0),
    ]
    assert seen.complete
    assert not link_counters(COUNTERS[: COUNTERS.rindex("+--")]).complete
    as_json = """{"body": {"Link 0": {"children": {"CRC FLIT Error": {"value": 0}, "Replay Error": {"value": 12},
      "Recovery Error": {"value": 3}}}, "Link 1": {"children": {"CRC FLIT Error": {"value": 7}}}},
      "header": ["NVLINK Error Counts", "GPU 1"]}"""
    assert link_counters(as_json) == seen
    with pytest.raises(ParseError, match="NVLINK Error Counts"):
        link_counters("| GPU 1 |")


def test_health_of_table_and_json() -> None:
    """Overall word, every sick entity, and each system's message joined from its lines."""
    seen = health(SICK)
    assert (seen.overall, seen.complete) == ("Failure", True)
    assert seen.entities == (("GPU", 1, "Failure"), ("GPU", 3, "Warning"))
    assert [(i.number, i.system, i.health, i.text) for i in seen.incidents] == [
        (1, "Driver", "Failure", "GPU 1 requires a reset to recover from a fault. Recovery action: 1 (GPU_RESET)."),
        (3, "PCIe system", "Warning", "Detected more than 8 PCIe replays per minute for GPU 3"),
    ]
    by_json = health((RUNS / "injected" / "recovery-action-reset-health" / "stdout").read_text())
    assert (by_json.overall, by_json.just_set, by_json.entities) == ("Failure", True, (("GPU", 1, "Failure"),))
    assert by_json.incidents[0].system == "Driver"


def test_health_that_breaks_off_keeps_its_failure() -> None:
    """A cut report is incomplete and still says Failure where it did."""
    text = (RUNS / "injected" / "recovery-action-reset-health" / "stdout").read_text()
    seen = health(text[: text.index('"Overall Health"')])
    assert (seen.overall, seen.complete) == ("Failure", False)
    assert not health(SICK[: SICK.rindex("+--")]).complete
    with pytest.raises(ParseError, match="expected 'Health Monitor Report'"):
        health("all is well")


def test_discovery_lists_every_gpu() -> None:
    """Number, name and bus id of eight GPUs; DCGM's own count beside them."""
    seen = discovery((RUNS / "injected" / "healthy-8gpu-discovery" / "stdout").read_text().splitlines())
    assert (seen.count, len(seen.gpus), seen.inactive, seen.errors) == (8, 8, False, ())
    assert (seen.gpus[2].number, seen.gpus[2].name, seen.gpus[2].bus_id) == (2, "NVIDIA H200", "00000000:30:00.0")


def test_discovery_tells_of_gpus_in_trouble() -> None:
    """GPUs that are not active, and those whose attributes cannot be read, are told."""
    text = (RUNS / "h200x1" / "discovery" / "stdout").read_text()
    lost = text.replace("| Name: NVIDIA H200      ", "| Status: Lost           ").replace(
        "1 GPU found (Active).", "1 GPU found (Active).\nNote: Use -a flag to show all GPUs, including inactive ones."
    )
    seen = discovery(lost.splitlines())
    assert (seen.inactive, seen.gpus[0].status, seen.gpus[0].name) == (True, "Lost", "")
    broken = text.replace("Name: NVIDIA H200     ", "Error: Cannot get it. ")
    assert discovery(broken.splitlines()).gpus[0].trouble == "Error: Cannot get it."
    with pytest.raises(ParseError, match="N GPUs found"):
        discovery(["| 0 | Name: x |"])


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), which=st.integers(0, 5))
def test_damage_raises_nothing_but_parse_error(seed: int, which: int) -> None:
    """Cut, doubled or changed, an output is read or refused, never an exception of another kind."""
    chance = random.Random(seed)
    recorded = (RUNS / "injected" / "recovery-action-reset-health" / "stdout").read_text()
    text = (CASE_016, FULL_STATES, COUNTERS, SICK, recorded, recorded)[which]
    for _ in range(chance.randint(1, 5)):
        place, upto = chance.randrange(len(text) + 1), chance.randint(0, 30)
        text = text[:place] + chr(chance.randint(1, 0x2FF)) + text[place + upto :]
    for parse in (lambda t: link_states(t.splitlines()), link_counters, health, lambda t: discovery(t.splitlines())):
        with contextlib.suppress(ParseError):
            assert parse(text) is not None


def test_long_inputs_are_read_line_by_line() -> None:
    """Millions of lines of something else are passed over one at a time: no line is kept."""
    alive = 0
    most = 0

    class Line(str):
        def __new__(cls, text: str) -> Line:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, text)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def lines() -> Iterator[str]:
        for number in range(200_000):
            yield Line(f"another line {number}")
        for text in CASE_016.splitlines():
            yield Line(text)

    assert len(link_states(lines()).gpus) == 3
    with pytest.raises(ParseError):
        discovery(lines())
    assert most < 100
