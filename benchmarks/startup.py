"""What the plug-in costs a test suite that does not use it: `python benchmarks/startup.py [RUNS]`.

Runs pytest on one empty test with and without the plug-in, in turns, each in a fresh process, and prints the medians
and the median of the differences pair by pair, in milliseconds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def once(folder: str, *arguments: str) -> float:
    """Wall milliseconds of one pytest process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    """Print the comparison."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_empty.py").write_text("def test_nothing():\n    pass\n")
        once(folder)
        pairs = [(once(folder), once(folder, "-p", "no:gpuready")) for _ in range(runs)]
    with_plugin, without = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    difference = statistics.median(a - b for a, b in pairs)
    print(
        f"with {with_plugin:.1f} ms, without {without:.1f} ms, difference {difference:+.1f} ms (median of {runs} pairs)"
    )


if __name__ == "__main__":
    main()
