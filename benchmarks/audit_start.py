"""How long an audit of one small file takes, start of the interpreter included.

Usage: python benchmarks/audit_start.py [RUNS] [--no-bytecode]

For each tool the longest input of the recorded cases is audited in processes of their own: `python -m
pytest_gpuready.cli audit FILE`. Printed are lines of the input, wall seconds (least, median) and CPU seconds of user
and system together (least, median): on a machine that others use, too, the CPU time is the fair figure. Bytecode is
cached, as an installation has it; with --no-bytecode the modules of this project are compiled at every start.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

CASES = Path(__file__).parents[1] / "tests" / "data" / "cases"


def inputs() -> dict[str, Path]:
    """Tool -> its longest input of at most 400 lines."""
    found: dict[str, Path] = {}
    for case in sorted(CASES.glob("*/case.yaml")):
        said = yaml.safe_load(case.read_text(encoding="utf-8"))
        for entry in said["inputs"]:
            path = case.parent / entry["file"]
            if lines(path) <= 400 and (said["tool"] not in found or lines(path) > lines(found[said["tool"]])):
                found[said["tool"]] = path
    return dict(sorted(found.items()))


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def once(path: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of one audit."""
    command = [sys.executable, "-m", "pytest_gpuready.cli", "audit", str(path)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # With pipes the wait for the end is no polling, which would add up to 50 ms.
    subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--no-bytecode"]
    runs = int(words[0]) if words else 10
    with tempfile.TemporaryDirectory() as cache:
        kept = "--no-bytecode" not in sys.argv
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONDONTWRITE")}
        environment.update({"PYTHONPYCACHEPREFIX": cache} if kept else {"PYTHONDONTWRITEBYTECODE": "1"})
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"bytecode {'cached' if kept else 'not cached'}, {runs} runs of each")
        print(f"{'tool':<20} {'lines':>6} {'wall min':>9} {'median':>8} {'CPU min':>9} {'median':>8}")
        worst = 0.0
        for tool, path in inputs().items():
            once(path, environment)
            wall, cpu = zip(*(once(path, environment) for _ in range(runs)), strict=True)
            worst = max(worst, min(cpu))
            print(
                f"{tool:<20} {lines(path):>6} {min(wall):>9.3f} {statistics.median(wall):>8.3f} {min(cpu):>9.3f} "
                f"{statistics.median(cpu):>8.3f}"
            )
        print(f"worst least CPU: {worst:.3f} s")


if __name__ == "__main__":
    main()
