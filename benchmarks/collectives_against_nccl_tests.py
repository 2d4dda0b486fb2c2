"""Our sweep beside nccl-tests, from the files of one visit: `python benchmarks/collectives_against_nccl_tests.py DIR`.

DIR holds ours-OP-1.json and theirs-OP-1.txt and so on, taken in turns; ours-quiet-1.json is all_reduce without NCCL's
log, ours-whole-1.json all collectives in one command. Prints for each collective the medians over the rounds of busbw
at 1, 4 and 8 GiB (out of place), the ratio, the time at the smallest size both ran, and elements that were wrong; with
one GPU, where busbw is 0, algbw instead. Writes comparison.json beside them.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

GIB = 2**30
SIZES = (GIB, 4 * GIB, 8 * GIB)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")


def ours(path: Path) -> dict[int, tuple[float, float, float]]:
    """Size -> us, algbw, busbw; what went wrong is printed."""
    data: dict[str, Any] = json.loads(path.read_text())["data"]
    if data.get("problem"):
        print(f"{path.name}: {data['problem']}")
    halves = [half for row in data.get("rows", []) for half in (row["out_of_place"], row.get("in_place")) if half]
    if wrong := sum(half["wrong"] or 0 for half in halves):
        print(f"{path.name}: {wrong} wrong elements")
    return {row["size_bytes"]: _numbers(row["out_of_place"]) for row in data.get("rows", [])}


def _numbers(half: dict[str, float]) -> tuple[float, float, float]:
    return half["time_us"], half["algbw_gb_per_s"], half["busbw_gb_per_s"]


def theirs(path: Path) -> dict[int, tuple[float, float, float]]:
    """The same of nccl-tests: rows of numbers behind size, count, type, redop and root."""
    found = {}
    for line in path.read_text(errors="replace").splitlines():
        words = line.split()
        if len(words) >= 9 and words[0].isdecimal() and words[1].isdecimal() and int(words[0]):
            found[int(words[0])] = (float(words[5]), float(words[6]), float(words[7]))
    return found


def medians(rounds: list[dict[int, tuple[float, float, float]]]) -> dict[int, tuple[float, ...]]:
    """Size -> the medians over all rounds that have it."""
    sizes = {size for one in rounds for size in one}
    return {
        size: tuple(map(statistics.median, zip(*(one[size] for one in rounds if size in one), strict=True)))
        for size in sizes
    }


def shown(size: int) -> str:
    return f"{size // GIB} GiB" if size >= GIB else f"{size} B"


def compare(folder: Path) -> dict[str, Any]:
    """Print the table; the same as data."""
    kept: dict[str, Any] = {}
    print(f"{'collective':16}{'size':>8}{'ours':>10}{'nccl-tests':>12}{'ratio':>8}")
    for op in COLLECTIVES:
        mine = medians([ours(path) for path in sorted(folder.glob(f"ours-{op}-*.json"))])
        other = medians([theirs(path) for path in sorted(folder.glob(f"theirs-{op}-*.txt"))])
        if not mine:
            continue
        at = 2 if any(row[2] for row in mine.values()) else 1
        for size in SIZES:
            if size in mine:
                line(kept, op, size, mine[size][at], other[size][at] if size in other else None)
        small = min(set(mine) & set(other) or set(mine))
        line(kept, f"{op} us", small, mine[small][0], other[small][0] if small in other else None)
    quiet = folder / "ours-quiet-1.json"
    if quiet.exists():
        silent, loud = ours(quiet), medians([ours(path) for path in sorted(folder.glob("ours-all_reduce-*.json"))])
        for size in sorted(set(silent) & set(loud))[:1] + sorted(set(silent) & set(loud))[-1:]:
            print(
                f"all_reduce at {shown(size)}: {loud[size][0]:.2f} us with NCCL's log, {silent[size][0]:.2f} us without"
            )
    return kept


def line(kept: dict[str, Any], what: str, size: int, mine: float, other: float | None) -> None:
    """One row of the table."""
    ratio = mine / other if other else None
    beside = f"{other:12.2f}" if other is not None else f"{'-':>12}"
    print(f"{what:16}{shown(size):>8}{mine:10.2f}{beside}{f'{ratio:8.4f}' if ratio else '       -'}")
    kept[f"{what} {shown(size)}"] = {"ours": mine, "nccl_tests": other, "ratio": ratio}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "comparison.json").write_text(json.dumps(compare(place), indent=1) + "\n")
