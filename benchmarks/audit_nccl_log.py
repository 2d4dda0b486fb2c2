"""How long an audit of 10 MB of NCCL_DEBUG=INFO takes, start of the interpreter included.

Usage: python benchmarks/audit_nccl_log.py [MEGABYTES]. It writes the log of a run of 64 ranks on 8 nodes into a
temporary folder, audits it with the command and prints seconds for each of three runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

RANKS, PER_NODE, CHANNELS = 64, 8, 16


def lines() -> Iterator[str]:
    """Start-up, channels and tuning lines of every rank, again and again."""
    for rank in range(RANKS):
        at = f"node{rank // PER_NODE:02}:{4000 + rank}:{5000 + rank} [{rank % PER_NODE}] NCCL INFO "
        hcas = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(8))
        yield f"{at}NET/IB : Using {hcas} [RO]; OOB eth0:10.0.0.{rank}<0>"
        yield f"{at}Using network IB"
        yield (
            f"{at}ncclCommInitRank comm 0x5608210ae820 rank {rank} nranks {RANKS} cudaDev {rank % PER_NODE} nvmlDev 0 "
            "busId 70 commId 0xf373eff41ff28273 - Init COMPLETE"
        )
        for channel in range(CHANNELS):
            there = (rank + 1) % RANKS
            pair = f"{rank}[{rank % PER_NODE}] -> {there}[{there % PER_NODE}]"
            way = "P2P/CUMEM" if there // PER_NODE == rank // PER_NODE else f"NET/IB/{channel % 8}/GDRDMA"
            yield f"{at}Channel {channel:02}/0 : {pair} [send] via {way}"
            yield f"{at}Ring {channel:02} : {rank} -> {there} -> {(there + 1) % RANKS}"
        for _ in range(20):
            yield f"{at}AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}"


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "nccl.log"
        block = "\n".join(lines()) + "\n"
        log.write_text(block * (size * 10**6 // len(block) + 1), encoding="utf-8")
        command = [sys.executable, "-m", "pytest_gpuready.cli", "audit", str(log), "--expect", "expected_transport=IB"]
        for _ in range(3):
            start = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            print(f"{log.stat().st_size / 1e6:.1f} MB in {time.monotonic() - start:.2f} s, exit {done.returncode}")
        print(done.stdout)


if __name__ == "__main__":
    main()
