"""The shipped profiles: they load, never share a PCI id, and give no limit that nobody can stand for."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_gpuready import profiles
from pytest_gpuready.model import Profile

MODELS = {
    "a100-80-sxm": "10de:20b2",
    "h100-sxm": "10de:2330",
    "h200-sxm": "10de:2335",
    "b200": "10de:2901",
    "gb200": "10de:2941",
    "l40s": "10de:26b9",
}


def limit(profile: Profile, clause_id: str) -> str:
    clause = profile.clause(clause_id)
    assert clause
    return str(clause.limit) if clause.limit else ""


def test_all_are_there_and_load() -> None:
    """Every shipped file is one of the known models or base, and has no findings."""
    assert set(profiles.names()) == {*MODELS, "base"}
    assert all(not profiles.findings(name) for name in profiles.names())


def test_no_two_share_a_pci_id() -> None:
    """A PCI id leads to one profile only."""
    counts = Counter(pci_id for name in profiles.names() for pci_id in profiles.load(name).pci_ids)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("name", MODELS)
def test_each_is_found_by_its_pci_id_and_holds_to_it(name: str) -> None:
    """The PCI id that chooses a profile is the one that GPU-2 asks for."""
    profile = profiles.for_pci_ids([MODELS[name]])
    assert profile
    assert profile.name == name
    assert limit(profile, "GPU-2") == MODELS[name]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_changes_limits_and_never_what_is_measured(name: str) -> None:
    """Clauses, metrics, suites and levels are those of base."""
    model, base = profiles.load(name), profiles.load("base")
    assert [(c.id, c.metric, c.suite, c.level, c.per) for c in model.clauses] == [
        (c.id, c.metric, c.suite, c.level, c.per) for c in base.clauses
    ]


@pytest.mark.parametrize("name", MODELS)
def test_a_required_clause_without_limit_is_told(name: str) -> None:
    """Where a required clause has no limit, so that nothing can be ACCEPTED, a note says it."""
    profile = profiles.load(name)
    lacks = {need for need in ("fp8", "fp4") if not getattr(profile, need)}
    without = [
        c.id
        for c in profile.clauses
        if c.required and not c.limit and not c.not_applicable and not lacks & set(c.needs)
    ]
    told = " ".join(profile.notes)
    sustained = {c.id for c in profile.clauses if c.metric.endswith(".sustained")}
    assert set(without) <= {"PCIE-5", "PCIE-6", *sustained}
    assert all(clause_id in told for clause_id in without)


@pytest.mark.parametrize(("name", "slowest"), [("a100-80-sxm", 26.3), ("h100-sxm", 51.0), ("h200-sxm", 51.0)])
def test_published_healthy_copies_are_not_rejected(name: str, slowest: float) -> None:
    """The slowest copy published from a healthy machine lies inside the limit, and under the ceiling."""
    clause = profiles.load(name).clause("PCIE-5")
    assert clause
    assert clause.limit
    assert clause.limit.at_least is not None
    assert clause.limit.ceiling is not None
    assert clause.limit.at_least <= slowest <= clause.limit.ceiling


@pytest.mark.parametrize("name", MODELS)
def test_a_datasheet_is_a_document_with_a_name(name: str) -> None:
    """Whoever wants to check a limit finds whose document it is from, not only the model's name."""
    cites = [c.limit.source.cite for c in profiles.load(name).clauses if c.limit and c.limit.source.kind == "datasheet"]
    assert cites
    assert all(cite.startswith(("NVIDIA ", "server makers' ")) for cite in cites)


def test_no_action_asks_for_what_does_not_exist() -> None:
    """There are no waivers yet, so no action sends anybody to agree one."""
    for name in profiles.names():
        assert not [c.id for c in profiles.load(name).clauses if "waiver" in c.action]


def test_unverified_copies_have_no_limit() -> None:
    """B200, GB200 and L40S promise no copy bandwidth, the A100 none from the GPU."""
    for name in ("b200", "gb200", "l40s"):
        assert limit(profiles.load(name), "PCIE-5") == ""
        assert limit(profiles.load(name), "PCIE-6") == ""
    assert limit(profiles.load("a100-80-sxm"), "PCIE-6") == ""


def test_what_a_model_lacks_is_not_applicable() -> None:
    """The L40S has neither NVLink nor MIG, the A100 no fabric state; each says why."""
    l40s, a100 = profiles.load("l40s"), profiles.load("a100-80-sxm")
    assert not l40s.nvlink
    for clause_id in ("GPU-17", "GPU-27", "NVL-1", "NVL-6"):
        clause = l40s.clause(clause_id)
        assert clause
        assert clause.not_applicable
    fabric = a100.clause("GPU-27")
    assert fabric
    assert "Hopper" in fabric.not_applicable


def test_h200_and_h100_differ_in_memory_and_identity_only() -> None:
    """An H100 SXM is judged as an H200 SXM but for its memory, size and bandwidth, and PCI id."""
    h100, h200 = profiles.load("h100-sxm"), profiles.load("h200-sxm")
    differ = {c.id for c in h100.clauses if limit(h100, c.id) != limit(h200, c.id)}
    assert differ == {"GPU-2", "GPU-3", "STRESS-6", "STRESS-7", "STRESS-8", "STRESS-9"}
