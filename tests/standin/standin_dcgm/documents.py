"""The JSON of `dcgmi diag -j`, 4.x and 3.x, laid out as jsoncpp does: tabs, keys in alphabetical order."""

from __future__ import annotations

import json
from typing import Any

from .errors import Error
from .said import FAIL, NOT_RUN, WARN, Pass, Result, TestSaid
from .scenario import Scenario

CATEGORY_ORDER = ("Deployment", "Hardware", "Integration", "Stress")
CATEGORY_ORDER_3 = ("Deployment", "Integration", "Hardware", "Stress")
CHECKS_3 = (
    "Denylist",
    "NVML Library",
    "CUDA Main Library",
    "Permissions and OS Blocks",
    "Persistence Mode",
    "Environment Variables",
    "Page Retirement/Row Remap",
    "Graphics Processes",
    "Inforom",
)
"""Software checks of 3.3.9, each a test of its own there."""
NAMES_3 = {
    "memory": "GPU Memory",
    "pcie": "PCIe",
    "diagnostic": "Diagnostic",
    "memory_bandwidth": "Memory Bandwidth",
    "targeted_stress": "Targeted Stress",
    "targeted_power": "Targeted Power",
    "pulse_test": "Pulse Test",
    "eud": "EUD Test",
    "memtest": "Memtest",
    "context_create": "Context Create",
}


def written(value: Any, depth: int = 0) -> str:
    """A value as jsoncpp writes it."""
    tabs = "\t" * depth
    if isinstance(value, dict) and value:
        lines = []
        for key in sorted(value):
            inner = value[key]
            gap = f"\n{tabs}\t" if isinstance(inner, (dict, list)) and inner else ""
            lines.append(f"{tabs}\t{json.dumps(key)} : {gap}{written(inner, depth + 1)}")
        return "{\n" + ",\n".join(lines) + f"\n{tabs}}}"
    if isinstance(value, list) and value:
        lines = [f"{tabs}\t{written(inner, depth + 1)}" for inner in value]
        return "[\n" + ",\n".join(lines) + f"\n{tabs}]"
    return json.dumps(value)


def runtime_error(text: str, scenario: Scenario) -> dict[str, Any]:
    """The document of a run without results."""
    key = "DCGM GPU Diagnostic" if scenario.old else "DCGM Diagnostic"
    return {key: {"runtime_error": text, "version": scenario.version}}


def document(one: Pass, gpus: list[int], scenario: Scenario) -> dict[str, Any]:
    """The document of one pass."""
    return _old(one, gpus, scenario) if scenario.old else _new(one, gpus, scenario)


def iterations(passes: list[dict[str, Any]], *, failed: bool, warning: str) -> dict[str, Any]:
    """The document of --iterations."""
    made: dict[str, Any] = {"Overall Result": "Fail" if failed else "Pass", "iterations": passes}
    if warning:
        made["warning"] = warning
    return made


def _new(one: Pass, gpus: list[int], scenario: Scenario) -> dict[str, Any]:
    entities: list[dict[str, Any]] = []
    for gpu in gpus:
        entity: dict[str, Any] = {"device_id": scenario.device_ids[gpu], "entity_id": gpu}
        if scenario.serials[gpu]:
            entity["serial_num"] = scenario.serials[gpu]
        entities.append(entity)
    categories = []
    for category in CATEGORY_ORDER:
        tests = [_new_test(test) for test in one.tests if test.category == category]
        if tests:
            categories.append({"category": category, "tests": tests})
    return {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": scenario.driver, "version": scenario.version},
    }


def _new_test(test: TestSaid) -> dict[str, Any]:
    results: list[dict[str, Any] | None] = []
    for result in test.results:
        if result.null:
            results.append(None)
        elif result.status != NOT_RUN or result.written:
            entry: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": result.gpu}
            results.append({**entry, **_told(result, [_error(error) for error in result.errors], list(result.info))})
    made: dict[str, Any] = {"name": test.name, "results": results}
    if test.summary == NOT_RUN:
        return made
    summary: dict[str, Any] = {"status": _status(test.summary)}
    if test.errors:
        summary["warnings"] = [_error(error) for error in test.errors]
    return {**made, "test_summary": summary}


def _status(status: str) -> str:
    """4.x prints a Warn as Fail; only its table says Warn."""
    return FAIL if status == WARN else status


def _told(result: Result, warnings: list[dict[str, Any]], info: list[str] | str) -> dict[str, Any]:
    made: dict[str, Any] = {"status": result.written or _status(result.status)}
    if warnings:
        made["warnings"] = warnings
    if info:
        made["info"] = info
    return made


def _error(error: Error, key: str = "warning") -> dict[str, Any]:
    return {
        "error_category": error.category,
        "error_id": error.id,
        "error_severity": error.severity,
        key: error.text,
    }


def _old(one: Pass, gpus: list[int], scenario: Scenario) -> dict[str, Any]:
    """3.3.9: software checks apart, GPUs by number, no summaries. Known from its source; no run was recorded."""
    categories = []
    for category in CATEGORY_ORDER_3:
        tests: list[dict[str, Any]] = []
        for test in one.tests:
            if test.category != category:
                continue
            if test.name == "software":
                tests += [_old_check(test, check) for check in CHECKS_3]
            else:
                tests.append({"name": NAMES_3[test.name], "results": [_old_result(r) for r in test.results]})
        if tests:
            categories.append({"category": category, "tests": tests})
    return {
        "DCGM GPU Diagnostic": {"test_categories": categories},
        "Driver Version Detected": scenario.driver,
        "GPU Device IDs": [scenario.device_ids[gpu] for gpu in gpus],
        "GPU Device Serials": {str(gpu): scenario.serials[gpu] for gpu in gpus if scenario.serials[gpu]},
        "version": scenario.version,
    }


def of_check(test: TestSaid, check: str) -> tuple[int | None, str, list[Error]]:
    """First GPU in trouble, status and errors of one software check of 3.x."""
    errors = [error for error in test.errors if error.check == check]
    for result in test.results:
        if any(error.check == check for error in result.errors):
            return result.gpu, result.status, errors
    return None, FAIL if errors else "Pass", errors


def _old_check(test: TestSaid, check: str) -> dict[str, Any]:
    gpu, status, errors = of_check(test, check)
    entry: dict[str, Any] = {"status": status}
    if gpu is not None:
        entry["gpu_id"] = gpu
    if errors:
        entry["warnings"] = [_error(error, "warnings") for error in errors]
    return {"name": check, "results": [entry]}


def _old_result(result: Result) -> dict[str, Any] | None:
    if result.null or (result.status == NOT_RUN and not result.written):
        return None
    made: dict[str, Any] = {"gpu_id": str(result.gpu), "status": result.written or result.status}
    if result.errors:
        made["warnings"] = [_error(error) for error in result.errors]
    if result.info:
        made["info"] = ", ".join(result.info)
    return made
