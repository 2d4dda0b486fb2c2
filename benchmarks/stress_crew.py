"""Plans of levels 2 to 4 by the agent as a node runs it, one command a plan; documents as JSON and a table.

    python benchmarks/stress_crew.py FOLDER [--plans level2,gemm-bf16,...] [--seconds 8] [--burn 25]

    level2           memory and caches
    gemm-FORMAT      one format for `--seconds`
    level3           all formats, each ended when its rate is known to within 0.5 %
    golden, golden2  all formats for a moment, in two processes: the golden digests of all documents are compared
    lacking          from the file that is sent to a node, where nvmath-python is not installed
    level4           patterns, pulses, burn-in of `--burn` seconds

All GPUs of the node. The wall time is that of the command, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FORMATS = ("fp64", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8")
PATTERNS = ("walking", "inversions", "address", "random", "modulo20", "fade")
LIMIT_S = 200.0
LACKING = "lacking"


def plans(seconds: float, burn: float) -> dict[str, dict[str, Any]]:
    """Name -> plan."""
    memory: list[dict[str, Any]] = [{"kind": "alloc", "share": 0.95}]
    memory += [{"kind": "cache", "level": level} for level in ("l1", "l2")]
    memory += [{"kind": "hbm", "kernel": kernel} for kernel in ("read", "write", "copy", "triad")]
    memory += [{"kind": "pattern", "pattern": pattern} for pattern in ("address", "random")]
    found: dict[str, dict[str, Any]] = {"level2": {"phases": memory, "share": 0.95, "lead_s": 0.2}}
    for form in FORMATS:
        found[f"gemm-{form}"] = {"phases": [{"kind": "gemm", "format": form, "seconds": seconds}]}
    adaptive = {"kind": "gemm", "seconds": 12.0, "least_s": 3.0, "within": 0.005}
    moment = {"kind": "gemm", "seconds": 0.3}
    found["level3"] = {"phases": [{**adaptive, "format": form} for form in FORMATS], "lead_s": 0.2}
    found["golden"] = found["golden2"] = {"phases": [{**moment, "format": form} for form in FORMATS], "lead_s": 0.2}
    bare = [{"kind": "hbm", "kernel": "copy", "seconds": 10.0, "within": 0.005, "least_s": 0.5}]
    found[LACKING] = {"phases": [*memory[:3], *bare, memory[-1], {**moment, "format": "bf16"}], "lead_s": 0.2}
    last: list[dict[str, Any]] = [{"kind": "pattern", "pattern": pattern} for pattern in PATTERNS]
    for period, lasts in ((0.02, 4.0), (0.2, 4.0), (1.0, 5.0), (2.0, 6.0)):
        last.append({"kind": "pulse", "period_s": period, "duty": 0.5, "seconds": lasts})
    last.append({"kind": "pulse", "period_s": 1.0, "duty": 0.5, "stagger_s": 0.125, "seconds": 4.0})
    last.append({"kind": "burn", "seconds": burn})
    found["level4"] = {"phases": last, "share": 0.95}
    return found


def run(plan: dict[str, Any], path: str | None = None) -> tuple[float, int, bytes]:
    """One command, with this PYTHONPATH: seconds, exit code, what it printed."""
    environment = os.environ | ({} if path is None else {"PYTHONPATH": path})
    begun = time.monotonic()
    words = [sys.executable, "-m", "pytest_gpuready.agent", "stress", json.dumps(plan)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LIMIT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired as late:
        return time.monotonic() - begun, -1, late.stdout or b""
    return time.monotonic() - begun, done.returncode, done.stdout


def about(phase: dict[str, Any]) -> str:
    """What a result says, in a few numbers."""
    told = []
    for name in (
        *("seconds", "late_s", "cut", "gb_per_s", "burst_tflops", "sustained_tflops", "cv", "passes", "cycles"),
        *("late_max_s", "error_count", "share", "half_width", "enough", "digest", "golden", "memory_turns"),
    ):
        value = phase.get(name)
        if isinstance(value, list):
            value = statistics.median(value) if value else None
        if value is not None:
            told.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {str(value)[:12]}")
    if "error_count" in phase:
        told.append(f"control {str(phase.get('control', 'none'))[:80]}")
    return ", ".join(told)


def show(name: str, wall: float, code: int, text: bytes, folder: Path) -> None:
    """Keep the document and print what it says."""
    try:
        document = json.loads(text)["data"]
    except (ValueError, KeyError):
        print(f"{name}: {wall:.2f} s, exit code {code}, no document: {text[:200]!r}", flush=True)
        return
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    windows = [round(window["end"] - window["begin"], 2) for window in document.get("windows", [])]
    print(
        f"{name}: {wall:.2f} s of wall time, document {path.stat().st_size / 1e3:.0f} kB, first load after "
        f"{document.get('first_load_s')} s, windows {windows}"
        f" {document.get('problem', '')} {document.get('watch_problem', '')} {document.get('log_problem', '')}"
    )
    for gpu in document.get("gpus", []):
        for what in ("refused", "problem", "stopped", "errors"):
            if gpu.get(what):
                print(f"  {gpu['bdf']} {what}: {gpu[what]}")
        print(f"  {gpu['bdf']} ready after {gpu.get('ready', {}).get('start_s', 0):.2f} s")
        for phase, asked in zip(gpu["phases"], document["plan"]["phases"], strict=True):
            word = " ".join(
                str(asked[key]) for key in ("format", "kernel", "level", "pattern", "period_s") if key in asked
            )
            seen = phase.get("seen", {}).get("spans", {})
            spans = {key: (span["low"], span["median"], span["high"]) for key, span in seen.items()}
            notes = phase.get(phase["kind"], {}).get("notes", [])
            print(
                f"    {phase['kind']} {word}: {phase.get('problem', '')}{about(phase.get(phase['kind'], {}))}; {notes}"
            )
            print(f"      W {spans.get('power_w')}, MHz {spans.get('sm_mhz')}, C {spans.get('temperature_c')}")
            for one in phase.get("burn", {}).get("each", []):
                print(f"      {one['format']}: {about(one)}")
    sys.stdout.flush()


def compare(folder: Path) -> None:
    """Golden digests of all documents, beside those of the algorithms that were chosen."""
    seen: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        for gpu in json.loads(path.read_text(encoding="utf-8")).get("gpus", []):
            products = [phase["gemm"] for phase in gpu["phases"] if "gemm" in phase]
            products += [one for phase in gpu["phases"] for one in phase.get("burn", {}).get("each", [])]
            for one in products:
                seen.setdefault(one["format"], []).append(one)
    for form, found in sorted(seen.items()):
        words = {what: len({one.get(what) for one in found}) for what in ("golden", "golden_algorithm", "digest")}
        chosen = len({one["algorithm"] for one in found})
        print(f"golden {form}: {len(found)} results, different ones: {words}, algorithms chosen: {chosen}")
        sizes = {(one["m"], one["n"], one["k"]) for one in found}
        if len(sizes) > 1:
            print(f"  of different shapes: {sorted(sizes)}")
    sys.stdout.flush()


def from_file(plan: dict[str, Any]) -> tuple[float, int, bytes]:
    """As on a node that has nothing of ours."""
    from pytest_gpuready.transport.agent_zip import agent_zip  # noqa: PLC0415 - nothing else here needs the package

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "agent.zip")
        path.write_bytes(agent_zip().data)
        return run(plan, str(path))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--burn", type=float, default=25.0)
    parser.add_argument("--plans", default="")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    known = plans(args.seconds, args.burn)
    for name in args.plans.split(",") if args.plans else known:
        show(name, *(from_file if name == LACKING else run)(known[name]), args.folder)
    compare(args.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
