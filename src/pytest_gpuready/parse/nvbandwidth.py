"""nvbandwidth JSON (0.5 to 0.8) -> test cases with their last matrix.

Values are strings, "N/A" where there is no pair. Bidirectional tests between GPUs stack three matrices of N rows; sum
and description belong to the last. A failing test may be there twice, as Running and as Error. Latency tests give ns:
the description says the unit.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from pytest_gpuready.errors import ParseError
from pytest_gpuready.parse.json_once import once

GPUS_AT_MOST = 1024
_UNIT = re.compile(r"\(([^()]+)\)\s*$")
STATUSES = ("Passed", "Running", "Waived", "Not Found", "Error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test. `matrix` has one row per source, None where a pair does not exist; empty where nothing was measured."""

    name: str
    status: str
    description: str
    unit: str
    matrix: tuple[tuple[float | None, ...], ...]
    sum: float | None
    error: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """All figures of the matrix."""
        return tuple(value for row in self.matrix for value in row if value is not None)

    def by_gpu(self) -> tuple[float | None, ...]:
        """The lowest figure of each GPU (column)."""
        columns = zip(*self.matrix, strict=True) if self.matrix else ()
        return tuple(min((value for value in column if value is not None), default=None) for column in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidths:
    """A whole document."""

    version: str
    driver: str
    gpus: tuple[str, ...]
    cases: tuple[Case, ...]
    error: str = ""
    warning: str = ""
    use_mean: bool | None = None


def nvbandwidth(text: str) -> Bandwidths:
    """Read a document.

    Raises:
        ParseError: it is not whole, or a value is of another kind.
    """
    start = text.find("{")
    if start < 0:
        raise ParseError("nvbandwidth JSON: expected an object, found none; run nvbandwidth -j")
    try:
        data = json.loads(text[start:], object_pairs_hook=once)["nvbandwidth"]
        cases = [_case(entry) for entry in data.get("testcases") or []]
        names = [case.name for case in cases]
        kept = [
            case
            for case in cases
            if not (case.status == "Running" and names.count(case.name) > 1 and case.matrix == ())
        ]
        mean = data.get("useMean")
        return Bandwidths(
            version=str(data.get("git_version") or data.get("version") or "")[:80],
            driver=str(data.get("Driver Version") or "")[:80],
            gpus=tuple(str(name)[:200] for name in data.get("GPU Device list") or ())[:GPUS_AT_MOST],
            cases=tuple(kept),
            error=str(data.get("error") or "")[:500],
            warning=str(data.get("warning") or "")[:500],
            use_mean=mean if isinstance(mean, bool) else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ParseError(
            f"nvbandwidth JSON: expected a whole document with testcases, found {str(error)[:80]!r}; run it again"
        ) from error


def _case(entry: dict[str, Any]) -> Case:
    status = str(entry["status"])
    if status not in STATUSES:
        raise ValueError(f"status {status!r}")
    rows = [tuple(_value(cell) for cell in row) for row in entry.get("bandwidth_matrix") or ()]
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows) or width > GPUS_AT_MOST:
        raise ValueError("rows of different lengths")
    description = str(entry.get("bandwidth_description") or "")
    if "bidirectional" in str(entry["name"]) and width > 1 and len(rows) == 3 * width:
        rows = rows[-width:]
    unit = _UNIT.search(description)
    total = entry.get("sum")
    made = Case(
        name=str(entry["name"])[:200],
        status=status,
        description=description[:200],
        unit=unit[1] if unit else "",
        matrix=tuple(rows),
        sum=_value(total) if total is not None else None,
        error=str(entry.get("error") or "")[:500],
    )
    if made.sum is not None and made.values and abs(math.fsum(made.values) - made.sum) > 0.01 * abs(made.sum) + 0.1:
        raise ValueError(f"sum {made.sum:g} beside the matrix of {made.name}")
    return made


def _value(cell: object) -> float | None:
    if isinstance(cell, str) and cell.strip() == "N/A":
        return None
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float)):
        raise ValueError(f"{cell!r} for a figure")
    value = float(cell)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{cell!r} for a figure")
    return value
