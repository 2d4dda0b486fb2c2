"""nvidia-smi audited: each case to its right reading, real outputs healthy, kinds of trouble told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.audit.readers import readers
from pytest_gpuready.audit.report import Finding
from tests.audit.case_reading import (
    CASES,
    case,
    check_case,
    damaged,
    every_cut,
    findings,
    outcome,
    read_case,
    read_text,
    survives,
    suspects,
    values,
)

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "nvidia-smi" / "580.159.04"
HEADER = "index, name, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, pstate\n"


def by_part(found: tuple[Finding, ...] | list[Finding], metric: str) -> dict[str, str]:
    return {f.part: f.outcome for f in found if f.metric == metric}


def one(found: tuple[Finding, ...] | list[Finding], metric: str) -> Finding:
    (finding,) = (f for f in found if f.metric == metric)
    return finding


def smi(tmp_path: Path, text: str, expect: dict[str, Any] | None = None, **more: Any) -> tuple[Finding, ...]:
    return read_text(tmp_path, "nvidia-smi", text, expect or {}, **more).findings


def log(*gpus: str, attached: int | None = None) -> str:
    """A `-q` text of GPUs, each given by its indented body."""
    head = f"==============NVSMI LOG==============\n\nAttached GPUs   : {len(gpus) if attached is None else attached}\n"
    return head + "".join(f"GPU 00000000:{16 + n:02X}:00.0\n{body}" for n, body in enumerate(gpus))


def test_a_lost_gpu_is_named_by_its_address() -> None:
    """Case 031: both wordings name the GPU; nothing else is listed and that is no count of 0."""
    found = check_case("031")
    assert values(found, "inventory.gpu_count") == ["0000:9b:00.0", "0000:9b:00.0"]
    assert "GPU at 0000:9b:00.0 (fallen off the bus): check dmesg for Xid 79, power and seating" in suspects(found)
    assert 0 not in values(found, "inventory.gpu_count")


def test_a_mismatch_of_driver_and_library() -> None:
    """Case 032: consistency fails, the inventory is not measured, and both versions are there as printed."""
    found = check_case("032")
    assert values(found, "software.library_version") == ["570.211"]
    assert values(found, "software.kernel_module") == ["570.172.08"]
    assert "host software: driver packages upgraded without reboot" in suspects(found)
    assert [f for f in found if f.metric == "inventory.gpu_count" and f.outcome == "fail"] == []


def test_a_gpu_that_requires_a_reset_is_listed_and_unusable() -> None:
    """Case 033: four GPUs, one of them with words where numbers belong, and its ECC errors are not 0."""
    found = check_case("033")
    assert one(found, "inventory.gpu_count").value == 4
    assert one(found, "gpu.needs_reset").value == [2]
    assert "GPU 2: needs a reset or power cycle" in suspects(found)
    assert by_part(found, "gpu.ecc") == {f"GPU {n}": "not-measured" if n == 2 else "pass" for n in range(4)}


def test_a_sleeping_link_is_not_measured() -> None:
    """Case 034: width counts while idle, generation does not; a better host is no shortfall."""
    found = check_case("034")
    assert values(found, "pcie.speed") == [1] * 4
    assert values(found, "pcie.gen_max") == values(found, "pcie.gen_gpumax") == [4] * 4
    assert values(found, "pcie.gen_hostmax") == [5] * 3
    assert values(found, "pcie.width") == [16] * 4
    assert values(found, "gpu.idle") == ["true"] * 4


def test_a_fabric_in_progress() -> None:
    """Case 037: listed GPUs, no fabric, and CUDA's 802 is the same cause."""
    found = check_case("037")
    assert values(found, "fabric.state") == ["In Progress", "In Progress"]
    assert values(found, "cuda.init") == [802]
    assert "nvidia-fabricmanager service" in suspects(found)


def test_the_newest_xml_layout() -> None:
    """Case 039: split SRAM counters are summed, the instant power is the power, None is a recovery action."""
    found = check_case("039")
    assert one(found, "gpu.ecc").value == 0
    assert one(found, "gpu.health").value == "None"
    assert one(found, "gpu.power").value == 41.07
    assert one(found, "gpu.row_remap").value == "pending No, failure No"
    assert one(found, "gpu.model").value == "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    assert not values(found, "pcie.gen_hostmax")


def test_a_healthy_mesh_with_escapes_and_tabs() -> None:
    """Case 040: eight GPUs, eight cards by their names, NUMA nodes."""
    found = check_case("040")
    assert one(found, "inventory.gpu_count").value == one(found, "inventory.nic_count").value == 8
    assert one(found, "topo.nvlinks_per_pair").value == 18
    nearest = {f.part: f.value for f in found if f.metric == "topo.nearest_nic"}
    assert (nearest["GPU 0"], nearest["GPU 7"]) == ("mlx5_0", "mlx5_7")
    numa = {f.part: f.value for f in found if f.metric == "topo.numa"}
    assert (numa["GPU 0"], numa["GPU 7"]) == (0, 1)


def test_one_gpu_off_the_fabric_is_one_fault() -> None:
    """Case 041: fourteen bad cells, seven bad pairs, one GPU."""
    found = check_case("041")
    bad = [f for f in found if f.outcome == "fail"]
    assert [(f.metric, f.part, f.value) for f in bad] == [("topo.nvlink_mesh", "GPU 2", 7)]
    assert "NV18" in bad[0].expected
    assert one(found, "topo.off_fabric").value == [2]
    assert "GPU 2 or its NVLink/NVSwitch ports; fabric registration of GPU 2" in suspects(found)


def test_bridged_pairs() -> None:
    """Case 042: only the pairs that were asked for need a link."""
    found = check_case("042")
    assert one(found, "topo.nvlink_pairs").value == ["0-1", "2-3"]
    assert one(found, "topo.nvlinks_per_pair").value == 12


def test_no_nvlink_and_none_expected() -> None:
    """Case 044: not applicable as a whole; the same text fails where links are expected."""
    found = check_case("044")
    assert values(found, "nvlink.status") == [0, 0]
    text = (CASES / "044" / "nvlink.txt").read_text()
    reading = readers_read("nvidia-smi-nvlink", text, {"expected_nvlinks_per_gpu": 18})
    assert {f.outcome for f in reading if f.metric == "nvlink.status"} == {"fail"}


def readers_read(tool: str, text: str, expect: dict[str, Any]) -> tuple[Finding, ...]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return read_text(Path(folder), tool, text, expect).findings


def test_inactive_links_are_counted_not_summed() -> None:
    """Case 046: sixteen of eighteen, and which two."""
    found = check_case("046")
    assert {f.part: f.value for f in found if f.metric == "nvlink.status"} == {"GPU 0": 18, "GPU 1": 16}
    assert one(found, "nvlink.inactive").value == [4, 13]
    assert set(values(found, "nvlink.rate")) == {26.562}
    assert "GPU 1 NVLinks 4 and 13 (baseboard trace, NVSwitch port or GPU)" in suspects(found)


def test_error_counters_by_link() -> None:
    """Case 047: recoveries fail, replays stay below their limit, each at its link."""
    found = check_case("047")
    by_link = {(f.metric, f.part): f.value for f in found}
    assert by_link["nvlink.recovery_errors", "GPU 1 link 7"] == 3
    assert by_link["nvlink.replay_errors", "GPU 1 link 9"] == 12
    assert by_link["nvlink.recovery_errors", "GPU 0"] == by_link["nvlink.replay_errors", "GPU 0"] == 0
    assert suspects(found) == "GPU 1 NVLink 7"


@pytest.mark.parametrize("name", ["h200x1/nvidia-smi-q.xml", "h200x2/nvidia-smi-q.xml", "h200x2/nvidia-smi-q.txt"])
def test_real_outputs_of_healthy_gpus_pass(tmp_path: Path, name: str) -> None:
    """Recorded on H200: all counters, clocks, links and limits pass; what the driver does not show is not passed."""
    count = 1 if "h200x1" in name else 2
    expect = {
        "expected_gpus": count,
        "expected_pcie_gen": 5,
        "expected_pcie_width": 16,
        "expected_model": "NVIDIA H200",
    }
    reading = read_text(tmp_path, "nvidia-smi", (RECORDED / name).read_text(), {**expect, "expected_mig": "Disabled"})
    assert outcome(reading) == "pass"
    assert reading.tool_version == "580.159.04"
    for metric in ("gpu.ecc", "gpu.row_remap", "gpu.clocks", "pcie.width", "pcie.speed", "gpu.mig", "gpu.power_limit"):
        assert set(by_part(reading.findings, metric).values()) == {"pass"}, metric
    fabric = set(by_part(smi(tmp_path, (RECORDED / name).read_text(), {"nvswitch": True}), "fabric.state").values())
    assert fabric == {"not-measured" if count == 1 else "pass"}


def test_text_and_xml_of_one_machine_say_the_same() -> None:
    """The two layouts come to the same names and values, but for what changed between the two calls."""
    from pytest_gpuready.parse.smi_q import smi_q
    from pytest_gpuready.parse.smi_xml import smi_xml

    text = smi_q((RECORDED / "h200x2/nvidia-smi-q.txt").read_text().splitlines())
    xml = smi_xml((RECORDED / "h200x2/nvidia-smi-q.xml").read_text().splitlines())
    assert [g.bdf for g in text.gpus] == [g.bdf for g in xml.gpus] == ["0000:00:06.0", "0000:00:07.0"]
    for a, b in zip(text.gpus, xml.gpus, strict=True):
        assert set(a.cells) == set(b.cells)
        differ = {name for name in a.cells if a.cells[name].text != b.cells[name].text}
        assert a.cells["pci.device_id"].text == f"0x{b.cells['pci.device_id'].text}"
        differ -= {"pci.device_id"}
        assert all(name.startswith(("power.draw", "temperature", "utilization")) for name in differ)


def test_a_terminal_log_with_several_outputs(tmp_path: Path) -> None:
    """Recorded: table, topology, status and half of the error counters in one file; each is read."""
    text = (RECORDED / "h200x2/nvidia-smi.txt").read_text()
    expect = {"expected_gpus": 2, "expected_nvlinks_per_gpu": 18, "expected_nvlinks_per_pair": 18}
    reading = read_text(tmp_path, "nvidia-smi", text, expect)
    assert outcome(reading) == "pass"
    assert values(list(reading.findings), "nvlink.status") == [18, 18]
    asked = read_text(tmp_path, "nvidia-smi", text, {**expect, "max_recovery_errors": 0})
    assert by_part(asked.findings, "nvlink.recovery_errors") == {"GPU 0": "not-measured", "GPU 1": "not-measured"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error", "0000:5f:00.0"),
        ("Unable to determine the device handle for gpu 0000:5F:00.0: GPU is lost.  Reboot the system to recover",
         "0000:5f:00.0"),
        ("Unable to determine the device handle for GPU2: Unknown Error", "2"),
        ("Unable to determine the device handle for GPU 00000000:5F:00.0: Not Found", "0000:5f:00.0"),
        ("GPU 3: 0000:5F:00.0: GPU is lost. Reboot the system to recover this GPU", "0000:5f:00.0"),
    ],
)  # fmt: skip
def test_wordings_of_a_lost_gpu(tmp_path: Path, line: str, name: str) -> None:
    """Every wording names the GPU, also before the rows of those that still answer."""
    rows = "".join(f"{n}, NVIDIA H100 80GB HBM3\n" for n in range(8) if n != 3)
    found = smi(tmp_path, f"{line}\nindex, name\n{rows}", {"expected_gpus": 8}, exit_code=15)
    counts = [f for f in found if f.metric == "inventory.gpu_count"]
    assert [(f.value, f.outcome) for f in counts] == [(7, "fail"), (name, "fail")]


@pytest.mark.parametrize(
    ("text", "code", "metric", "result"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
         "NVIDIA driver is installed and running.\n", 9, "software.driver_loaded", "fail"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "software.nvml", "not-measured"),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4, "software.nvml", "not-measured"),
        ("No devices were found\n", 6, "inventory.gpu_count", "fail"),
        ("bash: nvidia-smi: command not found\n", 127, "smi.query", "not-measured"),
        ('Field "pcie.gen" is not a valid field to query.\n', 2, "smi.query", "not-measured"),
        ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", 14, "gpu.inforom", "fail"),
        ("CUDA error: no CUDA-capable device is detected\n", 1, "cuda.init", "fail"),
        ("cudaGetDeviceCount returned 803\n-> system has unsupported display driver / cuda driver combination\n", 1,
         "cuda.init", "fail"),
        ("Result = PASS\n", 0, "cuda.init", "pass"),
        ("", 137, "smi.exit", "not-measured"),
    ],
)  # fmt: skip
def test_sentences_instead_of_a_result(tmp_path: Path, text: str, code: int, metric: str, result: str) -> None:
    """Each sentence has its outcome, and never is the whole a pass where GPUs were asked for."""
    reading = read_text(tmp_path, "nvidia-smi", text, {"expected_gpus": 8}, exit_code=code, command="nvidia-smi")
    assert result in {f.outcome for f in reading.findings if f.metric == metric}
    assert outcome(reading) in ("fail", "not-measured")


@pytest.mark.parametrize(
    ("row", "expect", "result"),
    [
        ("0, NVIDIA H100 80GB HBM3, 5, 5, 16, 16, P0", {"expected_pcie_gen": 5}, "pass"),
        ("0, NVIDIA H100 80GB HBM3, 1, 5, 16, 16, P0", {"expected_pcie_gen": 5}, "fail"),
        ("0, NVIDIA H100 80GB HBM3, 1, 5, 16, 16, P8", {"expected_pcie_gen": 5}, "not-measured"),
        ("0, NVIDIA H100 80GB HBM3, 1, 5, 16, 16, P8", {"expected_pcie_gen": 5, "under_load": True}, "not-measured"),
        ("0, NVIDIA H100 80GB HBM3, 4, 4, 16, 16, P8", {"expected_pcie_gen": 5}, "fail"),
        ("0, NVIDIA H100 80GB HBM3, [N/A], [N/A], 16, 16, P0", {"expected_pcie_gen": 5}, "not-measured"),
        ("0, NVIDIA H100 80GB HBM3, 5, 5, 16, 16, P0", {"expected_pcie_gen": 4}, "pass"),
    ],
)
def test_generation_by_load(tmp_path: Path, row: str, expect: dict[str, Any], result: str) -> None:
    """A low generation fails awake, is not measured asleep, and a link that cannot reach it fails either way."""
    assert one(smi(tmp_path, f"{HEADER}{row}\n", expect), "pcie.speed").outcome == result


def test_samples_of_one_gpu_are_one_gpu(tmp_path: Path) -> None:
    """A loop prints the same GPU again and again: asleep first, awake later, and the later one settles the speed."""
    rows = "0, NVIDIA H100 80GB HBM3, 1, 5, 16, 16, P8\n0, NVIDIA H100 80GB HBM3, 5, 5, 16, 16, P0\n"
    found = smi(tmp_path, HEADER + rows, {"expected_gpus": 1, "expected_pcie_gen": 5})
    assert one(found, "inventory.gpu_count").outcome == one(found, "pcie.speed").outcome == "pass"
    slow = smi(tmp_path, HEADER + rows + "0, NVIDIA H100 80GB HBM3, 2, 5, 16, 16, P0\n", {"expected_pcie_gen": 5})
    assert one(slow, "pcie.speed").outcome == "fail"


def test_rows_without_a_header(tmp_path: Path) -> None:
    """With noheader the names come from the command; without a command the text is not read."""
    command = "nvidia-smi --query-gpu=index,name,mig.mode.current --format=csv,noheader"
    text = "0, NVIDIA H100 80GB HBM3, Enabled\n1, NVIDIA H100 80GB HBM3, Disabled\n"
    found = smi(tmp_path, text, {"expected_mig": "Disabled"}, command=command)
    assert by_part(found, "gpu.mig") == {"GPU 0": "fail", "GPU 1": "pass"}
    assert outcome(read_text(tmp_path, "nvidia-smi", text, {"expected_mig": "Disabled"})) == "not-measured"


@pytest.mark.parametrize(
    ("mask", "power", "load", "result"),
    [
        ("0x0000000000000000", "690.00", True, "pass"),
        ("0x0000000000000004", "690.00", True, "pass"),
        ("0x0000000000000004", "300.00", True, "fail"),
        ("0x0000000000000001", "70.00", True, "not-measured"),
        ("0x0000000000000001", "70.00", False, "pass"),
        ("0x0000000000000008", "400.00", True, "fail"),
        ("0x0000000000000020", "400.00", True, "fail"),
        ("0x0000000000000048", "400.00", True, "fail"),
        ("0x0000000000000080", "400.00", True, "fail"),
        ("0x0000000000000001", "[N/A]", True, "not-measured"),
        ("[N/A]", "690.00", True, None),
    ],
)
def test_reasons_for_lower_clocks(tmp_path: Path, mask: str, power: str, load: bool, result: str | None) -> None:
    """A power cap at the limit is normal, heat, brake and slowdown are not; idle under load is no measurement."""
    for word in ("clocks_throttle_reasons", "clocks_event_reasons"):
        text = f"index, {word}.active, power.draw [W], power.limit [W]\n0, {mask}, {power}, 700.00\n"
        found = [f for f in smi(tmp_path, text, {"under_load": load}) if f.metric == "gpu.clocks"]
        assert [f.outcome for f in found] == ([result] if result else [])


@pytest.mark.parametrize(
    ("body", "metric", "result"),
    [
        ("    Remapped Rows\n        Pending : Yes\n     Remapping Failure Occurred : No\n", "gpu.row_remap", "fail"),
        ("    Remapped Rows\n        Pending : No\n     Remapping Failure Occurred : Yes\n", "gpu.row_remap", "fail"),
        ("    Remapped Rows\n        Pending : No\n", "gpu.row_remap", "not-measured"),
        ("    Remapped Rows : N/A\n", "gpu.row_remap", None),
        ("    Retired Pages\n        Pending Page Blacklist : Yes\n", "gpu.retired_pages", "fail"),
        ("    ECC Errors\n        Volatile\n            SRAM Uncorrectable : 0\n            DRAM Uncorrectable : 2\n",
         "gpu.ecc", "fail"),
        ("    ECC Errors\n        Volatile\n            SRAM Uncorrectable : 0\n", "gpu.ecc", "observed"),
        ("    ECC Errors\n        Aggregate\n            DRAM Uncorrectable : 2\n", "gpu.ecc_aggregate", "observed"),
        ("    Ecc Errors\n        Volatile\n            Double Bit\n                Total : 1\n", "gpu.ecc", "fail"),
        ("    ECC Errors\n        Aggregate\n            SRAM Threshold Exceeded : Yes\n", "gpu.ecc", "fail"),
        ("    GPU Recovery Action : Reset\n", "gpu.health", "fail"),
        ("    GPU Recovery Action : Drain P2P\n", "gpu.health", "fail"),
        ("    GPU Reset Status\n        Reset Required : Yes\n", "gpu.health", "fail"),
        ("    Fabric\n        State : Completed\n        Status : Success\n", "fabric.state", "pass"),
        ("    Fabric\n        State : Completed\n        Status : Insufficient Resources\n", "fabric.state", "fail"),
        ("    Fabric\n        State : Not Started\n        Status : N/A\n", "fabric.state", "fail"),
        ("    Fabric\n        State : Completed\n        Status : Success\n        Health\n"
         "            Bandwidth : Degraded\n", "fabric.state", "fail"),
        ("    GPU Power Readings\n        Current Power Limit : 500.00 W\n        Default Power Limit : 700.00 W\n",
         "gpu.power_limit", "fail"),
        ("    Clocks Throttle Reasons\n        HW Slowdown : Active\n            HW Thermal Slowdown : Active\n",
         "gpu.clocks", "fail"),
        ("    Performance State : Unknown Error\n", "gpu.health", "fail"),
    ],
)  # fmt: skip
def test_what_a_gpu_says_of_itself(tmp_path: Path, body: str, metric: str, result: str | None) -> None:
    """Waiting or failed row remaps, new ECC errors, recovery actions, a fabric that is not up: each to its outcome."""
    found = [f.outcome for f in smi(tmp_path, log(body)) if f.metric == metric]
    assert found == ([result] if result else [])


def test_the_model_is_compared_whole(tmp_path: Path) -> None:
    """A longer name is another product; a name that the table cut is not measured."""
    name = "    Product Name    : NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition\n"
    for model, result in (
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "pass"),
        ("NVIDIA RTX PRO 6000 Blackwell", "fail"),
    ):
        assert one(smi(tmp_path, log(name), {"expected_model": model}), "gpu.model").outcome == result
    table = (RECORDED / "h200x2/nvidia-smi.txt").read_text().replace("NVIDIA H200    ", "NVIDIA A10...  ")
    found = smi(tmp_path, table, {"expected_model": "NVIDIA A100-SXM4-80GB"})
    assert set(by_part(found, "gpu.model").values()) == {"not-measured"}


def test_fewer_blocks_than_attached_gpus(tmp_path: Path) -> None:
    """A text that counts eight GPUs and shows two was cut; one that was asked for two of eight was not."""
    body = "    Product Name    : NVIDIA H100 80GB HBM3\n"
    cut = smi(tmp_path, log(body, body, attached=8), {"expected_gpus": 8})
    assert one(cut, "inventory.gpu_count").outcome == one(cut, "smi.complete").outcome == "not-measured"
    asked = smi(tmp_path, log(body, body, attached=8), {"expected_gpus": 8}, command="nvidia-smi -q -i 0,1")
    assert one(asked, "inventory.gpu_count").outcome == "pass"
    seven = smi(tmp_path, log(*[body] * 7), {"expected_gpus": 8})
    assert one(seven, "inventory.gpu_count").outcome == "fail"


def test_the_table_needs_its_last_line(tmp_path: Path) -> None:
    """Without the closed box of the processes the table was cut, and ERR! in a row is a GPU in trouble."""
    text = (RECORDED / "h200x2/nvidia-smi.txt").read_text()
    table = text[: text.index("\tGPU0")]
    assert outcome(read_text(tmp_path, "nvidia-smi", table, {"expected_gpus": 2})) == "pass"
    for cut in every_cut(table):
        if cut.strip() != table.strip():
            assert outcome(read_text(tmp_path, "nvidia-smi", cut, {"expected_gpus": 2})) != "pass"
    sick = table.replace("101W /  700W", "ERR! /  700W")
    assert by_part(smi(tmp_path, sick), "gpu.health") == {"GPU 1 0000:00:07.0": "fail"}


@pytest.mark.parametrize(
    ("prolog", "says"),
    [
        ('<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>', "without entities"),
        ('<!DOCTYPE nvidia_smi_log [\n<!ENTITY x SYSTEM "file:///etc/passwd">]>', "without entities"),
        ("<!DOCTYPE nvidia_smi_log [<!ENTITY % p SYSTEM 'http://127.0.0.1/x.dtd'> %p;]>", "without entities"),
    ],
)
def test_hostile_xml_is_refused(tmp_path: Path, prolog: str, says: str) -> None:
    """A document that declares entities is not read, whatever else it says."""
    body = "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id='00000000:01:00.0'></gpu></nvidia_smi_log>\n"
    found = smi(tmp_path, f'<?xml version="1.0" ?>\n{prolog}\n{body}', {"expected_gpus": 1})
    assert says in one(found, "smi.readable").suspect
    assert not any(f.outcome == "pass" for f in found)


def test_xml_cut_anywhere_never_passes(tmp_path: Path) -> None:
    """The end mark is missing in every cut, so none passes; what already failed stays failed."""
    text = (CASES / "039" / "nvidia-smi.xml").read_text()
    expect = {"expected_gpus": 1}
    for cut in every_cut(text):
        assert outcome(read_text(tmp_path, "nvidia-smi", cut, expect)) != "pass"
    sick = text.replace("<dram_uncorrectable>0", "<dram_uncorrectable>3")
    half = sick[: sick.index("<remapped_rows>")]
    assert outcome(read_text(tmp_path, "nvidia-smi", half, expect)) == "fail"


@pytest.mark.parametrize(
    ("text", "expect", "result"),
    [
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
         {"expected_nvlinks_per_gpu": 12}, "fail"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
         {}, "observed"),
        ("GPU 0: A (UUID: GPU-1)\n\t Link 0: 25.781 GB/s\n", {"expected_nvlinks_per_gpu": 12}, "not-measured"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: 25.781 GB/s\n\t Link 2: 25.781 GB/s\n",
         {"expected_nvlinks_per_gpu": 3}, "fail"),
        ("GPU 0: Tesla V100\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n", {"expected_nvlinks_per_gpu": 2}, "pass"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: 25.781 GB/s\n\t Link 1: 25.781 GB/s\n",
         {"expected_nvlinks_per_gpu": 1}, "fail"),
        ("GPU 0: A (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 0: <inactive>\n", {"expected_nvlinks_per_gpu": 1},
         "not-measured"),
        ("GPU 0: A (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: 12 GB/s\n", {"expected_nvlinks_per_gpu": 2}, "fail"),
    ],
)  # fmt: skip
def test_link_status_of_other_kinds(tmp_path: Path, text: str, expect: dict[str, Any], result: str) -> None:
    """Sentences, gaps, cuts, slow and contradicting links."""
    assert outcome(read_text(tmp_path, "nvidia-smi-nvlink", text, expect)) == result


def test_a_gpu_with_fewer_links_than_its_peers_fails_in_the_middle(tmp_path: Path) -> None:
    """A dead link is not always printed: peers list only those that are left; only the last GPU may have been cut."""
    links = "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
    few = "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(17))
    heads = [f"GPU {n}: NVIDIA H100 (UUID: GPU-{n})\n" for n in range(3)]
    expect = {"expected_gpus": 3, "expected_nvlinks_per_gpu": 18}
    middle = read_text(tmp_path, "nvidia-smi-nvlink", heads[0] + links + heads[1] + few + heads[2] + links, expect)
    assert outcome(middle) == "fail"
    last = read_text(tmp_path, "nvidia-smi-nvlink", heads[0] + links + heads[1] + links + heads[2] + few, expect)
    assert outcome(last) == "not-measured"


def test_newer_error_counters(tmp_path: Path) -> None:
    """Counters of newer GPUs keep their names; a limit for replays is not answered by them."""
    text = (
        "GPU 0: NVIDIA B200 (UUID: GPU-1)\n\t Link 0: Malformed packet Errors: 0\n\t Link 0: Effective BER: 15e-255\n"
    )
    found = read_text(tmp_path, "nvidia-smi-nvlink", text, {"max_replay_errors": 0}).findings
    assert one(found, "nvlink.malformed_packet_errors").outcome == "observed"
    assert one(found, "nvlink.replay_errors").outcome == "not-measured"


def matrix(cells: dict[tuple[int, int], str], size: int, *, legend: str = "  NV#  = NVLinks\n") -> str:
    """A topology matrix of GPUs, NV18 where nothing else is given."""
    names = [f"GPU{n}" for n in range(size)]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for a in range(size):
        row = [" X " if a == b else cells.get((min(a, b), max(a, b)), "NV18") for b in range(size)]
        rows.append(f"GPU{a}\t" + "\t".join(row) + "\t0-31\t0\t\tN/A")
    return "\n".join(rows) + f"\n\nLegend:\n\n  X    = Self\n{legend}"


@pytest.mark.parametrize(
    ("text", "expect", "result", "part"),
    [
        (matrix({}, 4), {"expected_nvlinks_per_pair": 18}, "pass", ""),
        (matrix({(1, 3): "SYS"}, 4), {"expected_nvlinks_per_pair": 18}, "fail", "GPU 1 and GPU 3"),
        (matrix({(0, 1): "NV16", (1, 2): "NV16", (1, 3): "NV16"}, 4), {"expected_nvlinks_per_pair": 18},
         "fail", "GPU 1"),
        (matrix({(0, n): "SYS" for n in range(1, 6)} | {(1, n): "SYS" for n in range(2, 6)}, 6),
         {"expected_nvlinks_per_pair": 18}, "fail", "GPU 0 and GPU 1"),
        (matrix({(0, 2): "SYS", (1, 2): "SYS", (2, 3): "SYS"}, 4), {}, "fail", "GPU 2"),
        (matrix({(0, 2): "SYS"}, 4), {"expected_nvlink_pairs": [[0, 1], [2, 3]]}, "pass", ""),
        (matrix({(0, 1): "SYS"}, 4), {"expected_nvlink_pairs": [[0, 1], [2, 3]]}, "fail", "0-1"),
        (matrix({}, 4), {"expected_nvlink_pairs": [[0, 5]]}, "fail", "0-5"),
        (matrix({(0, 1): "PIX"}, 2, legend="  PIX  = one bridge\n"), {"expected_nvlinks_per_pair": 18},
         "not-measured", ""),
        (matrix({}, 8), {"expected_gpus": 16, "expected_nvlinks_per_pair": 18}, "fail", ""),
        (matrix({(0, 1): "OK", (0, 2): "OK", (1, 2): "OK"}, 3), {"nvswitch": True}, "pass", ""),
        (matrix({(0, 1): "OK", (0, 2): "CNS", (1, 2): "CNS"}, 3), {"nvswitch": True}, "fail", "GPU 2"),
    ],
)  # fmt: skip
def test_matrices_of_other_kinds(tmp_path: Path, text: str, expect: dict[str, Any], result: str, part: str) -> None:
    """Single pairs, weak pairs, two bad GPUs, bridges, -mp without NVLink, and peer access."""
    reading = read_text(tmp_path, "nvidia-smi-topo", text, expect)
    assert outcome(reading) == result
    assert part in suspects(list(reading.findings))


def test_a_matrix_that_contradicts_itself_is_not_measured(tmp_path: Path) -> None:
    """NV18 one way and SYS the other cannot be."""
    text = matrix({}, 4).replace("GPU3\tNV18", "GPU3\tSYS", 1)
    assert outcome(read_text(tmp_path, "nvidia-smi-topo", text, {"expected_nvlinks_per_pair": 18})) == "not-measured"


@pytest.mark.parametrize("number", ["031", "032", "033", "034", "037", "041", "044", "046", "047"])
def test_damage_never_makes_these_pass(tmp_path: Path, number: str) -> None:
    """Cut or damaged, a text with a fault is never a pass while the fault or its line is needed for the answer."""

    def fault_is_gone(text: str) -> bool:
        marks = {
            "033": "requires reset",
            "037": "In Progress",
            "041": "NODE",
            "047": "Recovery Errors: 3",
            "034": ", 1, ",
        }
        return number in marks and text.count(marks[number]) < (
            CASES / number / case(number)["inputs"][0]["file"]
        ).read_text().count(marks[number])

    survives(tmp_path, number, fault_is_gone, seeds=60)


@pytest.mark.parametrize("number", ["039", "040", "042"])
def test_damage_to_a_healthy_text(tmp_path: Path, number: str) -> None:
    """A healthy text passes damaged only while all that was asked is still in it."""
    told = case(number)
    whole = (CASES / number / told["inputs"][0]["file"]).read_text()

    def answered(text: str) -> bool:
        if number == "039":
            return "</nvidia_smi_log>" in text and text.count("<gpu ") == 1
        rows = [line for line in text.replace("\x1b", "").split("\n") if line.startswith("GPU")]
        wanted = [line for line in whole.split("\n") if line.startswith("GPU")]
        cells = 8 if number == "040" else 4
        same = [row.split()[: cells + 1] for row in dict.fromkeys(rows)] == [row.split()[: cells + 1] for row in wanted]
        return same or number == "042"

    survives(tmp_path, number, answered, seeds=80)


def test_damage_to_a_real_log(tmp_path: Path) -> None:
    """Damage to a recorded `-q` text is survived, and a lost GPU block is never a pass for two GPUs."""
    text = (RECORDED / "h200x2/nvidia-smi-q.txt").read_text()
    for seed in range(60):
        broken = damaged(text, seed)
        reading = read_text(tmp_path, "nvidia-smi", broken, {"expected_gpus": 2, "expected_pcie_width": 16})
        assert reading.findings
        if outcome(reading) == "pass":
            assert broken.count("\nGPU 0") == 2
    lines = text.splitlines(keepends=True)
    for n in range(0, len(lines) - 20, 7):
        cut = "".join(lines[:n])
        assert outcome(read_text(tmp_path, "nvidia-smi", cut, {"expected_gpus": 2})) != "pass"


def test_a_long_loop_holds_no_lines(tmp_path: Path) -> None:
    """A CSV loop of many samples is read in memory that does not grow with it."""
    import tracemalloc

    path = tmp_path / "loop.csv"
    with path.open("w") as file:
        file.write("index, pstate, pcie.link.width.current, temperature.gpu\n")
        for n in range(2_000):
            file.write(f"0, P0, 16, {n % 90}\n1, P0, 16, {n % 70}\n")
    from pytest_gpuready.audit.expect import Expectations
    from pytest_gpuready.audit.reader import Given
    from tests.audit.case_reading import reader

    tracemalloc.start()
    reading = reader("nvidia-smi").read(Given(path=path, expect=Expectations({"expected_gpus": 2}, source="test")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert one(reading.findings, "inventory.gpu_count").outcome == "pass"
    assert peak < 100_000, peak


def test_the_reader_is_found_by_content() -> None:
    """Every input of these cases and every recording is recognised as what it is."""
    for number in ("031", "032", "033", "034", "037", "039", "040", "041", "042", "044", "046", "047"):
        told = case(number)
        for entry in told["inputs"]:
            head = (CASES / number / entry["file"]).read_text()
            best = max(readers(), key=lambda r: r.recognise(head))
            assert (best.tool, best.recognise(head) >= 30) == (told["tool"], True), (number, entry["file"])
    for path in RECORDED.rglob("nvidia-smi*"):
        head = path.read_text()[:65536]
        assert max(readers(), key=lambda r: r.recognise(head)).tool == "nvidia-smi"
    assert findings(read_case("039"))
