"""The collective readers: cases and recordings to their right reading, no damaged text to an unearned pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.audit.expect import Expectations
from pytest_gpuready.audit.reader import Given, Reading
from pytest_gpuready.audit.readers.collectives import READERS
from tests.audit.case_reading import CASES, check_case, outcome, read_text, reader, survives, suspects, values

RECORDED = CASES.parent / "nccl"
H200X2 = RECORDED / "h200x2"
TEXT = "nccl-tests-text"


def read(path: Path, tool: str = TEXT, **expect: Any) -> Reading:
    return reader(tool).read(Given(path=path, expect=Expectations(expect, source="test")))


def outcomes(reading: Reading, metric: str) -> list[str]:
    return [f.outcome for f in reading.findings if f.metric == metric]


# extract key of the cases -> metric (and the value where it is spelt otherwise)
WHERE: dict[str, str] = {
    "ranks": "nccl.ranks",
    "ranks_seen": "nccl.ranks",
    "peak_busbw_gb_per_s": "nccl.allreduce.peak_busbw",
    "avg_busbw_gb_per_s": "nccl.{collective}.avg_busbw",
    "busbw_at_1GiB_gb_per_s": "nccl.allreduce.busbw_out_of_place",
    "drop_after_bytes": "nccl.allreduce.drop_after",
    "out_of_bounds": "nccl.out_of_bounds",
    "validation": "nccl.validation",
    "wrong": "nccl.allreduce.correctness",
    "rows": "nccl.rows",
    "nccl_version": "nccl.version",
    "failing_host": "nccl.failing_host",
    "failing_rank": "nccl.failing_rank",
    "hca": "nccl.hca",
    "wc_status": "nccl.wc_status",
    "tables": "nccl.tables",
    "out_of_place_wrong": "nccl.alltoall.correctness",
    "json_version": "nccl.json_version",
    "bad_sizes": "nccl.bad_sizes",
    "nwrong": "nccl.allreduce.correctness",
    "sizes_seen": "nccl.sizes_seen",
    "devices_listed": "nccl.devices_listed",
    "network": "nccl.transport",
    "ib_devices": "nccl.ib_devices",
    "interface": "nccl.interface",
    "shm": "nccl.channels.shm",
    "p2p": "nccl.channels.p2p",
    "answered": "launch.answered",
    "reason": "launch.reason",
    "step": "launch.step",
    "rank": "launch.rank",
    "signal": "launch.signal",
    "node": "launch.node",
    "failed_node": "launch.node",
}
SPELT: dict[str, tuple[str, Any]] = {
    "footer": ("nccl.footer", "missing"),
    "complete": ("nccl.complete", "false"),
    "gdr": ("nccl.gdr", "1 of 1 network channels"),
    "error": ("net.tcp_throughput", "the server is busy running a test. try again later"),
}
ELSEWHERE = ("host", "ranks_expected", "in_place_wrong")
CASE_NUMBERS = "017 018 020 021 022 023 024 028 029 030 076 079 080 095 097 098 100".split()  # noqa: SIM905 - a list of words
SUSPECTS: dict[str, tuple[str, ...]] = {
    "020": ("inter-node network", "NIC or PCIe path or flow control"),
    "018": ("test options",),
    "022": ("hgx-22 mlx5_6 or its link/switch port", "transport retry counter exceeded"),
    "023": ("nccl-tests built without MPI, or wrong MPI library",),
    "024": ("one rank alone",),
    "028": ("NVLink/GPU memory path", "does not say which GPU"),
    "029": ("the launcher's",),
    "076": ("container/host setup", "/dev/infiniband"),
    "079": ("NCCL_P2P_DISABLE", "IOMMU/ACS"),
    "095": ("one test per server at a time",),
    "097": ("scheduler/DNS (hx-node-7 not resolvable)",),
    "098": ("rx-h200-12", "limit too short or a hang"),
    "100": ("hx-c0-02", "local rank 5 of node 2", "/dev/shm too small or a GPU lost", "dmesg"),
}


@pytest.mark.parametrize("number", CASE_NUMBERS)
def test_a_case_comes_to_its_right_reading(number: str) -> None:
    """Outcome, checks, every extracted value and the words of the suspect stand in the findings."""
    import yaml

    told = yaml.safe_load((CASES / number / "case.yaml").read_text(encoding="utf-8"))
    found = check_case(number)
    collective = "alltoall" if number == "024" else "allreduce"
    for key, value in told["correct_reading"]["extract"].items():
        metric, wanted = SPELT.get(key, (WHERE.get(key, ""), value))
        if key in ELSEWHERE:
            continue
        seen = values(found, metric.format(collective=collective))
        assert wanted in seen, f"{key}: {wanted!r} is not among {metric} {seen}"
    for words in SUSPECTS.get(number, ()):
        assert words in suspects(found)


def test_a_peer_in_a_message_is_not_blamed() -> None:
    """Case 022: the host that wrote the completion error is suspected, not the peer address or the healthy host."""
    said = suspects(check_case("022"))
    assert "hgx-21" not in said
    assert "172.20.8.21" not in said


def test_zero_of_one_rank_is_no_failure() -> None:
    """Cases 023 and 024: 0 GB/s of one rank is never a bandwidth, and four tables are not four ranks."""
    for number in ("023", "024"):
        found = check_case(number)
        assert not [f for f in found if f.outcome == "fail"]
    assert [f.value for f in check_case("023") if f.metric == "nccl.allreduce.busbw"] == [None]


def test_hosts_are_whole() -> None:
    """Cases 021 and 079: a host name with dashes, or longer than its column, is read whole."""
    assert values(check_case("021"), "nccl.hosts") == [["pod-9f31c-trainer-worker-0"]]
    assert "sh9-machine-20260114093012-77bd1c-qk2zt" in [f.part for f in check_case("079")]


@pytest.mark.parametrize(
    ("name", "busbw", "intra", "expected", "whole"),
    [
        ("debug-nvlink", 326.25, "P2P", "P2P", "pass"),
        ("debug-shm", 27.29, "SHM", "P2P", "fail"),
        ("debug-socket", 3.31, "NET", "P2P", "fail"),
        ("debug-shm", 27.29, "SHM", "SHM", "pass"),
        ("debug-tree", 340.8, "P2P", "P2P", "pass"),
    ],
)
def test_paths_of_a_real_machine(name: str, busbw: float, intra: str, expected: str, whole: str) -> None:
    """Two H200 with NCCL forced onto other paths: all end with 0 OK; the log tells the path, rows are joined whole."""
    reading = read(H200X2 / f"all_reduce_perf-{name}.txt", ranks=2, expected_intra_node=expected)
    assert outcomes(reading, "nccl.intra_node_transport") == [whole]
    path = next(f.value for f in reading.findings if f.metric == "nccl.intra_node_transport")
    assert str(path).startswith(intra)
    found = list(reading.findings)
    assert values(found, "nccl.rows") == [3]
    assert values(found, "nccl.allreduce.busbw") == [busbw]
    assert outcomes(reading, "nccl.allreduce.correctness") == ["pass"]


def test_a_slow_run_names_what_its_log_shows() -> None:
    """Below the floor, the suspect is the path that the log witnesses and the variable that forced it."""
    reading = read(H200X2 / "all_reduce_perf-debug-socket.txt", ranks=2, min_peak_busbw_gb_per_s=300)
    assert outcome(reading) == "fail"
    said = suspects(list(reading.findings))
    assert "over the network (Socket or NIC) instead of NVLink" in said
    assert "NCCL_P2P_DISABLE=1" in said
    slow = read(H200X2 / "all_reduce_perf-debug-ll.txt", ranks=2, min_peak_busbw_gb_per_s=300)
    assert "NCCL_PROTO=LL" in suspects(list(slow.findings))


@pytest.mark.parametrize(
    ("name", "metric", "busbw"),
    [
        ("all_reduce_perf.json", "allreduce", 323.017946),
        ("all_gather_perf.json", "allgather", None),
        ("alltoall_perf.json", "alltoall", None),
        ("reduce_scatter_perf.json", "reducescatter", None),
    ],
)
def test_documents_of_a_real_machine(name: str, metric: str, busbw: float | None) -> None:
    """Ranks of one process are threads x GPUs, and the factor of each collective confirms them."""
    reading = read(H200X2 / name, "nccl-tests-json", ranks=2, min_peak_busbw_gb_per_s=250)
    assert outcome(reading) == "pass"
    assert outcomes(reading, f"nccl.{metric}.correctness") == ["pass"]
    assert busbw is None or values(list(reading.findings), f"nccl.{metric}.busbw") == [busbw]


def test_five_runs_in_one_text_are_five() -> None:
    """Four collectives one after another are judged each by its own name."""
    reading = read(H200X2 / "collectives.txt", ranks=2, min_peak_busbw_gb_per_s=290)
    busbw = {f.metric: f.value for f in reading.findings if f.metric.endswith(".busbw")}
    assert busbw == {
        "nccl.allgather.busbw": 313.76,
        "nccl.reducescatter.busbw": 298.22,
        "nccl.alltoall.busbw": 364.77,
        "nccl.allreduce.busbw": 324.28,
    }
    assert outcome(reading) == "pass"
    assert any("half marked N/A" in sentence for sentence in reading.not_covered)


def test_the_average_is_not_judged() -> None:
    """A sweep from 8 bytes has an average far below the floor that its largest size keeps."""
    reading = read(H200X2 / "all_reduce_perf.txt", ranks=2, min_peak_busbw_gb_per_s=330)
    assert outcome(reading) == "pass"
    assert values(list(reading.findings), "nccl.allreduce.avg_busbw") == [108.739]


def test_one_rank_proves_nothing() -> None:
    """One GPU: rows, a footer and 0 GB/s, and no measurement."""
    reading = read(RECORDED / "h200x1" / "all_reduce_perf-one-rank.txt", min_peak_busbw_gb_per_s=300)
    assert outcomes(reading, "nccl.allreduce.busbw") == ["not-measured"]
    assert outcome(reading) == "not-measured"


def text(name: str = "all_reduce_perf-2.txt") -> str:
    return (H200X2 / name).read_text(encoding="utf-8")


def sized(*rows: tuple[int, float], ranks: int = 2, top: int | None = None, footer: str = "0 OK") -> str:
    """A table of 2 ranks with these sizes and busbw."""
    table = "".join(
        f"#  Rank {i:2} Group  0 Pid 1{i:02} on n{2 * i // ranks} device {i} [0x0{i}] NVIDIA H200\n"
        for i in range(ranks)
    )
    factor = 2 * (ranks - 1) / ranks
    lines = "".join(
        f"  {size}  {size // 4}  float  sum  -1"
        + f"  {size / (busbw / factor) / 1000:.2f}  {busbw / factor:.2f}  {busbw:.2f}  0" * 2
        + "\n"
        for size, busbw in rows
    )
    average = sum(busbw for _, busbw in rows) / len(rows)
    return (
        f"# nThread 1 nGpus 1 minBytes {rows[0][0]} maxBytes {top or rows[-1][0]} step: 2(factor) "
        f"warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n# Using devices\n{table}#\n"
        "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        f"{lines}# Out of bounds values : {footer}\n# Avg bus bandwidth    : {average:g} \n#\n"
    )


GIB = 2**30


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([(GIB, 300.0), (2 * GIB, 340.0)], "pass"),
        ([(GIB, 340.0), (2 * GIB, 200.0)], "fail"),
        ([(8 * 2**20, 120.0), (16 * 2**20, 200.0)], "not-measured"),
        ([(64 * 2**20, 250.0), (128 * 2**20, 280.0)], "not-measured"),
        ([(64 * 2**20, 25.0), (128 * 2**20, 28.0)], "fail"),
        ([(8 * 2**20, 320.0), (16 * 2**20, 340.0)], "pass"),
    ],
)
def test_the_largest_size_decides_where_it_is_large_enough(
    tmp_path: Path, rows: list[tuple[int, float]], verdict: str
) -> None:
    """Not the best size: the largest; and a low figure of small messages is nobody's fault."""
    reading = read_text(
        tmp_path, TEXT, sized(*rows), {"ranks": 2, "min_peak_busbw_gb_per_s": 330}, command="all_reduce_perf"
    )
    assert outcomes(reading, "nccl.allreduce.busbw") == [verdict]


@pytest.mark.parametrize(
    ("change", "expect", "verdict"),
    [
        (("8589934592    2147483648     float", "#lost"), {}, "not-measured"),
        (("343.16       0", "743.16       0"), {}, "not-measured"),
        (("Rank  1", "Rank  3"), {}, "not-measured"),
        (("# Out of bounds values : 0 OK\n", ""), {}, "not-measured"),
        (("# Out of bounds values : 0 OK", "# Out of bounds values : 2 FAILED"), {}, "fail"),
        (("349.78  349.78       0", "349.78  349.78      12"), {}, "fail"),
        (("# Avg bus bandwidth    : 112.798 ", "# Avg bus bandwidth    : 112.798 FAILED"), {}, "fail"),
        (("", ""), {"ranks": 4}, "not-measured"),
        (("", ""), {"nodes": 2}, "not-measured"),
        (("", ""), {"nodes": 1, "ranks_per_node": 2, "gpus_per_node": 2, "expected_gpus": 2}, "pass"),
        (("", ""), {"expected_model": "NVIDIA H200", "iterations": 20}, "pass"),
        (("", ""), {"expected_model": "NVIDIA B200"}, "fail"),
        (("", ""), {"iterations": 100}, "not-measured"),
        (("", ""), {"require_gdr": True}, "not-measured"),
        (("", ""), {"expected_transport": "IB"}, "not-measured"),
        (("", ""), {"max_symbol_errors": 0}, "not-measured"),
        (
            ("NVIDIA H200\n#\n", "NVIDIA H200\n# Reducing maxBytes to 9000000000 due to memory limitation\n#\n"),
            {},
            "pass",
        ),
    ],
)
def test_what_is_lost_or_asked_beyond_is_not_passed(
    tmp_path: Path, change: tuple[str, str], expect: dict[str, Any], verdict: str
) -> None:
    """A healthy recording with one thing changed, or one thing more asked."""
    changed = text().replace(*change, 1) if change[0] else text()
    asked = {"ranks": 2, "min_peak_busbw_gb_per_s": 300, **expect}
    assert outcome(read_text(tmp_path, TEXT, changed, asked)) == verdict


@pytest.mark.parametrize(("code", "verdict"), [(0, "pass"), (3, "not-measured"), (7, "not-measured"), (None, "pass")])
def test_a_bad_exit_code_takes_a_pass_away(tmp_path: Path, code: int | None, verdict: str) -> None:
    """A good table of a program that ended badly is not measured, also with 7 where no failure is printed."""
    reading = read_text(tmp_path, TEXT, text(), {"ranks": 2, "min_peak_busbw_gb_per_s": 300}, exit_code=code)
    assert outcome(reading) == verdict


def test_half_of_the_rails_is_said_in_rails(tmp_path: Path) -> None:
    """Across nodes a low figure is told in rails, and a good one does not prove each of them."""
    expect = {"ranks": 16, "min_peak_busbw_gb_per_s": 350, "rails_per_node": 8, "rail_gbit_per_s": 400}
    slow = read_text(tmp_path, TEXT, sized((GIB, 180.0), (2 * GIB, 200.0), ranks=16), expect, command="all_reduce_perf")
    assert outcome(slow) == "fail"
    assert "8 x 400 Gbit/s expected, the figure is worth 4.0 rails" in suspects(list(slow.findings))
    good = read_text(tmp_path, TEXT, sized((GIB, 380.0), (2 * GIB, 390.0), ranks=16), expect, command="all_reduce_perf")
    assert outcome(good) == "pass"
    assert any("does not prove every rail" in sentence for sentence in good.not_covered)
    del expect["min_peak_busbw_gb_per_s"]
    alone = read_text(
        tmp_path, TEXT, sized((GIB, 390.0), (2 * GIB, 390.0), ranks=16), expect, command="all_reduce_perf"
    )
    assert outcomes(alone, "nccl.rails") == ["not-measured"]


def test_groups_are_not_the_whole(tmp_path: Path) -> None:
    """Ranks split into groups print one group's figure: the others are not proven by it."""
    split = re.sub(r"Rank +1 Group +0", "Rank  1 Group  1", sized((GIB, 300.0), (2 * GIB, 390.0), ranks=2))
    reading = read_text(tmp_path, TEXT, split, {"ranks": 2, "min_peak_busbw_gb_per_s": 350})
    assert outcome(reading) == "not-measured"


LOG = "n1:10:20 [0] NCCL INFO "
IB = LOG + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n" + LOG + "Using network IB\n"
SEND = LOG + "Channel 0{0}/0 : 0[0] -> 8[0] [send] via NET/IB/{0}{1}\n"
GDR, HOST = "/GDRDMA", ""


@pytest.mark.parametrize(
    ("log", "expect", "verdict"),
    [
        (IB + SEND.format(0, GDR), {"expected_transport": "IB", "require_gdr": True, "rails_per_node": 2}, "pass"),
        (IB + SEND.format(0, GDR) + SEND.format(1, HOST), {"require_gdr": True}, "fail"),
        (IB + SEND.format(0, "(3)/GDRDMA(PCI)/Shared"), {"require_gdr": True}, "pass"),
        (IB, {"require_gdr": True}, "not-measured"),
        (IB + LOG + "Connected all rings, use ring PXN 0 GDR 1\n", {"require_gdr": True}, "not-measured"),
        (IB.replace(":1/IB", ":1/RoCE"), {"expected_transport": "IB"}, "fail"),
        (IB.replace(":1/IB", ":1/RoCE"), {"expected_transport": "RoCE"}, "pass"),
        (LOG + "Using network IB\n", {"expected_transport": "RoCE"}, "not-measured"),
        (IB, {"rails_per_node": 8}, "fail"),
        (LOG + "Using network IB\n", {"rails_per_node": 8}, "not-measured"),
        (IB + IB.replace("n1", "n2").replace(" [1]mlx5_1:1/IB", ""), {"rails_per_node": 2}, "fail"),
        (IB + "n2:1:2 [0] NCCL INFO Using network Socket\n", {"expected_transport": "IB"}, "fail"),
        (LOG + "Bootstrap : Using eth0:10.0.0.1<0>\n", {"expected_transport": "IB"}, "not-measured"),
        (IB, {"min_peak_busbw_gb_per_s": 100, "expected_transport": "IB"}, "not-measured"),
        (IB, {}, "observed"),
    ],
)
def test_a_log_answers_what_it_witnesses(tmp_path: Path, log: str, expect: dict[str, Any], verdict: str) -> None:
    """Networks by channel or choice, GPUDirect RDMA by channels alone, rails by the list of HCAs."""
    assert outcome(read_text(tmp_path, "nccl-debug-log", log, expect)) == verdict


@pytest.mark.parametrize(
    ("warning", "verdict", "says"),
    [
        (
            "NET/IB : Got completion from peer 10.0.0.2<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 hca mlx5_3",
            "fail",
            "mlx5_3",
        ),
        ("NET/IB : mlx5_2:1 Got async event : port error", "fail", "mlx5_2"),
        ("Cuda failure 802 'system not yet initialized'", "fail", "Fabric Manager"),
        (
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000",
            "not-measured",
            "two ranks on one GPU",
        ),
    ],
)
def test_warnings_are_always_reported(tmp_path: Path, warning: str, verdict: str, says: str) -> None:
    """A failed link or GPU is a fail by the tool's own word, a start-up that stopped is not measured."""
    log = LOG + "Using network IB\n\n" + f"n1:10:20 [0] transport/net_ib.cc:1 NCCL WARN {warning}\n"
    reading = read_text(tmp_path, "nccl-debug-log", log, {})
    assert outcome(reading) == verdict
    assert any(says in f.suspect for f in reading.findings if f.metric == "nccl.warning")


CLEAN = "n1\nn2\nn3\n"


@pytest.mark.parametrize(
    ("said", "verdict", "node"),
    [
        (CLEAN, "pass", ""),
        ("n1\nn2\n", "not-measured", ""),
        (CLEAN + "srun: error: n3: task 2: Exited with exit code 1\n", "not-measured", "n3"),
        (CLEAN + "srun: error: Node failure on n2\n", "not-measured", "n2"),
        (CLEAN + "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-02-25T07:58:10 ***\n", "not-measured", "n1"),
        (CLEAN + "ssh: connect to host n4 port 22: Connection refused\n", "not-measured", "n4"),
        (CLEAN + "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM "
         "Killed.\n",
         "not-measured", ""),
    ],
)  # fmt: skip
def test_a_launcher_passes_only_when_all_answered(tmp_path: Path, said: str, verdict: str, node: str) -> None:
    """All nodes that were expected wrote their name and nothing went wrong, or it is not measured."""
    reading = read_text(tmp_path, "launcher", said, {"nodes": 3}, exit_code=0, command="srun -N3 hostname")
    assert outcome(reading) == verdict
    assert not node or node in [f.part for f in reading.findings if f.metric == "launch"]


def iperf(received: float, *, sent: float = 95e9, retransmits: int | None = 3, **more: Any) -> str:
    def part(rate: float) -> dict[str, Any]:
        return {"start": 0, "end": 10.0, "seconds": 10.0, "bytes": int(rate * 10 / 8), "bits_per_second": rate}

    total = {**part(sent), **({} if retransmits is None else {"retransmits": retransmits})}
    start = {"version": "iperf 3.16", "test_start": {"protocol": "TCP", "num_streams": 4, "duration": 10}}
    return json.dumps(
        {"start": start, "intervals": [], "end": {"sum_sent": total, "sum_received": part(received)}, **more}
    )


@pytest.mark.parametrize(
    ("output", "expect", "verdict"),
    [
        (iperf(94e9), {"min_rate_gbit_per_s": 90}, "pass"),
        (iperf(40e9), {"min_rate_gbit_per_s": 90}, "fail"),
        (iperf(94e9), {"min_rate_gbit_per_s": 90, "max_retransmits": 2}, "fail"),
        (iperf(94e9, retransmits=None), {"min_rate_gbit_per_s": 90, "max_retransmits": 2}, "not-measured"),
        (iperf(94e9, error="interrupt - the client has terminated"), {"min_rate_gbit_per_s": 90}, "not-measured"),
        (iperf(94e9)[:-40], {"min_rate_gbit_per_s": 90}, "not-measured"),
        (iperf(94e9).replace('"duration": 10', '"duration": 60'), {"min_rate_gbit_per_s": 90}, "not-measured"),
        (iperf(94e9), {}, "observed"),
        (
            "iperf3: error - unable to connect to server: Connection refused\n",
            {"min_rate_gbit_per_s": 90},
            "not-measured",
        ),
    ],
)
def test_iperf3_is_judged_by_what_arrived(tmp_path: Path, output: str, expect: dict[str, Any], verdict: str) -> None:
    """The received rate counts, of a whole test without an error."""
    assert outcome(read_text(tmp_path, "iperf3", output, expect)) == verdict


def test_nvbandwidth_is_observed() -> None:
    """Passed says that data arrived: figures are shown, waived tests are not applicable, nothing is passed by it."""
    reading = read(RECORDED / "h200x1" / "nvbandwidth.json", "nvbandwidth")
    assert outcome(reading) == "observed"
    assert 55.4884 in values(list(reading.findings), "nvbandwidth.host_to_device_memcpy_ce")
    assert outcomes(reading, "nvbandwidth.device_to_device_memcpy_read_ce") == ["not-applicable"]


BURN = (
    "Burning for 60 seconds.\n"
    "50.0%  proc'd: 130 (347000 Gflop/s) - 126 (347100 Gflop/s)   errors: 0 - 0   temps: 55 C - 60 C \r"
    "100.0%  proc'd: 300 (347000 Gflop/s) - 326 (347100 Gflop/s)   errors: 0 - 0   temps: 56 C - 60 C \n"
    "Killing processes with SIGTERM (soft kill)\ndone\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
)


@pytest.mark.parametrize(
    ("output", "expect", "verdict"),
    [
        (BURN, {"expected_gpus": 2}, "pass"),
        (BURN, {"expected_gpus": 8}, "fail"),
        (BURN.replace("GPU 1: OK", "GPU 1: FAULTY"), {}, "fail"),
        (BURN.replace("errors: 0 - 0   temps: 55", "errors: 0 - 7  (WARNING!)  temps: 55"), {}, "fail"),
        (BURN.replace("326 (347100", "-1 (0").replace("0   temps: 56", "0  (DIED!) temps: 56"), {}, "not-measured"),
        (BURN.partition("Tested")[0], {}, "not-measured"),
        (BURN.replace("\tGPU 1: OK\n", ""), {}, "not-measured"),
        ("Tested 1 GPUs:\n\tGPU 0: OK\n", {}, "not-measured"),
    ],
)  # fmt: skip
def test_gpu_burn_speaks_at_its_end(tmp_path: Path, output: str, expect: dict[str, Any], verdict: str) -> None:
    """FAULTY or an error is a fail; a GPU whose process died, or shows no work, is not OK because the end says so."""
    assert outcome(read_text(tmp_path, "gpu-burn", output, expect, exit_code=0)) == verdict


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("h200x2/all_reduce_perf.txt", TEXT),
        ("h200x2/all_reduce_perf-debug-nvlink.txt", TEXT),
        ("h200x2/all_reduce_perf.json", "nccl-tests-json"),
        ("h200x1/nvbandwidth.json", "nvbandwidth"),
        ("../cases/076/nccl.log", "nccl-debug-log"),
        ("../cases/095/iperf3.json", "iperf3"),
        ("../cases/097/srun.txt", "launcher"),
        ("../cases/100/mpirun.txt", "launcher"),
        ("../cases/030/out.json.0", "nccl-tests-json"),
    ],
)
def test_each_output_is_recognised_by_its_own_reader(path: str, tool: str) -> None:
    """The highest answer is that of the right reader."""
    head = (RECORDED / path).read_text(encoding="utf-8")
    scores = {r.tool: r.recognise(head) for r in READERS}
    assert max(scores, key=lambda name: scores[name]) == tool
    assert scores[tool] >= 30


def still(*marks: str) -> Any:
    """What an unearned pass would lack; spacing and labels may differ."""
    return lambda broken: all(mark in re.sub(r"\s+", " ", re.sub(r"\[\d+\]", "", broken)) for mark in marks)


@pytest.mark.parametrize(
    ("number", "marks"),
    [
        ("017", ("Out of bounds values : 0 OK", "Avg bus bandwidth", "Rank 7", " busbw")),
        ("021", ("Out of bounds values : 0 OK", "Avg bus bandwidth", "Rank 7", " busbw", "1073741824 268435456")),
        ("030", ('"end_time"', '"okay":"true"', '"size":1073741824')),
        ("080", ("NET/AWS Libfabric/0/GDRDMA",)),
    ],
)
def test_a_broken_healthy_output_is_passed_only_by_what_is_left(
    tmp_path: Path, number: str, marks: tuple[str, ...]
) -> None:
    """Cut anywhere or damaged at random: an answer always, a pass only where the deciding text is whole."""
    survives(tmp_path, number, still(*marks), seeds=60)


@pytest.mark.parametrize(
    "number", ["018", "020", "022", "023", "024", "028", "029", "076", "079", "095", "097", "098", "100"]
)
def test_a_broken_bad_output_never_passes(tmp_path: Path, number: str) -> None:
    """What is not good whole does not become good by cuts or damage."""
    survives(tmp_path, number, lambda broken: False, seeds=60)


def test_recognising_costs_nothing() -> None:
    """Importing the family loads its recognisers only, no parser and no judge."""
    script = (
        "import sys, pytest_gpuready.audit.readers.collectives\n"
        "print([m for m in sys.modules if m.startswith('pytest_gpuready.parse') or 'nccl_' in m or 'throughput' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
