"""Loading: names and files, inheritance, circles, digests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_gpuready import profiles
from pytest_gpuready.errors import ProfileError

OWN = """
profile: ours
extends: h200-sxm
version: "1"
title: Ours
pci_ids: ["10de:2335"]
"""


def write(folder: Path, text: str, name: str = "ours.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_child_changes_only_what_it_says(tmp_path: Path) -> None:
    """Fields that the child does not name stay as inherited, and clauses keep their order."""
    path = write(tmp_path, OWN + "clauses:\n  GPU-10: {required: false, gate: false}\n")
    ours, parent = profiles.load(path), profiles.load("h200-sxm")
    changed, before = ours.clause("GPU-10"), parent.clause("GPU-10")
    assert changed
    assert before
    assert not changed.required
    assert changed.limit == before.limit
    assert [c.id for c in ours.clauses] == [c.id for c in parent.clauses]


def test_a_child_may_add_a_clause_and_replace_a_limit(tmp_path: Path) -> None:
    """A limit is replaced as a whole: the inherited inner limit is gone."""
    path = write(
        tmp_path,
        OWN
        + """
clauses:
  PCIE-5:
    limit: {at_least: 54.0, ceiling: 63.0, unit: GB/s, source: {kind: contract, cite: annex B}}
  SITE-1: {suite: pcie_link, level: 2, per: gpu, metric: pcie.replays, unit: per TB}
""",
    )
    ours = profiles.load(path)
    copy = ours.clause("PCIE-5")
    assert copy
    assert copy.limit
    assert (copy.limit.at_least, copy.limit.marginal) == (54.0, None)
    assert ours.clauses[-1].id == "SITE-1"


def test_not_applicable_takes_the_inherited_limit_out(tmp_path: Path) -> None:
    """A clause that a child calls not applicable has no limit left."""
    path = write(tmp_path, OWN + "clauses:\n  GPU-19: {not_applicable: the host does it}\n")
    clause = profiles.load(path).clause("GPU-19")
    assert clause
    assert clause.limit is None


def test_a_parent_may_be_a_file_beside_the_child(tmp_path: Path) -> None:
    """`extends` with a file name starts at the child's folder, not at the working directory."""
    write(tmp_path, OWN)
    path = write(tmp_path, 'profile: child\nextends: ours.yaml\nversion: "1"\ntitle: Child\n', "child.yaml")
    child = profiles.load(path)
    assert child.nvlink
    assert child.pci_ids == ()


def test_circles_are_errors(tmp_path: Path) -> None:
    """A profile that is its own ancestor does not load."""
    write(tmp_path, 'profile: a\nextends: b.yaml\nversion: "1"\ntitle: A\n', "a.yaml")
    path = write(tmp_path, 'profile: b\nextends: a.yaml\nversion: "1"\ntitle: B\n', "b.yaml")
    with pytest.raises(ProfileError, match=r"line 2 \$\.extends: .* break the circle"):
        profiles.load(path)


def test_an_unknown_name_gets_its_neighbour() -> None:
    """A misspelt shipped name is answered with the near one."""
    with pytest.raises(ProfileError, match="did you mean 'h200-sxm'"):
        profiles.load("h200-smx")


def test_an_unknown_parent_is_told_with_its_line(tmp_path: Path) -> None:
    """`extends` with a name or a file that is not there names the child's file, line and the near name."""
    path = write(tmp_path, OWN.replace("extends: h200-sxm", "extends: h200"))
    with pytest.raises(ProfileError, match=r"ours\.yaml line 3 \$\.extends: expected one of .*did you mean 'h200-sxm'"):
        profiles.load(path)
    path = write(tmp_path, OWN.replace("extends: h200-sxm", "extends: theirs.yaml"))
    with pytest.raises(ProfileError, match=r"line 3 \$\.extends: .* found none called 'theirs\.yaml'"):
        profiles.load(path)


def test_a_file_may_not_take_a_shipped_name(tmp_path: Path) -> None:
    """A certificate that says h200-sxm means the shipped profile."""
    path = write(tmp_path, OWN.replace("profile: ours", "profile: h200-sxm"))
    with pytest.raises(ProfileError, match=r"line 2 \$\.profile: expected a name of its own"):
        profiles.load(path)


def test_an_empty_profile_does_not_load(tmp_path: Path) -> None:
    """Nothing promised is an error, not an acceptance."""
    path = write(tmp_path, 'profile: none\nversion: "1"\ntitle: None\n')
    with pytest.raises(ProfileError, match="expected at least one clause"):
        profiles.load(path)


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    """Comments, quotes and 18.0 for 18 keep the digest; a limit, a word or a reason changes it."""
    limit = "clauses:\n  NVL-1: {{limit: {{equals: {}, source: {{kind: contract, cite: {}}}}}}}\n"
    digests = [
        profiles.load(write(tmp_path, OWN + limit.format(*values))).sha256
        for values in ((18, "annex"), (18.0, '"annex"'), (17, "annex"), (18, "appendix"))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_line_breaks_are_layout(tmp_path: Path) -> None:
    """A folded text says the same as one on a line, and has the same digest."""
    plain = profiles.load(write(tmp_path, OWN))
    folded = profiles.load(write(tmp_path, OWN.replace("title: Ours", "title: |\n  Ours\n")))
    assert (folded.title, folded.sha256) == ("Ours", plain.sha256)


def test_the_manuals_example_loads(tmp_path: Path) -> None:
    """The profile that docs/profiles.md shows loads and changes what it says."""
    manual = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text()
    shown = profiles.load(write(tmp_path, manual.split("```yaml\n")[1].split("```")[0]))
    copy = shown.clause("PCIE-5")
    assert copy
    assert str(copy.limit) == ">= 54 GB/s"
    assert {c.id for c in shown.clauses if c != profiles.load("h200-sxm").clause(c.id)} == {
        "PCIE-5",
        "GPU-10",
        "GPU-19",
    }


def test_the_manual_tells_the_sample_of_every_baseline() -> None:
    """The table of docs/profiles.md has a row for each shipped limit that is a baseline, with its sample."""
    manual = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text()
    told = set(re.findall(r"^\| `([a-z0-9-]+)` \| ([A-Z]+-\d+) [^|]*\| (\d+)", manual, flags=re.MULTILINE))
    assert told == {
        (name, clause.id, str(clause.limit.source.sample))
        for name in profiles.names()
        for clause in profiles.load(name).clauses
        if clause.limit and clause.limit.source.kind == "baseline"
    }


def test_too_many_ancestors_are_an_error(tmp_path: Path) -> None:
    """A chain of ten files is refused, each of eight may still have one."""
    for at in range(12):
        head = f'profile: p{at}\nversion: "1"\ntitle: P\n'
        write(tmp_path, head + (f"extends: p{at - 1}.yaml\n" if at else "extends: base\n"), f"p{at}.yaml")
    assert profiles.load(tmp_path / "p6.yaml").clauses
    with pytest.raises(ProfileError, match="expected at most 8 ancestors"):
        profiles.load(tmp_path / "p11.yaml")


def test_notes_add_up(tmp_path: Path) -> None:
    """A child of a profile with notes keeps them before its own."""
    path = write(tmp_path, OWN.replace("h200-sxm", "b200") + "notes: [ours]\n")
    notes = profiles.load(path).notes
    assert notes[:-1] == profiles.load("b200").notes
    assert notes[-1] == "ours"


def test_needs_is_a_word_or_a_list() -> None:
    """The topology clause needs NVLink and peers; the fabric clause NVSwitch alone."""
    base = profiles.load("base")
    topology, fabric = base.clause("NVL-6"), base.clause("GPU-27")
    assert topology
    assert fabric
    assert topology.needs == ("nvlink", "peers")
    assert fabric.needs == ("nvswitch",)


def test_pci_ids_choose_by_majority() -> None:
    """One foreign card among eight does not change the profile; a tie and unknown cards choose none."""
    chosen = profiles.for_pci_ids(["10de:2335"] * 7 + ["10de:2330"])
    assert chosen
    assert chosen.name == "h200-sxm"
    assert profiles.for_pci_ids(["10de:2335", "10de:2330"]) is None
    assert profiles.for_pci_ids(["10de:ffff"]) is None
    assert profiles.for_pci_ids([]) is None
