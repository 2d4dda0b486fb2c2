"""What the manual shows can be typed: its examples load, its numbers and tables are those of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_gpuready.profiles import load
from pytest_gpuready.profiles.collectives_table import tables
from pytest_gpuready.profiles.dcgm_parameters import FLOORS, PARAMETERS
from pytest_gpuready.profiles.entries import BaselineEntry
from pytest_gpuready.transport.replay import BUILT_IN

ROOT = Path(__file__).parents[1]
HEAD = 'profile: mine\nextends: h200-sxm\nversion: "1"\ntitle: Mine\npci_ids: ["10de:2335"]\n'


def examples(page: str) -> list[str]:
    """The YAML examples of a page of the manual."""
    return re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_the_manual_has_examples() -> None:
    """Each page about profiles shows one."""
    assert [len(examples(page)) for page in ("profiles.md", "dcgm.md", "collectives.md")] == [1, 1, 1]


@pytest.mark.parametrize("page", ["profiles.md", "dcgm.md", "collectives.md"])
def test_the_examples_of_the_manual_load(tmp_path: Path, page: str) -> None:
    """An example that a person copies is a profile, alone or below the head that every profile has."""
    for number, text in enumerate(examples(page)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text if text.startswith("profile:") else HEAD + text)
        assert load(path).clauses


def test_the_number_of_clauses_is_the_one_that_is_printed(tmp_path: Path) -> None:
    """What the check of the example prints stands in the manual."""
    path = tmp_path / "ours.yaml"
    path.write_text(examples("profiles.md")[0])
    profile = load(path)
    said = f"{profile.name} {profile.version} loads: {len(profile.clauses)} clauses, sha256 "
    assert said in (ROOT / "docs/profiles.md").read_text()


def test_every_parameter_of_dcgm_is_listed_with_its_bounds() -> None:
    """The table names unit and bounds of each parameter, which of them are floors, and no other parameter."""
    rows = re.findall(
        r"^\| `([a-z0-9_.]+)` \| (.*?) ?\| (\d*) ?\| (\d*) ?\| (.*?) ?\|$",
        (ROOT / "docs/dcgm.md").read_text(),
        re.MULTILINE,
    )
    told = {name: (unit, (int(least), int(most)) if least else None) for name, unit, least, most, _ in rows}
    assert told == PARAMETERS
    assert {name for name, *_, note in rows if "ceiling" in note} == FLOORS


def test_the_tables_of_collectives_are_those_of_the_code() -> None:
    """What stands under the last heading of the page is what the code computes from the shipped profiles."""
    page = (ROOT / "docs/collectives.md").read_text()
    assert page.endswith("collectives_table`.\n\n" + tables().rstrip("\n") + "\n")


def test_every_field_of_a_baseline_is_told() -> None:
    """The table of fields has those that a baseline can have, and no others."""
    part = (ROOT / "docs/collectives.md").read_text().partition("| field | meaning |")[2].partition("\n\n")[0]
    named = [
        name for row in part.splitlines() for name in re.findall("`([a-z_]+)`", row.split("|")[1] if "|" in row else "")
    ]
    assert sorted(named) == sorted(BaselineEntry.__struct_fields__)


def test_the_built_in_recordings_are_named() -> None:
    """The README's option names every recording that the package carries."""
    (row,) = re.findall(r"^\| `--gpuready-replay (.*?)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert row.split("\\|") == ["DIR", *BUILT_IN]
