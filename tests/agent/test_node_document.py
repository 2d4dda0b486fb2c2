"""The probe "node" on trees that stand for machines, and as a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuready.agent.machine import container, virtual
from pytest_gpuready.agent.node import node
from pytest_gpuready.agent.pci import gpus, visible
from pytest_gpuready.model import CommandResult
from pytest_gpuready.model.agent_doc import KernelLog
from pytest_gpuready.parse.agent import envelope, node_doc

Agent = Callable[..., CommandResult]


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def device(root: Path, path: str, **attributes: str) -> None:
    """A PCI device at its place under /sys/devices, and its link under /sys/bus/pci/devices."""
    real = root / "sys/devices" / path
    put(real, {name: f"{text}\n" for name, text in attributes.items()})
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / real.name).symlink_to(real)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A host with one GPU behind a switch, an NVSwitch, an audio function and a network card."""
    link = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    width = {"current_link_width": "16", "max_link_width": "16"}
    nvidia = {"vendor": "0x10de", "device": "0x2335"}
    port = "pci0000:15/0000:15:01.0"
    device(
        tmp_path, port, vendor="0x8086", **{"class": "0x060400"}, **link, current_link_width="8", max_link_width="16"
    )
    switch = f"{port}/0000:16:00.0/0000:17:02.0"
    device(tmp_path, f"{port}/0000:16:00.0", vendor="0x1000", **{"class": "0x060400"}, **link, **width)
    device(tmp_path, switch, vendor="0x1000", **{"class": "0x060400"}, **link, **width)
    device(tmp_path, f"{switch}/0000:19:00.0", **nvidia, **{"class": "0x030200"}, **link, **width, numa_node="1")
    device(tmp_path, f"{switch}/0000:19:00.1", vendor="0x10de", device="0x22ba", **{"class": "0x040300"})
    device(tmp_path, "pci0000:15/0000:15:03.0", vendor="0x10de", device="0x22a3", **{"class": "0x068000"})
    device(tmp_path, "pci0000:15/0000:15:05.0", vendor="0x15b3", device="0x1021", **{"class": "0x020700"})
    return put(
        tmp_path,
        {
            "proc/version": "Linux version 6.8.0-generic\n",
            "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme de\n",
            "proc/meminfo": "MemTotal:       2113404928 kB\n",
            "proc/modules": "nvidia 9719808 42 nvidia_uvm, Live 0x0\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Rel\n",
            "proc/sys/kernel/osrelease": "6.8.0-generic\n",
            "sys/class/dmi/id/sys_vendor": "Supermicro\n",
            "sys/class/dmi/id/product_name": "SYS-821GE\n",
            "dev/nvidia0": "",
            "dev/nvidiactl": "",
            "dev/null": "",
        },
    )


def test_only_gpus_count_as_gpus(tree: Path) -> None:
    """NVIDIA display functions are GPUs; its audio functions, NVSwitches and other vendors' cards are not."""
    (gpu,) = gpus(tree / "sys")
    assert (gpu.bdf, gpu.pci_id, gpu.numa_node) == ("0000:19:00.0", "10de:2335", 1)
    assert (gpu.link.speed_gt_per_s, gpu.link.width) == (32.0, 16)


def test_path_runs_up_to_the_root_port(tree: Path) -> None:
    """Bridges come nearest first and end at the root port, whose narrow link is seen."""
    (gpu,) = gpus(tree / "sys")
    assert [bridge.bdf for bridge in gpu.path] == ["0000:17:02.0", "0000:16:00.0", "0000:15:01.0"]
    assert [bridge.link.width for bridge in gpu.path] == [16, 16, 8]


def test_unknown_link_is_no_number(tree: Path) -> None:
    """A GPU that fell off the bus says Unknown; that is None, not 0."""
    folder = tree / "sys/bus/pci/devices/0000:19:00.0"
    (folder / "current_link_speed").write_text("Unknown\n", encoding="ascii")
    (folder / "max_link_width").unlink()
    (gpu,) = gpus(tree / "sys")
    assert (gpu.link.speed_gt_per_s, gpu.link.width_max) == (None, None)


def test_sandbox_without_a_pci_bus(tmp_path: Path) -> None:
    """Where sysfs shows no PCI device nothing is claimed about GPUs: the bus is not visible."""
    assert not visible(tmp_path / "sys")
    assert gpus(tmp_path / "sys") == []


def test_whole_document_of_a_host(tree: Path) -> None:
    """Driver module, device nodes, vendor, memory and settings of one bare-metal host."""
    environment = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "SECRET_TOKEN": "x", "HOME": str(tree / "home")}
    put(tree, {"etc/nccl.conf": "# site\nNCCL_IB_HCA = mlx5_0\nTOKEN=abc\n", "home/.nccl.conf": "NCCL_ALGO=Ring\n"})
    document = node(tree, environment, KernelLog(source="tree", complete=True))
    assert (document.system_vendor, document.system_product, document.virtual) == ("Supermicro", "SYS-821GE", "")
    assert (document.driver_module, document.nouveau, document.memory_mib) == ("580.95.05", False, 2063872)
    assert document.nvidia_devices == ["/dev/nvidia0", "/dev/nvidiactl"]
    assert document.environment == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO"}
    assert [file.settings for file in document.nccl_conf] == [
        ["NCCL_IB_HCA=mlx5_0", "TOKEN=(not shown)"],
        ["NCCL_ALGO=Ring"],
    ]


def test_long_values_are_cut(tree: Path) -> None:
    """A variable of any length or bytes ends as 200 characters that JSON can carry."""
    environment = {"NCCL_TOPO_FILE": "x" * 5000, "CUDA_ODD": "\udcff"}
    document = node(tree, environment, KernelLog())
    assert document.environment == {"NCCL_TOPO_FILE": "x" * 200, "CUDA_ODD": "?"}


def test_nouveau_is_seen(tree: Path) -> None:
    """A loaded nouveau module is found by its own name, not by a substring."""
    put(tree, {"proc/modules": "nouveau 2777088 0 - Live 0x0\n"})
    assert node(tree, {}, KernelLog()).nouveau
    put(tree, {"proc/modules": "mxm_nouveau_like 1 0 - Live 0x0\n"})
    assert not node(tree, {}, KernelLog()).nouveau


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"proc/cpuinfo": "flags\t: fpu hypervisor sse\n"}, "a hypervisor (CPU flag)"),
        ({"proc/cpuinfo": "flags\t: fpu hypervisor\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm (QEMU)"),
        ({"proc/cpuinfo": "flags\t: hypervisor\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "kvm (Amazon EC2)"),
        ({"proc/cpuinfo": "flags\t: fpu\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, ""),
        ({"proc/cpuinfo": "Features\t: fp asimd\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm (QEMU)"),
        ({"proc/version": "Linux version 4.4.0 gVisor\n"}, "gVisor"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/cpuinfo": "flags\t: fpu\n", "sys/class/dmi/id/sys_vendor": "NVIDIA\n"}, ""),
    ],
)
def test_virtual_machine(tmp_path: Path, files: dict[str, str], said: str) -> None:
    """The CPU flag decides, DMI names; a bare-metal cloud instance is no virtual machine, a microVM without DMI is."""
    put(tmp_path, files)
    assert virtual(tmp_path / "proc", tmp_path / "sys") == said


@pytest.mark.parametrize(
    ("files", "environment", "said"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/1/cgroup": "0::/system.slice/docker-0a.scope\n"}, {}, "docker"),
        ({"proc/1/cgroup": "0::/init.scope\n"}, {}, ""),
    ],
)
def test_container(tmp_path: Path, files: dict[str, str], environment: dict[str, str], said: str) -> None:
    """A container is recognised by the marks its runtime leaves."""
    assert container(put(tmp_path, files), environment) == said


def test_process_prints_one_line(agent: Agent) -> None:
    """The real process prints one envelope that says host and boot, and nothing else."""
    result = agent("node", environment={"NCCL_DEBUG": "WARN"})
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    assert node_doc(result).environment == {"NCCL_DEBUG": "WARN"}
    assert envelope(result, "node").boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("words", [(), ("gemm",), ("node", "0000:19:00.0"), ("copies",)])
def test_wrong_call_is_one_line(agent: Agent, words: tuple[str, ...]) -> None:
    """A probe that the agent does not have, or wrong arguments, are exit code 2 and one line on stderr."""
    result = agent(*words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "expected 'node', 'nvml'" in result.stderr
