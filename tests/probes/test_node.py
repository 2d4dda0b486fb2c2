"""What the node probe says about kernel log, settings and unexpected GPUs, from documents made by hand."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_gpuready.model import Command, CommandResult, Gpu, Inventory, Measurement, Node, Part, Problem, Slot, Value
from pytest_gpuready.model.agent_doc import KernelLog, LogLine, NcclConf, NodeDoc, PciBridge, PciGpu, PciLink, encode
from pytest_gpuready.probes.environment import BENIGN
from pytest_gpuready.probes.node import NodeProbe

NODE = Node(
    name="node01",
    slots=tuple(
        Slot(part=Part(node="node01", index=i), gpu=Gpu(bdf=bdf, on_bus=True))
        for i, bdf in enumerate(("0000:19:00.0", "0000:91:00.0"))
    ),
)
Found = dict[tuple[str, str], Measurement | Problem]


def log(*texts: str, complete: bool = True) -> KernelLog:
    kept = [LogLine(t=10.0 + i, text=text) for i, text in enumerate(texts)]
    return KernelLog(source="/dev/kmsg", complete=complete, total_lines=900, lines=kept)


def read(
    kernel_log: KernelLog | None = None, *, of: Node = NODE, allowed: dict[str, str] | None = None, **said: object
) -> Found:
    fields: dict[str, object] = {
        "hostname": "node01",
        "kernel": "6.8.0",
        "kernel_log": kernel_log or log(),
        "gpus": [
            PciGpu(bdf=bdf, pci_id="10de:2335", link=PciLink(), path=[PciBridge(bdf=port, link=PciLink())])
            for bdf, port in (("0000:19:00.0", "0000:17:00.0"), ("0000:91:00.0", "0000:90:01.0"))
        ],
        **said,
    }
    document = NodeDoc(**fields)  # type: ignore[arg-type]
    return answers(encode(probe="node", host="node01", boot_id="0-1", data=document).decode(), of, allowed or {})


def answers(stdout: str, of: Node = NODE, allowed: dict[str, str] | None = None) -> Found:
    probe = NodeProbe(allowed or {})
    command = Command(node="node01", argv=("python", "-m", "pytest_gpuready.agent", "node"), timeout_s=60.0)
    result = CommandResult(
        command=command, exit_code=0, stdout=stdout, stderr="", started="2026-12-01T00:00:00Z", duration_s=0.2
    )
    found = probe.read(Inventory(nodes=(of,)), of, of.part, [result])
    return {(answer.metric, answer.part): answer for answer in found}


def value(found: Found, metric: str, part: str = "node01") -> Value:
    answer = found[metric, part]
    assert isinstance(answer, Measurement), answer
    return answer.value


def test_quiet_node() -> None:
    """With a complete log and nothing in it every metric is measured and as the profile asks for."""
    found = read()
    assert value(found, "nouveau.loaded") == "not loaded"
    zeros = {(a.metric, a.part): a.value for a in found.values() if isinstance(a, Measurement)}
    assert len(zeros) == len(found) == 3 * 2 + 6
    assert {v for (metric, _), v in zeros.items() if metric != "nouveau.loaded"} == {0}


def test_xids_are_placed_on_their_gpu() -> None:
    """Hardware and application Xids count on the GPU of their address and nowhere else."""
    found = read(
        log(
            "NVRM: Xid (PCI:0000:91:00): 119, pid=1, name=nvidia-smi, Timeout after 6s of waiting",
            "NVRM: Xid (PCI:0000:91:00): 119, pid=1, name=nvidia-smi, Timeout after 6s of waiting",
            "NVRM: Xid (PCI:0000:19:00): 31, pid=2, name=python3, MMU Fault",
            "NVRM: Xid (PCI:0000:91:00): 154, GPU recovery action changed from 0x0 to 0x1",
        )
    )
    assert [value(found, "xid.hardware", f"node01/gpu{i}") for i in range(2)] == [0, 2]
    assert [value(found, "xid.application", f"node01/gpu{i}") for i in range(2)] == [1, 0]
    answer = found["xid.hardware", "node01/gpu1"]
    assert isinstance(answer, Measurement)
    assert "Xid 119 GSP time-out on 0000:91:00.0 x2 at 10.0 s" in answer.detail
    assert "also noted: Xid 154" in answer.detail
    assert value(found, "xid.unplaced") == 0


def test_xid_on_an_unknown_address_does_not_vanish() -> None:
    """A hardware Xid of a GPU that nobody expects, or that is gone, counts on the node."""
    found = read(log("NVRM: Xid (PCI:0000:dd:00): 79, pid=1, name=x, GPU has fallen off the bus."))
    assert value(found, "xid.unplaced") == 1
    assert value(found, "xid.hardware", "node01/gpu0") == 0


def test_a_gpu_that_the_driver_could_not_start() -> None:
    """It is a hardware event of that GPU in words of its own; on an address that nobody has it counts on the node."""
    found = read(log("NVRM: GPU 0000:91:00.0: RmInitAdapter failed! (0x24:0xffff:1436)"))
    answer = found["xid.hardware", "node01/gpu1"]
    assert isinstance(answer, Measurement)
    assert (answer.value, answer.detail) == (1, "GPU initialisation failed on 0000:91:00.0 at 10.0 s")
    assert value(found, "xid.unplaced") == 0
    assert value(read(log("NVRM: rm_init_adapter failed, device minor number 0")), "xid.unplaced") == 1


def test_an_uncorrected_pcie_error_is_the_gpus_below_it() -> None:
    """An error of the port above a GPU counts on that GPU and on no other."""
    found = read(log("pcieport 0000:90:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer"))
    assert [value(found, "pcie.log.uncorrected", f"node01/gpu{i}") for i in range(2)] == [0, 1]


def test_log_without_its_beginning_proves_nothing() -> None:
    """No Xid in a log that lost its beginning is not measured; an Xid in it counts all the same."""
    found = read(log("NVRM: Xid (PCI:0000:91:00): 48, pid=1, name=x, DBE", complete=False))
    assert value(found, "xid.hardware", "node01/gpu1") == 1
    for key in (("xid.hardware", "node01/gpu0"), ("xid.unplaced", "node01"), ("sxid.fatal", "node01")):
        answer = found[key]
        assert isinstance(answer, Problem)
        assert "without their beginning" in answer.says
    assert value(found, "nouveau.loaded") == "not loaded"


def test_an_empty_log_is_not_believed() -> None:
    """A log that calls itself complete and counts no line proves nothing: every kernel writes some."""
    found = read(KernelLog(source="/dev/kmsg", complete=True, total_lines=0))
    for key in (("xid.hardware", "node01/gpu0"), ("xid.unplaced", "node01"), ("sxid.fatal", "node01")):
        answer = found[key]
        assert isinstance(answer, Problem)
        assert "found 0 lines from /dev/kmsg" in answer.says


def test_unreadable_log_says_why() -> None:
    """A log that could not be read makes every Xid and SXid metric a problem with the reason in it."""
    found = read(KernelLog(problem="/dev/kmsg: Operation not permitted; run as root"))
    unmeasured = {answer.metric for answer in found.values() if isinstance(answer, Problem)}
    assert unmeasured == {
        *("xid.hardware", "xid.application", "xid.unplaced", "sxid.fatal", "sxid.nonfatal"),
        "pcie.log.uncorrected",
    }
    answer = found["xid.hardware", "node01/gpu0"]
    assert isinstance(answer, Problem)
    assert "run as root" in answer.says


def test_expected_gpu_without_an_address() -> None:
    """A slot of which nobody knows the address has no Xids that could be its own: not measured, never 0."""
    unknown = dataclasses.replace(NODE, slots=(*NODE.slots, Slot(part=Part(node="node01", index=2))))
    assert isinstance(read(of=unknown)["xid.hardware", "node01/gpu2"], Problem)


def test_sxids_are_the_switches_own() -> None:
    """Fatal and non-fatal SXids count on the node, and no GPU has an Xid."""
    found = read(
        log(
            "nvidia-nvswitch3: SXid (PCI:0000:91:00.0): 12028, Non-fatal, Link 44 egress error (First)",
            "nvidia-nvswitch3: SXid (PCI:0000:91:00.0): 12028, Severity 0 Engine instance 44",
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        )
    )
    assert (value(found, "sxid.fatal"), value(found, "sxid.nonfatal")) == (1, 1)
    assert value(found, "xid.hardware", "node01/gpu1") == 0


def test_foreign_settings_are_listed() -> None:
    """Settings that bend measurements are counted and shown with values; labels, paths and other libraries' are not."""
    said = {"NCCL_ALGO": "Ring", "CUDA_HOME": "/usr/local/cuda", "NCCL_VERSION": "2.28.9", "CUDA_PKG_X": "1"}
    conf = [NcclConf(path="/etc/nccl.conf", settings=["NCCL_IB_HCA=mlx5_0", "NVSHMEM_X=(not shown)"])]
    answer = read(environment=said, nccl_conf=conf)["environment.foreign", "node01"]
    assert isinstance(answer, Measurement)
    assert (answer.value, answer.detail) == (2, "NCCL_ALGO=Ring; NCCL_IB_HCA=mlx5_0 in /etc/nccl.conf")


def test_labels_of_container_images_are_not_foreign() -> None:
    """Labels and paths that images carry bend nothing; lazy loading of modules bends timing and stays foreign."""
    labels = ("CUDA_DRIVER_VERSION", "CUDA_ARCH_LIST", "CUDA_COMPONENT_LIST", "NCCL_HOME")
    assert value(read(environment=dict.fromkeys(labels, "x")), "environment.foreign") == 0
    assert value(read(environment={"CUDA_MODULE_LOADING": "LAZY"}), "environment.foreign") == 1


@pytest.mark.parametrize(
    ("devices", "count"), [("0,1", 0), ("0,1,2,3", 0), ("0", 1), ("1,0", 1), ("", 1), ("0,1,", 1), ("0, 1", 1)]
)
def test_a_list_of_all_gpus_in_order_hides_none(devices: str, count: int) -> None:
    """What a scheduler sets for a whole node changes nothing; a list that leaves out or reorders GPUs does."""
    found = read(environment={"CUDA_VISIBLE_DEVICES": devices})
    assert value(found, "environment.foreign") == count


@pytest.mark.parametrize(("allowed", "count"), [("Ring", 0), ("Tree", 1), ("", 1)])
def test_allowed_by_name_and_exact_value(allowed: str, count: int) -> None:
    """A setting is allowed with the value that the site file names, and with no other."""
    found = read(environment={"NCCL_ALGO": "Ring"}, allowed={"NCCL_ALGO": allowed})
    assert value(found, "environment.foreign") == count


def test_each_benign_setting_says_why() -> None:
    """The table of benign settings holds a reason for every entry."""
    assert all(reason.strip() for reason in BENIGN.values())


def test_nouveau_and_unexpected_gpus() -> None:
    """A loaded nouveau has its word, and GPUs that nobody expects are counted with their addresses."""
    more = dataclasses.replace(NODE, extra_gpus=("0000:dd:00.0",))
    found = read(of=more, nouveau=True)
    assert value(found, "nouveau.loaded") == "loaded"
    answer = found["gpu.unexpected", "node01"]
    assert isinstance(answer, Measurement)
    assert (answer.value, answer.detail) == (1, "0000:dd:00.0")


def test_no_pci_bus_is_no_count_of_unexpected_gpus() -> None:
    """In a sandbox that hides the PCI bus nobody can say that no GPU is too many."""
    assert isinstance(read(pci_visible=False)["gpu.unexpected", "node01"], Problem)


def test_broken_agent_is_a_problem_for_every_metric() -> None:
    """Garbage instead of a document leaves no metric of no part without an answer."""
    found = answers("bash: python: command not found")
    assert {answer.metric for answer in found.values()} == set(NodeProbe.metrics)
    assert all(isinstance(answer, Problem) for answer in found.values())
