"""The probe "nvml" as a process of its own, under the real pynvml on a stand-in of libnvidia-ml."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuready.errors import ToolError
from pytest_gpuready.model import CommandResult, Gpu, Inventory, Measurement, Node, Part, Problem, Slot
from pytest_gpuready.parse.agent import nvml_doc
from pytest_gpuready.probes.nvml import NvmlProbe

RECORDED = Path(__file__).parent.parent / "data/nvml/580.159.04/h200x2/nvml.json"
Agent = Callable[..., CommandResult]


def node_of(bdfs: list[str]) -> Node:
    slots = (
        Slot(part=Part(node="node01", index=i), expected_bdf=bdf, gpu=Gpu(bdf=bdf, on_bus=True))
        for i, bdf in enumerate(bdfs)
    )
    return Node(name="node01", slots=tuple(slots))


def answers(result: CommandResult, bdfs: list[str]) -> dict[tuple[str, str], Measurement | Problem]:
    node = node_of(bdfs)
    found = NvmlProbe().read(Inventory(nodes=(node,)), node, node.part, [result])
    return {(answer.metric, answer.part): answer for answer in found}


def value(answer: Measurement | Problem) -> object:
    assert isinstance(answer, Measurement), answer
    return answer.value


def test_healthy_node_of_eight(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """Eight healthy GPUs come with every field that a verdict needs, eighteen NVLinks each, and nobody lost."""
    result = agent("nvml", libraries=driver, values=stand_in.healthy(8))
    document = nvml_doc(result)
    assert (document.problem, document.lost, document.driver) == ("", {}, "580.95.05")
    assert [gpu.bdf for gpu in document.gpus] == [stand_in.bdf(i) for i in range(8)]
    gpu = document.gpus[3]
    assert (gpu.pci_id, gpu.memory_total_mib, gpu.module_id) == ("10de:2335", 143771, 4)
    assert "stand-in" in gpu.name
    assert len(gpu.nvlinks) == 18
    link = gpu.nvlinks[17]
    assert (link.active, link.version, link.remote, link.speed_mb_per_s) == (True, "4.0", "switch", 26562)
    assert (link.replay, link.recovery, link.crc) == ((0, 0), (0, 0), (0, 0))
    assert sorted(gpu.p2p_nvlink.values()) == [0] * 7
    assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_health_mask) == (3, 0, 0)
    assert gpu.temperature_slowdown_tlimit_c == -2
    assert gpu.errors == {"retired_pages_pending": "NotSupported"}
    assert document.window_s >= 0.25


def test_versions_of_mapped_files(agent: Agent, stand_in: ModuleType, tmp_path: Path) -> None:
    """Library versions are those in the names of the files that were loaded, not those that NVML tells."""
    libraries = stand_in.build(tmp_path / "libs", version="580.95.05", cuda="570.86.15")
    result = agent("nvml", libraries=libraries, values=stand_in.healthy(1))
    assert nvml_doc(result).libraries == {"libnvidia-ml": "580.95.05", "libcuda": "570.86.15"}
    assert result.exit_code == 0


def test_missing_libcuda_is_an_absent_key(agent: Agent, stand_in: ModuleType, tmp_path: Path) -> None:
    """Where libcuda is not installed it has no key, and the driver's agreement is not measured."""
    libraries = stand_in.build(tmp_path / "libs", cuda="")
    result = agent("nvml", libraries=libraries, values=stand_in.healthy(1))
    assert nvml_doc(result).libraries == {"libnvidia-ml": "580.95.05"}
    found = answers(result, [stand_in.bdf(0)])[("driver.agreement", "node01")]
    assert isinstance(found, Problem)


def test_lost_gpu_is_named(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """A GPU that answers GpuIsLost stands under `lost`, the other seven are complete."""
    values = stand_in.healthy(8) | {"gpu.3.lost": "1"}
    result = agent("nvml", libraries=driver, values=values)
    document = nvml_doc(result)
    assert document.lost == {"3": "GpuIsLost"}
    assert len(document.gpus) == 7
    found = answers(result, [stand_in.bdf(i) for i in range(8)])
    assert value(found["gpu.present", "node01/gpu3"]) == "on the bus, not answered by NVML"
    assert value(found["gpu.present", "node01/gpu4"]) == "on the bus and answered by NVML"
    vbios = found["gpu.vbios", "node01/gpu3"]
    assert isinstance(vbios, Problem)
    assert "GPU 3 is missing from NVML" in vbios.says


def test_gpu_lost_after_its_address_was_read(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """A GPU that is lost between two calls keeps its address: it is lost by bus address, not by index."""
    values = stand_in.healthy(2) | {"gpu.1.error.temperature": "15"}
    document = nvml_doc(agent("nvml", libraries=driver, values=values))
    assert document.lost == {stand_in.bdf(1): "GpuIsLost"}
    assert [gpu.uuid for gpu in document.gpus if gpu.bdf in document.lost] == [
        "GPU-00000000-0000-4000-8000-000000000001"
    ]


def test_each_error_stands_under_its_field(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """One failing call costs one field: its error is named there, and all others are read."""
    values = stand_in.healthy(1) | {"gpu.0.error.ecc": "4", "gpu.0.inforom.valid": "0"}
    gpu = nvml_doc(agent("nvml", libraries=driver, values=values)).gpus[0]
    assert (gpu.ecc_current, gpu.errors["ecc_current"], gpu.errors["ecc_pending"]) == (
        None,
        "NoPermission",
        "NoPermission",
    )
    assert gpu.inforom_valid is False
    assert gpu.vbios == "96.00.A5.00.01"


def test_old_driver_lacks_functions(agent: Agent, old_driver: Path, stand_in: ModuleType) -> None:
    """On a driver without the newer functions the older ones are used, and what is left is FunctionNotFound by name."""
    values = stand_in.healthy(2) | {"gpu.1.process.0": "4194000:1073741824"}
    document = nvml_doc(agent("nvml", libraries=old_driver, values=values))
    gpu = document.gpus[1]
    assert (gpu.clock_event_reasons, gpu.temperature_gpu_c) == (1, 32)
    assert gpu.processes is not None
    assert [(process.pid, process.used_mib) for process in gpu.processes] == [(4194000, 1024)]
    missing = {field for field, error in gpu.errors.items() if error == "FunctionNotFound"}
    assert missing == {
        "module_id", "gsp_version", "temperature_margin_c", "fabric_state", "fabric_status", "fabric_health_mask",
    }  # fmt: skip


def test_fabric_structure_falls_back(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """A driver that knows only the second version of the fabric structure is asked for that one."""
    values = stand_in.healthy(1) | {"gpu.0.fabric.newest": "2", "gpu.0.fabric.state": "2"}
    gpu = nvml_doc(agent("nvml", libraries=driver, values=values)).gpus[0]
    assert gpu.fabric_state == 2
    assert "fabric_state" not in gpu.errors


def test_nvlink_that_ends_at_a_gpu(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """A direct NVLink names the GPU at its far end."""
    values = stand_in.healthy(2) | {"gpu.0.nvlink.4.remote": "0", "gpu.0.nvlink.4.remote.busid": "00000000:29:00.0"}
    link = nvml_doc(agent("nvml", libraries=driver, values=values)).gpus[0].nvlinks[4]
    assert (link.remote, link.remote_bdf) == ("gpu", "0000:29:00.0")


def test_no_library_at_all(agent: Agent, tmp_path: Path) -> None:
    """Without libnvidia-ml the document says so in one line, the exit code is 0, and nothing is a verdict."""
    result = agent("nvml", libraries=tmp_path)
    assert result.exit_code == 0
    assert "LibraryNotFound" in nvml_doc(result).problem
    assert all(isinstance(answer, Problem) for answer in answers(result, ["0000:19:00.0"]).values())


@pytest.mark.parametrize(
    ("code", "name"), [("18", "LibRmVersionMismatch"), ("9", "DriverNotLoaded"), ("999", "Unknown")]
)
def test_nvml_refuses_to_start(agent: Agent, driver: Path, stand_in: ModuleType, code: str, name: str) -> None:
    """An NVML that does not start is a problem with NVML's own name for it, and one line."""
    problem = nvml_doc(agent("nvml", libraries=driver, values=stand_in.healthy(1) | {"init_error": code})).problem
    assert name in problem
    assert "\n" not in problem


def test_hanging_nvml_is_cut_off(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """An NVML that never returns costs the deadline, and the error says how long that was."""
    result = agent("nvml", libraries=driver, values=stand_in.healthy(1) | {"hang": "1"}, timeout_s=2.0)
    assert result.timed_out
    with pytest.raises(ToolError, match="within 2 s, found none"):
        nvml_doc(result)


def test_library_that_prints_cannot_spoil_the_document(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """What a library writes to file descriptor 1 lands on stderr; stdout is one line of JSON."""
    values = stand_in.healthy(1) | {"chatter": "{ NVRM: garbage from a library"}
    result = agent("nvml", libraries=driver, values=values)
    assert len(nvml_doc(result).gpus) == 1
    assert result.stdout.count("\n") == 1
    assert result.stderr.count("garbage from a library") == 2


def test_recorded_pair_of_h200_reads_healthy(agent: Agent, driver: Path, stand_in: ModuleType) -> None:
    """What two H200 answered (recorded) reads as the values of a healthy pair, through the stand-in."""
    values = stand_in.from_recorded(json.loads(RECORDED.read_text(encoding="utf-8")))
    result = agent("nvml", libraries=driver, values=values)
    document = nvml_doc(result)
    bdfs = [gpu.bdf for gpu in document.gpus]
    found = answers(result, bdfs)
    wanted = {
        "gpu.pci_id": "10de:2335",
        "gpu.memory.total": 143771,
        "ecc.mode": "enabled",
        "mig.mode": "disabled",
        "compute.mode": "default",
        "recovery.action": "none",
        "power.limit.below_default": 0,
        "power.limit.default": 700,
        "clock.event_reasons": "none but benign",
        "temperature.gpu.margin": 57,
        "temperature.memory.margin": 62,
        "nvlink.links.active": 18,
        "nvlink.version": "4.0",
        "nvlink.speed": 26562,
        "nvlink.errors": 0,
        "nvlink.topology": 18,
    }
    assert {metric: value(found[metric, "node01/gpu1"]) for metric in wanted} == wanted
    assert document.gpus[0].virtualization_mode == 1
