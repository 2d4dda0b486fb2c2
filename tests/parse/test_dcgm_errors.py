"""Error ids and wordings of DCGM: the table is whole, and the words of every recorded error lead to its id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuready.parse.dcgm_errors import CONFIGURATION, ERRORS, HARDWARE, SEVERITIES, UNMEASURED, meaning
from pytest_gpuready.parse.dcgm_messages import error_id, gpu_of, links_down, numbers

DATA = Path(__file__).parents[1] / "data"


def test_every_id_of_460_is_there() -> None:
    """Ids 1 to 132 have a name, DCGM's severity, one of our weights, a suspect and a remedy, each once."""
    assert sorted(ERRORS) == list(range(1, 133))
    assert {e.weight for e in ERRORS.values()} == {HARDWARE, CONFIGURATION, UNMEASURED}
    assert {e.severity for e in ERRORS.values()} <= set(SEVERITIES)
    assert len({e.name for e in ERRORS.values()}) == len(ERRORS)
    assert all(e.suspect and e.remedy for e in ERRORS.values())


@pytest.mark.parametrize(
    ("number", "severity"),
    [(46, "CONFIG"), (41, "MONITOR"), (80, "RESET"), (104, "ISOLATE"), (45, "TRIAGE"), (29, "CONFIG"), (12, "MONITOR")],
)
def test_dcgms_severity_is_kept_beside_ours(number: int, severity: str) -> None:
    """DCGM's own grade stands in the table; a narrow link and a thermal violation weigh as hardware with us."""
    assert meaning(number).severity == severity
    assert meaning(number).weight == (CONFIGURATION if number == 29 else HARDWARE)


def test_unknown_ids_are_hardware_until_known() -> None:
    """An id of another version, or none, keeps its number in the suspect."""
    assert meaning(140).weight == HARDWARE
    assert meaning(140).suspect_of("GPU 3") == "GPU 3 (DCGM error 140, not in our table)"
    assert meaning(None).suspect_of("") == "a GPU (a DCGM error without a number)"


def _warnings(node: Any) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if isinstance(node, dict):
        text = node.get("warning", node.get("warnings"))
        if isinstance(node.get("error_id"), int) and isinstance(text, str):
            found.append((node["error_id"], text))
        for child in node.values():
            found += _warnings(child)
    elif isinstance(node, list):
        for child in node:
            found += _warnings(child)
    return found


def test_wordings_lead_to_the_id_that_dcgm_gave() -> None:
    """Every message with an id in the recorded runs and cases is known by its words alone."""
    seen: set[int] = set()
    for file in [*DATA.glob("dcgm/4.6.0/*/*/stdout"), *DATA.glob("cases/0*/diag.json")]:
        text = file.read_text()
        if not text.startswith("{"):
            continue
        for number, words in _warnings(json.loads(text)):
            assert error_id(words) == number, words
            seen.add(number)
    assert seen >= {20, 28, 29, 43, 45, 51, 80, 84, 85, 96, 104, 112, 125}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("GPU 3 Bandwidth of GPU 3 in direction h2d of 5.87 did not exceed minimum required bandwidth of 10.00.", 30),
        ("GPU 2 is running at PCI link width 8X, which is below the minimum allowed link generation of 16", 46),
        ("GPU 1 only achieved a memory bandwidth of 1900.00 GB/s, failing to meet 2333.00 GB/s for test 0", 62),
        ("Max power of 480.1 did not reach desired power minimum target_power of 525.0 for GPU 5", 63),
        ("Max stress level of 9000.0 did not reach desired stress level of 37500.0 for GPU 0", 50),
        ("Detected 12000.00 gflops for GPU 3 which is below the threshold 14000.00", 110),
        ("GPU 4 has fallen off the bus", 120),
        ("SRAM Threshold Count exceeded on GPU 1: 7", 118),
        ("Detected clock throttling due to thermal violation in GPU 6.", 10),
        ("no words of DCGM", None),
    ],
)
def test_wordings_of_other_errors(text: str, number: int | None) -> None:
    """Wordings from DCGM's source that were not recorded; words of nobody have no id."""
    assert error_id(text) == number


def test_gpu_and_links_of_a_message() -> None:
    """A glued message names its GPU and each of its links; a text without a GPU names none."""
    glued = "GPU 0GPU 0's NvLink link 3 is currently down Run it., GPU 0GPU 0's NvLink link 11 is currently down"
    assert (gpu_of(glued), links_down(glued)) == (0, {0: (3, 11)})
    assert gpu_of("The GPU clocks were reduced") is None


def test_numbers_of_messages() -> None:
    """Value, unit and the limit it was held against; a text without any gives none."""
    text = "Bandwidth of GPU 3 in direction d2h of 55.05 did not exceed minimum required bandwidth of 60.00."
    (one,) = numbers(text)
    assert (one.name, one.value, one.unit, one.limit, one.floor) == ("d2h.bandwidth", 55.05, "GB/s", 60.0, True)
    two = numbers("Detected 94 pcie_replay_counter for GPU 6 which is above the threshold 80")
    assert [(n.name, n.value, n.limit, n.floor) for n in two] == [("pcie_replay_counter", 94.0, 80.0, False)]
    assert numbers("GPU 1 had uncorrectable memory errors and 48 rows were remapped") == ()
