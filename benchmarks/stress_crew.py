"""Plans of levels 2 to 4 by the agent as a node runs it, one command a plan; documents as JSON and a table.

    python benchmarks/stress_crew.py FOLDER [--plans level2,gemm-bf16,...] [--seconds 8] [--burn 25]

All GPUs of the node. The wall time is that of the command, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FORMATS = ("fp64", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8")
PATTERNS = ("walking", "inversions", "address", "random", "modulo20", "fade")
LIMIT_S = 200.0


def plans(seconds: float, burn: float) -> dict[str, dict[str, Any]]:
    """Name -> plan."""
    memory: list[dict[str, Any]] = [{"kind": "alloc", "share": 0.95}]
    memory += [{"kind": "cache", "level": level} for level in ("l1", "l2")]
    memory += [{"kind": "hbm", "kernel": kernel} for kernel in ("read", "write", "copy", "triad")]
    memory += [{"kind": "pattern", "pattern": pattern} for pattern in ("address", "random")]
    found = {"level2": {"phases": memory, "share": 0.95}}
    for form in FORMATS:
        found[f"gemm-{form}"] = {"phases": [{"kind": "gemm", "format": form, "seconds": seconds}]}
    last: list[dict[str, Any]] = [{"kind": "pattern", "pattern": pattern} for pattern in PATTERNS]
    for period, lasts in ((0.02, 4.0), (0.2, 4.0), (1.0, 5.0), (2.0, 6.0)):
        last.append({"kind": "pulse", "period_s": period, "duty": 0.5, "seconds": lasts})
    last.append({"kind": "pulse", "period_s": 1.0, "duty": 0.5, "stagger_s": 0.125, "seconds": 4.0})
    last.append({"kind": "burn", "seconds": burn})
    found["level4"] = {"phases": last, "share": 0.95}
    return found


def run(plan: dict[str, Any]) -> tuple[float, int, bytes]:
    """One command: seconds, exit code, what it printed."""
    begun = time.monotonic()
    words = [sys.executable, "-m", "pytest_gpuready.agent", "stress", json.dumps(plan)]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        return time.monotonic() - begun, -1, late.stdout or b""
    return time.monotonic() - begun, done.returncode, done.stdout


def about(phase: dict[str, Any]) -> str:
    """What a result says, in a few numbers."""
    told = []
    for name in (
        *("seconds", "late_s", "cut", "gb_per_s", "burst_tflops", "sustained_tflops", "cv", "passes", "cycles"),
        *("late_max_s", "error_count", "share", "digest", "golden"),
    ):
        value = phase.get(name)
        if isinstance(value, list):
            value = statistics.median(value) if value else None
        if value is not None:
            told.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {str(value)[:12]}")
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
        show(name, *run(known[name]), args.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
