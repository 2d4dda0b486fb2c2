"""Faults that DCGM reports, one for each of its tests, and what its loads leave behind.

They change what `dcgmi diag -j` of 4.x printed: the GPU's result fails with the error that the test has for it.
"""

from __future__ import annotations

import json
from typing import Any

from pytest_gpuready.faults import ABOVE_1, ABOVE_2, ABOVE_3, BAD, NODE, Documents, Fault, here

FAILED = 226

# Clause, test, level, DCGM's error and its words.
_TESTS: tuple[tuple[str, str, int, int, str], ...] = (
    ("DCGM-2", "software", 1, 85, "GPU 3 has pending row remappings"),
    ("DCGM-5", "memory", 2, 58, "Memory mismatch on GPU 3"),
    ("DCGM-6", "pcie", 2, 45, "GPU 3 is running at PCI link generation 3, which is below the minimum of 5"),
    ("DCGM-7", "diagnostic", 3, 52, "Found 12 faulty memory elements on GPU 3"),
    (
        "DCGM-8",
        "memory_bandwidth",
        3,
        62,
        "GPU 3 only achieved a memory bandwidth of 1900 GB/s, failing to meet 2700 GB/s",
    ),
    ("DCGM-9", "targeted_stress", 3, 50, "GPU 3 stress level of 9000 did not reach desired stress level of 37500"),
    ("DCGM-10", "targeted_power", 3, 63, "Max power of 412 did not reach desired power minimum 525 on GPU 3"),
    ("DCGM-11", "nvbandwidth", 3, 59, "Unable to find a corresponding CUDA device for GPU 3"),
    ("DCGM-12", "eud", 3, 95, "EUD reports a fault of GPU 3"),
    ("DCGM-13", "memtest", 4, 52, "Found 1 faulty memory elements on GPU 3"),
    ("DCGM-14", "pulse_test", 4, 101, "Detected XID 62 for GPU 3"),
)
_ABOVE = {1: ABOVE_1, 2: ABOVE_2, 3: ABOVE_3, 4: ()}


def _fails(test: str, error: int, words: str) -> Any:
    """The result of the bad GPU fails with this error; every other stays as it was."""

    def change(documents: Documents) -> None:
        around = documents.dcgm(test)
        printed = json.loads(around["stdout"])
        run = _run_of(printed, test)
        result = next(r for r in run["results"] if r["entity_id"] == BAD)
        result["status"] = run["test_summary"]["status"] = "Fail"
        result["warnings"] = [{"warning": words, "error_id": error, "error_category": 0, "error_severity": 4}]
        around.update(stdout=json.dumps(printed), exit_code=FAILED)

    return change


def _run_of(printed: dict[str, Any], test: str) -> dict[str, Any]:
    tests = [run for category in printed["DCGM Diagnostic"]["test_categories"] for run in category["tests"]]
    found: dict[str, Any] = next(run for run in tests if run["name"] == test)
    return found


def _rights(documents: Documents) -> None:
    around = documents.dcgm("software")
    printed = json.loads(around["stdout"])
    words = "No permission to create a file in directory '/'"
    _run_of(printed, "software")["test_summary"] = {
        "status": "Fail",
        "warnings": [{"warning": words, "error_id": 96, "error_category": 3, "error_severity": 5}],
    }
    around.update(stdout=json.dumps(printed), exit_code=FAILED)


def _after(level: int, **values: Any) -> Any:
    """When the load of a level has ended, the bad GPU shows these values."""

    def change(documents: Documents) -> None:
        for gpu in documents.after(level)["nvml"]["gpus"]:
            if gpu["bdf"] == documents.bdfs[BAD]:
                gpu.update(values)

    return change


def _switch_after(level: int) -> Any:
    def change(documents: Documents) -> None:
        line = "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
        documents.after(level)["log"]["lines"].append({"t": 4000.0, "text": line})

    return change


DCGM: tuple[Fault, ...] = (
    *(
        Fault(
            name=f"dcgm-{test.replace('_', '-')}",
            says=f"DCGM's {test} fails on one GPU.",
            change=_fails(test, error, words),
            reddens=here(clause),
            blocks=_ABOVE[level],
            suspect=f"error {error}",
        )
        for clause, test, level, error, words in _TESTS
    ),
    Fault(
        name="dcgm-rights",
        says="The software checks fail for the node: DCGM may not write where it runs.",
        change=_rights,
        reddens={"DCGM-3": (NODE,)},
        opens={"DCGM-2": tuple(range(8))},
        blocks=ABOVE_1,
        suspect="error 96",
    ),
    *(
        Fault(
            name=f"remap-pending-after-level-{level}",
            says=f"After the load of level {level} a row of one GPU waits to be remapped.",
            change=_after(level, remap_pending=1),
            reddens=here(clause),
            blocks=_ABOVE[level],
            suspect="GPU-12 remap.pending 1, promised 0",
        )
        for level, clause in ((3, "AFTER-3"), (4, "AFTER-5"))
    ),
    *(
        Fault(
            name=f"sxid-after-level-{level}",
            says=f"A fatal SXid stands in the kernel log after the load of level {level}.",
            change=_switch_after(level),
            reddens={clause: (NODE,)},
            blocks=_ABOVE[level],
            suspect="20034",
        )
        for level, clause in ((3, "AFTER-4"), (4, "AFTER-6"))
    ),
)
"""Faults of a node whose DCGM ran, in a recording that goes up to level 4."""
