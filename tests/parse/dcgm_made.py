"""Documents of `dcgmi diag -j` made by hand, with one thing wrong in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pytest_gpuready.parse.dcgm_diag import diag_run
from pytest_gpuready.parse.dcgm_parts import Says, part_results
from pytest_gpuready.parse.dcgm_run import DiagRun

Row = dict[str, Any]


def four(*tests: Row, gpus: int = 4) -> dict[str, Any]:
    """A 4.x document."""
    entities = [{"entity_id": n, "device_id": "2335", "serial_num": f"S{n}"} for n in range(gpus)]
    return {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": list(tests)}]},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
        "metadata": {"version": "4.6.0", "Driver Version Detected": "580.1"},
    }


def healthy(name: str = "memory", gpus: int = 4, summary: str = "Pass") -> Row:
    """A test of 4.x that passes on every GPU."""
    rows = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": n, "status": "Pass"} for n in range(gpus)]
    return {"name": name, "results": rows, "test_summary": {"status": summary}}


def three(name: str, rows: list[Row | None], category: str = "Hardware", gpus: int = 4) -> dict[str, Any]:
    """A 3.x document with one test."""
    return {
        "DCGM GPU Diagnostic": {
            "test_categories": [{"category": category, "tests": [{"name": name, "results": rows}]}]
        },
        "GPU Device IDs": ["2335"] * gpus,
        "GPU Device Serials": {str(n): f"S{n}" for n in range(gpus)},
        "version": "3.3.9",
    }


def changed(change: Callable[[dict[str, Any], Row], object], name: str = "memory") -> DiagRun:
    """The run of a passing 4.x document to which this was done; it is given the document and GPU 3's result."""
    document = four(healthy(name))
    change(document, document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][3])
    return diag_run(json.dumps(document), "", 0)


def said(run: DiagRun) -> dict[str, Says]:
    """Part -> the worst that the run says of it."""
    order = (Says.PASSED, Says.UNMEASURED, Says.FAILED)
    found: dict[str, Says] = {}
    for one in run.passes:
        for row in part_results(one):
            found[row.part] = max(found.get(row.part, Says.PASSED), row.says, key=order.index)
    return found
