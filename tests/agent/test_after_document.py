"""The probe "after" as a process of its own, under the real pynvml on a stand-in of libnvidia-ml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuready.agent.after import after
from pytest_gpuready.model import CommandResult
from pytest_gpuready.model.agent_doc import KernelLog
from pytest_gpuready.parse.agent import after_doc, envelope

Agent = Callable[..., CommandResult]


def test_a_look_after_the_load(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """One document holds NVML, a kernel log or why there is none, and the bus; its name says which level it follows."""
    result = agent("after", "3", libraries=driver, values=stand_in.healthy(8))
    document = after_doc(result, 3)
    assert [gpu.bdf for gpu in document.nvml.gpus] == [stand_in.bdf(i) for i in range(8)]
    assert document.log.source or document.log.problem
    assert envelope(result, "after-3").boot_id


@pytest.mark.parametrize("words", [("after",), ("after", "1"), ("after", "5"), ("after", "2", "3"), ("after", "x")])
def test_a_level_without_a_load_is_refused(agent: Agent, words: tuple[str, ...]) -> None:
    """Only levels 2 to 4 have a load to look back at; anything else is a wrong call."""
    result = agent(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "after LEVEL" in result.stderr


def test_the_bus_is_read_with_the_path(tmp_path: Path) -> None:
    """What the bus shows after the load is read as it was before: address, id and bridges."""
    real = tmp_path / "sys/devices/pci0000:15/0000:15:01.0/0000:19:00.0"
    real.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}.items():
        (real / name).write_text(f"{text}\n")
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / real.name).symlink_to(real)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/maps").write_text("")
    (found,) = after(tmp_path, KernelLog(source="given", complete=True, total_lines=1)).bus
    assert (found.bdf, found.pci_id, [bridge.bdf for bridge in found.path]) == (
        "0000:19:00.0",
        "10de:2335",
        ["0000:15:01.0"],
    )
