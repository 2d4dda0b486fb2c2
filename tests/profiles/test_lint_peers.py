# ruff: noqa: E501 - one case a line
"""A limit against peers in a profile: what the linter says, what a child inherits, what the shipped ones say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuready import profiles
from tests.profiles.test_lint import SOURCE, clause, lines
from tests.profiles.test_loader import OWN, write

SOUND = f"among: [node, all], worse: lower, percent: 15, {SOURCE}"


def peers(text: str, extra: str = "retest: true", **about: str) -> str:
    return clause("", f"{extra}{', ' if extra else ''}peers: {{{text}}}", **about).replace(
        "clauses:\n", "extends: h200-sxm\nclauses:\n"
    )


def test_a_sound_one_has_no_findings(tmp_path: Path) -> None:
    """The clause that the other cases break is sound, with one group as with two, and for degrees."""
    assert lines(tmp_path, peers(SOUND)) == []
    assert lines(tmp_path, peers(SOUND.replace("[node, all]", "rack"))) == []
    degrees = f"among: node, worse: both, resolution: 2, {SOURCE}"
    assert lines(tmp_path, peers(degrees, metric="temperature.gpu.margin", unit="C")) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (peers(SOUND, ""), "$.clauses.A-1.peers: expected retest: true beside peers (they condemn nothing without one), found none"),
        (peers("among: node, worse: lower, percent: 15"), "$.clauses.A-1.peers: expected a source, found none"),
        (peers(f"among: node, percent: 15, {SOURCE}"), "$.clauses.A-1.peers: expected the key 'worse', found none"),
        (peers(f"among: site, worse: lower, percent: 15, {SOURCE}"), "$.clauses.A-1.peers.among"),
        (peers(f"among: [], worse: lower, percent: 15, {SOURCE}"), "$.clauses.A-1.peers.among: expected something here"),
        (peers(f"among: [node, node], worse: lower, percent: 15, {SOURCE}"), "$.clauses.A-1.peers.among: expected each of whose peers once, found node twice"),
        (peers(f"among: node, worse: higher, percent: 15, {SOURCE}"), "$.clauses.A-1.peers.worse: expected lower or both (pcie.h2d.bandwidth is the better the more), found higher"),
        (peers(f"among: node, worse: lower, percent: 60, {SOURCE}"), "$.clauses.A-1.peers.percent: expected 0 to 50, found 60"),
        (peers(f"among: node, worse: lower, {SOURCE}"), "expected percent above 0, found none"),
        (peers(f"among: node, worse: lower, percent: 15, sigmas: 1, {SOURCE}"), "$.clauses.A-1.peers.sigmas: expected 3 to 100, found 1"),
        (peers(f"among: node, worse: lower, percent: 15, least: 2, {SOURCE}"), "$.clauses.A-1.peers.least: expected 4 to 1000, found 2"),
        (peers(f"among: node, worse: lower, percent: 15, resolution: -1, {SOURCE}"), "$.clauses.A-1.peers.resolution: expected 0 or more, found -1"),
        (peers(f"among: node, worse: higher, percent: 15, {SOURCE}", metric="ecc.corrected.volatile", unit='""'), "expected a measured quantity beside peers, found ecc.corrected.volatile, a count"),
        (peers(f"among: node, worse: lower, percent: 15, {SOURCE}", metric="gpu.vbios", unit='""'), "found gpu.vbios, a word"),
        (peers(f"among: node, worse: lower, percent: 5, {SOURCE}", metric="temperature.gpu.margin", unit="C"), "expected resolution and no percent on degrees"),
        (peers(SOUND).replace("retest: true", "retest: true, not_applicable: none here"), "expected no peers beside not_applicable, found both"),
        (peers(SOUND).replace("action: look, ", ""), "$.clauses.A-1.peers: expected an action beside a limit"),
    ],
)  # fmt: skip
def test_every_rule_turns_red(tmp_path: Path, text: str, says: str) -> None:
    """Each broken rule is told with its place."""
    assert any(says in line for line in lines(tmp_path, text)), lines(tmp_path, text)


def test_a_child_keeps_peers_beside_its_own_limit(tmp_path: Path) -> None:
    """A limit of its own replaces the inherited one and leaves that against peers; none takes it out."""
    limit = "limit: {at_least: 54.0, ceiling: 63.0, unit: GB/s, source: {kind: contract, cite: annex B}}"
    ours = profiles.load(write(tmp_path, f"{OWN}clauses:\n  PCIE-5: {{{limit}}}\n  PCIE-6: {{peers: none}}\n"))
    kept, dropped = ours.clause("PCIE-5"), ours.clause("PCIE-6")
    assert kept
    assert dropped
    assert (kept.peers and kept.peers.percent, kept.limit and kept.limit.at_least) == (15.0, 54.0)
    assert dropped.peers is None
    assert dropped.limit


def test_what_is_not_applicable_has_no_peers(tmp_path: Path) -> None:
    """A child that says why a model has no such thing takes the inherited peers out with the limit."""
    ours = profiles.load(write(tmp_path, f"{OWN}clauses:\n  PCIE-5: {{not_applicable: made without}}\n"))
    clause = ours.clause("PCIE-5")
    assert clause
    assert (clause.limit, clause.peers) == (None, None)


@pytest.mark.parametrize("name", profiles.names())
def test_every_model_compares_its_copies(name: str) -> None:
    """Host copies of every model are compared with those of the node and of all nodes, each with its source."""
    for clause_id in ("PCIE-5", "PCIE-6"):
        clause = profiles.load(name).clause(clause_id)
        assert clause
        assert clause.peers
        assert (clause.peers.among, clause.peers.worse) == (("node", "all"), "lower")
        assert "2026-11-30" in clause.peers.source.cite
