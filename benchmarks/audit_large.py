"""Peak memory and time of an audit of a large input, for every family of readers.

Usage: python benchmarks/audit_large.py [MEGABYTES] [NAME...]

For each kind a file of that size is written in the tool's own format and audited by a process of its own. Printed are
the size, wall and CPU seconds (user and system), the peak resident memory of that process and what came of it: the
outcome and, where the input was refused, the line that says so. "+" behind a name: the same text again and again, as
a tool in a loop leaves it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from audit_nccl_log import lines as nccl_lines

DATA = Path(__file__).parents[1] / "tests" / "data"
Kind = tuple[str, tuple[str, ...], Callable[[], Iterator[str]]]


def again(name: str) -> Callable[[], Iterator[str]]:
    """A recorded text, again and again."""

    def blocks() -> Iterator[str]:
        text = (DATA / name).read_text(encoding="utf-8")
        text = text if text.endswith("\n") else text + "\n"
        while True:
            yield text

    return blocks


def dmesg() -> Iterator[str]:
    """A kernel log with an Xid every thousand lines, on eight GPUs."""
    for n in count():
        yield f"[{n / 10:12.6f}] systemd[1]: Started Session {n} of User root, scope number {n}.\n"
        if n % 1000 == 0:
            gpu = n // 1000 % 8
            yield f"[{n / 10:12.6f}] NVRM: Xid (PCI:0000:{gpu + 16:02x}:00): 94, pid={n}, name=python, Contained: SM\n"


def xids() -> Iterator[str]:
    """A storm of Xids."""
    for n in count():
        yield f"[{n / 10:12.6f}] NVRM: Xid (PCI:0000:{n % 8 + 16:02x}:00): 31, pid={n}, name=python, MMU Fault\n"


def aer() -> Iterator[str]:
    """A storm of corrected PCIe errors, three lines each."""
    for n in count():
        at = f"[{n / 10:12.6f}] pcieport 0000:{n % 32:02x}:01.0: "
        yield f"{at}AER: Corrected error message received from 0000:{n % 32:02x}:01.0\n"
        yield f"{at}PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)\n"
        yield f"{at}  device [8086:352a] error status/mask=00001000/00002000\n"


def sysctl_keys() -> Iterator[str]:
    """Every key another one, as on a host with very many interfaces."""
    for n in count():
        yield f"net.ipv4.conf.veth{n}.accept_redirects = 0\n"


def sysctl_again() -> Iterator[str]:
    """`sysctl -a` every minute: the same keys, some with new values."""
    for n in count():
        yield "".join(f"net.ipv4.conf.veth{i}.rp_filter = {(n + i) % 3}\n" for i in range(1000))


def nccl_info() -> Iterator[str]:
    while True:
        yield "\n".join(nccl_lines()) + "\n"


def srun_log() -> Iterator[str]:
    """Output of many nodes with a few messages of srun between."""
    for n in count():
        yield f"{n % 512}: step {n}: loss 2.{n % 1000:03} throughput {n % 997} samples/s on node{n % 64:03}\n"
        if n % 5000 == 0:
            yield f"srun: error: node{n % 64:03}: task {n % 512}: Exited with exit code 1\n"


def perfquery() -> Iterator[str]:
    """Every port of a fabric that is far too large."""
    text = (DATA / "cases/068/perfquery.txt").read_text(encoding="utf-8")
    one = text[: text.index("# Port", 10)]
    for n in count():
        yield one.replace("Lid 1204 port 1", f"Lid {n % 48000} port {n // 48000 + 1}")


def ethtool() -> Iterator[str]:
    yield "NIC statistics:\n"
    for n in count():
        yield f"     rx{n}_packets: {n}\n"


def smi_csv() -> Iterator[str]:
    """Eight GPUs sampled for days."""
    yield "timestamp, index, name, pstate, pcie.link.gen.current, pcie.link.width.current, temperature.gpu\n"
    for n in count():
        at = f"2026/11/30 10:{n // 480 % 60:02}:{n // 8 % 60:02}.{n % 1000:03}"
        yield f"{at}, {n % 8}, NVIDIA H200, P0, 5, 16, {n % 60 + 30}\n"


def dcgm_json() -> Iterator[str]:
    yield '{"DCGM Diagnostic": {"test_categories": [\n'
    for n in count():
        result = f'{{"entity_id": {n}, "status": "Pass"}}'
        yield f'{{"category": "Hardware", "tests": [{{"name": "memory", "results": [{result}]}}]}},\n'


def vllm_metrics() -> Iterator[str]:
    """A page of very many samples."""
    yield "# TYPE vllm:request_success_total counter\n"
    for n in count():
        yield f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m{n}"}} {n}.0\n'


def triton_metrics() -> Iterator[str]:
    yield "# TYPE nv_inference_request_success counter\n"
    for n in count():
        yield f'nv_inference_request_success{{model="m{n}",version="1"}} {n}\n'


def stream() -> Iterator[str]:
    """One streamed answer of very many tokens."""
    for n in count():
        choice = {"index": 0, "delta": {"content": f" word{n}"}, "finish_reason": None}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"


def iperf3() -> Iterator[str]:
    yield '{"start": {"version": "iperf 3.16", "test_start": {"protocol": "TCP"}}, "intervals": [\n'
    for n in count():
        rate = '"seconds": 1, "bytes": 12500000000, "bits_per_second": 1e11'
        yield f'{{"sum": {{"start": {n}, "end": {n + 1}, {rate}}}}},\n'


def nvbandwidth() -> Iterator[str]:
    yield '{"nvbandwidth": {"git_version": "v0.8", "testcases": [\n'
    for n in count():
        yield f'{{"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["{n}"]]}},\n'


def gpu_burn() -> Iterator[str]:
    """Progress lines, ended by carriage returns."""
    yield "Burning for 36000 seconds.\nGPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
    for n in count():
        done = f"proc'd: {n} (51234 Gflop/s) - {n} (51200 Gflop/s)"
        yield f"{n % 1000 / 10:.1f}%  {done}   errors: 0 - 0   temps: 60 C - 61 C \r"


def lspci() -> Iterator[str]:
    for n in count():
        where = f"{n >> 13 & 0xFFFF:04x}:{n >> 5 & 0xFF:02x}:{n & 31:02x}.0"
        yield f"{where} 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)\n"
        yield "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"


def ibqueryerrors() -> Iterator[str]:
    for n in count():
        yield f'Errors for "node{n} mlx5_0"\n'
        yield f"   GUID 0x{n:016x} port 1: [SymbolErrorCounter == 5] [LinkDownedCounter == 1]\n"


DOCUMENTS = ("JSON", "diag text", "inspect")
"""Read in one piece: audited just below their bound, too."""
BOUND_MB = {"dcgmi diag JSON": 16, "dcgmi diag text +": 16}
"""Where it is not 33."""
KINDS: tuple[Kind, ...] = (
    ("kernel log", ("--expect", "expected_gpus=8"), dmesg),
    ("kernel log, Xids", (), xids),
    ("kernel log, AER", (), aer),
    ("sysctl, many keys", ("--tool", "sysctl", "--expect", "vm.swappiness=10"), sysctl_keys),
    ("sysctl +", ("--expect", "net.ipv4.conf.veth1.rp_filter=1"), sysctl_again),
    ("NCCL log", ("--expect", "expected_transport=IB"), nccl_info),
    ("nccl-tests text +", ("--expect", "min_peak_busbw_gb_per_s=100"), again("cases/018/all_reduce.txt")),
    ("nccl-tests JSON +", ("--tool", "nccl-tests-json"), again("cases/028/out.json")),
    ("nvbandwidth JSON", ("--tool", "nvbandwidth"), nvbandwidth),
    ("gpu-burn", ("--expect", "expected_gpus=2"), gpu_burn),
    ("iperf3 JSON", ("--tool", "iperf3"), iperf3),
    ("srun log", (), srun_log),
    ("mpirun log +", ("--tool", "launcher"), again("cases/100/mpirun.txt")),
    ("perfquery", ("--expect", "max_symbol_errors=0"), perfquery),
    ("ibqueryerrors", (), ibqueryerrors),
    ("ibstat +", ("--tool", "ibstat"), again("cases/063/ibstat.txt")),
    ("ibstatus +", ("--tool", "ibstatus"), again("cases/067/ibstatus.txt")),
    ("mlxlink +", ("--tool", "mlxlink"), again("cases/072/mlxlink.txt")),
    ("ethtool -S", (), ethtool),
    ("nvidia-smi CSV", ("--expect", "expected_gpus=8"), smi_csv),
    ("nvidia-smi -q +", (), again("recorded/nvidia-smi/580.159.04/h200x2/nvidia-smi-q.txt")),
    ("nvidia-smi XML +", (), again("cases/039/nvidia-smi.xml")),
    ("nvidia-smi topo +", (), again("cases/040/topo.txt")),
    ("nvidia-smi nvlink +", (), again("cases/046/nvlink.txt")),
    ("lspci", (), lspci),
    ("dcgmi diag JSON", ("--tool", "dcgmi-diag-json"), dcgm_json),
    ("dcgmi diag text +", ("--tool", "dcgmi-diag-text"), again("cases/013/diag.txt")),
    ("dcgmi nvlink +", ("--tool", "dcgmi-nvlink"), again("cases/016/nvlink.txt")),
    ("docker inspect +", ("--tool", "docker"), again("cases/083/inspect.json")),
    ("vLLM metrics", (), vllm_metrics),
    ("vLLM stream", ("--expect", "max_tokens=5"), stream),
    ("Triton metrics", (), triton_metrics),
    ("Ray Serve metrics +", ("--tool", "ray-serve-http"), again("cases/093/body.txt")),
)


def write(path: Path, blocks: Iterator[str], size: int) -> None:
    written = 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(next(blocks).encode())


def audited(path: Path, words: tuple[str, ...]) -> tuple[float, float, int, str]:
    """Wall and CPU seconds, peak memory in MiB and what came of it."""
    command = [sys.executable, "-m", "pytest_gpuready.cli", "audit", str(path), *words]
    with tempfile.TemporaryFile("w+") as out:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        out.seek(0)
        said = [line.rstrip() for line in out]
    first = next((line for line in said if line.startswith("  not-measured") or "Error" in line), "")
    outcome = said[-1].partition("audit: ")[2].partition(",")[0] if said else ""
    why = f" {first[17:]}" if first and len(said) < 40 else ""
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, f"{outcome} ({process.returncode}){why}"


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'input':<20} {'MB':>5} {'wall s':>7} {'CPU s':>7} {'RSS MiB':>8}  outcome")
    with tempfile.TemporaryDirectory() as folder:
        for name, words, blocks in KINDS:
            if len(sys.argv) > 2 and not any(word in name for word in sys.argv[2:]):
                continue
            below = BOUND_MB.get(name, 33)
            sizes = [below, size] if size > below and any(word in name for word in DOCUMENTS) else [size]
            path = Path(folder) / "input"
            for megabytes in sizes:
                write(path, blocks(), megabytes * 10**6)
                wall, cpu, memory, outcome = audited(path, words)
                size_mb = path.stat().st_size / 1e6
                print(f"{name:<20} {size_mb:>5.0f} {wall:>7.1f} {cpu:>7.1f} {memory:>8}  {outcome[:150]}", flush=True)


if __name__ == "__main__":
    main()
