"""`gpuready audit --profile`: what a profile promises is expected, what an output does not show is said, and an output
about another GPU is never judged by it.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuready.audit.agreed import agreed
from pytest_gpuready.audit.expect import VOCABULARY, Expectations
from pytest_gpuready.audit.products import ids_of_name, lspci_id, name_of, pci_id
from pytest_gpuready.audit.promise import RULES, TOOLS, promises
from pytest_gpuready.audit.readers import tools
from pytest_gpuready.audit.report import Finding, InputReport
from pytest_gpuready.audit.run import audit
from pytest_gpuready.errors import ProfileError
from pytest_gpuready.profiles import METRICS, load, names

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "nvidia-smi" / "580.159.04" / "h200x2"
Q = (RECORDED / "nvidia-smi-q.txt").read_text(encoding="utf-8")


def read(
    tmp_path: Path, text: str, profile: str = "h200-sxm", expect: dict[str, object] | None = None, tool: str = ""
) -> InputReport:
    path = tmp_path / "input"
    path.write_text(text, encoding="utf-8")
    given = Expectations(expect or {}, source="--expect")
    return audit([path], tool=tool, expect=given, exit_code=None, profile=load(profile)).inputs[0]


def of(report: InputReport, metric: str) -> list[Finding]:
    return [f for f in report.findings if f.metric == metric]


def told(report: InputReport) -> str:
    return "\n".join(report.not_covered)


def test_a_profile_is_expected_with_its_own_source(tmp_path: Path) -> None:
    """Recorded H200s: link, MIG and PCI id pass by the profile, and each finding names clause and source."""
    report = read(tmp_path, Q)
    sources = {
        "pcie.speed": "profile h200-sxm PCIE-1, datasheet: ",
        "pcie.width": "profile h200-sxm PCIE-2, datasheet: ",
        "gpu.mig": "profile h200-sxm GPU-17, rule: ",
        "fabric.state": "profile h200-sxm, nvswitch: true",
        "gpu.pci_id": "profile h200-sxm GPU-2, datasheet: ",
    }
    for metric, source in sources.items():
        assert [f.outcome for f in of(report, metric)] == ["pass", "pass"], metric
        assert all(f.source.startswith(source) for f in of(report, metric)), metric
    assert report.outcome == "pass"


def test_a_broken_promise_fails(tmp_path: Path) -> None:
    """MIG switched on and a link of eight lanes fail by the profile without any --expect."""
    off = f"MIG Mode\n        {'Current':<47}: Disabled"
    assert off in Q
    mig = Q.replace(off, off.replace("Disabled", "Enabled"))
    report = read(tmp_path, mig)
    assert {f.outcome for f in of(report, "gpu.mig")} == {"fail"}
    assert "profile h200-sxm GPU-17" in of(report, "gpu.mig")[0].source
    assert report.outcome == "fail"


def test_what_an_output_does_not_show_is_not_covered(tmp_path: Path) -> None:
    """`nvidia-smi -q` tells no NVLink: that is said, and the input is measured all the same."""
    report = read(tmp_path, Q)
    assert (
        "profile h200-sxm promises expected_nvlinks_per_gpu 18 (NVL-1), expected_nvlinks_per_pair 18 (NVL-6); "
        "this output does not show it" in report.not_covered
    )
    assert "more clauses with a limit, which only a run of its suites judges" in told(report)
    assert not [f for f in report.findings if f.outcome == "not-measured"]


def test_a_sleeping_link_is_not_covered_but_asked_for_it_is_not_measured(tmp_path: Path) -> None:
    """A generation that an idle GPU shows answers nothing: said of a promise, not measured of an expectation."""
    rows = "index, name, pci.device_id, pstate, pcie.link.gen.current, pcie.link.width.current\n"
    text = rows + "0, NVIDIA H200, 0x233510DE, P8, 1, 16\n1, NVIDIA H200, 0x233510DE, P0, 5, 16\n"
    report = read(tmp_path, text)
    assert [f.outcome for f in of(report, "pcie.speed")] == ["observed", "pass"]
    assert "promises expected_pcie_gen 5 (PCIE-1); this output does not show it for GPU 0" in told(report)
    assert report.outcome == "pass"
    asked = read(tmp_path, text, expect={"expected_pcie_gen": 5})
    assert of(asked, "pcie.speed")[0].outcome == "not-measured"
    assert asked.outcome == "not-measured"


def test_what_was_given_wins_and_the_contradiction_is_one_line(tmp_path: Path) -> None:
    """--expect 4 against a promise of 5: judged by --expect, said once; the same value is no contradiction."""
    text = "index, name, pci.device_id, pcie.link.gen.current, pcie.link.gen.max\n0, NVIDIA H200, 0x233510DE, 4, 4\n"
    report = read(tmp_path, text, expect={"expected_pcie_gen": 4})
    assert [(f.outcome, f.source) for f in of(report, "pcie.speed")] == [("pass", "--expect")]
    says = [line for line in report.not_covered if "judged by" in line]
    assert says == [
        "profile h200-sxm promises expected_pcie_gen 5 (PCIE-1), --expect says 4: judged by --expect",
    ]
    same = read(tmp_path, text, expect={"expected_pcie_gen": 5})
    assert "judged by" not in told(same)
    assert [(f.outcome, f.source) for f in of(same, "pcie.speed")] == [("fail", "--expect")]


def test_a_case_counts_more_than_a_profile(tmp_path: Path) -> None:
    """`given` of a case.yaml stands above the profile, as --expect does."""
    (tmp_path / "q.txt").write_text(Q)
    (tmp_path / "case.yaml").write_text("given: {expected_mig: Enabled}\ninputs: [{file: q.txt}]\n")
    report = audit(
        [tmp_path], tool="", expect=Expectations({}, source="--expect"), exit_code=None, profile=load("h200-sxm")
    ).inputs[0]
    assert {(f.outcome, f.source) for f in of(report, "gpu.mig")} == {("fail", "case.yaml given")}
    assert "promises expected_mig Disabled (GPU-17), case.yaml given says Enabled" in told(report)


@pytest.mark.parametrize("profile", [n for n in names() if n not in ("base", "h200-sxm")])
def test_another_gpu_fails_and_is_not_judged_by_the_profile(tmp_path: Path, profile: str) -> None:
    """H200s audited with each other profile: the PCI id fails, the right profile is named, no other limit is held."""
    report = read(tmp_path, Q, profile)
    found = of(report, "gpu.pci_id")
    assert [(f.outcome, f.value) for f in found] == [("fail", "10de:2335")] * 2
    assert all(f.advice == "compare the part with the order, or audit with --profile h200-sxm" for f in found)
    assert not [f for f in report.findings if f.source.startswith("profile") and f.metric != "gpu.pci_id"]
    assert f"profile {profile}: nothing is judged by its limits" in told(report)
    assert report.outcome == "fail"


def test_one_foreign_gpu_fails_beside_the_others(tmp_path: Path) -> None:
    """One H100 among H200s fails by its PCI id; the H200s pass."""
    rows = "index, name, pci.device_id, pcie.link.width.current\n"
    text = rows + "0, NVIDIA H200, 0x233510DE, 16\n1, NVIDIA H100 80GB HBM3, 0x233010DE, 16\n"
    report = read(tmp_path, text)
    assert [(f.part, f.outcome) for f in of(report, "gpu.pci_id")] == [("GPU 1", "fail"), ("GPU 0", "pass")]
    assert [f.outcome for f in of(report, "pcie.width")] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("NVIDIA H200", []),
        ("NVIDIA H100 80GB HBM3", ["fail"]),
        ("A100-SXM4-80GB", ["fail"]),
        ("NVIDIA H200 NVL", ["fail"]),
        ("NVIDIA RTX PRO 6000", ["not-measured"]),
    ],
)
def test_a_name_tells_where_no_id_is_shown(tmp_path: Path, name: str, outcomes: list[str]) -> None:
    """A product's whole name stands for its id; a name that no table has is not measured, never taken for the GPU."""
    report = read(tmp_path, f"index, name, pcie.link.width.current\n0, {name}, 16\n")
    assert [f.outcome for f in of(report, "gpu.pci_id")] == outcomes


def test_lspci_without_names_of_gpus_is_judged_by_number(tmp_path: Path) -> None:
    """`lspci -nn` of an A100 fails the profile of an H200; a network card is never held to a GPU's promise."""
    link = "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 16GT/s, Width x16\n"
    nic = f"19:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 [15b3:1021]\n{link}"
    gpu = "18:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)\n"
    report = read(tmp_path, gpu + nic)
    assert [(f.outcome, f.value) for f in of(report, "gpu.pci_id")] == [("fail", "10de:20b2")]
    alone = read(tmp_path, nic)
    assert not [f for f in alone.findings if f.source.startswith("profile")]
    assert alone.outcome == "pass"


def test_lspci_of_the_right_gpu(tmp_path: Path) -> None:
    """An H200 that runs at half its lanes fails by the profile, a plain listing is not asked for lanes."""
    gpu = "18:00.0 3D controller: NVIDIA Corporation GH100 [H200 SXM 141GB] (rev a1)\n"
    link = "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta:\tSpeed 32GT/s, Width x8\n"
    report = read(tmp_path, gpu + link)
    assert [(f.outcome, f.source[:24]) for f in of(report, "pcie.width")] == [("fail", "profile h200-sxm PCIE-2,")]
    plain = read(tmp_path, gpu)
    assert (plain.outcome, of(plain, "pcie.width")) == ("pass", [])
    assert "expected_pcie_width 16 (PCIE-2)" in told(plain)


def test_topology_and_links_by_the_profile(tmp_path: Path) -> None:
    """The recorded matrix shows 18 NVLinks per pair; one that leaves NVLink out is not asked for them."""
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n\nLegend:\n  X = Self\n  NV# = Connection\n"
    report = read(tmp_path, matrix)
    assert [(f.outcome, f.source[:22]) for f in of(report, "topo.nvlink_mesh")] == [("pass", "profile h200-sxm NVL-6")]
    worse = read(tmp_path, matrix.replace("NV18", "NV12"))
    assert worse.outcome == "fail"
    without = read(
        tmp_path, "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n\nLegend:\n  X = Self\n  PIX = One bridge\n"
    )
    assert not of(without, "topo.nvlink_mesh")
    assert "expected_nvlinks_per_pair 18 (NVL-6)" in told(without)
    assert "this output does not say what they are" in told(without)


def test_links_of_another_gpu_are_not_judged_by_the_profile(tmp_path: Path) -> None:
    """The heading of `nvidia-smi nvlink -s` names the product: an A100 is another one, an H200 has its 18 links."""
    links = "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
    heading = "GPU 0: {} (UUID: GPU-5f0a1b2c-0000-0000-0000-000000000001)\n"
    right = read(tmp_path, heading.format("NVIDIA H200") + links)
    assert [(f.outcome, f.source[:23]) for f in of(right, "nvlink.status")] == [("pass", "profile h200-sxm NVL-1,")]
    assert not of(right, "gpu.pci_id")
    wrong = read(tmp_path, heading.format("NVIDIA A100-SXM4-80GB") + links)
    assert [(f.outcome, f.part) for f in of(wrong, "gpu.pci_id")] == [("fail", "GPU 0")]
    assert [f.outcome for f in of(wrong, "nvlink.status")] == ["observed"]


def test_a_kernel_log_is_not_held_to_gpu_promises(tmp_path: Path) -> None:
    """A network card of four lanes and generation 3 in a kernel log is not judged by the profile of a GPU."""
    line = "[    5.1] mlx5_core 0000:19:00.0: 31.504 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x4 link)\n"
    report = read(tmp_path, line)
    assert not [f for f in report.findings if f.source.startswith("profile")]
    assert "this output does not show it" in told(report)


def test_every_promise_is_one_that_readers_know() -> None:
    """Rules name metrics and expectations that exist, and what the shipped H200 profile promises is this."""
    assert set(RULES) <= set(METRICS)
    assert {rule.key for rule in RULES.values()} <= set(VOCABULARY)
    assert set(tools()) >= TOOLS
    assert {p.key: p.value for p in promises(load("h200-sxm"))} == {
        "expected_mig": "Disabled",
        "expected_nvlinks_per_gpu": 18,
        "expected_nvlinks_per_pair": 18,
        "expected_pcie_gen": 5,
        "expected_pcie_width": 16,
        "nvswitch": True,
    }
    assert {p.key: p.value for p in promises(load("base"))} == {"expected_mig": "Disabled"}
    assert {p.key: p.value for p in promises(load("l40s"))} == {
        "expected_nvlinks_per_gpu": 0,
        "expected_nvlinks_per_pair": 0,
        "expected_pcie_gen": 4,
        "expected_pcie_width": 16,
    }


def test_a_lower_bound_of_links_is_no_exact_number(tmp_path: Path) -> None:
    """A contract that asks for at least 16 of 18 NVLinks is not turned into "exactly 16", which 18 would fail."""
    path = tmp_path / "contract.yaml"
    path.write_text(
        "profile: contract\nextends: h200-sxm\nversion: '1'\ntitle: Contract\npci_ids: ['10de:2335']\n"
        "nvlink: true\nnvswitch: true\nclauses:\n"
        "  NVL-1: {limit: {at_least: 16, ceiling: 18, source: {kind: contract, cite: order 1}}}\n"
    )
    found = promises(load(str(path)))
    assert "expected_nvlinks_per_gpu" not in {p.key for p in found}
    assert "expected_nvlinks_per_pair" in {p.key for p in found}


def test_ids_in_every_spelling() -> None:
    """One id in the spellings of nvidia-smi, lspci and DCGM; what is none of them is none."""
    assert {pci_id(t) for t in ("0x233510DE", "233510DE", "10de:2335", "10DE:2335", "2335")} == {"10de:2335"}
    assert [pci_id(t) for t in ("", "N/A", "0x15B31021", "23350")] == [""] * 4
    assert lspci_id("NVIDIA Corporation Device 2335 (rev a1)") == "10de:2335"
    assert lspci_id("NVIDIA Corporation GH100 [H200 SXM 141GB] (rev a1)") == "10de:2335"
    assert lspci_id("NVIDIA Corporation Device [10de:2335] (rev a1)") == "10de:2335"
    assert lspci_id("NVIDIA Corporation GX999 [H300]") == ""
    assert ids_of_name("NVIDIA H100 80GB H...") == {"10de:2330"}
    assert ids_of_name("NVIDIA H...") == {"10de:2321", "10de:2330", "10de:2331", "10de:2335", "10de:233b"}
    assert ids_of_name("NVIDIA H2") == frozenset()
    assert (name_of("10de:2335"), name_of("10de:ffff")) == ("NVIDIA H200", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "expected one of a100-80-sxm, b200"),
        ("profile: x\n", "$"),
        ("profile: [\n", "x.yaml"),
        ("profile: x\nversion: '1'\ntitle: x\nclauses: {A: 1, B: 2}\n", "more: python -m pytest_gpuready.profiles"),
    ],
)
def test_a_wrong_profile_is_one_line(tmp_path: Path, text: str | None, says: str) -> None:
    """An unknown name, a file that is none and one that is broken: one line, exit 2, nothing read."""
    name = "h200-smx"
    if text is not None:
        name = str(tmp_path / "x.yaml")
        Path(name).write_text(text)
    (tmp_path / "q.txt").write_text(Q)
    command = [sys.executable, "-m", "pytest_gpuready.cli", "audit", str(tmp_path / "q.txt"), "--profile", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("gpuready: --profile ")
    assert says in done.stderr
    with pytest.raises(ProfileError):
        agreed(name)


DATA = Path(__file__).parents[1] / "data"
INPUTS = sorted(
    path
    for folder in ("cases", "dcgm", "nccl", "recorded")
    for path in (DATA / folder).rglob("*")
    if path.is_file() and path.name not in ("case.yaml", "command.txt", "exit_code.txt", "seconds.txt")
)


@functools.cache
def alone_of(path: Path) -> InputReport:
    return audit([path], tool="", expect=Expectations({}, source="--expect"), exit_code=None).inputs[0]


@pytest.mark.parametrize("profile", ["h200-sxm", "l40s"])
def test_a_profile_hides_nothing_and_asks_for_nothing(profile: str) -> None:
    """Over every recorded input: all that fails or is not measured without a profile does so with it, too, and what a
    profile does not find in a text is never not measured; only a GPU of an unknown name is.
    """
    agreed_on = load(profile)
    empty = Expectations({}, source="--expect")
    for path in INPUTS:
        alone = alone_of(path)
        beside = audit([path], tool="", expect=empty, exit_code=None, profile=agreed_on).inputs[0]

        def of_outcome(report: InputReport, outcome: str) -> set[tuple[str, str]]:
            return {(f.metric, f.part) for f in report.findings if f.outcome == outcome and f.metric != "gpu.pci_id"}

        assert of_outcome(alone, "not-measured") == of_outcome(beside, "not-measured"), path
        failed = {metric for metric, _ in of_outcome(beside, "fail")}  # a profile may name other parts of the same
        assert {metric for metric, _ in of_outcome(alone, "fail")} <= failed, path
        judged = [f for f in beside.findings if f.source.startswith("profile")]
        assert all(
            f.outcome in ("pass", "fail", "observed", "not-applicable") or f.metric == "gpu.pci_id" for f in judged
        )
