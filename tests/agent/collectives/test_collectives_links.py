"""Counters of the NVLinks before and after a collective, read by a process that may hang without harm."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuready.agent.collectives import links as links_module
from pytest_gpuready.agent.collectives.links import Links
from pytest_gpuready.agent.collectives.member import traffic

SOURCES = Path(__file__).parents[3] / "src"
BDF = "0000:01:00.0"


def test_what_every_link_counted(
    tmp_path: Path, driver: Path, stand_in: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and errors of each link stand before and after; what NVML does not give has the name of its error; a GPU
    that is not there has a problem, and the others do not."""
    values = {"count": "1", "gpu.0.busid": BDF, "gpu.0.field.91": "2"}
    values |= {f"gpu.0.field.{field}": "5" for field in (138, 139, 140, 141, 161, 162, 163)}
    values |= {f"gpu.0.field.{field}.1": "7" for field in (138, 139, 161, 162, 163)}
    path = stand_in.write(tmp_path / "node.nvml", values)
    for name, value in (("FAKE_NVML", path), ("LD_LIBRARY_PATH", driver), ("PYTHONPATH", SOURCES)):
        monkeypatch.setenv(name, str(value))
    links = Links([BDF, "0000:99:00.0"])
    before = links.read()
    stand_in.write(path, values | {"gpu.0.field.138.1": "1007", "gpu.0.field.162": "6"})
    after = links.read()
    links.close()
    found = traffic("all_reduce", 1024, before[BDF], after[BDF])
    assert [link.link for link in found.links] == [0, 1]
    assert found.links[1].counters == {
        **{"data_tx": (7, 1007), "data_rx": (7, 7), "replay": (7, 7), "recovery": (7, 7), "crc": (7, 7)},
    }
    assert found.links[0].counters["recovery"] == (5, 6)
    assert found.links[1].errors == dict.fromkeys(("raw_tx", "raw_rx", "sent", "received"), "NotSupported")
    other = traffic("all_reduce", 1024, before["0000:99:00.0"], after["0000:99:00.0"])
    assert other.problem.startswith("NVML: ")
    assert other.links == []


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import time; time.sleep(60)", "expected NVLink counters within 0.2 s, found no answer: NVML hangs"),
        ("raise SystemExit(1)", "found the end of their reader"),
        ("import sys; sys.stdin.readline(); print('no'); sys.stdout.flush(); input()", "found something else"),
        ("import sys; sys.stdin.readline(); print('{}'); sys.stdout.flush(); input()", "found something else"),
    ],
)
def test_a_reader_in_trouble_is_a_problem(program: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs, is gone or talks nonsense costs the counters alone, and is not asked again."""
    monkeypatch.setattr(links_module, "ANSWER_S", 0.2)
    links = Links([BDF], (sys.executable, "-S", "-c", program))
    if "SystemExit" in program:
        assert links.process is not None
        links.process.wait(timeout=10)
    elif "sleep" not in program:
        monkeypatch.setattr(links_module, "ANSWER_S", 10.0)
    first = links.read()
    second = links.read()
    links.close()
    for said in (first, second):
        assert says in said[BDF]["problem"]
    assert says in traffic("alltoall", 8, first[BDF], second[BDF]).problem


def test_links_that_come_and_go_are_no_traffic() -> None:
    """Another number of links after than before is said, not matched by place."""
    one: dict[str, object] = {"links": [{"data_tx": 1}], "errors": [{}]}
    two: dict[str, object] = {"links": [{"data_tx": 1}] * 2, "errors": [{}] * 2}
    assert "as many NVLinks after as before" in traffic("all_reduce", 8, two, one).problem
