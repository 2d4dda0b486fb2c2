"""The engine's worker on a GPU: what is planted is found, and every control is seen. Run by hand: see conftest.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from pytest_gpuready.agent.pci import gpus
from pytest_gpuready.agent.stress.gemm import PLANTS, SLICES
from pytest_gpuready.model.stress_doc import CACHE_PATTERNS, SEEN

FORMATS = ("fp64", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "mxfp8", "fp4")
PATTERNS = ("walking", "inversions", "address", "random", "modulo20", "fade")
ELEMENT = 1_234_567


class Worker:
    """A worker as the crew starts it, on the first GPU, that may plant faults."""

    def __init__(self, phases: list[dict[str, Any]]) -> None:
        found = gpus()
        assert found, "expected an NVIDIA GPU on the PCI bus, found none; these tests need one"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_gpuready.agent.stress.worker", found[0].bdf],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, PLANTS: "1"},
        )
        self._tell({"work": {"seed": 7, "share": 0.9, "phases": phases}})
        said = self._hear()
        assert "ready" in said, said
        self.formats = said["ready"]["formats"]

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line: dict[str, Any] = json.loads(self._process.stdout.readline())
        return line

    def run(self, number: int) -> dict[str, Any]:
        """The result of a phase."""
        self._tell({"begin": number, "at": time.monotonic()})
        while "said" in (line := self._hear()):
            pass
        assert "result" in line, line
        result: dict[str, Any] = line["result"]
        return result

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(30) == 0


def results(phases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of these phases, in one process; those of formats that this GPU lacks are left out."""
    worker = Worker(phases)
    found = [worker.run(number) for number, phase in enumerate(phases) if phase.get("format", "bf16") in worker.formats]
    worker.close()
    return found


def test_every_control_is_seen_and_nothing_else_is_found() -> None:
    """Every format, pattern and cache, a pulse of two formats and a short burn-in with turns of memory."""
    phases: list[dict[str, Any]] = [{"kind": "gemm", "format": name, "seconds": 0.3} for name in FORMATS]
    phases += [{"kind": "pattern", "pattern": name, "pause_s": 0.1, "size_bytes": 2**32} for name in PATTERNS]
    phases += [{"kind": "cache", "level": level, "seconds": 0.5} for level in ("l1", "l2")]
    phases.append({"kind": "pulse", "formats": ["bf16", "tf32"], "period_s": 0.1, "duty": 0.5, "seconds": 1.0})
    phases.append({"kind": "burn", "seconds": 24.0})
    found = results(phases)
    assert len(found) >= len(phases) - 4
    assert [(one["error_count"], one["control"], one.get("errors")) for one in found] == [(0, SEEN, None)] * len(found)
    assert [one["patterns"] for one in found if "level" in one] == [list(CACHE_PATTERNS)] * 2
    assert found[-1]["memory_turns"] >= 1
    assert found[-1]["memory_bytes"] > 2**30


@pytest.mark.parametrize("pass_number", [1, 20])
def test_a_tile_that_nobody_writes_any_more_is_found(pass_number: int) -> None:
    """In every format, within sixteen products, in its own place, as what was put there before the product."""
    plant = {"what": "unwritten", "pass_number": pass_number, "element": ELEMENT}
    found = results([{"kind": "gemm", "format": name, "seconds": 1.5, "plant": plant} for name in FORMATS])
    assert found
    for one in found:
        first = one["errors"][0]
        where = (first["row"] // 128, first["col"] // 128)
        assert where == (ELEMENT % one["m"] // 128, ELEMENT // one["m"] // 128), one["format"]
        assert pass_number <= first["pass_number"] < pass_number + SLICES
        assert set(first["found"][2:]) == {"a", "5"}
        assert one["control"] == SEEN


@pytest.mark.parametrize("bit", [0, 3])
def test_an_input_that_was_spoilt_before_the_first_product_is_found(bit: int) -> None:
    """In every format: matrix, row, column and bit, once; no product differs from another."""
    plant = {"what": "input", "element": ELEMENT, "bit": bit}
    found = results([{"kind": "gemm", "format": name, "seconds": 0.2, "plant": plant} for name in FORMATS])
    assert found
    for one in found:
        (error,) = one["errors"]
        assert one["error_count"] == 1, one["format"]
        assert (error["matrix"], error["row"], error["col"]) == ("A", ELEMENT // one["k"], ELEMENT % one["k"])
        assert (error["bit"], error["pass_number"], one["control"]) == (bit, one["passes"], SEEN)


def test_one_bit_of_one_product_is_counted_once_beside_the_control() -> None:
    """The control adds no error and hides none."""
    plant = {"what": "result", "pass_number": 2, "element": ELEMENT, "bit": 5}
    for one in results([{"kind": "gemm", "format": name, "seconds": 0.2, "plant": plant} for name in FORMATS]):
        assert (one["error_count"], one["control"]) == (1, SEEN), one["format"]
        error = one["errors"][0]
        assert (error["pass_number"], error["col"] * one["m"] + error["row"], error["bit"]) == (2, ELEMENT, 5)
