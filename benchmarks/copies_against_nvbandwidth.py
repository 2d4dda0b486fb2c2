"""Our copies beside nvbandwidth's, from the files of one visit: `python benchmarks/copies_against_nvbandwidth.py DIR`.

DIR holds copies-1.json, nvbandwidth-1.json and so on, taken in turns. Prints GB/s per direction, round by round, the
medians and their ratio; writes comparison.json beside them. For both directions at once nvbandwidth gives one
direction while the other one runs, so each direction is compared for itself.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROWS = {
    "H2D": ("host_to_device_memcpy_ce", "h2d", ""),
    "D2H": ("device_to_host_memcpy_ce", "d2h", ""),
    "H2D while D2H": ("host_to_device_bidirectional_memcpy_ce", "bidirectional", "h2d"),
    "D2H while H2D": ("device_to_host_bidirectional_memcpy_ce", "bidirectional", "d2h"),
}
"""Row -> test case of nvbandwidth, our kind of copy, and which direction of it."""


def ours(path: Path, kind: str, way: str) -> float:
    """GB/s of one of our copies. Raises: SystemExit where the document tells a problem."""
    data = json.loads(path.read_text())["data"]
    if data["problem"]:
        raise SystemExit(f"{path}: {data['problem']}")
    copy = next(c for c in data["copies"] if c["kind"] == kind)
    return float(copy["each"][way] if way else copy["gb_per_s"])


def theirs(path: Path, case: str) -> float:
    """GB/s of GPU 0 in one of nvbandwidth's test cases. Raises: SystemExit where it did not pass."""
    document: dict[str, Any] = json.loads(path.read_text())["nvbandwidth"]
    found = next(c for c in document["testcases"] if c["name"] == case)
    if found["status"] != "Passed":
        raise SystemExit(f"{path}: {case} {found['status']}")
    return float(found["bandwidth_matrix"][-1][0])


def main(folder: Path) -> None:
    """Print the table and write comparison.json."""
    rounds = sorted(int(p.stem.split("-")[1]) for p in folder.glob("copies-[0-9]*.json"))
    table: dict[str, Any] = {}
    print(f"{'GB/s':14}  {'ours':>24}  {'nvbandwidth':>24}  {'medians':>15}  ratio")
    for row, (case, kind, way) in ROWS.items():
        a = [ours(folder / f"copies-{n}.json", kind, way) for n in rounds]
        b = [theirs(folder / f"nvbandwidth-{n}.json", case) for n in rounds]
        ratio = statistics.median(a) / statistics.median(b)
        table[row] = {"ours": a, "nvbandwidth": b, "ratio_of_medians": ratio}
        shown = ("  ".join(f"{v:.2f}" for v in a), "  ".join(f"{v:.2f}" for v in b))
        medians = f"{statistics.median(a):.2f} / {statistics.median(b):.2f}"
        print(f"{row:14}  {shown[0]:>24}  {shown[1]:>24}  {medians:>15}  {ratio:.4f}")
    (folder / "comparison.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
