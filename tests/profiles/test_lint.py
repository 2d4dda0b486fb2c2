# ruff: noqa: E501 - one case a line
"""The linter: every rule turns red, all findings come at once, and no mutation ends in another exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpuready import profiles
from pytest_gpuready.errors import ProfileError
from pytest_gpuready.model import Profile

HEAD = 'profile: ours\nversion: "1"\ntitle: Ours\npci_ids: ["10de:2335"]\nclauses:\n'
SOURCE = "source: {kind: contract, cite: annex B}"


def lines(folder: Path, text: str) -> list[str]:
    path = folder / "ours.yaml"
    path.write_text(text)
    return [str(found).removeprefix(f"{path} ") for found in profiles.findings(path)]


def clause(limit: str, extra: str = "", metric: str = "pcie.h2d.bandwidth", unit: str = "GB/s") -> str:
    said = f"limit: {{{limit}}}" if limit else ""
    parts = [
        "suite: pcie_link",
        "level: 2",
        "per: gpu",
        f"metric: {metric}",
        f"unit: {unit}",
        "action: look",
        extra,
        said,
    ]
    return HEAD + "  A-1:\n    {" + ", ".join(p for p in parts if p) + "}\n"


def test_a_sound_clause_has_no_findings(tmp_path: Path) -> None:
    """The clause that the other tests break is sound itself."""
    assert lines(tmp_path, clause(f"at_least: 50, ceiling: 63, unit: GB/s, {SOURCE}")) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (clause(f"at_least: 50, ceiling: 63, unit: GBps, {SOURCE}"), "line 7 $.clauses.A-1.limit.unit: expected one of %, C, C/min, GB/s, MB/s, MiB, TFLOPS, TFLOPS/GHz, TFLOPS/W, TOPS, TOPS/GHz, TOPS/W, W, ns, per TB, s, found 'GBps' (did you mean 'GB/s'?); correct the unit"),
        (clause(f"at_least: 50, ceiling: 63, unit: MB/s, {SOURCE}"), "$.clauses.A-1.limit.unit: expected GB/s (pcie.h2d.bandwidth has it so), found 'MB/s'"),
        (clause("at_least: 50, ceiling: 63, unit: GB/s"), "$.clauses.A-1.limit: expected a source, found none; say where"),
        (clause("at_least: 50, ceiling: 63, unit: GB/s, source: {kind: baseline, cite: lab}"), "$.clauses.A-1.limit.source: expected date and sample on a baseline"),
        (clause("at_least: 50, ceiling: 63, unit: GB/s, source: {kind: baseline, cite: lab, date: 2026-13-30, sample: 3}"), "expected a date like 2026-11-30, found '2026-13-30'"),
        (clause("at_least: 50, ceiling: 63, unit: GB/s, source: {kind: guess, cite: lab}"), "$.clauses.A-1.limit.source.kind: expected one of"),
        (clause("at_least: 50, ceiling: 63, unit: GB/s, source: {kind: rule, cite: ''}"), "$.clauses.A-1.limit.source.cite: expected something here, found nothing"),
        (clause(f"at_least: 5, ceiling: 63, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.at_least: expected 10 to 100 % of the ceiling 63, found 5"),
        (clause(f"at_least: 64, ceiling: 63, unit: GB/s, {SOURCE}"), "expected 10 to 100 % of the ceiling 63, found 64"),
        (clause(f"at_least: 50, marginal: 64, ceiling: 63, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.marginal: expected 10 to 100 %"),
        (clause(f"at_least: 50, marginal: 40, ceiling: 63, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.marginal: expected more than at_least 50, found 40"),
        (clause(f"at_most: 50, marginal: 60, ceiling: 63, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.marginal: expected less than at_most 50, found 60"),
        (clause(f"at_least: 50, ceiling: 0, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.ceiling: expected a number above 0"),
        (clause(f"at_least: 50, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit: expected a ceiling on a limit of a rate"),
        (clause(f"at_least: 50, at_most: 60, ceiling: 63, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit: expected exactly one of at_least, at_most, equals, uniform, found at_least and at_most"),
        (clause(f"ceiling: 63, unit: GB/s, {SOURCE}"), "expected exactly one of at_least, at_most, equals, uniform, found none"),
        (clause(f"equals: fast, ceiling: 63, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.equals: expected a number"),
        (clause(f"at_least: 1, {SOURCE}", metric="ecc.mode", unit='""'), "$.clauses.A-1.limit.at_least: expected equals or uniform (ecc.mode is a word)"),
        (clause(f"equals: 4.0, {SOURCE}", metric="nvlink.version", unit='""'), "$.clauses.A-1.limit.equals: expected a word (put it in quotes)"),
        (clause(f"equals: true, {SOURCE}", metric="ecc.mode", unit='""'), "$.clauses.A-1.limit.equals: expected a whole number or a number or text, found True"),
        (clause("", metric="pcie.h2d.bandwith"), "$.clauses.A-1.metric: expected a known metric, found 'pcie.h2d.bandwith' (did you mean 'pcie.h2d.bandwidth'?)"),
        (clause("", "context: [xid.hardwear]"), "$.clauses.A-1.context[0]: expected a known metric, found 'xid.hardwear' (did you mean 'xid.hardware'?)"),
        (clause("", "gate: true, required: false"), "$.clauses.A-1.gate: expected no gate on a clause that is not required, found required: false; say gate: false beside it"),
        (clause("", "headline: Fast, required: false"), '$.clauses.A-1.headline: expected no headline on a clause that is not required, found required: false; say headline: "" beside it'),
        (clause(f"at_least: 50, ceiling: 63, unit: GB/s, {SOURCE}", "not_applicable: no bus"), "$.clauses.A-1.limit: expected no limit beside not_applicable"),
        (clause(f"at_least: 50, ceiling: 63, unit: GB/s, {SOURCE}").replace("action: look, ", ""), "$.clauses.A-1.limit: expected an action beside a limit"),
        (clause("").replace("action: look", 'action: "reseat {modul}"'), "$.clauses.A-1.action: expected one of {node}, {gpu}, {module}, {bdf}, {upstream}, found '{modul}'"),
        (clause("").replace("action: look", 'action: "reseat {module"'), "$.clauses.A-1.action: expected braces in pairs"),
        (clause("").replace("action: look", 'action: "reseat {module:>999}"'), "found '{module:>999}'"),
        (clause("").replace("action: look", 'action: "reseat {module!r}"'), "found '{module!r}'"),
        (clause("", "required: false"), "line 5 $.clauses: expected a required clause with a limit at level 2, found none"),
        (clause("", "not_applicable: no bus"), "$.clauses: expected a required clause with a limit at level 2, found none"),
        (clause(""), "$.clauses: expected a required clause with a limit at level 2, found none; nothing would have to pass"),
        (clause("", "not_applicable: ' '"), "$.clauses.A-1.not_applicable: expected why this model has no such thing, found nothing; say it"),
        (clause("", "not_applicable: '\u200b'"), "$.clauses.A-1.not_applicable: expected why this model has no such thing, found nothing"),
        (clause(f"at_least: 5, ceiling: 63, ceiling_reason: '\u200b', unit: GB/s, {SOURCE}"), "expected 10 to 100 % of the ceiling 63, found 5"),
        (clause(f"at_least: 0, unit: MiB, {SOURCE}", metric="gpu.memory.total", unit="MiB"), "$.clauses.A-1.limit.at_least: expected more than 0, found 0: it cannot fail; correct it"),
        (clause(f"at_least: -1, {SOURCE}", metric="nvlink.links.active", unit='""'), "$.clauses.A-1.limit.at_least: expected more than 0, found -1: it cannot fail; correct it"),
        (clause(f"at_most: -1, {SOURCE}", metric="xid.hardware", unit='""'), "$.clauses.A-1.limit.at_most: expected 0 or more, found -1: it cannot pass; correct it"),
        (clause(f"at_most: 1, {SOURCE}", metric="xid.hardware", unit='""'), "expected 0 (xid.hardware is never right), found 1"),
        (clause(f"at_least: 0.5, ceiling: 5, {SOURCE}", metric="pcie.link.generation", unit='""'), "expected 3 or more, found 0.5: it cannot fail"),
        (clause(f"at_least: 2, ceiling: 5, {SOURCE}", metric="pcie.link.generation", unit='""'), "expected 3 or more, found 2: it cannot fail"),
        (clause(f"at_least: 2, ceiling: 16, {SOURCE}", metric="pcie.link.width", unit='""'), "expected 4 or more, found 2: it cannot fail"),
        (clause(f"at_least: 0.5, {SOURCE}", metric="nvlink.links.active", unit='""'), "expected 1 or more, found 0.5: it cannot fail"),
        (clause(f"at_least: 1023, unit: MiB, {SOURCE}", metric="gpu.memory.total", unit="MiB"), "expected 1024 or more, found 1023: it cannot fail"),
        (clause(f"at_least: 49, unit: W, {SOURCE}", metric="power.limit.default", unit="W"), "expected 50 or more, found 49: it cannot fail"),
        (clause(f"at_least: 1, {SOURCE}", metric="ecc.uncorrected.volatile", unit='""'), "$.clauses.A-1.limit.at_least: expected at_most (ecc.uncorrected.volatile is the better the less), found at_least"),
        (clause(f"equals: 4096, {SOURCE}", metric="pcie.copies.corrupted", unit='""'), "$.clauses.A-1.limit.equals: expected 0 (pcie.copies.corrupted is never right), found 4096"),
        (clause(f"at_most: 1, {SOURCE}", metric="processes.foreign", unit='""'), "expected 0 (processes.foreign is never right), found 1"),
        (clause(f"at_most: 1, {SOURCE}", metric="nvlink.errors", unit='""'), "expected 0 (nvlink.errors is never right), found 1"),
        (clause(f"at_most: 1, {SOURCE}", metric="environment.foreign", unit='""').replace("per: gpu", "per: node"), "expected 0 (environment.foreign is never right), found 1"),
        (clause(f"at_most: 1, {SOURCE}", metric="gpu.unexpected", unit='""').replace("per: gpu", "per: node"), "expected 0 (gpu.unexpected is never right), found 1"),
        (clause(f"at_least: 45, ceiling: 400, unit: GB/s, {SOURCE}"), "$.clauses.A-1.limit.ceiling: expected at most 126 GB/s (PCIe Gen6 x16), found 400; correct it or say ceiling_reason"),
        (clause("", "not_applicable: we do not care", metric="ecc.uncorrected.volatile", unit='""'), "$.clauses.A-1.not_applicable: expected a clause about ecc.uncorrected.volatile to apply (it is never right), found not_applicable"),
        (clause(f"at_least: -999, unit: C, {SOURCE}", metric="temperature.gpu.margin", unit="C"), "expected -20 or more, found -999: it cannot fail"),
        (clause(f"at_most: 1e9, unit: W, {SOURCE}", metric="power.limit.below_default", unit="W"), "expected at most 350 W, found 1e+09: it cannot fail"),
        (clause(f"at_most: 1000001, {SOURCE}", metric="xid.hardware", unit='""'), "$.clauses.A-1.limit.at_most: expected at most 1000000 on a count, found 1000001: it cannot fail; correct it or say ceiling_reason"),
        (clause(f"at_most: 1e9, unit: per TB, {SOURCE}", metric="pcie.replays", unit="per TB"), "$.clauses.A-1.limit.at_most: expected at most 1000000 on a count, found 1000000000: it cannot fail"),
        (clause(f"at_most: 18, {SOURCE}", metric="nvlink.links.active", unit='""'), "$.clauses.A-1.limit.at_most: expected at_least (nvlink.links.active is the better the more), found at_most: nothing at all would pass"),
        (clause(f"equals: 0, {SOURCE}", metric="nvlink.links.active", unit='""'), "$.clauses.A-1.limit.equals: expected more than 0, found 0: nothing at all would pass"),
        (clause(f"uniform: true, {SOURCE}", metric="ecc.mode", unit='""'), "$.clauses.A-1.limit.uniform: expected uniform on gpu.vbios, gpu.inforom.image, nvlink.version alone, found it on ecc.mode: all wrong alike would pass; say which value"),
        (clause(f"uniform: true, {SOURCE}", metric="ecc.uncorrected.volatile", unit='""'), "found it on ecc.uncorrected.volatile: all wrong alike would pass"),
        (clause(f"equals: enabeld, {SOURCE}", metric="ecc.mode", unit='""'), "$.clauses.A-1.limit.equals: expected one of enabled, disabled for ecc.mode, found 'enabeld' (did you mean 'enabled'?); correct it"),
        (clause(f"equals: absent, {SOURCE}", metric="gpu.present", unit='""'), "$.clauses.A-1.limit.equals: expected on the bus and answered by NVML for gpu.present, found 'absent'"),
        (clause(f"equals: corrupted, {SOURCE}", metric="inforom.valid", unit='""'), "$.clauses.A-1.limit.equals: expected valid for inforom.valid, found 'corrupted'"),
        (clause("").replace("level: 2", "level: 5"), "$.clauses.A-1.level: expected 1 to 4, found 5"),
        (clause("").replace("per: gpu", "per: node"), "$.clauses.A-1.per: expected gpu (pcie.h2d.bandwidth is measured per gpu), found node"),
        (clause("").replace("suite: pcie_link, ", ""), "$.clauses.A-1: expected the key 'suite', found none"),
        (clause("", "gaet: true"), "found the key 'gaet' (did you mean 'gate'?)"),
        (clause("", "needs: nvlnk"), "$.clauses.A-1.needs: expected"),
        (clause("").replace('"1"', "1.10"), "line 2 $.version: expected text, found 1.1; put it in quotes"),
        (clause("").replace("  A-1:", "  a1:"), "$.clauses.a1: expected text of the form"),
        (clause("").replace('["10de:2335"]', '["10DE:2335"]'), "$.pci_ids[0]: expected text of the form"),
        (clause("").replace('["10de:2335"]', '["10de:2335", "10de:2335"]'), "$.pci_ids[1]: expected every id once"),
        (clause("").replace("clauses:", "nvswitch: true\nclauses:"), "$.nvswitch: expected nvlink: true beside nvswitch: true"),
    ],
)  # fmt: skip
def test_each_rule_turns_red(tmp_path: Path, text: str, says: str) -> None:
    """A profile that breaks one rule gets the finding of this rule, and does not load."""
    found = lines(tmp_path, text)
    assert any(says in line for line in found), found
    with pytest.raises(ProfileError):
        profiles.load(tmp_path / "ours.yaml")


def test_a_low_limit_with_a_reason_loads(tmp_path: Path) -> None:
    """A limit far under physics is possible where the profile says why."""
    assert lines(tmp_path, clause(f"at_least: 5, ceiling: 63, ceiling_reason: shared slot, unit: GB/s, {SOURCE}")) == []


@pytest.mark.parametrize(
    ("limit", "metric", "unit"),
    [
        ("at_least: -5, unit: C", "temperature.gpu.margin", "C"),
        ("at_most: 1000000", "ecc.corrected.volatile", '""'),
        ("at_most: 2000000, ceiling_reason: a board known to count so", "ecc.corrected.volatile", '""'),
        ("equals: enabled", "mig.mode", '""'),
        ("equals: exclusive process", "compute.mode", '""'),
        ("uniform: true", "nvlink.version", '""'),
        ("equals: 12", "nvlink.links.active", '""'),
        ("at_most: 200, unit: W", "power.limit.below_default", "W"),
        ("at_most: 2, ceiling_reason: two counts agreed in annex C", "nvlink.errors", '""'),
        ("at_least: 200, ceiling: 450, ceiling_reason: NVLink-C2C, unit: GB/s", "pcie.h2d.bandwidth", "GB/s"),
    ],
)
def test_what_may_be_meant_loads(tmp_path: Path, limit: str, metric: str, unit: str) -> None:
    """Margins below zero, settings other than ours and large counts with a reason are the agreement of the two."""
    assert lines(tmp_path, clause(f"{limit}, {SOURCE}", metric=metric, unit=unit)) == []


def test_every_level_has_something_that_must_pass(tmp_path: Path) -> None:
    """A child that takes every promise of level 2 away is told which level has nothing left."""
    level2 = [c for c in profiles.load("h200-sxm").clauses if c.level == 2]
    taken = "".join(f'  {c.id}: {{required: false, gate: false, headline: ""}}\n' for c in level2)
    (found,) = lines(tmp_path, OWN + taken)
    assert found.endswith("expected a required clause with a limit at level 2, found none; nothing would have to pass")


def test_all_findings_come_in_one_pass(tmp_path: Path) -> None:
    """Mistakes of shape and of meaning, in several clauses, are reported together."""
    text = clause("at_least: 50, unit: GBps") + "  A-2: {suit: x}\n  A-3: {metric: nothing.like.it}\n"
    found = lines(tmp_path, text)
    assert sum("A-1.limit" in line for line in found) == 3
    assert sum("A-2" in line for line in found) == 1
    assert sum("A-3" in line for line in found) == 4


def test_a_finding_names_the_file_that_said_it(tmp_path: Path) -> None:
    """A mistake in a parent is reported with the parent's name and line, not the child's."""
    (tmp_path / "parent.yaml").write_text(clause("at_least: 50, unit: GB/s, ceiling: 63").replace("ours", "parent"))
    (tmp_path / "child.yaml").write_text('profile: child\nextends: parent.yaml\nversion: "1"\ntitle: C\n')
    (found,) = profiles.findings(tmp_path / "child.yaml")
    assert (found.file, found.line) == ("parent.yaml", 7)


OWN = 'profile: ours\nextends: h200-sxm\nversion: "1"\ntitle: O\nclauses:\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  GPU-10: {required: false}\n", 'line 6 $.clauses.GPU-10.required: expected no gate on a clause that is not required, found required: false; say gate: false beside it'),
        ("  GPU-1:\n    required: false\n", 'line 7 $.clauses.GPU-1.required: expected no gate and no headline on a clause that is not required, found required: false; say gate: false and headline: "" beside it'),
        ("  GPU-1: {required: false, gate: false}\n", 'line 6 $.clauses.GPU-1.required: expected no headline on a clause that is not required, found required: false; say headline: "" beside it'),
        ("  GPU-11: {gate: true}\n", "line 6 $.clauses.GPU-11.gate: expected no gate on a clause that is not required, found required: false; say gate: false beside it"),
        ("  GPU-24: {metric: xid.hardware, unit: ''}\n", "line 6 $.clauses.GPU-24.metric: expected 'temperature.gpu.margin' (GPU-24 is about that wherever it is inherited), found 'xid.hardware'; drop it, or give a clause of another id"),
        ("  GPU-9: {needs: peers}\n", "line 6 $.clauses.GPU-9.needs: expected a clause about ecc.uncorrected.volatile to hold on every node, found needs peers; drop it"),
        ("  GPU-28: {per: node}\n", "line 6 $.clauses.GPU-28.per: expected 'gpu' (GPU-28 is about that wherever it is inherited), found 'node'; drop it, or give a clause of another id"),
        ("  GPU-28: {suite: nvlink}\n", "line 6 $.clauses.GPU-28.suite: expected 'gpu_health' (GPU-28 is about that wherever it is inherited), found 'nvlink'; drop it, or give a clause of another id"),
        ("  PCIE-50: {limit: {at_least: 1}}\n", "line 6 $.clauses.PCIE-50: no clause PCIE-50 in h200-sxm; did you mean PCIE-5? A new one needs suite, level, metric and per"),
        ("  SITE-7: {required: false}\n", "line 6 $.clauses.SITE-7: no clause SITE-7 in h200-sxm; correct the id, or give a new one suite, level, metric and per"),
        ("  PCIE-5: {limit: {at_least: '54', ceiling: 63.0, unit: GB/s, source: {kind: contract, cite: x}}}\n", "line 6 $.clauses.PCIE-5.limit.at_least: expected the number 54, found text '54'; remove the quotes"),
    ],
)  # fmt: skip
def test_a_childs_mistake_is_one_line_in_the_child(tmp_path: Path, text: str, line: str) -> None:
    """What a child says against what it inherits is told once, at the child's line, with what to do."""
    assert lines(tmp_path, OWN + text) == [line]


def test_a_new_clause_that_lacks_a_key_is_told_which(tmp_path: Path) -> None:
    """A child's clause that has a metric is meant as a new one: each missing key is a finding."""
    found = lines(tmp_path, OWN + "  SITE-1: {metric: pcie.replays, unit: per TB, per: gpu}\n")
    assert len(found) == 2
    assert "expected the key 'suite'" in found[0]
    assert "expected the key 'level'" in found[1]


def test_a_child_cannot_silently_judge_what_its_parent_calls_absent(tmp_path: Path) -> None:
    """A limit on an inherited not_applicable is an error until the child says that it applies."""
    own = 'profile: ours\nextends: l40s\nversion: "1"\ntitle: O\nclauses:\n'
    limit = f"limit: {{equals: 4, {SOURCE}}}"
    assert len(lines(tmp_path, own + f"  NVL-1: {{{limit}}}\n")) == 1
    assert lines(tmp_path, own + f'  NVL-1: {{not_applicable: "", {limit}}}\n') == []


TEXT = (Path(profiles.__file__).parent / "data" / "h200-sxm.yaml").read_text().replace("h200-sxm", "ours", 1)
PIECES = [
    "'",
    '"',
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    " ",
    "&a ",
    "*a",
    "!!int ",
    "null",
    "-1",
    "1e9",
    "true",
    "",
    "\x00",
    "é",
]


def outcome(text: str) -> Profile | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ours.yaml"
        path.write_text(text)
        try:
            return profiles.load(path)
        except ProfileError:
            return None


WHOLE = outcome(TEXT)


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, len(TEXT) - 1), cut=st.integers(0, 12), piece=st.sampled_from(PIECES))
def test_any_mutation_loads_or_is_a_profile_error(at: int, cut: int, piece: str) -> None:
    """A damaged profile loads or gives ProfileError, never another exception; one digest means one content."""
    assert WHOLE
    loaded = outcome(TEXT[:at] + piece + TEXT[at + cut :])
    if loaded is not None and loaded.sha256 == WHOLE.sha256:
        assert loaded == WHOLE


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, TEXT.count("\n") - 1), comment=st.text(alphabet="ab é{}:'", max_size=10))
def test_layout_does_not_change_the_meaning(at: int, comment: str) -> None:
    """A comment line anywhere keeps content and digest."""
    rows = TEXT.split("\n")
    assert outcome("\n".join([*rows[:at], f"# {comment}", *rows[at:]])) == WHOLE


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), st.sampled_from(["", "x", "gpu", "per TB"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["kind", "cite", "x"]), inner, max_size=2)),
    max_leaves=4,
)  # fmt: skip
KEYS = [
    "suite",
    "level",
    "metric",
    "per",
    "gate",
    "required",
    "needs",
    "limit",
    "context",
    "unit",
    "action",
    "headline",
]


@settings(max_examples=150, deadline=None)
@given(entry=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5), head=st.dictionaries(st.sampled_from(["pci_ids", "nvlink", "notes", "clauses", "title"]), VALUES, max_size=2))  # fmt: skip
def test_any_values_load_or_are_a_profile_error(entry: dict[str, object], head: dict[str, object]) -> None:
    """Whatever stands in a clause or at the top, the answer is a profile or a ProfileError."""
    import yaml

    data = {"profile": "ours", "version": "1", "title": "O", "extends": "base", "clauses": {"GPU-1": entry}, **head}
    loaded = outcome(yaml.safe_dump(data))
    assert loaded is None or loaded.clauses
