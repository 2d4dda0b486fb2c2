"""A run over many nodes through the replay transport, with nodes that are late, dead, half-answering or lying.

    python benchmarks/fleet_run.py FOLDER [NODES ...]

For each number of nodes it composes a recording of that many 8-GPU nodes (each with its own name, boot id, UUIDs and
serial numbers), lets one node in a hundred be in trouble, runs `pytest -m level1` on it in a process of its own, and
prints seconds, peak memory and what the certificate says of the nodes.
"""

from __future__ import annotations

import dataclasses
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import msgspec

from pytest_gpuready.model import CommandResult
from pytest_gpuready.transport.recording import RecordingMeta, encode_result
from tests.nodes import eight_gpus

TROUBLE = ("late", "dead", "half", "garbage", "lying")
"""What is wrong with one node in a hundred, in turns."""

LATE_S = 5.0

RUN = """
import sys, time
sys.path.insert(0, {root!r})
from pytest_gpuready.transport.replay import Replay
from pytest_gpuready.errors import TransportError
from pytest_gpuready.campaign import reach

class Late(Replay):
    def run_many(self, commands):
        commands = list(commands)
        late = [c for c in commands if c.node.endswith("00")]
        yield from super().run_many([c for c in commands if c not in late])
        if late:
            time.sleep({late_s})
        yield from super().run_many(late)

reach.Replay = Late
import pytest
words = ["-m", "level1", "--gpuready-replay", "node", "-q", "-p", "no:cacheprovider", "--tb=no", "-rN"]
sys.exit(pytest.main([*{suites!r}, *words]))
"""


def name_of(number: int) -> str:
    return f"node{number:05d}"


def compose(directory: Path, nodes: int) -> None:
    """Write the recording."""
    (directory / "results").mkdir(parents=True)
    wanted = [r for r in eight_gpus() if r.command.argv[-1] in ("node", "nvml") or "nvml" in r.command.argv[3:4]]
    number = 0
    for index in range(nodes):
        trouble = TROUBLE[index // 100 % len(TROUBLE)] if index % 100 == 0 else ""
        for result in wanted:
            if trouble == "dead":
                continue
            path = directory / "results" / f"{number:06d}.json"
            path.write_bytes(encode_result(_as(result, index, trouble)))
            number += 1
    meta = RecordingMeta(
        gpuready_recording=1,
        recorded="2026-11-30T00:00:00+00:00",
        product="composed",
        nodes=[name_of(index) for index in range(nodes)],
        composed=f"composed: {nodes} nodes made of one, one in a hundred in trouble",
    )
    (directory / "recording.json").write_bytes(msgspec.json.encode(meta))
    last = name_of(nodes - 1).removeprefix("node")
    (directory / "site.yaml").write_text(
        f'site: 1\nnodes:\n  "node[00000-{last}]": {{gpus: 8, nvlink: full, virtual: true}}\n'
        'environment: {NCCL_NVLS_ENABLE: "0"}\n'
    )


def _as(result: CommandResult, index: int, trouble: str) -> CommandResult:
    text = result.stdout
    host = json.loads(text)["host"]
    boot = json.loads(text)["boot_id"]
    text = text.replace(f'"{host}"', f'"{name_of(index)}"').replace(boot, f"{boot[:-6]}{index:06x}")
    text = re.sub(r"GPU-[0-9a-f]{8}", lambda m: f"GPU-{index:08x}", text)
    text = re.sub(r'"serial":( ?)"(\d+)"', lambda m: f'"serial":{m[1]}"{int(m[2]) + 100 * index}"', text)
    if trouble == "half":
        text = text[: len(text) // 2]
    if trouble == "garbage":
        text = "\x00\x1b[31m<b>not JSON</b>\n" * 20
    if trouble == "lying":
        text = re.sub(f'"host": ?"{name_of(index)}"', f'"host":"{name_of(index + 1)}"', text)
    return dataclasses.replace(result, command=dataclasses.replace(result.command, node=name_of(index)), stdout=text)


def main(folder: Path, sizes: list[int]) -> None:
    root = Path(__file__).parent.parent
    print(f"{'nodes':>6} {'GPUs':>6} {'wall s':>8} {'CPU s':>8} {'peak MB':>8}  exit  nodes by verdict")
    for nodes in sizes:
        place = folder / str(nodes)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        compose(place / "node", nodes)
        (place / "run.py").write_text(RUN.format(root=str(root), late_s=LATE_S, suites=[str(root / "suites")]))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        with (place / "out.txt").open("w") as out:
            done = subprocess.run(
                ["/usr/bin/env", "time", "-f", "%M", "-o", str(place / "peak"), sys.executable, "run.py"],
                cwd=place,
                stdout=out,
                stderr=out,
                timeout=1800,
                check=False,
            )
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        peak = (place / "peak").read_text().split()[-1] if (place / "peak").exists() else "0"
        print(
            f"{nodes:>6} {nodes * 8:>6} {wall:>8.1f} {cpu:>8.1f} {int(peak) / 1024:>8.0f}  {done.returncode}",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]] or [125, 250, 500, 1000])
